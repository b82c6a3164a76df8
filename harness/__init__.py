"""claimbench: measures claims about LLM-training optimizations and says what the measurements say of them.

    plan = harness.plan("matrix.yaml")                 # every trial, and why one cannot run here
    harness.run(plan, "results.sqlite")                # what the store lacks of it
    trials = harness.load("results.sqlite")            # a pandas DataFrame, a row per trial
    judgement = harness.judge(["results.sqlite"])      # verdicts, intervals, parity
    page = harness.render(["results.sqlite"])          # the report

    answer = harness.check("compile=default vs off >= 1.3x", "my.py:build")     # one sentence, on a step of your own

A path to trials is a store, a file of JSON lines (plain or gzip), or a folder of them; one alone needs no list around
it, nor does the name of one study. Importing this module imports nothing else: each function brings what it needs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from harness.version import VERSION

if TYPE_CHECKING:
    import pandas as pd

    from harness.checking.answer import Answer
    from harness.environment import Environment
    from harness.experiment.matrix import Matrix
    from harness.experiment.study import Plan
    from harness.judgement.claims import Claims
    from harness.judgement.judged import Judgement
    from harness.results.collect import Options
    from harness.results.events import OnEvent, Summary
    from harness.results.launchers import Launcher
    from harness.results.record import Record
    from harness.trial.custom import TrainingStep as TrainingStep

    #: One path, several, or records.
    Trials = Path | str | Iterable[Path | str] | Sequence[Record]

__all__ = [
    "TrainingStep", "check", "judge", "load", "machine", "plan", "read", "read_claims", "read_matrix", "render", "run",
]  # fmt: skip
__version__ = VERSION

Device = Literal["auto", "cuda", "cpu"]
Scale = Literal["auto", "full", "smoke"]
Isolation = Literal["zygote", "spawn"]


def machine(device: Device = "auto") -> Environment:
    """This machine as it counts for a run: with `cpu` its GPUs are left out.

    Raises:
        EnvironmentProblem: `cuda` was asked for and there is no GPU, or an outside technique cannot be loaded.
        InputError: `device` is another word.
    """
    _one_of("device", device, get_args(Device))
    from dataclasses import replace

    from harness.errors import EnvironmentProblem
    from harness.techniques.registry import this_machine

    found = this_machine()
    if device == "cuda" and not found.has_gpu:
        raise EnvironmentProblem("no GPU was found by the NVIDIA driver; leave --device out, or check `nvidia-smi`")
    return replace(found, devices=()) if device == "cpu" else found


def __getattr__(name: str) -> object:
    """`harness.TrainingStep`, for files that hold a step: brought when it is asked for."""
    if name == "TrainingStep":
        from harness.trial.custom import TrainingStep

        return TrainingStep
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def check(
    sentence: str,
    workload: str,
    *,
    budget_seconds: float = 600.0,
    sweep: str | None = None,
    rounds: int | None = None,
    store: Path | str = "check.sqlite",
    device: Device = "auto",
    wall_limit_seconds: float | None = None,
    on_event: OnEvent | None = None,
    arguments: Sequence[str] = (),
) -> Answer:
    """Check one sentence on one workload, within a time budget. Signals end it as they end `run`.

    Args:
        sentence: `attention=flash2 vs eager >= 2x`; `harness.judgement.sentence` has the grammar.
        workload: `file.py:build` (`harness.trial.custom`), a built-in model, or a `config.json`.
        budget_seconds: for everything, but that the pilot runs whatever it is, and one round where three were to fit.
        sweep: `sequence_length=512..8192`: where else it holds.
        rounds: as many, whatever the budget; None: as many as fit, three to seven.
        store: keeps the trials.

    Raises:
        SentenceError, WorkloadError: the question cannot be asked; nothing was launched.
        InputError: a number or a word that the command line would not take either.
        EnvironmentProblem, LaunchError, StoreError: as for `run`.
    """
    from harness.experiment.study import FEWEST_ROUNDS

    _at_least("rounds", rounds, FEWEST_ROUNDS)
    _some_time("budget_seconds", budget_seconds)
    _some_time("wall_limit_seconds", wall_limit_seconds)
    from harness.checking.check import check as run_check
    from harness.checking.question import ask

    question = ask(sentence, workload, sweep)
    return run_check(
        question, Path(store), machine(device), budget_seconds=budget_seconds, rounds=rounds,
        wall_limit_seconds=wall_limit_seconds, on_event=on_event or (lambda event: None), arguments=arguments,
        version=__version__,
    )  # fmt: skip


def read_matrix(matrix: Path | str = "matrix.yaml") -> Matrix:
    """The studies of a matrix, checked.

    Raises:
        MatrixError: the matrix is wrong, with file, line, column and a suggestion.
    """
    from harness.experiment.matrix import read_matrix as read_checked
    from harness.techniques.registry import axis_table
    from harness.trial.kinds import ALONE, KINDS, OPTIONS

    return read_checked(matrix, axis_table(), KINDS, ALONE, OPTIONS)


def read_claims(claims: Path | str | Claims | None = None) -> Claims:
    """The claims of a file, read and checked.

    Args:
        claims: a claims file, or what was read already; None: `claims.yaml` of the working folder, and no claims where
            there is none.

    Raises:
        ClaimsError: the claims file is wrong, with file, line, column and a suggestion.
        MatrixError: the matrix that it names is.
    """
    from harness.judgement.claims import Claims
    from harness.judgement.claims_file import read_claims as read_file

    if isinstance(claims, Claims):
        return claims
    if claims is None and not Path("claims.yaml").exists():
        return Claims.model_construct(schema_=1, documents={}, claims={}, file="")
    return read_file(claims or "claims.yaml")


def plan(
    matrix: Path | str = "matrix.yaml",
    *,
    studies: str | Iterable[str] = (),
    rounds: int | None = None,
    scale: Scale = "auto",
    environment: Environment | None = None,
    on_paper: bool = False,
) -> Plan:
    """Every trial of a matrix in the order in which it will run, with the reason where one cannot run here.

    Args:
        matrix: a YAML file.
        studies: the name of a study, or several; none: all of them.
        rounds: in place of the rounds that the matrix states.
        scale: `full`, `smoke`, or `auto`: full where there is a GPU.
        environment: the machine to plan for; None: this one.
        on_paper: for a machine of which nothing is known: every cell is taken to run there.

    Raises:
        MatrixError: the matrix is wrong, with file, line, column and a suggestion.
        InputError: `scale` is another word.
    """
    from harness.experiment.plan import make_plan
    from harness.trial.kinds import refusal

    _one_of("scale", scale, get_args(Scale))
    here = environment or machine()
    asked = read_matrix(matrix).only(_several(studies))
    if rounds is not None:
        asked = asked.with_rounds(rounds)
    chosen = scale if scale != "auto" else "full" if here.has_gpu else "smoke"
    return make_plan(asked, lambda cell, kind: None if on_paper else refusal(here, cell, kind), chosen, rounds=rounds)


def run(
    plan: Plan,
    store: Path | str = "results.sqlite",
    *,
    environment: Environment | None = None,
    isolation: Isolation = "zygote",
    launcher: Launcher | None = None,
    options: Options | None = None,
    on_event: OnEvent = lambda event: None,
    arguments: Sequence[str] = (),
) -> Summary:
    """Run what the store lacks of a plan.

    Ctrl-C once ends it after the trial that runs; twice, SIGTERM and SIGHUP end it at once. What ran is kept, and what
    is returned says `interrupted`: whether the caller ends too is for the caller to say.

    Args:
        plan: as `plan` gives it.
        store: the SQLite file; made if it is not there.
        environment: the machine the plan was made for; None: this one.
        isolation: `zygote` forks trials from a process that has imported torch; `spawn` starts an interpreter each.
        launcher: where trials run (`harness.results.launchers`), in place of `environment` and `isolation`; None: one
            at a time on this machine.
        options: budget, limits and retries; None: without limits, and with the retries that the matrix states.
        on_event: told of everything that happens (`harness.results.events`).
        arguments: the command line, kept in the store; none: one that names the matrix.

    Raises:
        InputError: `isolation` or an option is none that there is; nothing was launched.
        WorkloadError: data that cannot be prepared; nothing was launched.
        EnvironmentProblem: this process has used the GPU, so that every trial would be invalid; nothing was launched.
        LaunchError: no trial process can be started, or a file of a workload was changed meanwhile.
        StoreError: the store cannot be written, or another run holds it.
    """
    from harness.results.collect import Options, fill_by
    from harness.results.launchers import ThisMachine
    from harness.results.store import Store

    _one_of("isolation", isolation, get_args(Isolation))
    how = options or Options(retries=plan.retries)
    _at_least("retries", how.retries, 0)
    _some_time("time_budget_seconds", how.time_budget_seconds)
    _some_time("wall_limit_seconds", how.wall_limit_seconds)
    chosen = launcher or ThisMachine(environment=environment or machine(), isolation=isolation)
    plan = chosen.prepared(plan)
    text = Path(plan.matrix_file).read_text(encoding="utf-8")
    with Store.open(store, writable=True) as kept, chosen.carrier(plan, kept, how) as carrier:
        number = kept.begin_run(
            arguments=arguments or ("run", "--matrix", plan.matrix_file), matrix_hash=plan.matrix_hash,
            matrix_text=text, version=__version__,
        )  # fmt: skip
        here = chosen.machine(kept.path)
        summary = fill_by(carrier, kept, plan, here, options=how, on_event=on_event)
        kept.finish_run(number)
    return summary


def read(paths: Path | str | Iterable[Path | str], *, damaged: list[str] | None = None) -> list[Record]:
    """The trials at a path, or at all of several; one that stands in more than one of them is there once.

    Args:
        paths: a store, a file of JSON lines or a folder of them; one or several.
        damaged: gets a line for each trial of a store that cannot be read, which is then left out; None: the first
            that cannot is an error.

    Raises:
        RecordsError: nothing is there, no trial is in it, or a line is no record; or no path was given.
        StoreError: a store is damaged, or of a newer version.
    """
    return _records(paths, damaged)


def load(path: Path | str) -> pd.DataFrame:
    """The trials at a path, a row per trial; columns are the fields of a record (`docs/concepts.md`).

    Fields that are mappings are a column for each of their names: `cell.attention`, `sweep.sequence_length`,
    `phases.forward`, `figures.predicted_bytes`, `evidence.compile` (a fact in a word). `device` is a column too.

    Raises:
        RecordsError, StoreError: as for `read`.
    """
    from harness.results.load import load as load_frame

    return load_frame(path)


def judge(trials: Trials, claims: Path | str | Claims | None = None) -> Judgement:
    """What the trials say of each claim.

    Args:
        trials: a path to trials, several, or records; one at least.
        claims: a claims file; None: `claims.yaml` of the working folder, and no claims where there is none. Where it
            names a matrix, trials of other studies of the same names do not count (`BlockResult.another` says why).

    Raises:
        ClaimsError, MatrixError: the claims file, or the matrix that it names, is wrong, with file, line, column and a
            suggestion.
        RecordsError, StoreError: as for `read`.
    """
    from harness.judgement.judge import judge as judge_records

    return judge_records(_records(trials), read_claims(claims))


def render(
    trials: Trials,
    output: Path | str | None = None,
    *,
    claims: Path | str | Claims | None = None,
    matrix: Path | str | None = None,
    figures: int | None = None,
    name: str = "",
    sources: Path | str | Iterable[Path | str] = (),
    judgement: Judgement | None = None,
) -> Path:
    """Judge the trials and write the report on them: `report.html`, `report.md`, tables and figures.

    Args:
        trials: a path to trials, several, or records; one at least.
        output: the folder to write to; its name is the report's. None: `reports/` and `name`, with a number behind it
            where that folder holds something else than the report on these trials.
        claims: as for `judge`.
        matrix: that of the trials, for their questions and for commands; None: found out where it can be, as their
            store knows it.
        figures: draw at most so many; None: 90, or 12 for more than 5,000 trials. The tables hold all numbers.
        name: of the report, without an `output`; else that of the first path among the trials.
        sources: of what the report is, without an `output`, where the trials are records; else the paths among them.
        judgement: of these trials on these claims, where it is known; None: they are judged.

    Returns:
        the path of `report.html`.

    Raises:
        EnvironmentProblem: the folder cannot be written.
        InputError: a number of figures below 0.
        ClaimsError, MatrixError, RecordsError, StoreError: as for `judge`.
    """
    from harness.report import render_report
    from harness.report.figures.studio import Studio
    from harness.report.folder import free_folder, note_sources
    from harness.report.origin import matrices_at_hand, origin_of
    from harness.results import gc_pause

    _at_least("figures", figures, 0)
    given = _several(trials)
    sources = _several(sources) or [each for each in given if isinstance(each, Path | str)]
    folder = Path(output or free_folder(name or _name(given[0] if given else "results"), sources))
    studio = Studio()
    with gc_pause.paused(), nullcontext() if figures == 0 else studio:
        known, records = read_claims(claims), _records(given)
        judged = judgement or judge(records, known)
        page = render_report(
            judged, known, records, folder, name=folder.name, figures=figures, studio=studio,
            origin=origin_of(judged.blocks, matrices_at_hand(given, known, matrix)),
        )  # fmt: skip
    if output is None:
        note_sources(folder, sources)
    return page


def _name(first: Path | str | Record) -> str:
    """`results` for `results.sqlite`."""
    return Path(first).resolve().name.partition(".")[0] if isinstance(first, Path | str) else "results"


def _records(trials: Trials, damaged: list[str] | None = None) -> list[Record]:
    """What was given, with the trials at each path in its place; one that stands at several paths once.

    Raises:
        RecordsError: there is none.
    """
    from harness.errors import RecordsError
    from harness.results.load import once, read_records

    given = _several(trials)
    found: list[Record] = []
    for each in given:
        found += read_records(each, damaged=damaged) if isinstance(each, Path | str) else [each]
    if len(given) > 1 and any(isinstance(each, Path | str) for each in given):
        found = once(found)
    if not found:
        raise RecordsError("no trials were given; give a store, JSON lines, or a folder of them")
    return found


def _several(given: Path | str | Iterable[Any]) -> list[Any]:
    """A list of what was given; a path or a name alone is one, not its letters."""
    return [given] if isinstance(given, Path | str) else list(given)


def _one_of(name: str, value: object, known: Sequence[str]) -> None:
    """
    Raises:
        InputError: `value` is no word that `name` can have.
    """
    from harness.errors import InputError

    if value not in known:
        raise InputError(f"{name}: there is no {value!r}; use {', '.join(known[:-1])} or {known[-1]}")


def _at_least(name: str, value: int | None, least: int) -> None:
    """
    Raises:
        InputError: there is a value, and it is less.
    """
    from harness.errors import InputError

    if value is not None and value < least:
        raise InputError(f"{name}: {value} is out of range; use {least} or more")


def _some_time(name: str, seconds: float | None) -> None:
    """
    Raises:
        InputError: there is a time, and it is none above 0.
    """
    from harness.errors import InputError

    if seconds is not None and not 0 < seconds < math.inf:
        raise InputError(f"{name}: {seconds} is out of range; use seconds above 0")
