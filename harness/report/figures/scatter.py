"""Points: speed against memory, and predicted against measured memory."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from harness.report.figures import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Groups with a colour, a sign and a place in the legend.
MOST_NAMED = 12
#: Signs that are drawn one by one; each takes 300 bytes.
MOST_SIGNS = 200
#: Numbers of points that are nearer to each other than this would be written over each other.
LABEL_POINTS = 12


@dataclass(frozen=True, kw_only=True)
class Spot:
    """One cell of a study or a model. `label` is written beside it where there is one."""

    group: str
    x: float
    y: float
    label: str = ""


def pareto(figure: Figure, spots: Sequence[Spot], front: Sequence[Spot]) -> None:
    """Every cell by peak memory and speed; those that no other beats on both are joined and numbered.

    More studies than colours and signs can tell apart are one grey cloud, those on the front apart.
    """
    axes = figure.subplots()
    axes.step(
        [each.x for each in front], [each.y for each in front], where="post", color=style.MUTED, linewidth=1.2, zorder=1
    )
    groups = list(dict.fromkeys(each.group for each in [*front, *spots]))
    named = set(groups[:MOST_NAMED])
    _named(axes, [each for each in spots if each.group in named])
    _cloud(axes, [each for each in spots if each.group not in named], f"{len(groups) - len(named)} more studies")
    style.doubling(axes, "x")
    axes.margins(0.08)
    for each in _apart(axes, front):
        axes.annotate(
            each.label, (each.x, each.y), xytext=(-5, 5), textcoords="offset points", ha="right", fontweight="bold"
        )
    axes.set(xlabel="peak reserved memory (GiB)", ylabel="tokens/s")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    handles, labels = axes.get_legend_handles_labels()
    style.drop_legend(axes)
    figure.legend(handles, [style.shorten(label, 26) for label in labels], loc="outside lower center", ncols=3)


def _apart(axes: Axes, front: Sequence[Spot]) -> list[Spot]:
    """The front with one label, `6, 7`, where two would be written over each other."""
    axes.autoscale_view()
    near = LABEL_POINTS * axes.figure.dpi / 72
    kept: list[Spot] = []
    for each in front:
        before = kept[-1] if kept else each
        (x, y), (last_x, last_y) = axes.transData.transform([(each.x, each.y), (before.x, before.y)])
        if kept and math.hypot(x - last_x, y - last_y) < near:
            kept[-1] = replace(before, label=f"{before.label}, {each.label}")
        else:
            kept.append(each)
    return kept


def _named(axes: Axes, spots: Sequence[Spot]) -> None:
    """A colour and a sign for each study."""
    import seaborn

    groups = list(dict.fromkeys(each.group for each in spots))
    seaborn.scatterplot(
        x=[each.x for each in spots],
        y=[each.y for each in spots],
        hue=[each.group for each in spots],
        style=[each.group for each in spots],
        ax=axes,
        s=34,
        edgecolor=style.PAPER,
        zorder=2,
        palette={name: style.colour(index) for index, name in enumerate(groups)},
        markers={name: style.marker(index) for index, name in enumerate(groups)},
    )


def _cloud(axes: Axes, spots: Sequence[Spot], label: str) -> None:
    """The cells of all other groups; very many are an image, which keeps the SVG small enough for the page."""
    if spots:
        axes.scatter(
            [each.x for each in spots],
            [each.y for each in spots],
            s=9,
            color=style.MUTED,
            alpha=0.45,
            linewidth=0,
            zorder=1.5,
            label=label,
            rasterized=len(spots) > MOST_SIGNS,
        )


def band_label(low: float, high: float) -> str:
    """Of the band in `estimator`."""
    return f"predicted ÷ measured from {low:g} to {high:g}"


def estimator(figure: Figure, spots: Sequence[Spot], *, low: float, high: float) -> None:
    """The document's estimate against the measured peak, GiB on both axes; inside the band it is within the claim.

    A colour and a sign for each model; more models than these can tell apart are one grey cloud, those with fewest
    cells.
    """
    axes = figure.subplots()
    values = [value for each in spots for value in (each.x, each.y)]
    ends = (min(values) * 0.7, max(values) * 1.4)
    axes.fill_between(
        ends,
        [low * end for end in ends],
        [high * end for end in ends],
        color=style.BANDS[0],
        alpha=0.2,
        linewidth=0,
        label=band_label(low, high),
    )
    axes.plot(ends, ends, color=style.MUTED, linewidth=0.9)
    groups = [group for group, _ in Counter(each.group for each in spots).most_common()]
    for index, group in enumerate(groups[:MOST_NAMED]):
        members = [each for each in spots if each.group == group]
        axes.scatter(
            [each.x for each in members],
            [each.y for each in members],
            s=30,
            color=style.colour(index),
            edgecolor=style.PAPER,
            marker=style.marker(index),
            label=group,
            zorder=3,
        )
    rest = groups[MOST_NAMED:]
    _cloud(axes, [each for each in spots if each.group in rest], f"{len(rest)} more model{'s' if rest[1:] else ''}")
    axes.set(xlabel="measured peak (GiB)", ylabel="predicted (GiB)", xlim=ends)
    style.doubling(axes, "x")
    style.doubling(axes, "y")
    style.legend(figure, axes)
