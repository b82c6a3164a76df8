"""Bars and dots by cell: memory in its views, phases of a step, the stack, interactions, noise floor, targets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from harness.report.figures import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


#: Phases of a step in the order of time, with what the legend calls them.
PHASES: Mapping[str, str] = {
    "data_wait": "data wait", "copy": "copy", "forward": "forward", "backward": "backward", "optimizer": "optimizer",
    "between": "between steps",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Dot:
    """A value with its interval; the ends equal the value where there is none."""

    name: str
    value: float
    low: float
    high: float
    marked: bool = False


@dataclass(frozen=True, kw_only=True)
class Step:
    """Where a stack stands with one more piece, in multiples of the baseline."""

    name: str
    value: float
    certain: bool = True
    """Whether the piece changes it beyond its interval."""


def memory(figure: Figure, cells: Mapping[str, Mapping[str, float]]) -> None:
    """Grouped bars: peak memory of each cell in each view, GiB."""
    axes = figure.subplots()
    views = list(dict.fromkeys(view for each in cells.values() for view in each))
    thick = 0.8 / len(views)
    for index, view in enumerate(views):
        rows = [(row, each[view] / 2**30) for row, each in enumerate(cells.values()) if view in each]
        places = [row - 0.4 + (index + 0.5) * thick for row, _ in rows]
        axes.barh(
            places,
            [gib for _, gib in rows],
            height=thick,
            label=view,
            color=style.colour(index),
            hatch=style.hatch(index),
            edgecolor=style.PAPER,
            linewidth=0.6,
        )
    axes.set(xlabel="peak memory (GiB)")
    named_rows(axes, list(cells))
    style.legend(figure, axes)


def phases(figure: Figure, cells: Mapping[str, Mapping[str, float]]) -> None:
    """Stacked bars: where the time of a step goes, milliseconds."""
    axes = figure.subplots()
    order = in_time(phase for each in cells.values() for phase in each)
    names = [style.wrap(name) for name in cells]
    left = [0.0] * len(names)
    for index, phase in enumerate(order):
        widths = [1000 * each.get(phase, 0.0) for each in cells.values()]
        axes.barh(
            range(len(names)),
            widths,
            left=left,
            label=PHASES.get(phase, phase.replace("_", " ")),
            color=style.colour(index),
            height=0.66,
            hatch=style.hatch(index),
            edgecolor=style.PAPER,
            linewidth=0.6,
        )
        left = [start + width for start, width in zip(left, widths, strict=True)]
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set(xlabel="mean time of a step (ms)")
    _horizontal(axes)
    style.legend(figure, axes)


def in_time(phases: Iterable[str]) -> list[str]:
    """Each phase once, in the order in which they pass in a step; those that are not known last."""
    found = dict.fromkeys(phases)
    return [*(phase for phase in PHASES if phase in found), *(phase for phase in found if phase not in PHASES)]


def waterfall(figure: Figure, steps: Sequence[Step], *, unit: str) -> None:
    """Each technique's own step from the stack before it to the stack with it; hollow where it is not certain.

    What is reached stands at that end of the bar.
    """
    axes = figure.subplots()
    before = 1.0
    for row, step in enumerate(steps):
        value = step.value
        better = (value >= before) == (unit == "speed")
        colour = style.SERIES[0] if better else style.SERIES[1]
        axes.barh(
            row,
            value - before,
            left=before,
            color=colour if step.certain else style.PAPER,
            height=0.62,
            hatch="" if better else "///",
            edgecolor=style.PAPER if step.certain else colour,
            linewidth=0.6 if step.certain else 1.0,
        )
        axes.plot([before, before], [row - 0.7, row + 0.31], color=style.MUTED, linewidth=0.9)
        left = value < before
        axes.annotate(
            f"{value:.2f}x",
            (value, row),
            xytext=(-4 if left else 4, 0),
            textcoords="offset points",
            ha="right" if left else "left",
            va="center",
            fontsize=8.5,
        )
        before = value
    axes.axvline(1, color=style.MUTED, linewidth=0.9, linestyle=(0, (2, 2)))
    axes.set_yticks(
        range(len(steps)), [style.wrap(f"+ {step.name}" if index else step.name) for index, step in enumerate(steps)]
    )
    axes.invert_yaxis()
    axes.use_sticky_edges = False  # else there is no room for a number at the outermost bar
    axes.margins(x=0.16)
    style.widen(axes, "x")
    what = "tokens/s" if unit == "speed" else "peak reserved memory"
    axes.set(xlabel=f"{what}, multiple of the baseline")
    _horizontal(axes)


def interactions(figure: Figure, rows: Sequence[tuple[Dot, float]]) -> None:
    """Measured gain of a combination (dot with interval) against the product of its parts' gains (open square)."""
    axes = figure.subplots()
    for row, (dot, product) in enumerate(rows):
        axes.plot([product, dot.value], [row, row], color=style.GRID, linewidth=3, zorder=1)
        axes.plot(
            product,
            row,
            marker="s",
            markerfacecolor=style.PAPER,
            markeredgecolor=style.SERIES[1],
            linestyle="none",
            label="product of the single gains" if row == 0 else None,
            zorder=3,
        )
        axes.errorbar(
            dot.value,
            row,
            xerr=[[dot.value - dot.low], [dot.high - dot.value]],
            marker="o",
            color=style.SERIES[0],
            capsize=2.5,
            linestyle="none",
            label="measured together" if row == 0 else None,
            zorder=4,
        )
    named_rows(axes, [dot.name for dot, _ in rows])
    axes.set(xlabel="tokens/s, multiple of the baseline")
    style.widen(axes, "x")
    style.legend(figure, axes)


def dots(
    figure: Figure, values: Sequence[Dot], *, x_label: str, lines: Sequence[tuple[str, float]], percent: bool = False
) -> None:
    """One dot a row with its interval; reference values as vertical lines; marked rows stand out."""
    axes = figure.subplots()
    for row, dot in enumerate(values):
        colour = style.SERIES[1] if dot.marked else style.SERIES[0]
        axes.errorbar(
            dot.value,
            row,
            xerr=[[dot.value - dot.low], [dot.high - dot.value]],
            color=colour,
            capsize=2.5,
            marker="D" if dot.marked else "o",
            linestyle="none",
        )
    for index, (label, value) in enumerate(lines):
        axes.axvline(
            value,
            color=style.MUTED if not label else style.BANDS[index % 2],
            linewidth=1.3,
            linestyle=style.line(index + 1),
            label=label or None,
        )
    if percent:
        axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
    named_rows(axes, [dot.name for dot in values])
    axes.set(xlabel=x_label)
    style.legend(figure, axes)


def height(names: Sequence[str], *, each: float = 0.3, rest: float = 1.2) -> float:
    """Inches for rows of these names, as far apart as the two neighbours with most lines need."""
    lines = [style.wrap(name).count("\n") + 1 for name in names]
    most = max(map(sum, pairwise(lines)), default=2) / 2
    return rest + (max(each, 0.06 + style.LINE_INCHES * most) if most > 1 else each) * max(len(names), 2)


def named_rows(axes: Axes, names: Sequence[str]) -> None:
    """A name beside each row, the first at the top."""
    axes.set_yticks(range(len(names)), [style.wrap(name) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    _horizontal(axes)


def _horizontal(axes: Axes) -> None:
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x")
    axes.set_axisbelow(True)
