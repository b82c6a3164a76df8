"""Which sweep points form a line: along one axis with the others fixed, or along the length at a fixed token count.

Models stand in order of their parameters, one place apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from harness.experiment.study import MODEL
from harness.judgement.judged import BlockResult
from harness.judgement.sweep_order import models_by_size
from harness.report import formats

LENGTH, BATCH = "sequence_length", "batch_size"


@dataclass(frozen=True, kw_only=True)
class Family:
    """Blocks in order of `axis`. `fixed` says what they share: `sequence length 1024`, `8192 tokens a batch`."""

    axis: str
    kind: str
    """`alone`: only the axis changes; `tokens`: length and batch change, their product does not."""
    fixed: str
    blocks: tuple[BlockResult, ...]
    models: Mapping[str, int] = field(default_factory=dict)
    """Swept model → its place."""

    def place(self, block: BlockResult) -> float:
        """Where a block stands along the axis."""
        return _place(block, self.axis, self.models)

    def label(self, block: BlockResult) -> str:
        """The model at its place; empty where the place is a number of the axis itself."""
        return str(block.sweep[MODEL]) if self.axis == MODEL else ""


def families(blocks: Sequence[BlockResult]) -> tuple[tuple[Family, ...], ...]:
    """Groups of families that share a figure (same axis, same kind), the longest first.

    A group is kept only if it shows a point that no earlier one shows.
    """
    found: dict[tuple[str, str, str], list[BlockResult]] = {}
    for block in blocks:
        for key in _keys(block):
            found.setdefault(key, []).append(block)
    models = models_by_size(blocks)
    every = [
        Family(axis=axis, kind=kind, fixed=fixed, blocks=_ordered(axis, members, models), models=models)
        for (axis, kind, fixed), members in found.items()
        if len({_place(each, axis, models) for each in members}) > 1
    ]
    long = [family for family in every if len(family.blocks) > 2]
    groups: dict[tuple[str, str], list[Family]] = {}
    for family in long or every:
        groups.setdefault((family.axis, family.kind), []).append(family)
    return _cover(sorted(groups.values(), key=lambda group: -max(len(family.blocks) for family in group)))


def _keys(block: BlockResult) -> list[tuple[str, str, str]]:
    device = block.device
    keys = []
    for axis, value in block.sweep.items():
        if _number(value) or axis == MODEL:
            rest = {name: each for name, each in block.sweep.items() if name != axis}
            keys.append((axis, "alone", _described(rest, device)))
    length, batch = block.sweep.get(LENGTH), block.sweep.get(BATCH)
    if isinstance(length, int) and isinstance(batch, int):
        rest = {name: each for name, each in block.sweep.items() if name not in {LENGTH, BATCH}}
        keys.append((LENGTH, "tokens", ", ".join([f"{length * batch} tokens a batch", _described(rest, device)])))
    return keys


def _described(rest: Mapping[str, object], device: str) -> str:
    return ", ".join([*(f"{formats.axis_name(name)} {value}" for name, value in rest.items()), device])


def _ordered(axis: str, blocks: Sequence[BlockResult], models: Mapping[str, int]) -> tuple[BlockResult, ...]:
    return tuple(sorted(blocks, key=lambda block: _place(block, axis, models)))


def _place(block: BlockResult, axis: str, models: Mapping[str, int]) -> float:
    return float(models[str(block.sweep[MODEL])] if axis == MODEL else block.sweep[axis])


def _cover(groups: Sequence[Sequence[Family]]) -> tuple[tuple[Family, ...], ...]:
    shown: set[int] = set()
    kept = []
    for group in groups:
        members = {id(block) for family in group for block in family.blocks}
        if members - shown:
            kept.append(tuple(group))
            shown |= members
    return tuple(kept)


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
