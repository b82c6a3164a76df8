"""The cumulative stack as a waterfall: what each technique adds to those before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise

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


def stack_part(blocks: Sequence[BlockResult], gallery: Gallery) -> Part:
    """A waterfall for each study that builds a stack piece by piece."""
    stacks = [(block, stack) for block in blocks if (stack := stack_of(block))]
    title = "The stack, added up piece by piece"
    if not stacks:
        return Part(
            anchor="stack",
            title=title,
            short="Stack",
            missing="No study adds techniques one on top of the other (design: "
            "cumulative). Run: claimbench run --matrix matrix.yaml --study d1-stack",
        )
    pictures = [picture for block, stack in stacks for picture in _waterfalls(block, stack, gallery)]
    return Part(
        anchor="stack",
        title=title,
        short="Stack",
        pictures=tuple(pictures),
        tables=tuple(_stack_table(*each) for each in stacks),
        lead="Each bar goes from what was reached before to what is reached with one more technique; hatched bars are "
        "steps back.",
        sentences=tuple(sentence for each in stacks for sentence in (_stack_sentence(*each), *_without(*each))),
        rows=tuple(row for each in stacks for row in _stack_rows(*each)),
    )


def _steps(block: BlockResult, stack: Sequence[ArmResult]) -> list[tuple[str, ArmResult]]:
    """Each piece that was measured by what it adds to the one measured before it."""
    baseline = baseline_of(block)
    stack = [arm for arm in stack if arm.speedup]
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
    steps = _steps(block, stack)
    if not steps:
        return f"Study {block.study}: no piece of the stack has a speed."
    gains = _own_gains(steps)
    most, least = max(gains, key=lambda each: each[1]), min(gains, key=lambda each: each[1])
    total = steps[-1][1].speedup
    return (
        f"Study {block.study}: all together {interval(total)} the speed of the baseline; most comes from {most[0]} "
        f"({formats.ratio(most[1])}), least from {least[0]} ({formats.ratio(least[1])})."
    )


def _without(block: BlockResult, stack: Sequence[ArmResult]) -> list[str]:
    """Pieces that have no figure of their own, and why; nothing where none has one."""
    if not _steps(block, stack):
        return []
    return [
        f"Study {block.study}: {arm.name} has no speed ({arm.reason or 'it was not run beside the baseline'}); what it "
        "adds is shown together with the next piece."
        for arm in stack if not arm.speedup
    ]  # fmt: skip


def _own_gains(steps: Sequence[tuple[str, ArmResult]]) -> list[tuple[str, float]]:
    values = [1.0, *(arm.speedup.value for _, arm in steps if arm.speedup)]
    return [(name, later / sooner) for (name, _), (sooner, later) in zip(steps, pairwise(values), strict=True)]


def _stack_table(block: BlockResult, stack: Sequence[ArmResult]) -> Table:
    rows = []
    before = 1.0
    for name, arm in _steps(block, stack):
        now = arm.speedup.value if arm.speedup else None
        rows.append(
            (
                f"+ {name}",
                formats.ratio(now / before if now else None),
                interval(arm.speedup),
                formats.ratio(arm.memory_ratio.get("reserved")),
                arm.parity.word,
            )
        )
        before = now or before
    return Table(
        caption=f"Stack of study {block.study}",
        rows=tuple(rows),
        numeric=frozenset({1, 2, 3}),
        columns=("added", "its own gain", "speed so far [95% interval]", "reserved memory so far", "parity"),
    )


def _stack_rows(block: BlockResult, stack: Sequence[ArmResult]) -> list[Row]:
    return [
        {
            "study": block.study,
            "block": block.block,
            "added": name,
            "speedup": arm.speedup and arm.speedup.value,
            "reserved_ratio": arm.memory_ratio.get("reserved"),
        }
        for name, arm in _steps(block, stack)
    ]
