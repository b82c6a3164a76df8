"""A stack measured whole and less each of its pieces: what each is worth beside all the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from harness.judgement.compare import gain_over
from harness.judgement.judged import ArmResult, BlockResult, Interval
from harness.report import formats
from harness.report.csvs import Row
from harness.report.figures import bars
from harness.report.figures.gallery import Gallery, Picture
from harness.report.measure import baseline_of, changes
from harness.report.part import Part
from harness.report.tables import Table, interval

#: A stack of fewer pieces has nothing to leave out but itself.
FEWEST_PIECES = 3


@dataclass(frozen=True, kw_only=True)
class Worth:
    """A piece of a stack that was left out."""

    piece: str
    without: ArmResult
    gain: Interval | None
    """Speed of the whole stack over that of the stack without it, paired within rounds."""
    memory: float | None
    """Peak reserved memory of the whole stack over that of the stack without it."""


def worths_of(block: BlockResult) -> tuple[Worth, ...]:
    """Each piece of the largest cell of a block of which every piece was left out in turn; empty where none is."""
    baseline = baseline_of(block)
    if baseline is None:
        return ()
    cells = {frozenset(changes(arm, baseline).items()): arm for arm in block.arms if arm.role == "cell"}
    for changed, stack in sorted(cells.items(), key=lambda cell: len(cell[0]), reverse=True):
        less = {axis: cells.get(changed - {(axis, setting)}) for axis, setting in changed}
        if len(changed) >= FEWEST_PIECES and all(less.values()):
            pieces = [axis for axis in stack.cell if axis in less]
            return tuple(_worth(axis, stack, arm, baseline) for axis in pieces if (arm := less[axis]) is not None)
    return ()


def _worth(axis: str, stack: ArmResult, without: ArmResult, baseline: ArmResult) -> Worth:
    whole, less = (arm.memory["reserved"][0] if "reserved" in arm.memory else None for arm in (stack, without))
    return Worth(
        piece=formats.settings({axis: stack.cell[axis]}), without=without,
        gain=gain_over(stack, [without], baseline), memory=whole / less if whole and less else None,
    )  # fmt: skip


def leave_one_out_part(blocks: Sequence[BlockResult], gallery: Gallery) -> Part:
    """What each piece is worth to the whole, for each study that leaves every piece out once."""
    found = [(block, worths) for block in blocks if (worths := worths_of(block))]
    title = "The stack, less one piece at a time"
    if not found:
        return Part(
            anchor="leave-one-out",
            title=title,
            short="Less one",
            missing="No study measures a stack whole and less each of its pieces (design: leave-one-out). "
            "Run: claimbench run --matrix matrix.yaml --study d1-without-one",
        )
    return Part(
        anchor="leave-one-out",
        title=title,
        short="Less one",
        pictures=tuple(picture for each in found if (picture := _picture(*each, gallery))),
        lead="What a piece is worth beside all the others: the whole stack over the stack without it, paired within "
        "rounds. Above 1 it makes the whole faster, below 1 slower. A gain that another piece gives too is worth "
        "little here, however much it gives alone.",
        sentences=tuple(sentence for block, worths in found if (sentence := _sentence(block, worths))),
        tables=tuple(_table(*each) for each in found),
        rows=tuple(row for each in found for row in _rows(*each)),
    )


def _picture(block: BlockResult, worths: Sequence[Worth], gallery: Gallery) -> Picture | None:
    dots = [
        bars.Dot(name=worth.piece, value=gain.value, low=gain.low or gain.value, high=gain.high or gain.value)
        for worth in worths if (gain := worth.gain)
    ]  # fmt: skip
    if not dots:
        return None
    drawing = partial(bars.dots, values=dots, lines=[("", 1.0)],
                      x_label="tokens/s of the whole stack over those without the piece")  # fmt: skip
    caption = f"Study {block.study}: what each piece is worth to the whole stack, with 95% intervals."
    name = f"less-one-{block.study}-{formats.settings(block.sweep)}"
    return gallery.draw(name, caption, drawing, size=(6.6, bars.height([dot.name for dot in dots])))


def _sentence(block: BlockResult, worths: Sequence[Worth]) -> str:
    known = [(worth.piece, worth.gain) for worth in worths if worth.gain]
    if not known:
        return ""
    faster = [each for each in known if each[1].low is not None and each[1].low > 1]
    slower = [each for each in known if each[1].high is not None and each[1].high < 1]
    open_still = [piece for piece, gain in known if (piece, gain) not in (*faster, *slower)]
    parts = [f"the whole is {word} with {_list(pieces)}"
             for word, pieces in (("faster", faster), ("slower", slower)) if pieces]  # fmt: skip
    parts += [f"nothing certain of {', '.join(open_still)}"] if open_still else []
    return f"Study {block.study}: {'; '.join(parts)}."


def _list(pieces: Sequence[tuple[str, Interval]]) -> str:
    ordered = sorted(pieces, key=lambda each: each[1].value, reverse=True)
    return ", ".join(f"{piece} ({interval(gain)})" for piece, gain in ordered)


def _table(block: BlockResult, worths: Sequence[Worth]) -> Table:
    rows = [
        (f"− {worth.piece}", interval(worth.gain), interval(worth.without.speedup), formats.ratio(worth.memory),
         worth.without.parity.word)
        for worth in worths
    ]  # fmt: skip
    return Table(
        caption=f"The stack of study {block.study}, less one",
        rows=tuple(rows),
        numeric=frozenset({1, 2, 3}),
        columns=("left out", "whole ÷ without it [95% interval]", "without it ÷ baseline [95% interval]",
                 "reserved memory, whole ÷ without it", "parity without it"),
    )  # fmt: skip


def _rows(block: BlockResult, worths: Sequence[Worth]) -> list[Row]:
    return [
        {
            "study": block.study,
            "block": block.block,
            "left_out": worth.piece,
            "gain": worth.gain and worth.gain.value,
            "gain_low": worth.gain and worth.gain.low,
            "gain_high": worth.gain and worth.gain.high,
            "reserved_ratio": worth.memory,
        }
        for worth in worths
    ]
