"""The noise floor: ratios around 1, most within some per cent and a few far away."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.report.figures import style
from harness.report.figures.bars import THIN, Dot, named_rows, rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Distances of two numbers of the axis, of which the least is taken that leaves `MOST_TICKS` on each side of 1.
TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
MOST_TICKS = 4


def controls(figure: Figure, values: Sequence[Dot], *, x_label: str, reach: float) -> None:
    """One dot a row with its interval, on a logarithmic axis from 1 / `reach` to `reach`; marked rows stand out.

    What goes beyond an edge has an arrow there, and the number at which it ends.
    """
    axes = figure.subplots()
    axes.set_xscale("log")
    axes.set_xlim(1 / reach, reach)
    axes.axvline(1, color=style.MUTED, linewidth=1.3, linestyle=style.line(1))
    names = [dot.name for dot in values]
    for row, dot in zip(rows(names, each=THIN), values, strict=True):
        _dot(axes, row, dot, reach)
    axes.set_xticks(ticks(reach), [f"{each:g}" for each in ticks(reach)])
    axes.minorticks_off()
    named_rows(axes, names, each=THIN)
    axes.set(xlabel=x_label)


def ticks(reach: float) -> list[float]:
    """Round numbers on both sides of 1, within `reach` of it."""
    step = next(
        (each for each in TICKS if (reach - 1) / each < MOST_TICKS + 1), TICKS[-1] * math.ceil(reach / MOST_TICKS)
    )
    around = (1 + step * place for place in range(-MOST_TICKS, MOST_TICKS + 1))
    return [round(each, 2) for each in around if 1 / reach <= each <= reach]


def _dot(axes: Axes, row: float, dot: Dot, reach: float) -> None:
    colour = style.SERIES[1] if dot.marked else style.SERIES[0]
    low, high = (min(max(end, 1 / reach), reach) for end in (dot.low, dot.high))
    axes.plot([low, high], [row, row], color=colour, marker="|", markersize=6)
    if 1 / reach <= dot.value <= reach:
        axes.plot(dot.value, row, color=colour, marker="D" if dot.marked else "o", markersize=4)
    for end, beyond, edge, sign, side in (
        (dot.low, dot.low < 1 / reach, 1 / reach, "<", 1), (dot.high, dot.high > reach, reach, ">", -1),
    ):  # fmt: skip
        if beyond:
            axes.plot(edge, row, color=colour, marker=sign, markersize=6, clip_on=False)
            axes.annotate(f"{end:.2f}", (edge, row), xytext=(6 * side, 2), textcoords="offset points", fontsize=7.5,
                          ha="left" if side > 0 else "right", va="bottom")  # fmt: skip
