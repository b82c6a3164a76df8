"""The order in which blocks and cells are shown: trials run shuffled, readers want the same order everywhere."""

from __future__ import annotations

import re
from dataclasses import replace

from harness.judgement.judged import ArmResult, BlockResult, Judgement
from harness.report.measure import changes

_DIGITS = re.compile(r"(\d+(?:\.\d+)?)")
_ROLES = ("baseline", "control", "cell")


def in_reading_order(judgement: Judgement) -> Judgement:
    """Studies as they came; in each the sweep points by value; in each block the baseline, the control, then small
    changes before large ones, numbers in their own order."""
    studies = list(dict.fromkeys(block.study for block in judgement.blocks))
    blocks = sorted(judgement.blocks, key=lambda block: (studies.index(block.study), block.device, _point(block)))
    return replace(judgement, blocks=tuple(_with_ordered_arms(block) for block in blocks))


def natural(text: str) -> list[tuple[int, float, str]]:
    """A sort key by which `batch_size=64` comes before `batch_size=128`."""
    parts = _DIGITS.split(text)
    return [(0, float(part), "") if index % 2 else (1, 0.0, part) for index, part in enumerate(parts)]


def _with_ordered_arms(block: BlockResult) -> BlockResult:
    baseline = block.baseline

    def key(arm: ArmResult) -> tuple[int, int, list[tuple[int, float, str]]]:
        changed = len(changes(arm, baseline)) if baseline else 0
        return _ROLES.index(arm.role) if arm.role in _ROLES else len(_ROLES), changed, natural(arm.name)

    return replace(block, arms=tuple(sorted(block.arms, key=key)))


def _point(block: BlockResult) -> list[tuple[int, float, str]]:
    return [part for axis, value in block.sweep.items() for part in natural(f"{axis}={value}")]
