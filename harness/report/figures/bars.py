"""Bars and dots by cell: memory in its views, phases of a step, the stack, interactions, noise floor, targets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
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


#: Inches of a row with a name of one line: of bars, of dots, and of groups of bars.
ROW, THIN, GROUP = 0.3, 0.26, 0.5
#: A bar more than so many times as long as the others is cut, where at most one of `AMONG` is.
FAR, AMONG = 3, 4


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
    """Grouped bars: peak memory of each cell in each view, GiB. Those that would flatten all others are cut."""
    axes = figure.subplots()
    views = list(dict.fromkeys(view for each in cells.values() for view in each))
    thick, places = 0.8 / len(views), rows(list(cells), each=GROUP)
    reach = reach_of([max(each.values(), default=0.0) / 2**30 for each in cells.values()])
    for index, view in enumerate(views):
        seen = [
            (row - 0.4 + (index + 0.5) * thick, each[view] / 2**30)
            for row, each in zip(places, cells.values(), strict=True) if view in each
        ]  # fmt: skip
        axes.barh(
            [place for place, _ in seen],
            [gib for _, gib in seen],
            height=thick,
            label=view,
            color=style.colour(index),
            hatch=style.hatch(index),
            edgecolor=style.PAPER,
            linewidth=0.6,
        )
        for place, gib in seen:
            if reach and gib > reach:
                _cut(axes, place, reach, f"{gib:.1f} GiB")
    axes.set(xlabel="peak memory (GiB)", xlim=(0, reach) if reach else None)
    named_rows(axes, list(cells), each=GROUP)
    style.legend(figure, axes)


def phases(figure: Figure, cells: Mapping[str, Mapping[str, float]]) -> None:
    """Stacked bars: where the time of a step goes, milliseconds. A bar that would flatten all others is cut."""
    axes = figure.subplots()
    order = in_time(phase for each in cells.values() for phase in each)
    places, left = rows(list(cells)), [0.0] * len(cells)
    for index, phase in enumerate(order):
        widths = [1000 * each.get(phase, 0.0) for each in cells.values()]
        axes.barh(
            places,
            widths,
            left=left,
            label=_called(phase),
            color=style.colour(index),
            height=0.66,
            hatch=style.hatch(index),
            edgecolor=style.PAPER,
            linewidth=0.6,
        )
        left = [start + width for start, width in zip(left, widths, strict=True)]
    axes.set(xlabel="mean time of a step (ms)")
    named_rows(axes, list(cells))
    if reach := reach_of(left):
        axes.set_xlim(0, reach)
        for row, total, each in zip(places, left, cells.values(), strict=True):
            if total > reach:
                most = max(each, key=lambda phase: each[phase])
                _cut(axes, row, reach, f"{total:,.0f} ms, {1000 * each[most]:,.0f} of it {_called(most)}")
    style.legend(figure, axes)


def _called(phase: str) -> str:
    return PHASES.get(phase, phase.replace("_", " "))


def in_time(phases: Iterable[str]) -> list[str]:
    """Each phase once, in the order in which they pass in a step; those that are not known last."""
    found = dict.fromkeys(phases)
    return [*(phase for phase in PHASES if phase in found), *(phase for phase in found if phase not in PHASES)]


def waterfall(figure: Figure, steps: Sequence[Step], *, unit: str) -> None:
    """Each technique's own step from the stack before it to the stack with it; hollow where it is not certain.

    What is reached stands at that end of the bar.
    """
    axes = figure.subplots()
    names = [f"+ {step.name}" if index else step.name for index, step in enumerate(steps)]
    before, places = 1.0, rows(names)
    for above, row, step in zip([places[0] - 1, *places], places, steps, strict=False):
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
        axes.plot([before, before], [above + 0.3, row + 0.31], color=style.MUTED, linewidth=0.9)
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
    axes.use_sticky_edges = False  # else there is no room for a number at the outermost bar
    axes.margins(x=0.16)
    style.widen(axes, "x")
    what = "tokens/s" if unit == "speed" else "peak reserved memory"
    axes.set(xlabel=f"{what}, multiple of the baseline")
    named_rows(axes, names)


def interactions(figure: Figure, pairs: Sequence[tuple[Dot, float]]) -> None:
    """Measured gain of a combination (dot with interval) against the product of its parts' gains (open square)."""
    axes = figure.subplots()
    names = [dot.name for dot, _ in pairs]
    for row, (dot, product) in zip(rows(names), pairs, strict=True):
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
    named_rows(axes, names)
    axes.set(xlabel="tokens/s, multiple of the baseline")
    style.widen(axes, "x")
    style.legend(figure, axes)


def dots(
    figure: Figure, values: Sequence[Dot], *, x_label: str, lines: Sequence[tuple[str, float]], percent: bool = False
) -> None:
    """One dot a row with its interval; reference values as vertical lines; marked rows stand out."""
    axes = figure.subplots()
    names = [dot.name for dot in values]
    for row, dot in zip(rows(names, each=THIN), values, strict=True):
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
    named_rows(axes, names, each=THIN)
    axes.set(xlabel=x_label)
    style.legend(figure, axes)


def height(names: Sequence[str], *, each: float = ROW, rest: float = 1.2) -> float:
    """Inches for rows of these names, of which a name of one line takes `each`."""
    return rest + each * max(rows(names, each=each)[-1] + 1, 2)


def rows(names: Sequence[str], *, each: float = ROW) -> list[float]:
    """Where each row lies, the first at 0, in units of `each` inches: two neighbours as far apart as their own names
    need, so that one long name does not spread all of them."""
    lines = [style.wrap(name).count("\n") + 1 for name in names]
    needed = ((0.06 + style.LINE_INCHES * sum(two) / 2) / each if max(two) > 1 else 1.0 for two in pairwise(lines))
    return list(accumulate((max(1.0, distance) for distance in needed), initial=0.0))


def named_rows(axes: Axes, names: Sequence[str], *, each: float = ROW) -> None:
    """A name beside each row (`rows`), the first at the top."""
    places = rows(names, each=each)
    axes.set_yticks(places, [style.wrap(name) for name in names])
    axes.set_ylim(places[-1] + 0.6, -0.6)
    _horizontal(axes)


def reach_of(lengths: Sequence[float]) -> float | None:
    """Where to cut bars of which a few are so long that they flatten all others; None where none is."""
    longest = sorted(lengths, reverse=True)
    few = (count for count in range(len(longest) // AMONG, 0, -1) if longest[count - 1] > FAR * longest[count] > 0)
    cut = next(few, None)
    return None if cut is None else 1.25 * longest[cut]


def _cut(axes: Axes, row: float, reach: float, text: str) -> None:
    """At the end of a bar that goes on beyond the axis: a gap, and how far it goes."""
    axes.annotate(
        f"{text} ▸", (reach, row), xytext=(-3, 0), textcoords="offset points", ha="right", va="center", fontsize=8,
        bbox={"facecolor": style.PAPER, "edgecolor": style.MUTED, "linewidth": 0.6, "boxstyle": "square,pad=0.2"},
    )  # fmt: skip


def _horizontal(axes: Axes) -> None:
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x")
    axes.set_axisbelow(True)
