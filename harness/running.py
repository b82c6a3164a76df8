"""The two commands that plan and run trials, here or on a cluster: `claimbench run` and `claimbench plan`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import harness
from harness import options
from harness.errors import EnvironmentProblem, InputError

if TYPE_CHECKING:
    from harness.environment import Environment
    from harness.experiment.study import Plan
    from harness.results.launchers import Launcher, OnCluster
    from harness.results.slurm.packing import Paper

INTERRUPTED = 130


#: Options that count only where jobs are sent to Slurm. `plan` reads its store for their hours alone.
SLURM_ONLY = ("partition", "account", "gpus_per_node", "nodes", "time", "slurm")


def run(
    context: typer.Context,
    *,
    matrix: options.Matrix = options.MATRIX,
    store: options.Store = options.STORE,
    study: options.Study = None,
    rounds: options.Rounds = None,
    scale: options.Scale = "auto",
    device: options.Device = "auto",
    isolation: options.Isolation = "zygote",
    time_budget: options.TimeBudget = None,
    wall_limit: options.WallLimit = None,
    retry: options.Retry = "",
    retries: options.Retries = None,
    gpus: options.Gpus = None,
    launcher: options.Launcher = "local",
    partition: options.Partition = "",
    account: options.Account = "",
    gpus_per_node: options.GpusPerNode = 0,
    nodes: options.Nodes = 1,
    time: options.Time = "02:00:00",
    slurm: options.Slurm = None,
    sharing_control: options.SharingControl = True,
    dry_run: options.DryRun = False,
    report: Annotated[bool, typer.Option(help="Write the report at the end.")] = True,
    claims: options.Claims = None,
) -> None:
    """Run what the store lacks of a matrix, then write the report."""
    from harness.report.progress import progress
    from harness.report.terminal import console, scale_note, write_lines
    from harness.results.collect import Options
    from harness.trial.outcome import Outcome

    if launcher != "slurm":
        _refuse_given(context, SLURM_ONLY)
        if gpus is None and not sharing_control:
            raise InputError("--no-sharing-control is for rounds side by side: add --gpus, or leave it out")
    # a mistake in the claims is said before hours of trials, not after them
    known = harness.read_claims(claims) if report or claims is not None else None
    where = _launcher(
        launcher, device=device, isolation=isolation, gpus=gpus, partition=partition, account=account,
        gpus_per_node=gpus_per_node, nodes=nodes, time=time, slurm=slurm, sharing_control=sharing_control,
    )  # fmt: skip
    if dry_run:
        _dry_run(where, matrix, store, study=study, rounds=rounds, scale=scale)
        return
    with stoppable(store):
        here = where.machine(store)
    planned = harness.plan(matrix, studies=study or (), rounds=rounds, scale=scale, environment=here)
    how = Options(
        time_budget_seconds=time_budget, wall_limit_seconds=wall_limit,
        retries=planned.retries if retries is None else retries,
        retry=frozenset(Outcome(word) for word in retry.split(",") if word),
    )  # fmt: skip
    write_lines(scale_note(planned))
    with stoppable(store):
        with progress(console()) as on_event:
            summary = harness.run(
                planned, store, launcher=where, options=how, on_event=on_event, arguments=sys.argv[1:]
            )  # fmt: skip
        typer.echo(str(summary))
        some = _holds_trials(store)
        if some and (gpus or gpus_per_node > 1):
            _say_what_sharing_cost(store)
        if report:
            page = f"report: {harness.render(store, claims=known)}" if some else ""
            typer.echo(page or f"no report: {store} holds no trial yet")
    if summary.interrupted:
        raise stopped(store)
    if summary.rounds_lost:
        raise EnvironmentProblem(
            f"rounds that were lost with their Slurm jobs: {summary.rounds_lost}. What ran is kept in {store}; see to"
            " what is said of the jobs above and run the same command again"
            f" (--retries {how.retries + 1} sends such rounds again at once)"
        )


@contextmanager
def stoppable(store: Path) -> Iterator[None]:
    """Ctrl-C while no trial runs (at the start, between pilot and rounds, in the report) ends the command as well."""
    try:
        yield
    except KeyboardInterrupt:
        raise stopped(store) from None


def stopped(store: Path) -> typer.Exit:
    """Say how to go on, as the last line, and give the end of the command after Ctrl-C."""
    again = shlex.join(["claimbench", *sys.argv[1:]])
    typer.echo(f"stopped; what ran is kept in {store}. To go on: {again}", err=True)
    return typer.Exit(INTERRUPTED)


def plan(
    context: typer.Context,
    *,
    matrix: options.Matrix = options.MATRIX,
    study: options.Study = None,
    rounds: options.Rounds = None,
    scale: options.Scale = "auto",
    device: options.Device = "auto",
    store: options.Store = options.STORE,
    launcher: options.Launcher = "local",
    gpus_per_node: options.GpusPerNode = 0,
    nodes: options.Nodes = 1,
    time: options.Time = "02:00:00",
    partition: options.Partition = "",
    trials: Annotated[bool, typer.Option("--trials", help="Each trial in its order, instead of each cell.")] = False,
) -> None:
    """Show every cell of a matrix, and why one cannot run here; with --launcher slurm its jobs and hours."""
    from harness.report.terminal import plan_lines, trial_lines, write_lines

    if launcher == "slurm":
        if trials:
            raise InputError("--trials lists the trials of one machine; leave it out, or --launcher slurm")
        where = _cluster(
            device=device, isolation="zygote", partition=partition, gpus_per_node=gpus_per_node, nodes=nodes, time=time
        )
        planned, here = _plan_for_cluster(where, matrix, store, study=study, rounds=rounds, scale=scale)
        write_lines(_paper_lines(where.on_paper(planned, here, store), where))
        return
    _refuse_given(context, (*SLURM_ONLY, "store"))
    here = harness.machine(device)
    planned = harness.plan(matrix, studies=study or (), rounds=rounds, scale=scale, environment=here)
    write_lines((trial_lines if trials else plan_lines)(planned))


def _refuse_given(context: typer.Context, names: Iterable[str]) -> None:
    """Options of Slurm that would be passed over are errors: `--partition gpu` alone would run on the login node.

    Raises:
        InputError: one of them stands on the command line.
    """
    flags = {each.name: each.opts[0] for each in context.command.params}
    given = [flags[name] for name in names if _is_given(context, name)]
    if given:
        verb = "counts" if len(given) == 1 else "count"
        raise InputError(f"{', '.join(given)} {verb} only with --launcher slurm; add that, or leave it out")


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _launcher(
    kind: str, *, device: harness.Device, isolation: str, gpus: str | None, sharing_control: bool, **asked: object
) -> Launcher:
    from harness.results.launchers import SeveralGpus, ThisMachine, chosen

    if kind == "slurm":
        if gpus is not None:
            raise InputError("--gpus is for the GPUs of this machine; on Slurm ask for --gpus-per-node")
        return _cluster(device=device, isolation=isolation, sharing_control=sharing_control, **asked)
    here = harness.machine(device)
    if gpus is None:
        return ThisMachine(environment=here, isolation=isolation)
    numbers = [] if gpus == "all" else [int(word) for word in gpus.split(",")]
    return SeveralGpus(environment=chosen(here, numbers), isolation=isolation, control=sharing_control)


def _cluster(*, device: harness.Device, isolation: str, sharing_control: bool = True, **asked: object) -> OnCluster:
    """On a CPU partition, `--gpus-per-node` counts the ranks of a trial that a node takes."""
    from harness.results.launchers import OnCluster
    from harness.results.slurm.cluster import Cluster

    per_node = int(str(asked["gpus_per_node"]))
    cluster = Cluster(
        partition=str(asked.get("partition", "")), account=str(asked.get("account", "")),
        gpus_per_node=0 if device == "cpu" else per_node, per_node=per_node or None if device == "cpu" else None,
        nodes=int(str(asked["nodes"])), minutes=options.slurm_minutes(str(asked["time"])),
        extra=options.pairs(asked.get("slurm") or ()),  # type: ignore[arg-type]
    )  # fmt: skip
    return OnCluster(
        cluster=cluster, isolation=isolation, control=sharing_control, tell=lambda text: typer.echo(text, err=True)
    )  # fmt: skip


def _plan_for_cluster(
    where: OnCluster, matrix: Path, store: Path, *, study: list[str] | None, rounds: int | None, scale: harness.Scale
) -> tuple[Plan, Environment]:
    """For a node as a job has told of it; where none has, every cell is taken to run there."""
    known = where.known_machine(store)
    chosen: harness.Scale = "full" if scale == "auto" and where.cluster.gpus_per_node else scale
    here = known or harness.machine("cpu")
    planned = harness.plan(
        matrix, studies=study or (), rounds=rounds, scale=chosen, environment=here, on_paper=known is None
    )
    return planned, here


def _dry_run(where: Launcher, matrix: Path, store: Path, **choice: object) -> None:
    from harness.report.terminal import write_lines
    from harness.results.launchers import OnCluster

    if not isinstance(where, OnCluster):
        raise InputError("--dry-run shows what would be sent to Slurm; for a plan of this machine, `claimbench plan`")
    planned, here = _plan_for_cluster(where, matrix, store, **choice)  # type: ignore[arg-type]
    write_lines(_paper_lines(where.on_paper(planned, here, store), where))
    typer.echo(f"\n{where.script(store)}")


def _paper_lines(paper: Paper, where: OnCluster) -> list[str]:
    from harness.report.cluster import paper_lines

    return paper_lines(paper, where.cluster)


def _holds_trials(store: Path) -> bool:
    """Not where a run was stopped before its first trial ended, or had no time for any."""
    from harness.results.store import Store

    with Store.open(store) as kept:
        return kept.count() > 0


def _say_what_sharing_cost(store: Path) -> None:
    from harness.report.sharing import sentence

    said = sentence(harness.read(store))
    if said:
        typer.echo(said)
