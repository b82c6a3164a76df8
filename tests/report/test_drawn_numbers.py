"""What is drawn is what was given: lengths, ends of whiskers, places on the axes, names in the legend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import FillBetweenPolyCollection, LineCollection, PathCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from harness.report.figures import bars, controls, curves, scatter, style
from harness.report.figures.bars import Dot
from harness.report.figures.scatter import Spot
from tests.report.reading import legend_of


def widths(axes: Axes) -> list[list[tuple[float, float]]]:
    """Of each set of bars where they begin and how long they are."""
    return [
        [(bar.get_x(), bar.get_width()) for bar in container.patches]
        for container in axes.containers
        if hasattr(container, "patches")
    ]


def whiskers(axes: Axes) -> list[list[float]]:
    """Ends of the intervals, in the order in which they were drawn, on the axis along which they lie."""
    found = [np.asarray(segment) for each in axes.collections if isinstance(each, LineCollection)
             for segment in each.get_segments()]  # fmt: skip
    return [sorted({round(float(end), 6) for end in (each[:, 0] if each[0, 1] == each[1, 1] else each[:, 1])})
            for each in found]  # fmt: skip


def names_from_the_top(axes: Axes) -> list[str]:
    low, high = axes.get_ylim()
    labels = [text.get_text() for text in axes.get_yticklabels()]
    return labels if low > high else labels[::-1]


def test_bars_of_memory_are_gib_of_their_own_cell_and_view() -> None:
    gib = 2.0**30
    figure = Figure()
    bars.memory(figure, {"first": {"allocated": gib, "reserved": 2 * gib}, "second": {"allocated": 3 * gib}})
    (axes,) = figure.axes
    assert widths(axes) == [[(0, 1.0), (0, 3.0)], [(0, 2.0)]]
    assert legend_of(figure) == ["allocated", "reserved"]
    assert names_from_the_top(axes) == ["first", "second"]
    assert axes.get_xlabel() == "peak memory (GiB)"


def test_bars_of_phases_begin_where_the_one_before_ends_in_milliseconds() -> None:
    figure = Figure()
    bars.phases(figure, {"first": {"backward": 0.2, "forward": 0.1}, "second": {"forward": 0.3}})
    (axes,) = figure.axes
    assert widths(axes) == [
        [(0, pytest.approx(100)), (0, pytest.approx(300))],
        [(pytest.approx(100), pytest.approx(200)), (pytest.approx(300), 0)],
    ]
    assert legend_of(figure) == ["forward", "backward"]
    assert axes.get_xlabel() == "mean time of a step (ms)"


@pytest.mark.parametrize(
    ("unit", "good", "label"),
    [("speed", True, "tokens/s, multiple of the baseline"),
     ("memory", False, "peak reserved memory, multiple of the baseline")],
)  # fmt: skip
def test_bars_of_a_stack_go_from_what_was_reached_to_what_is(unit: str, good: bool, label: str) -> None:
    steps = [bars.Step(name=name, value=value) for name, value in (("baseline", 1.0), ("a", 2.0), ("b", 1.5))]
    figure = Figure()
    bars.waterfall(figure, steps, unit=unit)
    (axes,) = figure.axes
    assert [found for (found,) in widths(axes)] == [(1, 0), (1, 1), (2, -0.5)]
    more, less = (to_hex(patch.get_facecolor()) == style.SERIES[0] for patch in axes.patches[1:])
    assert (more, less) == (good, not good), "more speed is better, more memory is not"
    assert names_from_the_top(axes) == ["baseline", "+ a", "+ b"]
    assert axes.get_xlabel() == label


def test_a_combination_has_its_interval_and_its_product_where_they_are() -> None:
    figure = Figure()
    pairs = [(Dot(name="a b", value=2.0, low=1.9, high=2.4), 3.0), (Dot(name="a c", value=1.5, low=1.2, high=1.6), 1.4)]
    bars.interactions(figure, pairs)
    (axes,) = figure.axes
    assert whiskers(axes) == [[1.9, 2.4], [1.2, 1.6]]
    squares = [float(line.get_xdata()[0]) for line in axes.lines if line.get_marker() == "s"]
    assert squares == [3.0, 1.4]
    handles, labels = axes.get_legend_handles_labels()
    looks = {label: getattr(handle, "get_marker", lambda: "o")() for handle, label in zip(handles, labels, strict=True)}
    assert looks == {"product of the single gains": "s", "measured together": "o"}
    assert names_from_the_top(axes) == ["a b", "a c"]


def test_dots_have_their_intervals_and_those_that_stand_out_another_look() -> None:
    figure = Figure()
    values = [Dot(name="a", value=0.5, low=0.4, high=0.8), Dot(name="b", value=0.9, low=0.7, high=1.0, marked=True)]
    bars.dots(figure, values, x_label="share", lines=[("claim: 85%", 0.85), ("", 1.0)], percent=True)
    (axes,) = figure.axes
    assert whiskers(axes) == [[0.4, 0.8], [0.7, 1.0]]
    looks = [(line.get_marker(), to_hex(line.get_color())) for line in axes.lines if line.get_marker() in {"o", "D"}]
    assert looks == [("o", style.SERIES[0]), ("D", style.SERIES[1])]
    assert axes.xaxis.get_major_formatter()(0.85) == "85%"
    assert legend_of(figure) == ["claim: 85%"]
    assert names_from_the_top(axes) == ["a", "b"]


def test_a_control_that_stands_out_has_another_look_and_an_arrow_to_its_own_side() -> None:
    figure = Figure()
    dots = [Dot(name="a", value=1.0, low=0.98, high=1.03), Dot(name="b", value=1.01, low=0.6, high=1.4, marked=True)]
    controls.controls(figure, dots, x_label="x", reach=1.05)
    (axes,) = figure.axes
    looks = [(line.get_marker(), to_hex(line.get_color())) for line in axes.lines if line.get_marker() in {"o", "D"}]
    assert looks == [("o", style.SERIES[0]), ("D", style.SERIES[1])]
    arrows = {
        str(line.get_marker()): float(line.get_xdata()[0]) for line in axes.lines if line.get_marker() in {"<", ">"}
    }
    assert arrows == pytest.approx({"<": 1 / 1.05, ">": 1.05})
    texts = {text.get_text(): text.xy[0] for text in axes.texts}  # type: ignore[attr-defined]
    assert texts == pytest.approx({"0.60": 1 / 1.05, "1.40": 1.05})
    assert list(axes.lines[1].get_xdata()) == [0.98, 1.03]
    assert axes.get_xlim()[0] < axes.get_xlim()[1]


def a_sweep(*bands: curves.Band, **look: Any) -> Figure:
    line = curves.Line(name="a cell", xs=[2, 8], ys=[1.5, 2.0], low=[1.4, 1.7], high=[1.8, 2.1])
    given = {"x_label": "batch size", "y_label": "speedup", "neutral": 1.0, "percent": False, **look}
    figure = Figure()
    curves.sweep(figure, [line], bands, **given)
    return figure


def test_a_curve_has_its_intervals_its_ticks_and_its_labels() -> None:
    (axes,) = a_sweep().axes
    assert whiskers(axes) == [[1.4, 1.8], [1.7, 2.1]]
    assert {text.get_position()[0]: text.get_text() for text in axes.get_xticklabels()} == {2: "2", 8: "8"}
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("batch size", "speedup")
    assert [float(line.get_ydata()[0]) for line in axes.lines if list(line.get_xdata()) == [0, 1]] == [1.0]
    assert a_sweep(percent=True).axes[0].yaxis.get_major_formatter()(0.25) == "25%"


def test_a_claimed_range_reaches_from_end_to_end_and_an_open_one_to_the_edge() -> None:
    bands = [curves.Band(label="one", low=1.2, high=3.0), curves.Band(label="least", low=1.6, high=None),
             curves.Band(label="most", low=None, high=1.3)]  # fmt: skip
    figure = a_sweep(*bands)
    (axes,) = figure.axes
    bottom, top = axes.get_ylim()
    assert bottom < 1.0
    assert top > 3.0, "the whole of what is claimed is in sight"
    spans = [(patch.get_y(), patch.get_y() + patch.get_height()) for patch in axes.patches]
    assert spans == [pytest.approx((1.2, 3.0)), pytest.approx((1.6, top)), pytest.approx((bottom, 1.3))]
    assert legend_of(figure) == ["a cell", "one", "least", "most"]


def test_losses_begin_with_step_1_and_their_distance_stands_below() -> None:
    lines = [
        curves.LossLine(name="baseline", losses=[3.0, 2.0], rounds=3),
        curves.LossLine(name="a cell", losses=[3.5, 2.1], rounds=3, gap=[0.5, 0.1], gap_rounds=3, note="other work"),
    ]
    figure = Figure()
    curves.losses(figure, lines, margin=0.3)
    upper, lower = figure.axes
    assert [[*map(float, line.get_ydata())] for line in upper.lines] == [[3.0, 2.0], [3.5, 2.1]]
    assert [[*map(float, line.get_xdata())] for line in upper.lines] == [[1, 2], [1, 2]]
    assert [*map(float, lower.lines[1].get_ydata())] == [0.5, 0.1]
    assert [*map(float, lower.lines[1].get_xdata())] == [1, 2]
    (band,) = lower.patches
    assert (band.get_y(), band.get_height()) == pytest.approx((-0.3, 0.6))
    assert (upper.get_ylabel(), lower.get_ylabel()) == ("loss (nats)", "minus baseline")
    assert legend_of(figure) == ["baseline", "a cell (other work)"]


def test_speed_against_memory_has_each_where_its_label_says() -> None:
    spots = [Spot(group="a", x=2, y=100), Spot(group="b", x=8, y=3000), Spot(group="b", x=16, y=2000)]
    figure = Figure()
    scatter.pareto(figure, spots, [Spot(group=each.group, x=each.x, y=each.y, label=str(place))
                                   for place, each in enumerate(spots[:2], 1)])  # fmt: skip
    (axes,) = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("peak reserved memory (GiB)", "tokens/s")
    points = [tuple(map(float, point)) for each in axes.collections for point in np.asarray(each.get_offsets())]
    assert points == [(2, 100), (8, 3000), (16, 2000)]
    steps = axes.lines[0]
    assert steps.get_drawstyle() == "steps-post", (
        "with as much memory as the next one needs not, the speed is the last's"
    )
    assert [text.xy for text in axes.texts] == [(2, 100), (8, 3000)]  # type: ignore[attr-defined]


def test_predictions_stand_above_what_was_measured_within_the_claimed_band() -> None:
    figure = Figure()
    scatter.estimator(figure, [Spot(group="a", x=10, y=8), Spot(group="b", x=20, y=30)], low=0.8, high=1.25)
    (axes,) = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("measured peak (GiB)", "predicted (GiB)")
    band = next(each for each in axes.collections if isinstance(each, FillBetweenPolyCollection))
    ratios = {round(y / x, 6) for x, y in np.asarray(band.get_paths()[0].vertices)}
    assert ratios == {0.8, 1.25}
    clouds = [each for each in axes.collections if isinstance(each, PathCollection)]
    assert {each.get_label(): np.asarray(each.get_offsets()).tolist() for each in clouds} == {
        "a": [[10, 8]], "b": [[20, 30]],
    }  # fmt: skip
