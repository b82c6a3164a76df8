"""One metric of one cell of a block, by the rules of the judgement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from harness.judgement.judged import ArmResult, BlockResult, Interval
from harness.judgement.metrics import Metric
from harness.judgement.pairs import measure
from harness.judgement.site import find
from harness.report import formats


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


def titles(blocks: Iterable[BlockResult]) -> list[str]:
    """What to call each block: its study, with the sweep point where it has one and the device where there are several.

    `attention at sequence_length=512 on NVIDIA H100 80GB HBM3`.
    """
    blocks = list(blocks)
    several = len({block.device for block in blocks}) > 1
    return [
        block.study
        + (f" at {formats.settings(block.sweep)}" if block.sweep else "")
        + (f" on {block.device}" if several else "")
        for block in blocks
    ]


def figure_name(kind: str, block: BlockResult) -> str:
    """A name for a figure of this block, which no other block's has."""
    return f"{kind}-{block.study}-{formats.settings(block.sweep)}-{block.block[:6]}-{block.fingerprint[:4]}"


def baseline_of(block: BlockResult) -> ArmResult | None:
    """The block's baseline."""
    return next((arm for arm in block.arms if arm.role == "baseline"), None)


def measured(
    block: BlockResult, cell: Mapping[str, object], baseline: Mapping[str, object], metric: Metric, view: str
) -> Reading:
    """The metric of a cell against a baseline, both given by the settings in which they differ from the block's."""
    arm, against = find(block, cell), find(block, baseline)
    if arm is None or against is None:
        return Reading()
    found = measure(metric, arm, against, view)
    if found is not None:
        return Reading(interval=found.interval, different=metric.gated and arm.parity.holds is False)
    failed = [outcome for outcome in {**arm.outcomes, **against.outcomes} if outcome != "ok"]
    return Reading(absent=", ".join(failed) or "not measured")
