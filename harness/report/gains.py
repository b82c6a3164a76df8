"""Gains together: the cumulative stack as a waterfall, and combinations against the product of their parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import prod

from harness.judgement.judged import ArmResult, BlockResult
from harness.report import formats
from harness.report.csvs import Row
from harness.report.figures import bars
from harness.report.figures.gallery import Gallery, Picture
from harness.report.measure import baseline_of, changes
from harness.report.part import Part
from harness.report.tables import Table, interval

#: A stack of fewer pieces is a cell, not a stack.
FEWEST_PIECES = 3
MOST_COMBINATIONS = 16


@dataclass(frozen=True, kw_only=True)
class Combination:
    """A cell of several changes, and the gains of each change alone in the same block."""

    block: BlockResult
    arm: ArmResult
    product: float
    parts: tuple[str, ...]


def stack_of(block: BlockResult) -> tuple[ArmResult, ...]:
    """The longest chain of cells of which each keeps what the one before it changed and adds to it."""
    baseline = baseline_of(block)
    if baseline is None:
        return ()
    cells = [(arm, changes(arm, baseline)) for arm in block.arms if arm.role == "cell"]
    chain: list[tuple[ArmResult, Mapping[str, object]]] = []
    for arm, changed in sorted(cells, key=lambda cell: len(cell[1])):
        if not chain or chain[-1][1].items() < changed.items():
            chain.append((arm, changed))
    longest = [arm for arm, _ in chain]
    return tuple(longest) if len(longest) >= FEWEST_PIECES and 2 * len(longest) > len(cells) else ()


def combinations_of(block: BlockResult) -> tuple[Combination, ...]:
    """Cells of two or more changes whose single changes were each measured in the same block."""
    baseline = baseline_of(block)
    if baseline is None:
        return ()
    cells = {frozenset(changes(arm, baseline).items()): arm for arm in block.arms if arm.role == "cell"}
    found = []
    for changed, arm in cells.items():
        singles = [cells.get(frozenset([each])) for each in sorted(changed, key=str)]
        gains = [single.speedup.value for single in singles if single and single.speedup]
        if len(changed) > 1 and len(gains) == len(changed) and arm.speedup:
            names = tuple(single.name for single in singles if single)
            found.append(Combination(block=block, arm=arm, product=prod(gains), parts=names))
    return tuple(found)


def stack_part(blocks: Sequence[BlockResult], gallery: Gallery) -> Part:
    """A waterfall for each study that builds a stack piece by piece."""
    stacks = [(block, stack) for block in blocks if (stack := stack_of(block))]
    title = "The stack, added up piece by piece"
    if not stacks:
        return Part(anchor="stack", title=title, short="Stack", missing="No study adds techniques one on top of the other (design: "
                    "cumulative). Run: claimbench run --matrix matrix.yaml --study d1-stack")  # fmt: skip
    pictures = [picture for block, stack in stacks for picture in _waterfalls(block, stack, gallery)]
    return Part(
        anchor="stack", title=title, short="Stack", pictures=tuple(pictures), tables=tuple(_stack_table(*each) for each in stacks),
        lead="Each bar goes from what was reached before to what is reached with one more technique; hatched bars are "
        "steps back.",
        sentences=tuple(_stack_sentence(*each) for each in stacks),
        rows=tuple(row for each in stacks for row in _stack_rows(*each)),
    )  # fmt: skip


def interactions_part(blocks: Sequence[BlockResult], gallery: Gallery) -> Part:
    """What combinations give, against what their parts promise."""
    groups = [(block, found) for block in blocks if (found := combinations_of(block))]
    title = "Do gains multiply?"
    if not groups:
        return Part(anchor="interactions", title=title, short="Interactions", missing="No study measures a combination together with each of "
                    "its parts (design: factorial). Run: claimbench run --matrix matrix.yaml --study interactions")  # fmt: skip
    pictures = [picture for block, found in groups if (picture := _interaction_picture(block, found, gallery))]
    return Part(
        anchor="interactions", title=title, short="Interactions", pictures=tuple(pictures),
        lead="If techniques did not act on each other, the gain of a combination would be the product of the gains of "
        "its parts.",
        sentences=tuple(_interaction_sentence(block, found) for block, found in groups),
        tables=tuple(_interaction_table(block, found) for block, found in groups),
        rows=tuple(
            {"study": each.block.study, "block": each.block.block, "cell": each.arm.name,
             "measured": each.arm.speedup and each.arm.speedup.value, "product": each.product}
            for _, found in groups for each in found
        ),
    )  # fmt: skip


def _steps(block: BlockResult, stack: Sequence[ArmResult]) -> list[tuple[str, ArmResult]]:
    """Each piece by what it adds."""
    baseline = baseline_of(block)
    if baseline is None:
        return []
    cells = [{}, *(changes(arm, baseline) for arm in stack)]
    added = [dict(later.items() - sooner.items()) for sooner, later in pairwise(cells)]
    ordered = [{axis: each[axis] for axis in arm.cell if axis in each} for each, arm in zip(added, stack, strict=True)]
    return [(formats.settings(each), arm) for each, arm in zip(ordered, stack, strict=True)]


def _waterfalls(block: BlockResult, stack: Sequence[ArmResult], gallery: Gallery) -> list[Picture]:
    steps = _steps(block, stack)
    speed = [(name, arm.speedup.value) for name, arm in steps if arm.speedup]
    memory = [(name, arm.memory_ratio["reserved"]) for name, arm in steps if "reserved" in arm.memory_ratio]
    pictures = []
    for unit, values, what in (("speed", speed, "Speed"), ("memory", memory, "Peak reserved memory")):
        if values:
            drawing = partial(bars.waterfall, steps=[("baseline", 1.0), *values], unit=unit)
            caption = f"{what} of the stack of study {block.study}, each piece on top of the ones before."
            name = f"stack-{unit}-{block.study}-{formats.settings(block.sweep)}"
            pictures.append(
                gallery.draw(
                    name,
                    caption,
                    drawing,
                    size=(6.6, bars.height(["baseline", *(name for name, _ in values)], rest=0.8)),
                )
            )
    return [picture for picture in pictures if picture]


def _stack_sentence(block: BlockResult, stack: Sequence[ArmResult]) -> str:
    steps = [(name, arm) for name, arm in _steps(block, stack) if arm.speedup]
    if not steps:
        return f"Study {block.study}: no piece of the stack has a speed."
    gains = _own_gains(steps)
    most, least = max(gains, key=lambda each: each[1]), min(gains, key=lambda each: each[1])
    total = steps[-1][1].speedup
    return (
        f"Study {block.study}: all together {interval(total)} the speed of the baseline; most comes from {most[0]} "
        f"({formats.ratio(most[1])}), least from {least[0]} ({formats.ratio(least[1])})."
    )


def _own_gains(steps: Sequence[tuple[str, ArmResult]]) -> list[tuple[str, float]]:
    values = [1.0, *(arm.speedup.value for _, arm in steps if arm.speedup)]
    return [(name, later / sooner) for (name, _), (sooner, later) in zip(steps, pairwise(values), strict=True)]


def _stack_table(block: BlockResult, stack: Sequence[ArmResult]) -> Table:
    rows = []
    before = 1.0
    for name, arm in _steps(block, stack):
        now = arm.speedup.value if arm.speedup else None
        rows.append((f"+ {name}", formats.ratio(now / before if now else None), interval(arm.speedup),
                     formats.ratio(arm.memory_ratio.get("reserved")), arm.parity.word))  # fmt: skip
        before = now or before
    return Table(
        caption=f"Stack of study {block.study}", rows=tuple(rows), numeric=frozenset({1, 2, 3}),
        columns=("added", "its own gain", "speed so far [95% interval]", "reserved memory so far", "parity"),
    )  # fmt: skip


def _stack_rows(block: BlockResult, stack: Sequence[ArmResult]) -> list[Row]:
    return [
        {"study": block.study, "block": block.block, "added": name, "speedup": arm.speedup and arm.speedup.value,
         "reserved_ratio": arm.memory_ratio.get("reserved")}
        for name, arm in _steps(block, stack)
    ]  # fmt: skip


def _interaction_picture(block: BlockResult, found: Sequence[Combination], gallery: Gallery) -> Picture | None:
    rows = [(_dot(each.arm), each.product) for each in found[:MOST_COMBINATIONS]]
    caption = f"Study {block.study}: combinations measured together, against the product of their parts' gains."
    drawing = partial(bars.interactions, rows=rows)
    name = f"interactions-{block.study}-{formats.settings(block.sweep)}"
    return gallery.draw(name, caption, drawing, size=(6.6, bars.height([dot.name for dot, _ in rows])))


def _dot(arm: ArmResult) -> bars.Dot:
    gain = arm.speedup
    value = gain.value if gain else 1.0
    return bars.Dot(name=arm.name, value=value, low=(gain and gain.low) or value, high=(gain and gain.high) or value)


def _interaction_sentence(block: BlockResult, found: Sequence[Combination]) -> str:
    less = sum(
        1 for each in found if each.arm.speedup and each.arm.speedup.high and each.arm.speedup.high < each.product
    )
    more = sum(1 for each in found if each.arm.speedup and each.arm.speedup.low and each.arm.speedup.low > each.product)
    return (
        f"Study {block.study}: of {formats.plural(len(found), 'combination')}, {less} gave less than the product of "
        f"the parts, {more} more, {len(found) - less - more} the same within the interval."
    )


def _interaction_table(block: BlockResult, found: Sequence[Combination]) -> Table:
    rows = [
        (each.arm.name, interval(each.arm.speedup), formats.ratio(each.product),
         formats.ratio(each.arm.speedup.value / each.product if each.arm.speedup else None))
        for each in found
    ]  # fmt: skip
    return Table(
        caption=f"Combinations of study {block.study}", rows=tuple(rows), numeric=frozenset({1, 2, 3}),
        columns=("cell", "measured [95% interval]", "product of the parts", "measured ÷ product"),
    )  # fmt: skip
