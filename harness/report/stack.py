"""The cumulative stack as a waterfall: what each technique adds to those before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from harness.judgement.blocks import speed_over
from harness.judgement.judged import ArmResult, BlockResult, Interval
from harness.judgement.words import ALIKE
from harness.report import formats
from harness.report.csvs import Row
from harness.report.figures import bars
from harness.report.figures.gallery import Gallery, Picture
from harness.report.measure import changes, faster, figure_name, timed_baseline_of
from harness.report.part import Part
from harness.report.tables import Table, interval, titled

#: A stack of fewer pieces is a cell, not a stack.
FEWEST_PIECES = 3


def stack_of(block: BlockResult) -> tuple[ArmResult, ...]:
    """The longest chain of cells of which each keeps what the one before it changed and adds to it."""
    baseline = timed_baseline_of(block)
    if baseline is None:
        return ()
    cells = [(arm, changes(arm, baseline)) for arm in block.arms if arm.role == "cell"]
    chains: list[list[int]] = []
    """For each cell the longest chain that ends there; those before it change less."""
    cells.sort(key=lambda cell: len(cell[1]))
    for index, (_, changed) in enumerate(cells):
        before = [chain for chain in chains if cells[chain[-1]][1].items() < changed.items()]
        chains.append([*max(before, key=len, default=[]), index])
    longest = [cells[index][0] for index in max(chains, key=len, default=[])]
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
            missing="No study adds techniques one on top of the other (design: cumulative).",
            run="Run:",
            study="d1-stack",
        )
    built = [Stack(title=title, block=block, arms=arms, pieces=tuple(_pieces(block, arms)))
             for title, block, arms in titled(stacks)]  # fmt: skip
    pictures = [picture for each in built for picture in _waterfalls(each, gallery)]
    return Part(
        anchor="stack",
        title=title,
        short="Stack",
        pictures=tuple(pictures),
        tables=tuple(map(_stack_table, built)),
        lead="Each bar goes from what was reached before to what is reached with one more technique; hatched bars are "
        "steps back. A hollow bar may be nothing: the interval of the piece's own gain holds 1.",
        sentences=tuple(
            sentence
            for each in built
            for sentence in (_stack_sentence(each), *_rounds_differ(each), *_without(each), *_same_memory(each))
        ),
        rows=tuple(row for each in built for row in _stack_rows(each)),
    )


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A piece of a stack that was measured."""

    added: str
    """What it changes of the piece measured before it."""
    arm: ArmResult
    speed: Interval
    """So far: against the baseline."""
    gain: Interval | None
    """Its own: against the piece measured before it, paired within rounds; None where no round ran both."""


@dataclass(frozen=True, kw_only=True)
class Stack:
    """A stack of one block."""

    title: str
    """Of its study."""
    block: BlockResult
    arms: tuple[ArmResult, ...]
    """From the first piece alone to all of them."""
    pieces: tuple[Piece, ...]


def _pieces(block: BlockResult, stack: Sequence[ArmResult]) -> list[Piece]:
    baseline = timed_baseline_of(block)
    if baseline is None:
        return []
    pieces: list[Piece] = []
    for arm in stack:
        before = pieces[-1].arm if pieces else baseline
        if arm.speedup is None:
            continue
        # a chain only adds: none of its cells changes a setting of the one before
        added = changes(arm, baseline).keys() - changes(before, baseline).keys()
        name = formats.settings({axis: setting for axis, setting in arm.cell.items() if axis in added})
        pieces.append(Piece(added=name, arm=arm, speed=arm.speedup, gain=speed_over(arm, before)))
    return pieces


def _memory(stack: Stack) -> list[bars.Step]:
    """Peak reserved memory with each piece, in multiples of the baseline's."""
    return [
        bars.Step(name=piece.added, value=ratio)
        for piece in stack.pieces if (ratio := piece.arm.memory_ratio.get("reserved")) is not None
    ]  # fmt: skip


def _alike(steps: Sequence[bars.Step]) -> bool:
    """Whether no two, the baseline among them, differ by more than memory of the same cell may from trial to trial."""
    values = [1.0, *(step.value for step in steps)]
    return max(values) - min(values) <= ALIKE


