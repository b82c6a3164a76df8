"""The noise floor: A/A controls, which must differ from their baseline by nothing but noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from statistics import median_high

from harness.judgement.judged import BlockResult, Interval
from harness.judgement.stats import LEVEL, offset_shown
from harness.report import formats
from harness.report.csvs import Row
from harness.report.figures import bars, controls
from harness.report.figures.gallery import Gallery, Picture
from harness.report.measure import dot, has_intervals
from harness.report.part import Part
from harness.report.tables import Table, interval, places

#: Controls in the figure, and four times as many in the table; `tables/noise.csv` has all.
MOST_DOTS = 28
#: Of the intervals in the figure, the share that its axis holds whole; and how far from 1 it goes at least.
HELD, LEAST_REACH = 0.9, 1.05
#: A control that could not have shown an offset of this share clears nothing.
COARSE = 0.05
#: A block with its A/A control.
Floor = tuple[BlockResult, Interval]


def noise_part(blocks: Sequence[BlockResult], gallery: Gallery) -> Part:
    """The A/A controls: the same cell under two names must differ by nothing but noise."""
    floors = [(block, block.noise_floor) for block in blocks if block.noise_floor]
    title = "Noise floor: the baseline against itself"
    if not floors:
        missing = "No A/A control has a ratio: its trials did not end ok, or none ran."
        return Part(anchor="noise", title=title, short="Noise floor", missing=missing, run="Every study runs one:")
    picture = _picture(floors, gallery)
    return Part(
        anchor="noise", title=title, short="Noise floor", pictures=(picture,) if picture else (),
        lead="Every study runs its baseline a second time under another name. What this control shows is what noise "
        "alone can do. How large an offset it could have shown depends on its spread and on its rounds: half of its "
        "interval by itself, more where all controls of the run are corrected for.",
        sentences=_sentences(floors), tables=(_noise_table(blocks, len(floors)),),
        rows=tuple(_row(*each, len(floors)) for each in floors),
    )  # fmt: skip


def _picture(floors: Sequence[Floor], gallery: Gallery) -> Picture | None:
    widest = sorted(floors, key=lambda each: -abs(each[1].value - 1))[:MOST_DOTS]
    place = places([block for block, _ in floors])
    dots = [dot(place(block), floor, marked=block.suspect or block.control_differs)
            for block, floor in widest]  # fmt: skip
    shown = f"the {len(dots)} furthest from 1 of {len(floors)}" if len(floors) > len(dots) else "all studies"
    reach = reach_of(dots)
    label = f"A/A control ÷ baseline{', 95% interval' if has_intervals(dots) else ''}"
    drawing = partial(controls.controls, values=dots, x_label=label, reach=reach)
    size = (6.6, bars.height([dot.name for dot in dots], each=bars.THIN, rest=0.8))
    caption = f"A/A controls, {shown}; diamonds are suspect, or stand out by themselves. The axis is logarithmic"
    beyond = any(dot.low < 1 / reach or dot.high > reach for dot in dots)
    caption += "; an arrow goes on beyond it, to the number beside it." if beyond else "."
    return gallery.draw("noise-floor", caption, drawing, size=size)


def reach_of(dots: Sequence[bars.Dot]) -> float:
    """How far from 1 the axis goes: it holds nine tenths of the intervals whole, so that a wide one flattens none."""
    furthest = sorted(max(math.log(dot.high), -math.log(dot.low)) for dot in dots)
    return max(math.exp(furthest[math.ceil(HELD * len(dots)) - 1]) * 1.01, LEAST_REACH)


def _sentences(floors: Sequence[Floor]) -> tuple[str, ...]:
    reach = max(abs(end - 1) for _, floor in floors for end in (floor.value, floor.low, floor.high) if end is not None)
    controls = formats.plural(len(floors), "control")
    widest = f"{controls}; the interval of the widest reaches {formats.share(reach)} from 1."
    return (widest, _corrected(floors), *_by_themselves(floors), *_strayed(floors))


def _corrected(floors: Sequence[Floor]) -> str:
    """What the correction leaves, and whether it could have shown anything else."""
    place = places([block for block, _ in floors])
    suspects = ", ".join(place(block) for block, _ in floors if block.suspect)
    said = f"Suspect after Holm's correction: {suspects}." if suspects else "None is suspect after Holm's correction."
    offsets = [offset_shown(floor.observed, len(floors)) for _, floor in floors]
    blind = sum(1 for offset in offsets if offset > COARSE)
    middle = median_high(offsets)
    usual = f"an offset of {_offset(middle)}" if math.isfinite(middle) else "nothing, being a single round"
    said += f" The control in the middle could have shown {usual}"
    if not blind:
        return f"{said}; every one of them an offset of {COARSE:.0%}."
    return (f"{said}; {blind} of {len(floors)} could not have shown one of {COARSE:.0%}. That these are not suspect "
            "says little: the correction is too coarse for their rounds.")  # fmt: skip


def _by_themselves(floors: Sequence[Floor]) -> list[str]:
    place = places([block for block, _ in floors])
    apart = [f"{place(block)} ({interval(floor)})" for block, floor in floors if block.control_differs]
    chance = f"by chance {(1 - LEVEL) * len(floors):.1f} of {len(floors)} would"
    return [f"Standing out by itself, without the correction ({chance}): {', '.join(apart)}."] if apart else []


def _strayed(floors: Sequence[Floor]) -> list[str]:
    place = places([block for block, _ in floors])
    return [f"The control of {place(block)} fails parity, the baseline run twice did not train the "
            f"same: {block.control_strays}. Parity of the other cells there proves less."
            for block, _ in floors if block.control_strays]  # fmt: skip


def _offset(share: float) -> str:
    """`0.3%`; beyond doubling it is no figure any more."""
    return formats.share(share) if share <= 1 else "over 100%"


def _row(block: BlockResult, floor: Interval, controls: int) -> Row:
    return {
        "study": block.study, "block": block.block, "control": floor.value, "low": floor.low, "high": floor.high,
        "suspect": block.suspect, "apart_by_itself": block.control_differs, "parity_reason": block.control_strays,
        "offset_shown": _finite(floor, 1), "offset_shown_corrected": _finite(floor, controls),
    }  # fmt: skip


def _finite(floor: Interval, tests: int) -> float | None:
    """The offset that it could show; None for a single round, which shows nothing."""
    return offset_shown(floor.observed, tests) if len(floor.observed) > 1 else None


def _pairs(block: BlockResult) -> str:
    """Rounds in which baseline and control make a pair: a cell may have been run in more."""
    return str(block.noise_floor.rounds if block.noise_floor else block.rounds)


def _noise_table(blocks: Sequence[BlockResult], controls: int) -> Table:
    place = places(blocks)
    rows = [
        (
            place(block),
            interval(block.noise_floor),
            _word(block, controls),
            _could_show(block.noise_floor, 1),
            _could_show(block.noise_floor, controls),
            _pairs(block),
            _spread(block),
            "; ".join(block.warnings) or formats.ABSENT,
        )
        for block in blocks[: 4 * MOST_DOTS]
    ]
    return Table(
        caption="A/A control of each block",
        rows=tuple(rows),
        numeric=frozenset({1, 3, 4, 5, 6}),
        columns=(
            "block",
            "control ÷ baseline [95% interval]",
            "control",
            "could show, by itself",
            "could show, corrected",
            "rounds",
            "largest spread of a cell",
            "warnings",
        ),
    )


def _could_show(floor: Interval | None, tests: int) -> str:
    offset = _finite(floor, tests) if floor else None
    return formats.ABSENT if offset is None else _offset(offset)


def _word(block: BlockResult, controls: int) -> str:
    floor = block.noise_floor
    if floor is None or len(floor.observed) < 2:
        return formats.ABSENT
    alone, corrected = (offset_shown(floor.observed, tests) <= COARSE for tests in (1, controls))
    apart = "suspect" if block.suspect else "stands out by itself" if block.control_differs else ""
    return ", ".join(filter(None, [apart, "fails parity" if block.control_strays else ""])) or (
        "ok" if corrected else "ok by itself" if alone else "too coarse to tell")  # fmt: skip


def _spread(block: BlockResult) -> str:
    return formats.share(max((arm.spread for arm in block.arms if arm.spread is not None), default=None))
