"""Run what the store lacks of a plan.

    with local_launcher(plan, environment) as launcher:
        summary = fill(store, plan, launcher, environment, on_event=show)

Rounds are the unit: a round whose arms all have their result is left alone, any other is run again whole, its earlier
trials kept and marked superseded. What has come back is on the disk before anything else happens, so that a run can be
killed at any moment and another one goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.environment import Environment
from harness.experiment.study import Plan
from harness.results.books import Books
from harness.results.budget import Estimates
from harness.results.carrier import Carrier, Desk, run_round
from harness.results.events import OnEvent, Summary
from harness.results.record import Record
from harness.results.rounds import Round, rounds_of
from harness.results.store import Store
from harness.results.tries import Tries
from harness.results.workplace import Workplace
from harness.trial import preload
from harness.trial.caller import able
from harness.trial.interrupts import Interrupts
from harness.trial.launch import Launcher, LocalLauncher
from harness.trial.nvml import Meter
from harness.trial.outcome import Outcome
from harness.trial.sampler import Sampler


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a plan is to be carried out."""

    time_budget_seconds: float | None = None
    """Only rounds that are expected to end within it are begun."""
    wall_limit_seconds: float | None = None
    """For every trial; None: see `results.budget`."""
    first_guess_seconds: float | None = None
    """How long a trial takes of a cell that the store has none of; None: see `results.budget`."""
    retry: frozenset[Outcome] = frozenset()
    """Stored outcomes (crash, timeout) that do not count as results."""
    retries: int = 0
    """Tries again, at once, after a crash or a timeout; on a cluster also of a job that was lost."""
    keep_caches: bool = False
    """Leave compilation caches where they are when the plan is complete: another plan of the same cells follows."""
    meters: Sequence[Meter] = ()
    """One a device, in the order of `Environment.devices` (`trial.nvml.meters`); none: the devices are not watched."""


def fill(
    store: Store, plan: Plan, launcher: Launcher, environment: Environment, *, options: Options | None = None,
    on_event: OnEvent = lambda event: None,
) -> Summary:  # fmt: skip
    """Run every round of `plan` that `store` lacks, one after the other, as far as the time budget goes.

    Trials run on `environment.devices`, on the CPU where there are none. SIGINT once ends the run after the trial that
    runs; SIGINT twice, or SIGTERM, ends both at once, and the trial is recorded as interrupted. No process of a trial
    outlives the call.

    Raises:
        WorkloadError: data that cannot be prepared; nothing was launched.
        LaunchError: no trial process can be started, or a file of a workload was changed meanwhile.
        StoreError: a record could not be written; those before it are kept.
    """
    options = options or Options()
    carrier = InTurn(launcher=launcher, workplace=Workplace.beside(store.path), options=options)
    return fill_by(carrier, store, plan, environment, options=options, on_event=on_event)


def fill_by(
    carrier: Carrier, store: Store, plan: Plan, environment: Environment, *, options: Options,
    on_event: OnEvent = lambda event: None,
) -> Summary:  # fmt: skip
    """As `fill`, with rounds taken to wherever `carrier` runs them.

    Args:
        environment: what the plan was made for; its devices are of the kind on which the rounds will run.

    Raises:
        As `fill`, and what the carrier raises.
    """
    workplace = Workplace.beside(store.path)
    for records in carrier.leftovers():
        store.add_round(records)
    with Interrupts() as interrupts:
        todo = [each for each in rounds_of(plan, environment) if not each.is_stored(store, options.retry)]
        books = Books(
            store=store, todo=todo, interrupts=interrupts, on_event=on_event,
            time_budget_seconds=options.time_budget_seconds, width=carrier.width,
            estimates=Estimates(
                gpu=environment.has_gpu, seen=store.records(), first_guess_seconds=options.first_guess_seconds
            ),
            summary=Summary(planned=len(plan.trials), stored_before=len(plan.trials) - _count(todo)),
        )  # fmt: skip
        interrupts.on_soft = books.announce_stop
        books.open()
        workplace.prepare_data(trial for each in todo for trial in each.trials)
        carrier.carry(todo, books)
        books.close()
    if books.summary.left == 0 and not options.keep_caches:
        workplace.clear_caches()
    return books.summary


@dataclass(frozen=True, kw_only=True)
class InTurn:
    """The carrier of one machine: one trial at a time, in the thread that calls it."""

    launcher: Launcher
    workplace: Workplace
    options: Options
    width: int = 1

    def leftovers(self) -> Iterable[Sequence[Record]]:
        """None: each trial is stored as it ends."""
        return ()

    def carry(self, rounds: Sequence[Round], desk: Desk) -> None:
        """Study by study, block by block, round by round."""
        tries = Tries(
            launcher=self.launcher, workplace=self.workplace, sampler=Sampler(self.options.meters),
            interrupts=desk.interrupts, retries=self.options.retries,
            wall_limit_seconds=self.options.wall_limit_seconds,
        )  # fmt: skip
        for each in rounds:
            orders = None if desk.interrupts.soft else desk.begin(each)
            if orders is not None:
                run_round(tries, each, orders, started=desk.started, finished=desk.finished)


def local_launcher(plan: Plan, environment: Environment, *, isolation: str = "zygote") -> LocalLauncher:
    """A launcher on this machine whose zygote has imported what the cells of `plan` use. Close it, or use `with`.

    Raises:
        EnvironmentProblem: torch or transformers is not installed; or this process has used the GPU itself.
    """
    able(environment)
    return LocalLauncher(gpu=environment.has_gpu, isolation=isolation, modules=modules_of(plan))


def modules_of(plan: Plan) -> Sequence[str]:
    """What a zygote imports for the cells of a plan."""
    return preload.modules_for([trial.arm.cell.settings for trial in plan.trials if trial.refusal is None])


def _count(rounds: Sequence[Round]) -> int:
    return sum(len(each.trials) for each in rounds)