def _waterfalls(stack: Stack, gallery: Gallery) -> list[Picture]:
    """Of speed and of memory; not of memory that no piece changes, whose figure would be empty."""
    speed = [
        bars.Step(name=piece.added, value=piece.speed.value, certain=faster(piece.gain) is not None)
        for piece in stack.pieces
    ]
    memory = _memory(stack)
    pictures = []
    for unit, values, what in (("speed", speed, "Speed"), ("memory", memory, "Peak reserved memory")):
        if values and (unit == "speed" or not _alike(values)):
            drawing = partial(bars.waterfall, steps=[bars.Step(name="baseline", value=1.0), *values], unit=unit)
            caption = f"{what} of the stack of study {stack.title}, each piece on top of the ones before."
            name = figure_name(f"stack-{unit}", stack.block)
            pictures.append(
                gallery.draw(
                    name,
                    caption,
                    drawing,
                    size=(6.6, bars.height(["baseline", *(f"+ {step.name}" for step in values)], rest=0.8)),
                )
            )
    return [picture for picture in pictures if picture]


def _stack_sentence(stack: Stack) -> str:
    pieces = stack.pieces
    if not pieces:
        return f"Study {stack.title}: no piece of the stack has a speed."
    whole = "all together"
    if pieces[-1].arm is not stack.arms[-1]:
        whole = f"as far as it has a speed, up to {pieces[-1].added},"
    said = f"Study {stack.title}: {whole} {interval(pieces[-1].speed)} the speed of the baseline"
    gains = sorted(((each.gain, each.added) for each in pieces if each.gain), key=lambda each: each[0].value)
    if len(gains) < 2:
        return f"{said}."
    (least, lower), (most, upper) = gains[0], gains[-1]
    return f"{said}; most comes from {upper} ({interval(most)}), least from {lower} ({interval(least)})."


def _rounds_differ(stack: Stack) -> list[str]:
    """Why a piece's own gain may not be what is reached with it over what was reached before."""
    rounds = [piece.speed.rounds for piece in stack.pieces]
    if not rounds or min(rounds) == max(rounds):
        return []
    return [
        f"Study {stack.title}: its pieces have {min(rounds)} to {max(rounds)} rounds. What is reached with a piece is"
        " of all its rounds, its own gain of those that the piece before it has too."
    ]


def _same_memory(stack: Stack) -> list[str]:
    """In place of a figure in which all bars are alike."""
    steps = _memory(stack)
    same = f"Study {stack.title}: peak reserved memory is the baseline's throughout, within {ALIKE:.0%}."
    return [same] if steps and _alike(steps) else []


def _without(stack: Stack) -> list[str]:
    """Pieces that have no figure of their own, and why; nothing where none has one."""
    if not stack.pieces:
        return []
    last = stack.arms.index(stack.pieces[-1].arm)
    together = "; what it adds is shown together with the next piece"
    return [
        f"Study {stack.title}: {arm.name} has no speed ({arm.reason or 'it was not run beside the baseline'})"
        f"{together if place < last else ''}."
        for place, arm in enumerate(stack.arms) if not arm.speedup
    ]  # fmt: skip


def _stack_table(stack: Stack) -> Table:
    rows = [
        (f"+ {piece.added}", interval(piece.gain), interval(piece.speed),
         formats.ratio(piece.arm.memory_ratio.get("reserved")), piece.arm.parity.word)
        for piece in stack.pieces
    ]  # fmt: skip
    return Table(
        caption=f"Stack of study {stack.title}",
        rows=tuple(rows),
        numeric=frozenset({1, 2, 3}),
        columns=("added", "its own gain [95% interval]", "speed so far [95% interval]", "reserved memory so far",
                 "parity"),
    )  # fmt: skip


def _stack_rows(stack: Stack) -> list[Row]:
    return [
        {
            "study": stack.block.study,
            "block": stack.block.block,
            "added": piece.added,
            "speedup": piece.speed.value,
            "own_gain": piece.gain and piece.gain.value,
            "own_gain_low": piece.gain and piece.gain.low,
            "own_gain_high": piece.gain and piece.gain.high,
            "reserved_ratio": piece.arm.memory_ratio.get("reserved"),
        }
        for piece in stack.pieces
    ]
