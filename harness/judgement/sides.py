"""One side of a comparison of two runs: for each cell the one number of each of its trials, wherever they are kept.

A side is what `read_records` reads (a store, JSON lines, a folder of them), a file of pytest-benchmark's, or a folder
of those.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.errors import Place, RecordsError
from harness.judgement.blocks import compare, device_name
from harness.judgement.judged import ArmResult, BlockResult
from harness.judgement.words import point
from harness.results.benchmark_json import (
    Benchmark,
    BenchmarkFile,
    CellInfo,
    is_benchmark_file,
    read_benchmark_file,
)
from harness.results.load import PATTERNS, read_records
from harness.results.record import Record
from harness.trial.outcome import Outcome

#: Memory of a cell is compared on the first of these views that it has.
VIEWS = ("reserved", "host")
#: Layout of a saved benchmark from which on its speeds leave the first step of a window out.
WITHOUT_FIRST_STEP = 2
#: A trial's one number, the best first.
UNITS = ("tokens/s", "samples/s", "steps/s")
ONE_PROCESS = "rounds of one process"


@dataclass(frozen=True, kw_only=True)
class CellKey:
    """What finds the same cell on the other side."""

    study: str
    """Empty for a benchmark that is none of ours."""
    point: str
    cell: str
    """The arm's name, or the test's."""

    def __str__(self) -> str:
        where = f"{self.study} at {self.point}" if self.point else self.study
        return f"{where} · {self.cell}" if where else self.cell


@dataclass(frozen=True, kw_only=True)
class CellSpeeds:
    """What one side knows of a cell."""

    key: CellKey
    speeds: tuple[float, ...]
    """One a trial: tokens/s, samples/s or steps/s; rounds/s of a benchmark that is none of ours."""
    unit: str
    contents: tuple[object, ...] = ()
    """What makes it the same work on both sides: cell, kind, scale, steps. Empty: a benchmark of others."""
    outcomes: Mapping[str, int] = field(default_factory=dict)
    reason: str = ""
    peak_bytes: float | None = None
    control_ratios: tuple[float, ...] = ()
    """A/A control ÷ baseline in its block, one a round."""
    samples: str = "trials"
    """What the speeds are: `trials`, or ONE_PROCESS, whose spread is not that between processes."""

    @property
    def failed(self) -> bool:
        """It ran, and no trial gave a figure."""
        return not self.speeds and not set(self.outcomes) <= {Outcome.UNSUPPORTED, Outcome.INTERRUPTED}


@dataclass(frozen=True, kw_only=True)
class Side:
    """All of it."""

    path: str
    cells: Mapping[CellKey, CellSpeeds]
    """A/A controls are not among them: they say how noisy the others are."""
    devices: tuple[str, ...]
    """Names, sorted."""
    environments: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...] = ()


def read_side(path: Path | str) -> Side:
    """Read one side.

    Raises:
        RecordsError, StoreError: as for `read_records`, or a file of pytest-benchmark's is damaged, or it has no cell.
    """
    side = _read_side(Path(path))
    if not side.cells:
        message = "there is no cell in it to compare; give another, or make some with `claimbench run`"
        raise RecordsError(message, place=Place(file=str(path)))
    return side


def _read_side(path: Path) -> Side:
    if path.is_dir():
        files = sorted(file for file in path.rglob("*.json") if is_benchmark_file(file))
        if files and not any(True for pattern in PATTERNS for _ in path.rglob(pattern)):
            return _of_benchmarks(path, [read_benchmark_file(file) for file in files])
    if path.is_file() and is_benchmark_file(path):
        return _of_benchmarks(path, [read_benchmark_file(path)])
    return side_of(read_records(path), str(path))


def side_of(records: Sequence[Record], path: str) -> Side:
    """A side from records. Of a block that stands there on several machines or versions the latest counts."""
    latest: dict[tuple[str, str], BlockResult] = {}
    notes = []
    for block in sorted(compare(records).blocks, key=_began):
        place = (block.study, point(block.sweep))
        if place in latest and latest[place].fingerprint != block.fingerprint:
            notes.append(f"{path}: {block.study} was run in several environments; the latest is compared")
        latest[place] = block
    blocks = list(latest.values())
    trials = [trial for block in blocks for arm in block.arms for trial in arm.trials]
    return Side(
        path=path, cells={cell.key: cell for block in blocks for cell in _cells(block)},
        devices=tuple(sorted({device_name(trial) for trial in trials})), environments=_distinct(trials),
        notes=tuple(dict.fromkeys(notes)),
    )  # fmt: skip


def _cells(block: BlockResult) -> Iterator[CellSpeeds]:
    floor = block.noise_floor
    for arm in block.arms:
        if arm.role != "control":
            yield replace(_cell(block, arm), control_ratios=floor.observed if floor else ())


def _cell(block: BlockResult, arm: ArmResult) -> CellSpeeds:
    good = [trial for trial in arm.trials if trial.outcome is Outcome.OK]
    unit, speeds = _speeds(
        [(trial.tokens_per_second, trial.samples_per_second, _steps_per_second(trial)) for trial in good]
    )
    first = arm.trials[0]
    return CellSpeeds(
        key=CellKey(study=block.study, point=point(block.sweep), cell=arm.name), speeds=speeds, unit=unit,
        contents=(arm.cell_key, block.kind, block.scale, first.warmup_steps, first.steps), outcomes=arm.outcomes,
        reason=arm.reason, peak_bytes=next((arm.memory[view][0] for view in VIEWS if view in arm.memory), None),
    )  # fmt: skip


def _of_benchmarks(path: Path, files: Sequence[BenchmarkFile]) -> Side:
    found: dict[CellKey, list[CellSpeeds]] = {}
    for file in files:
        for benchmark in file.benchmarks:
            if benchmark.cell is not None and benchmark.cell.role == "control":
                continue
            cell = _foreign(benchmark) if benchmark.cell is None else _own(benchmark.cell)
            found.setdefault(cell.key, []).append(cell)
    cells = {key: _together(each) for key, each in found.items()}
    own = {benchmark.cell.device for file in files for benchmark in file.benchmarks if benchmark.cell}
    alone = {str(file.environment.get("processor") or "CPU") for file in files}
    environments = tuple(file.environment for file in files)
    whole = any(_counts_the_first_step(each.cell) for file in files for each in file.benchmarks if each.cell)
    return Side(
        path=str(path), cells=cells, devices=tuple(sorted(own or alone)), environments=environments,
        notes=(f"{path}: saved by a version whose speeds count the first step of each window, so that they are lower, "
               "by 1% in most trials and by up to 20%; run `pytest benchmarks` again on its store",) if whole else (),
    )  # fmt: skip


def _counts_the_first_step(info: CellInfo) -> bool:
    """See `harness.results.first_step`: of a trial on a GPU, whose memory is known."""
    return info.claimbench < WITHOUT_FIRST_STEP and info.kind == "training" and bool(info.peak_reserved_bytes)


def _own(info: CellInfo) -> CellSpeeds:
    good = [trial for trial in info.trials if trial.outcome is Outcome.OK]
    unit, speeds = _speeds(
        [(trial.tokens_per_second, trial.samples_per_second, trial.steps_per_second) for trial in good]
    )
    return CellSpeeds(
        key=CellKey(study=info.study, point=point(info.sweep), cell=info.cell), speeds=speeds, unit=unit,
        contents=(info.cell_key, info.kind, info.scale, info.warmup_steps, info.steps),
        outcomes=Counter(str(trial.outcome) for trial in info.trials),
        peak_bytes=info.peak_reserved_bytes or info.peak_host_bytes,
        control_ratios=info.noise_floor.observed if info.noise_floor else (),
    )  # fmt: skip


def _foreign(benchmark: Benchmark) -> CellSpeeds:
    stats = benchmark.stats
    seconds = stats.data or ((stats.mean,) if stats.mean else ())
    return CellSpeeds(
        key=CellKey(study="", point="", cell=benchmark.fullname), unit="rounds/s", samples=ONE_PROCESS,
        speeds=tuple(1 / each for each in seconds if each > 0), outcomes={Outcome.OK: 1},
    )  # fmt: skip


def _together(files: Sequence[CellSpeeds]) -> CellSpeeds:
    """A cell over several files. Each file of somebody else's benchmark is one process: one number."""
    first = files[0]
    if len(files) == 1:
        return first
    if first.samples != ONE_PROCESS:
        return replace(first, speeds=tuple(speed for file in files for speed in file.speeds))
    means = (_geometric_mean(file.speeds) for file in files if file.speeds)
    return replace(first, speeds=tuple(means), samples="trials")


def _geometric_mean(values: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def _speeds(trials: Sequence[tuple[float | None, float | None, float | None]]) -> tuple[str, tuple[float, ...]]:
    """The first figure that every trial has."""
    for place, unit in enumerate(UNITS):
        values = tuple(value for trial in trials if (value := trial[place]))
        if trials and len(values) == len(trials):
            return unit, values
    return UNITS[0], ()


def _steps_per_second(trial: Record) -> float | None:
    seconds = math.fsum(trial.step_seconds)
    return len(trial.step_seconds) / seconds if seconds > 0 else None


def _began(block: BlockResult) -> str:
    return max((trial.started_at for arm in block.arms for trial in arm.trials), default="")


def _distinct(trials: Iterable[Record]) -> tuple[Mapping[str, Any], ...]:
    found: dict[str, Mapping[str, Any]] = {}
    for trial in trials:
        found.setdefault(repr(sorted(trial.environment.items())), trial.environment)
    return tuple(found.values())
