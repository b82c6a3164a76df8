"""One metric of one cell of a block, by the rules of the judgement."""

from __future__ import annotations

from collections.abc import Mapping

from harness.judgement.judged import ArmResult, BlockResult, Interval
from harness.judgement.metrics import Metric
from harness.judgement.pairs import measure


def changes(arm: ArmResult, baseline: ArmResult) -> dict[str, object]:
    """The settings in which an arm differs from its block's baseline."""
    return {axis: value for axis, value in arm.cell.items() if baseline.cell.get(axis) != value}


def baseline_of(block: BlockResult) -> ArmResult | None:
    """The block's baseline."""
    return next((arm for arm in block.arms if arm.role == "baseline"), None)


def find_arm(block: BlockResult, settings: Mapping[str, object]) -> ArmResult | None:
    """The arm that differs from the baseline in just these settings."""
    baseline = baseline_of(block)
    if baseline is None:
        return None
    wanted = {axis: value for axis, value in settings.items() if baseline.cell.get(axis) != value}
    if not wanted:
        return baseline
    return next((arm for arm in block.arms if arm.role == "cell" and changes(arm, baseline) == wanted), None)


def measured(
    block: BlockResult, cell: Mapping[str, object], baseline: Mapping[str, object], metric: Metric, view: str
) -> tuple[Interval | None, str]:
    """The figure, or None and why there is none (empty where the cell is not part of the block)."""
    arm, against = find_arm(block, cell), find_arm(block, baseline)
    if arm is None or against is None:
        return None, ""
    found = measure(metric, arm, against, view)
    if found is not None:
        return found.interval, ""
    failed = [outcome for outcome in {**arm.outcomes, **against.outcomes} if outcome != "ok"]
    return None, ", ".join(failed) or "not measured"
