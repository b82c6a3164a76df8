"""The noise floor: A/A controls, which must differ from their baseline by nothing but noise."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from harness.judgement.judged import BlockResult, Interval
from harness.report import formats
from harness.report.csvs import Row
from harness.report.figures import bars
from harness.report.figures.gallery import Gallery, Picture
from harness.report.measure import dot
from harness.report.part import Part
from harness.report.tables import Table, interval, place_of

#: Controls in the figure, and four times as many in the table; `tables/noise.csv` has all.
MOST_DOTS = 28
#: A block with its A/A control.
Floor = tuple[BlockResult, Interval]


def noise_part(blocks: Sequence[BlockResult], gallery: Gallery) -> Part:
    """The A/A controls: the same cell under two names must differ by nothing but noise."""
    floors = [(block, block.noise_floor) for block in blocks if block.noise_floor]
    title = "Noise floor: the baseline against itself"
    if not floors:
        missing = "No A/A control has a ratio: its trials did not end ok, or none ran. Every study runs one: "
        run = "claimbench run --matrix matrix.yaml"
        return Part(anchor="noise", title=title, short="Noise floor", missing=missing + run)
    picture = _picture(floors, gallery)
    return Part(
        anchor="noise", title=title, short="Noise floor", pictures=(picture,) if picture else (),
        lead="Every study runs its baseline a second time under another name. What this control shows is what noise "
        "alone can do.",
        sentences=(_sentence(floors),), tables=(_noise_table(blocks),), rows=tuple(_row(*each) for each in floors),
    )  # fmt: skip


def _picture(floors: Sequence[Floor], gallery: Gallery) -> Picture | None:
    widest = sorted(floors, key=lambda each: -abs(each[1].value - 1))[:MOST_DOTS]
    dots = [dot(place_of(block), floor, marked=block.suspect) for block, floor in widest]
    shown = f"the {len(dots)} furthest from 1 of {len(floors)}" if len(floors) > len(dots) else "all studies"
    drawing = partial(bars.dots, values=dots, x_label="A/A control ÷ baseline, 95% interval", lines=[("", 1.0)])
    size = (6.6, bars.height([dot.name for dot in dots], each=0.26, rest=0.8))
    return gallery.draw("noise-floor", f"A/A controls, {shown}; diamonds are suspect.", drawing, size=size)


def _sentence(floors: Sequence[Floor]) -> str:
    suspects = ", ".join(place_of(block) for block, _ in floors if block.suspect)
    reach = max(abs(end - 1) for _, floor in floors for end in (floor.value, floor.low, floor.high) if end is not None)
    after = "after Holm's correction"
    verdict = f"Suspect {after}: {suspects}." if suspects else f"None is suspect {after}."
    controls = formats.plural(len(floors), "control")
    return f"{controls}; the interval of the widest reaches {formats.share(reach)} from 1. {verdict}"


def _row(block: BlockResult, floor: Interval) -> Row:
    return {
        "study": block.study, "block": block.block, "control": floor.value, "low": floor.low, "high": floor.high,
        "suspect": block.suspect,
    }  # fmt: skip


def _noise_table(blocks: Sequence[BlockResult]) -> Table:
    rows = [
        (
            place_of(block),
            interval(block.noise_floor),
            _spread(block),
            str(block.rounds),
            "suspect" if block.suspect else "ok",
            "; ".join(block.warnings) or formats.ABSENT,
        )
        for block in blocks[: 4 * MOST_DOTS]
    ]
    return Table(
        caption="A/A control of each block",
        rows=tuple(rows),
        numeric=frozenset({1, 2, 3}),
        columns=(
            "block",
            "control ÷ baseline [95% interval]",
            "largest spread of a cell",
            "rounds",
            "control",
            "warnings",
        ),
    )


def _spread(block: BlockResult) -> str:
    return formats.share(max((arm.spread for arm in block.arms if arm.spread is not None), default=None))
