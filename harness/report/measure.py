"""One metric of one cell of a block, by the rules of the judgement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from harness.judgement.judged import ArmResult, BlockResult, Interval
from harness.judgement.metrics import METRICS, Metric
from harness.judgement.pairs import measure
from harness.judgement.same_training import parity_at
from harness.judgement.site import Site, find
from harness.judgement.verdict import helped
from harness.report import formats
from harness.report.figures import bars


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A figure, or why there is none."""

    interval: Interval | None = None
    absent: str = ""
    """Empty as well where the cell is not part of the block."""
    different: bool = False
    """Parity fails: fast, but it trained something else."""


def changes(arm: ArmResult, baseline: ArmResult) -> dict[str, object]:
    """The settings in which an arm differs from its block's baseline."""
    return {axis: value for axis, value in arm.cell.items() if baseline.cell.get(axis) != value}


def faster(gain: Interval | None) -> bool | None:
    """Whether a ratio of speeds lies above 1 for certain (False: below); None where it is undecided or not there."""
    return {"yes": True, "no": False}.get(helped(METRICS["speedup"], gain))


def dot(name: str, found: Interval, *, marked: bool = False) -> bars.Dot:
    """A value with its interval, for a figure."""
    low, high = found.low or found.value, found.high or found.value
    return bars.Dot(name=name, value=found.value, low=low, high=high, marked=marked)


def has_intervals(dots: Iterable[bars.Dot]) -> bool:
    """Whether any of them has an interval that can be seen: a single round has none."""
    return any(each.low < each.high for each in dots)


def figure_name(kind: str, block: BlockResult) -> str:
    """A name for a figure of this block, which no other block's has."""
    return f"{kind}-{block.study}-{formats.settings(block.sweep)}-{block.block[:6]}-{block.fingerprint[:4]}"


def timed_baseline_of(block: BlockResult) -> ArmResult | None:
    """The block's baseline where its speed is tokens/s. Kinds without have gains that are something else: samples/s of
    a trial that starts its workers is no speed of a training."""
    found = block.baseline
    return found if found and found.tokens_per_second else None


def measured(
    block: BlockResult, cell: Mapping[str, object], baseline: Mapping[str, object], metric: Metric, view: str
) -> Reading:
    """The metric of a cell against a baseline, both given by the settings in which they differ from the block's."""
    arm, against = find(block, cell), find(block, baseline)
    if arm is None or against is None:
        return Reading()
    found = measure(metric, arm, against, view)
    if found is not None:
        different = metric.gated and parity_at(Site(block=block, arm=arm, baseline=against)).holds is False
        return Reading(interval=found.interval, different=different)
    failed = [outcome for outcome in {**arm.outcomes, **against.outcomes} if outcome != "ok"]
    return Reading(absent=", ".join(failed) or "not measured")
