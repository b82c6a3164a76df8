"""A stack measured whole and less each of its pieces: what each is worth beside all the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from harness.judgement.blocks import speed_over
from harness.judgement.judged import ArmResult, BlockResult, Interval
from harness.report import formats
from harness.report.csvs import Row
from harness.report.figures import bars
from harness.report.figures.gallery import Gallery, Picture
from harness.report.measure import changes, dot, faster, figure_name, has_intervals, timed_baseline_of
from harness.report.part import Part
from harness.report.tables import Table, interval, titled

#: Of two pieces, the stack less one is the other one alone, and a factorial says that.
FEWEST_PIECES = 3


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A piece of a stack that was left out."""

    name: str
    without: ArmResult
    """The stack without it."""
    worth: Interval | None
    """Speed of the whole stack over that of the stack without it, paired within rounds."""
    memory: float | None
    """Peak reserved memory of the whole stack over that of the stack without it."""


@dataclass(frozen=True, kw_only=True)
class Whole:
    """A stack of which every piece was left out in turn."""

    title: str
    """Of its study."""
    block: BlockResult
    stack: ArmResult
    name: str
    """Its pieces."""
    pieces: tuple[Piece, ...]


def wholes_of(blocks: Sequence[BlockResult]) -> list[Whole]:
    """Of each block the largest cell of which every piece was left out in turn, where there is one."""
    found = [(block, parts) for block in blocks if (parts := _parts_of(block))]
    return [_whole(title, block, *parts) for title, block, parts in titled(found)]


def _parts_of(block: BlockResult) -> tuple[ArmResult, dict[str, ArmResult]] | None:
    """The stack, and by axis the stack without it."""
    baseline = timed_baseline_of(block)
    if baseline is None:
        return None
    cells = {frozenset(changes(arm, baseline).items()): arm for arm in block.arms if arm.role == "cell"}
    for changed, stack in sorted(cells.items(), key=lambda cell: len(cell[0]), reverse=True):
        less = {axis: arm for axis, setting in changed if (arm := cells.get(changed - {(axis, setting)}))}
        if FEWEST_PIECES <= len(changed) == len(less):
            return stack, {axis: less[axis] for axis in stack.cell if axis in less}
    return None


def _whole(title: str, block: BlockResult, stack: ArmResult, less: dict[str, ArmResult]) -> Whole:
    return Whole(
        title=title, block=block, stack=stack, name=formats.settings({axis: stack.cell[axis] for axis in less}),
        pieces=tuple(
            Piece(name=formats.settings({axis: stack.cell[axis]}), without=arm, worth=speed_over(stack, arm),
                  memory=_memory(stack, arm))
            for axis, arm in less.items()
        ),
    )  # fmt: skip


def _memory(stack: ArmResult, without: ArmResult) -> float | None:
    whole, less = (arm.memory["reserved"][0] if "reserved" in arm.memory else None for arm in (stack, without))
    return whole / less if whole and less else None


def leave_one_out_part(blocks: Sequence[BlockResult], gallery: Gallery) -> Part:
    """What each piece is worth to the whole, for each study that leaves every piece out once."""
    wholes = wholes_of(blocks)
    title = "The stack, less one piece at a time"
    if not wholes:
        return Part(
            anchor="leave-one-out",
            title=title,
            short="Less one",
            missing="No study measures a stack of three pieces or more whole and less each of them (design: "
            "leave-one-out).",
            run="Run:",
            study="d1-without-one",
        )
    return Part(
        anchor="leave-one-out",
        title=title,
        short="Less one",
        pictures=tuple(picture for each in wholes if (picture := _picture(each, gallery))),
        lead="What a piece is worth beside all the others: the whole stack over the stack without it, paired within "
        "rounds. Above 1 it makes the whole faster, below 1 slower. A gain that another piece gives too is worth "
        "little here, however much it gives alone.",
        sentences=tuple(map(_sentence, wholes)),
        tables=tuple(map(_table, wholes)),
        rows=tuple(row for each in wholes for row in _rows(each)),
    )


def _picture(whole: Whole, gallery: Gallery) -> Picture | None:
    dots = [dot(piece.name, piece.worth) for piece in whole.pieces if piece.worth]
    if not dots:
        return None
    label = "tokens/s of the whole stack over those without the piece"
    drawing = partial(bars.dots, values=dots, lines=[("", 1.0)], x_label=label)
    caption = f"Study {whole.title}: what each piece is worth to the whole stack"
    caption += ", with 95% intervals." if has_intervals(dots) else "."
    size = (6.6, bars.height([each.name for each in dots], each=bars.THIN))
    return gallery.draw(figure_name("less-one", whole.block), caption, drawing, size=size)


def _sentence(whole: Whole) -> str:
    if whole.stack.speedup is None:
        why = whole.stack.reason or "it was not run beside the baseline"
        return f"Study {whole.title}: {whole.name} has no speed as a whole ({why})."
    groups: dict[str, list[str]] = {"faster with": [], "slower with": [], "undecided:": [], "no figure without": []}
    for piece in sorted(whole.pieces, key=lambda each: each.worth.value if each.worth else 0.0, reverse=True):
        side = faster(piece.worth)
        if piece.worth is None:
            reason = piece.without.reason or "no round ran it beside the whole"
            groups["no figure without"].append(f"{piece.name} ({reason})")
        elif side is None:
            groups["undecided:"].append(piece.name)
        else:
            groups["faster with" if side else "slower with"].append(f"{piece.name} ({interval(piece.worth)})")
    said = [f"{word} {', '.join(names)}" for word, names in groups.items() if names]
    speed = interval(whole.stack.speedup)
    return f"Study {whole.title}: {whole.name} is {speed} as fast as the baseline; {'; '.join(said)}."


def _table(whole: Whole) -> Table:
    rows = [
        (f"− {piece.name}", interval(piece.worth), interval(piece.without.speedup), formats.ratio(piece.memory),
         piece.without.parity.word)
        for piece in whole.pieces
    ]  # fmt: skip
    stack = ("nothing", "–", interval(whole.stack.speedup), "–", whole.stack.parity.word)
    return Table(
        caption=f"The stack of study {whole.title}, less one",
        rows=(stack, *rows),
        numeric=frozenset({1, 2, 3}),
        columns=("left out", "whole ÷ without it [95% interval]", "÷ baseline [95% interval]",
                 "reserved memory, whole ÷ without it", "parity"),
    )  # fmt: skip


def _rows(whole: Whole) -> list[Row]:
    return [
        {
            "study": whole.block.study,
            "block": whole.block.block,
            "left_out": piece.name,
            "worth": piece.worth and piece.worth.value,
            "worth_low": piece.worth and piece.worth.low,
            "worth_high": piece.worth and piece.worth.high,
            "reserved_ratio": piece.memory,
        }
        for piece in whole.pieces
    ]
