"""Two runs of the same cells: did one get slower? (`claimbench compare A B`)

    comparison = compare_sides(read_side("last-week.jsonl"), read_side("results.sqlite"), threshold=0.05)
    comparison.regressions

The two runs are independent samples, so nothing is paired: Welch's t on the logarithms of the trials' speeds, one
number a trial, Holm's correction over all cells. A cell is slower when that is significant, when it is slower by more
than a threshold, and when the ratio lies outside the A/A noise floor of its block.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from harness.errors import InputError
from harness.judgement.changes import Change, changes
from harness.judgement.power import smallest_slowdown
from harness.judgement.sides import ONE_PROCESS, CellKey, CellSpeeds, Side
from harness.judgement.stats import Summary, holm, p_value, ratio_interval, summarise, t_quantile, welch

THRESHOLD = 0.05
"""Time a step that may be added before it counts."""
SIGNIFICANT = 0.05


class Word(StrEnum):
    """What became of a cell."""

    SLOWER = "slower"
    FASTER = "faster"
    SAME = "no change shown"
    FAILS = "fails now"
    NOT_COMPARED = "not compared"


@dataclass(frozen=True, kw_only=True)
class CellChange:
    """One cell on both sides. Ratios are after ÷ before: of speeds, so that 0.9 is slower."""

    key: CellKey
    word: Word
    reason: str = ""
    unit: str = ""
    before: float | None = None
    """Geometric mean over the trials."""
    after: float | None = None
    ratio: float | None = None
    low: float | None = None
    """Ends of Welch's 95% interval."""
    high: float | None = None
    p: float = 1.0
    """After Holm's correction."""
    trials: tuple[int, int] = (0, 0)
    floor: tuple[float, float] | None = None
    """95% interval of the A/A control's ratio in its block, from the rounds of both sides."""
    memory_ratio: float | None = None
    finds: float | None = None
    """The smallest slowdown (as a share of the step's time) that trials of this spread find in 4 of 5 comparisons."""

    @property
    def regressed(self) -> bool:
        return self.word in {Word.SLOWER, Word.FAILS}


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All cells of two runs."""

    before: Side
    after: Side
    threshold: float
    cells: tuple[CellChange, ...]
    changes: tuple[Change, ...]
    notes: tuple[str, ...]
    warning: str = ""
    """The first thing to say: the sides ran on different devices."""

    @property
    def regressions(self) -> tuple[CellChange, ...]:
        return tuple(cell for cell in self.cells if cell.regressed)


def compare_sides(
    before: Side, after: Side, *, threshold: float = THRESHOLD, across_devices: bool = False
) -> Comparison:
    """Cell by cell, in the order of `before`.

    Args:
        before: the run to compare with.
        after: the run in question.
        threshold: 0.05 lets a step take up to 5% longer.
        across_devices: compare although the devices differ.

    Raises:
        InputError: the devices differ, or the sides have no cell in common.
    """
    warning = _other_devices(before, after)
    if warning and not across_devices:
        raise InputError(f"{warning}; give two runs on the same device, or --across-devices")
    common = [key for key in before.cells if key in after.cells]
    if not common:
        raise InputError(f"{before.path} and {after.path} have no cell in common; give two runs of the same matrix")
    found = [_measured(before.cells[key], after.cells[key]) for key in common]
    compared = [cell for cell in found if cell.ratio is not None]  # the others put no question for Holm to divide by
    adjusted = dict(zip((cell.key for cell in compared), holm([cell.p for cell in compared]), strict=True))
    level = SIGNIFICANT / max(1, len(compared))
    judged = [
        _judged(replace(cell, p=adjusted.get(cell.key, cell.p)), before.cells[cell.key], after.cells[cell.key],
                threshold, level)
        for cell in found
    ]  # fmt: skip
    cells = (*judged, *_alone(before, after))
    return Comparison(
        before=before, after=after, threshold=threshold, cells=cells, warning=warning,
        changes=tuple(changes(before.environments, after.environments)),
        notes=(*before.notes, *after.notes, *_notes(judged, before, after)),
    )  # fmt: skip


def _other_devices(before: Side, after: Side) -> str:
    if before.devices == after.devices:
        return ""
    names = [" and ".join(side.devices) or "an unknown device" for side in (before, after)]
    return f"Different devices: {before.path} was measured on {names[0]}, {after.path} on {names[1]}"


def _measured(before: CellSpeeds, after: CellSpeeds) -> CellChange:
    """Ratio, interval and uncorrected p; nothing but the word where there is no ratio to be had."""
    bare = CellChange(
        key=before.key, word=Word.NOT_COMPARED, unit=before.unit, trials=(len(before.speeds), len(after.speeds)),
        memory_ratio=_over(after.peak_bytes, before.peak_bytes),
    )  # fmt: skip
    if before.speeds and after.failed:
        return replace(bare, word=Word.FAILS, reason=after.reason or _outcomes(after))
    if reason := _not_comparable(before, after):
        return replace(bare, reason=reason)
    first, second = (summarise([math.log(speed) for speed in side.speeds]) for side in (before, after))
    difference, error, freedom = welch(second, first)
    half = t_quantile(freedom) * error
    return replace(
        bare, word=Word.SAME, before=math.exp(first.mean), after=math.exp(second.mean), ratio=math.exp(difference),
        low=math.exp(difference - half) if math.isfinite(half) else None,
        high=math.exp(difference + half) if math.isfinite(half) else None,
        p=p_value(difference, error, freedom), floor=_floor(before, after),
    )  # fmt: skip


def _not_comparable(before: CellSpeeds, after: CellSpeeds) -> str:
    for name, side in (("before", before), ("after", after)):
        if not side.speeds:
            return f"no figure {name}: {side.reason or _outcomes(side)}"
    if before.contents != after.contents:
        return "the cell has changed (its settings, workload, scale, or number of steps)"
    return "" if before.unit == after.unit else f"{before.unit} before, {after.unit} after"


def _judged(cell: CellChange, before: CellSpeeds, after: CellSpeeds, threshold: float, level: float) -> CellChange:
    """The word for a cell that has a ratio."""
    ratio = cell.ratio
    if ratio is None:
        return cell
    spread, trials = _common_spread(before, after)
    if cell.low is not None:
        cell = replace(cell, finds=smallest_slowdown(spread, trials, threshold=threshold, level=level))
    beyond = Word.SLOWER if ratio < 1 / (1 + threshold) else Word.FASTER if ratio > 1 + threshold else None
    if beyond is None:
        return cell
    if cell.low is None:
        return replace(cell, reason="a single trial on a side: nothing tells its noise from a change")
    if cell.p >= SIGNIFICANT:
        return replace(cell, reason=f"p = {cell.p:.2g} after Holm's correction: it may be noise")
    if cell.floor and cell.floor[0] <= ratio <= cell.floor[1]:
        return replace(cell, reason="within the A/A noise floor of its block")
    return replace(cell, word=beyond)


def _alone(before: Side, after: Side) -> Iterator[CellChange]:
    for side, other, name in ((before, after, "before"), (after, before, "after")):
        for key in (key for key in side.cells if key not in other.cells):
            yield CellChange(key=key, word=Word.NOT_COMPARED, reason=f"only {name}")


def _notes(cells: Sequence[CellChange], before: Side, after: Side) -> Iterator[str]:
    ratios = [cell for cell in cells if cell.ratio is not None]
    if len(ratios) > 2 and all(cell.word is Word.SLOWER for cell in ratios):
        yield "every cell became slower: look at the machine (load, clocks, power cap) before looking at the code"
    if any(side.cells[cell.key].samples == ONE_PROCESS for cell in ratios for side in (before, after)):
        yield (
            "benchmarks that are none of ours: the rounds of one process stand for its trials, which leaves out how "
            "processes differ; several files of each side in a folder count as a trial each"
        )
    if any(cell.floor is None for cell in ratios):
        yield "cells without an A/A control have no noise floor: significance and threshold alone decide"


def _floor(before: CellSpeeds, after: CellSpeeds) -> tuple[float, float] | None:
    """The A/A noise floor from the rounds of both sides, widened to hold 1; None where no control was run."""
    interval = ratio_interval([*before.control_ratios, *after.control_ratios])
    if interval is None or interval.low is None or interval.high is None:
        return None
    return min(1.0, interval.low), max(1.0, interval.high)


def _common_spread(before: CellSpeeds, after: CellSpeeds) -> tuple[float, float]:
    """Pooled standard deviation of ln(speed) and the trials a side (their harmonic mean)."""
    sides = [summarise([math.log(speed) for speed in side.speeds]) for side in (before, after)]
    freedom = sum(side.count - 1 for side in sides)
    known: list[Summary] = [side for side in sides if side.count > 1]
    squares = sum((side.count - 1) * side.deviation**2 for side in known)
    spread = math.sqrt(squares / freedom) if freedom else math.inf
    return spread, 2 / sum(1 / side.count for side in sides)


def _over(after: float | None, before: float | None) -> float | None:
    return after / before if after and before else None


def _outcomes(side: CellSpeeds) -> str:
    return ", ".join(f"{count} {outcome}" for outcome, count in side.outcomes.items()) or "no trial"
