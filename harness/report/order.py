"""The order in which blocks and cells are shown: trials run shuffled, readers want the same order everywhere."""

from __future__ import annotations

from dataclasses import replace

from harness.judgement.judged import ArmResult, BlockResult, Judgement
from harness.judgement.sweep_order import Natural, natural, sweep_key
from harness.report.measure import changes

_ROLES = ("baseline", "control", "cell")


def in_reading_order(judgement: Judgement) -> Judgement:
    """Studies as they came; in each the sweep points in order; in each block the baseline, the control, then small
    changes before large ones, numbers in their own order."""
    studies = list(dict.fromkeys(block.study for block in judgement.blocks))
    point = sweep_key(judgement.blocks)
    blocks = sorted(judgement.blocks, key=lambda block: (studies.index(block.study), block.device, point(block)))
    return replace(judgement, blocks=tuple(_with_ordered_arms(block) for block in blocks))


def _with_ordered_arms(block: BlockResult) -> BlockResult:
    baseline = block.baseline

    def key(arm: ArmResult) -> tuple[int, int, Natural]:
        changed = len(changes(arm, baseline)) if baseline else 0
        return _ROLES.index(arm.role) if arm.role in _ROLES else len(_ROLES), changed, natural(arm.name)

    return replace(block, arms=tuple(sorted(block.arms, key=key)))
