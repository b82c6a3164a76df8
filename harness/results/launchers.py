"""The launchers that a run can choose from, each a small part that can be swapped for another.

    ThisMachine      one trial at a time                          --launcher local
    SeveralGpus      rounds side by side, a GPU each              --gpus 0,1,2,3
    OnCluster        rounds in jobs of a Slurm cluster            --launcher slurm

Each says what the plan is to be made for, adds what it must measure about itself, and opens the carrier that takes
rounds to where they run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from harness.environment import Environment
from harness.errors import EnvironmentProblem, InputError
from harness.experiment.study import Plan
from harness.results.carrier import Carrier
from harness.results.workplace import Workplace

if TYPE_CHECKING:
    from harness.results.budget import Estimates
    from harness.results.collect import Options
    from harness.results.slurm.cluster import Cluster
    from harness.results.slurm.packing import Paper
    from harness.results.store import Store


class Launcher(Protocol):
    """Where a run's trials go."""

    def machine(self, store: Path) -> Environment:
        """What to plan for: a machine, or a node of a cluster, of the kind on which the trials will run."""
        ...

    def prepared(self, plan: Plan) -> Plan:
        """The plan with what this launcher must measure about itself."""
        ...

    def carrier(self, plan: Plan, store: Store, options: Options) -> AbstractContextManager[Carrier]:
        """Opens what takes rounds there and brings records back."""
        ...


@dataclass(frozen=True, kw_only=True)
class ThisMachine:
    """One trial at a time on this machine."""

    environment: Environment
    isolation: str = "zygote"

    def machine(self, store: Path) -> Environment:
        return self.environment

    def prepared(self, plan: Plan) -> Plan:
        return plan

    @contextmanager
    def carrier(self, plan: Plan, store: Store, options: Options) -> Iterator[Carrier]:
        from harness.results.collect import InTurn, local_launcher
        from harness.trial.nvml import meters

        watched = replace(options, meters=meters(device.uuid for device in self.environment.devices))
        with local_launcher(plan, self.environment, isolation=self.isolation) as launcher:
            yield InTurn(launcher=launcher, workplace=Workplace.beside(store.path), options=watched)


@dataclass(frozen=True, kw_only=True)
class SeveralGpus:
    """Rounds side by side on several GPUs of this machine."""

    environment: Environment
    """With these GPUs alone (`chosen`)."""
    isolation: str = "zygote"
    control: bool = True
    """Measure what it costs that rounds share the machine."""

    def machine(self, store: Path) -> Environment:
        return self.environment

    def prepared(self, plan: Plan) -> Plan:
        from harness.results.sharing import with_control

        return with_control(plan, len(self.environment.devices)) if self.control else plan

    @contextmanager
    def carrier(self, plan: Plan, store: Store, options: Options) -> Iterator[Carrier]:
        from harness.results.collect import modules_of
        from harness.results.side_by_side import SideBySide
        from harness.trial.caller import able
        from harness.trial.launch import LocalLauncher

        able(self.environment)
        modules = modules_of(plan)

        def zygote(variables: Mapping[str, str]) -> LocalLauncher:
            return LocalLauncher(gpu=True, isolation=self.isolation, modules=modules, variables=variables)

        yield SideBySide(
            environment=self.environment, workplace=Workplace.beside(store.path), retries=options.retries,
            wall_limit_seconds=options.wall_limit_seconds, make_launcher=zygote,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class OnCluster:
    """Rounds in jobs of a Slurm cluster."""

    cluster: Cluster
    isolation: str = "zygote"
    control: bool = True
    poll_seconds: float = 2.0
    tell: Callable[[str], None] = lambda text: None
    """Is told what the first job waits for."""

    def machine(self, store: Path) -> Environment:
        """A node's, as one of the cluster's tells.

        Raises:
            EnvironmentProblem: no sbatch or submitit here, no such partition, a job refused or without an answer.
        """
        from harness.results.slurm.probe import environment_of_a_node

        return environment_of_a_node(self.cluster, self._folder(store), poll_seconds=self.poll_seconds, tell=self.tell)

    def known_machine(self, store: Path) -> Environment | None:
        """As `machine` where a job has told of a node before; asks nobody."""
        from harness.results.slurm.probe import known_environment

        return known_environment(self.cluster, self._folder(store))

    def prepared(self, plan: Plan) -> Plan:
        from harness.results.sharing import with_control

        return with_control(plan, self.cluster.lanes) if self.control else plan

    @contextmanager
    def carrier(self, plan: Plan, store: Store, options: Options) -> Iterator[Carrier]:
        from harness.results.slurm.carrier import OnSlurm

        estimates = self._estimates(store)
        yield OnSlurm(
            cluster=self.cluster, folder=self._folder(store.path), environment=self.machine(store.path),
            seconds=lambda each: sum(map(estimates.seconds, each.trials)), scale=plan.scale,
            data_folder=Workplace.beside(store.path).data, isolation=self.isolation, retries=options.retries,
            wall_limit_seconds=options.wall_limit_seconds, poll_seconds=self.poll_seconds,
        )  # fmt: skip

    def on_paper(self, plan: Plan, environment: Environment, store: Path) -> Paper:
        """Blocks, jobs and hours of a plan, from the times that trials took in `store`; asks no cluster."""
        from harness.results.rounds import rounds_of
        from harness.results.slurm.packing import on_paper
        from harness.results.store import Store

        rounds = list(rounds_of(self.prepared(plan), environment))
        if not store.exists():
            return on_paper(rounds, self._estimates(None), self.cluster)
        with Store.open(store) as kept:
            return on_paper(rounds, self._estimates(kept), self.cluster)

    def script(self, store: Path) -> str:
        """The batch script of a job, as sbatch would get it."""
        from harness.results.slurm.cluster import batch_script

        return batch_script(self.cluster, self._folder(store) / "submitit", name="claimbench-0123456789ab", nodes=1)

    def _estimates(self, store: Store | None) -> Estimates:
        from harness.results.budget import Estimates

        return Estimates(gpu=self.cluster.gpus_per_node > 0, seen=store.records() if store is not None else ())

    def _folder(self, store: Path) -> Path:
        """Where the store's jobs and their logs lie.

        Raises:
            InputError: Slurm would put the logs elsewhere, and submitit its pickles.
        """
        folder = Workplace.beside(store).folder / "slurm"
        for sign in (each for each in "%\\" if each in str(folder)):
            raise InputError(
                f"the path of the store, {store.absolute()}, holds {sign!r}, which Slurm reads as a pattern in the"
                f" names of logs (%j: a job's number); choose a --store whose path holds no {sign!r}"
            )
        return folder


def chosen(environment: Environment, gpus: Sequence[int]) -> Environment:
    """The machine with these of its GPUs alone, numbered as CUDA does; none named: all.

    Raises:
        EnvironmentProblem: there is no such GPU.
    """
    there = range(len(environment.devices))
    if not there:
        raise EnvironmentProblem("--gpus needs GPUs, and the NVIDIA driver shows none here; leave it out")
    for wrong in (each for each in gpus if each not in there):
        raise EnvironmentProblem(f"there is no GPU {wrong} here; choose --gpus from {', '.join(map(str, there))}")
    return replace(environment, devices=tuple(environment.devices[each] for each in gpus or there))
