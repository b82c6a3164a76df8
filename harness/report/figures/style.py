"""One look for all figures: colours that are told apart by colour-blind eyes and hold on white and on near-black."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, GRID, PAPER = "#1d232b", "#626c78", "#dfe3e8", "#fefefe"
#: Series in fixed order (after Okabe and Ito, darkened to 3:1 on white).
SERIES = ("#2b6cb0", "#c2571a", "#15806a", "#9a4fae", "#a67c00", "#5b6b7c", "#b83260", "#40342c")
#: Claimed bands: two at most stand on one curve.
BANDS = ("#3d8f7a", "#c98a1b")
#: As many as colours, so that no two of eight share either; those two apart come to share a colour, and differ most.
MARKERS = ("o", "D", "^", "v", "s", "P", "X", "<")
LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (6, 2, 1, 2)))

#: Of a name beside an axis or in a legend: more are of no cell that anybody reads.
MOST_LINES = 5
#: Letters of a line of a legend, which must fit into a figure of 6.6 inches.
LEGEND_WIDTH = 80
MOST_COLUMNS = 5
#: Height of a line of text.
LINE_INCHES = 0.16
#: Of an axis of ratios: 1.00x to 1.10x.
LEAST_SPAN = 0.1

#: Colour in a figure → CSS variable of the page, so that inline figures follow the theme.
VARIABLES: dict[str, str] = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    GRID: "var(--rule)",
    PAPER: "var(--card)",
    **{colour: f"var(--c{index})" for index, colour in enumerate(SERIES, start=1)},
    **{colour: f"var(--band{index})" for index, colour in enumerate(BANDS, start=1)},
}


@contextmanager
def look() -> Iterator[None]:
    """Within it, every figure that is made has the report's look."""
    import matplotlib
    import seaborn

    with matplotlib.rc_context(seaborn.axes_style("whitegrid")), matplotlib.rc_context(_parameters()):
        yield


def _parameters() -> dict[Any, Any]:
    return {
        "svg.fonttype": "none",
        "svg.hashsalt": "claimbench",  # text stays text; ids are the same in every run
        "text.parse_math": False,  # a `$` in a name is a character
        "font.family": ["DejaVu Sans"],
        "font.size": 9,
        "axes.titlesize": 9.5,
        "axes.labelsize": 9,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "legend.fontsize": 8.5,
        "legend.frameon": False,
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.titlecolor": INK,
        "xtick.color": MUTED,
        "ytick.color": MUTED,
        "axes.edgecolor": MUTED,
        "grid.color": GRID,
        "grid.linewidth": 0.7,
        "axes.linewidth": 0.8,
        "figure.facecolor": PAPER,
        "axes.facecolor": "none",
        "savefig.facecolor": PAPER,
        "legend.labelcolor": INK,
        "lines.linewidth": 1.6,
        "lines.markersize": 5,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.formatter.useoffset": False,  # "+1" at an axis' end is overlooked
    }


def colour(index: int) -> str:
    """The colour of the series with this index."""
    return SERIES[index % len(SERIES)]


def marker(index: int) -> str:
    """Its marker: another one each time that its colour comes round again."""
    return MARKERS[_shifted(index, len(MARKERS))]


def line(index: int) -> Any:
    """Its line style, likewise."""
    return LINES[_shifted(index, len(LINES))]


def _shifted(index: int, count: int) -> int:
    """Two further on with each round of the colours. Series three or four apart then share none, whose colours are
    alike to eyes that lack red or green (orange and gold, blue and purple)."""
    return (index + 2 * (index // len(SERIES))) % count


def widen(axes: Axes, axis: Literal["x", "y"], least: float = LEAST_SPAN) -> None:
    """Let an axis of ratios show `least`: what differs by a thousandth must not fill the figure."""
    low, high = axes.get_xlim() if axis == "x" else axes.get_ylim()
    if high - low < least:
        middle = (low + high) / 2
        (axes.set_xlim if axis == "x" else axes.set_ylim)(middle - least / 2, middle + least / 2)


def shorten(name: str, limit: int = 38) -> str:
    """A cell's name that fits beside an axis."""
    return name if len(name) <= limit else f"{name[: limit - 1]}…"


def wrap(name: str, width: int = 34) -> str:
    """A cell's name beside an axis, on as many lines as it takes; of very many the first two and the last."""
    import textwrap

    lines = textwrap.wrap(name, width, break_on_hyphens=False) or [""]
    return "\n".join(lines if len(lines) <= MOST_LINES else [*lines[:2], "…", lines[-1]])


def hatch(index: int) -> str:
    """A pattern over the colour, so that stacked and grouped bars are told apart in grey as well."""
    return ("", "///", "\\\\\\", "--", "xx", "++")[index % 6]


def doubling(axes: Axes, which: Literal["x", "y"]) -> None:
    """A logarithmic axis with plain numbers at 1, 2, 4, 8 and no others: minor ticks would be written as formulas.

    Values that lie so close that there would be no number, or only one, keep the linear axis.
    """
    from matplotlib.ticker import NullLocator

    low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
    if low > 0 and high < 4 * low:
        return
    scale, axis = (axes.set_xscale, axes.xaxis) if which == "x" else (axes.set_yscale, axes.yaxis)
    scale("log", base=2)
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_locator(NullLocator())


def drop_legend(axes: Axes) -> None:
    """Take away the legend that seaborn puts over the data."""
    legend = axes.get_legend()
    if legend is not None:
        legend.remove()


def legend(figure: Figure, axes: Axes) -> None:
    """The legend below the axes, where it covers nothing, in as many columns as the figure has room for."""
    handles, labels = axes.get_legend_handles_labels()
    drop_legend(axes)
    if handles:
        texts = [wrap(label, LEGEND_WIDTH) for label in labels]
        columns = _columns(labels, figure.get_figwidth())
        figure.legend(handles, texts, loc="outside lower center", ncols=columns, handlelength=2.6, columnspacing=1.6)


def legend_inches(labels: Sequence[str], width: float) -> float:
    """What a figure of this width must be higher for the legend of these labels: beyond the two lines that any has."""
    lines = max((wrap(label, LEGEND_WIDTH).count("\n") + 1 for label in labels), default=0)
    return LINE_INCHES * max(0, lines * -(-len(labels) // _columns(labels, width)) - 2)


def _columns(labels: Sequence[str], width: float) -> int:
    """By the longest line: the sign before it takes 0.6 inches with the space around it, a letter 0.07."""
    longest = max((len(line) for label in labels for line in wrap(label, LEGEND_WIDTH).split("\n")), default=0)
    return max(1, min(MOST_COLUMNS, len(labels), int(width / (0.6 + 0.07 * longest))))
