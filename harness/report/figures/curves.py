"""Lines: a metric along a sweep with claimed bands, and loss curves over each other."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from harness.report.figures import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


#: Letters of a label that go up the side of a figure, and of all those under it that stand level.
LABEL, BESIDE = 34, 60


@dataclass(frozen=True, kw_only=True)
class Band:
    """A claimed range; an open end reaches to the edge of the figure."""

    label: str
    low: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True)
class Line:
    """One curve with intervals; `low` and `high` equal `ys` where there is none."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    dotted: bool = False
    """Not measured but for the first point, which stands on another line."""


@dataclass(frozen=True, kw_only=True)
class LossLine:
    """The losses of a cell by step, nats."""

    name: str
    losses: Sequence[float]
    """Mean over `rounds`."""
    rounds: int
    gap: Sequence[float] = ()
    """Minus the baseline's of the same round, mean over `gap_rounds`; empty for the baseline."""
    gap_rounds: int = 0
    note: str = ""
    """What the legend says beside the name."""

    @property
    def label(self) -> str:
        return f"{self.name} ({self.note})" if self.note else self.name


def sweep(
    figure: Figure,
    lines: Sequence[Line],
    bands: Sequence[Band],
    *,
    x_label: str,
    y_label: str,
    neutral: float | None,
    percent: bool,
    names: Mapping[float, str] | None = None,
) -> None:
    """Curves over a logarithmic axis (values of a sweep double), the claimed ranges as bands behind them.

    With `names` the values are places one beside the other, and each has its name.

    A 0, which such an axis does not have, makes its values places one beside the other. No line comes from it: between
    nothing and the least of something anything may be.
    """
    axes = figure.subplots()
    xs = sorted({x for each in lines for x in each.xs})
    doubling = xs[0] > 0 and not names
    if doubling:
        axes.set_xscale("log", base=2)
    places = {x: x if doubling else float(place) for place, x in enumerate(xs)}
    for index, each in enumerate(lines):
        alone = sum(x <= 0 for x in each.xs)
        _line(axes, index, replace(each, xs=[places[x] for x in each.xs]), alone)
    labels = [(names or {}).get(x, f"{x:g}") for x in xs]
    axes.set_xticks(list(places.values()), labels)
    if sum(map(len, labels)) > BESIDE:
        axes.tick_params(axis="x", labelrotation=20)
    axes.minorticks_off()
    _neutral(axes, neutral)
    _bands(axes, bands)
    if percent:
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
    axes.set(xlabel=x_label, ylabel=textwrap.fill(y_label, LABEL))
    style.legend(figure, axes)


def _line(axes: Axes, index: int, line: Line, alone: int) -> None:
    """One curve; of its first points `alone` are not joined to the others."""
    import seaborn

    colour = style.colour(index)
    if alone:
        axes.plot(line.xs[:alone], line.ys[:alone], color=colour, marker=style.marker(index), linestyle="none",
                  markeredgecolor=style.PAPER, label=None if line.xs[alone:] else line.name)  # fmt: skip
    seaborn.lineplot(
        x=list(line.xs[alone:]), y=list(line.ys[alone:]), ax=axes, label=line.name, color=colour,
        marker=style.marker(index), linestyle=(0, (1, 1.6)) if line.dotted else style.line(index), errorbar=None,
        markeredgecolor=style.PAPER,
        markevery=slice(1, None) if line.dotted else None,  # it begins where another line has measured
    )  # fmt: skip
    for x, y, low, high in zip(line.xs, line.ys, line.low, line.high, strict=True):
        if low < high:
            axes.errorbar(x, y, yerr=[[y - low], [high - y]], fmt="none", ecolor=colour, elinewidth=1.2, capsize=2.5)


def _neutral(axes: Axes, neutral: float | None) -> None:
    if neutral is not None:
        axes.axhline(neutral, color=style.MUTED, linewidth=0.9, linestyle=(0, (2, 2)), zorder=1)
        style.widen(axes, "y")


def _bands(axes: Axes, bands: Sequence[Band]) -> None:
    ends = [end for band in bands for end in (band.low, band.high) if end is not None]
    low, high = axes.get_ylim()
    low, high = min([low, *ends]), max([high, *ends])
    room = 0.04 * (high - low)
    axes.set_ylim(low - room, high + room)
    bottom, top = axes.get_ylim()
    for index, band in enumerate(bands):
        colour = style.BANDS[index % len(style.BANDS)]
        floor, ceiling = bottom if band.low is None else band.low, top if band.high is None else band.high
        axes.axhspan(floor, ceiling, color=colour, alpha=0.2, linewidth=0, zorder=0, label=band.label)
        for end in (band.low, band.high):
            if end is not None:
                axes.axhline(end, color=colour, linewidth=1, zorder=0.5)
    axes.set_ylim(bottom, top)


def losses(figure: Figure, lines: Sequence[LossLine], *, margin: float | None) -> None:
    """Above: the loss of each cell by step. Below: its distance from the baseline's, where a difference can be seen.

    Args:
        figure: to draw into.
        lines: the baseline first, which has no gap.
        margin: of parity, where it is the same for all lines, nats.
    """
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    for index, line in enumerate(lines):
        look = {"color": style.colour(index), "linestyle": style.line(index), "linewidth": 1.5}
        upper.plot(range(1, len(line.losses) + 1), line.losses, label=line.label, **look)
        lower.plot(range(1, len(line.gap) + 1), line.gap, **look)
    if margin:
        lower.axhspan(-margin, margin, color=style.BANDS[0], alpha=0.18, linewidth=0, label="margin of parity")
        lower.legend(loc="best")
    lower.axhline(0, color=style.MUTED, linewidth=0.9)
    upper.set(ylabel="loss (nats)")
    lower.set(xlabel="step, warm-up included", ylabel="minus baseline")
    style.legend(figure, upper)
