"""Figures with one bar, row or place that is unlike all others: it does not spoil these."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from harness.judgement.blocks import compare
from harness.report.figures import bars, curves
from harness.report.figures.gallery import Gallery
from harness.report.figures.studio import Studio
from harness.report.formats import axis_name
from harness.report.pictures import memory_picture, phases_picture
from harness.report.stack import stack_part
from tests.records import CellShape, StudyShape, make_records
from tests.report.reading import legend_of

#: Four lines beside an axis, and one.
LONG, SHORT = " ".join(f"axis_{number}=some-setting" for number in range(8)), "baseline"


@pytest.mark.parametrize(
    ("lengths", "reach"),
    [
        ([40, 45, 1050, 150, 50, 60, 45, 44], 187.5),
        ([1050, 270, 40, 40, 40, 40, 40, 40], 50),
        ([1050, 40, 40], None),
        ([100, 40, 40, 40], None),
        ([0, 0, 0, 0, 1050], None),
        ([], None),
    ],
    ids=["one", "two", "one of three is no exception", "not far", "there is nothing else", "none"],
)
def test_where_bars_are_cut(lengths: list[float], reach: float | None) -> None:
    assert bars.reach_of(lengths) == reach


def test_a_step_that_is_far_longer_than_all_others_is_cut_with_its_time_on_it() -> None:
    """A monitor that waits for a second each step flattened 45 bars of 40 ms."""
    cells = {f"cell={number}": {"forward": 0.02, "backward": 0.02} for number in range(7)}
    figure = Figure(figsize=(6.6, 3))
    bars.phases(figure, {**cells, "monitor": {"forward": 0.02, "backward": 0.02, "between": 1.01}})
    (axes,) = figure.axes
    assert axes.get_xlim() == pytest.approx((0, 50))
    assert [text.get_text() for text in axes.texts] == ["1,050 ms, 1,010 of it between steps ▸"]
    even = Figure(figsize=(6.6, 3))
    bars.phases(even, cells)
    assert [text.get_text() for text in even.axes[0].texts] == []


def test_memory_that_is_far_more_than_all_other_is_cut_with_its_size_on_it() -> None:
    cells = {f"cell={number}": {"allocated": 2.0**30, "reserved": 2.0**31} for number in range(4)}
    figure = Figure(figsize=(6.6, 3))
    bars.memory(figure, {**cells, "large": {"allocated": 2.0**30, "reserved": 2.0**36}})
    (axes,) = figure.axes
    assert axes.get_xlim() == pytest.approx((0, 2.5))
    assert [text.get_text() for text in axes.texts] == ["64.0 GiB ▸"]


def test_a_caption_says_that_a_bar_is_cut(tmp_path: Path) -> None:
    cells = [CellShape(settings={"batch_size": size}) for size in (2, 4, 8)]
    slow = CellShape(settings={"monitor": "cpu-percent"}, ratio=0.02, memory=9.0)
    for shapes, cut in ((cells, False), ([*cells, slow], True)):
        (block,) = compare(make_records([StudyShape(name="monitors", cells=shapes)], rounds=2)).blocks
        gallery = Gallery(folder=tmp_path, studio=Studio())
        for picture in (phases_picture(block, gallery), memory_picture(block, gallery)):
            assert picture is not None
            assert picture.caption.endswith("A bar with an arrow goes on beyond the axis, to the number on it.") is cut


def test_a_name_of_many_lines_does_not_spread_all_rows() -> None:
    """28 rows of a figure were as far apart as the two longest names in it needed: 2,700 pixels."""
    names = [SHORT] * 20
    several = [*names[:10], LONG, *names[10:]]
    apart = [round(below - above, 6) for above, below in pairwise(bars.rows(several))]
    assert sorted(set(apart)) == [1.0, pytest.approx((0.06 + 0.16 * 2.5) / 0.3, abs=1e-6)]
    assert apart.count(1.0) == 18
    assert bars.height(several) - bars.height(names) < 1.0
    assert bars.height(names) == pytest.approx(1.2 + 20 * 0.3)


@pytest.mark.parametrize("each", [bars.ROW, bars.THIN, bars.GROUP])
def test_rows_are_as_high_as_their_names(each: float) -> None:
    lines = 4
    places = bars.rows([LONG, LONG, SHORT], each=each)
    assert (places[1] - places[0]) * each >= lines * 0.16
    assert bars.rows([SHORT, SHORT], each=each) == [0, 1]


def test_a_stack_whose_memory_stays_has_a_sentence_in_place_of_an_empty_figure(tmp_path: Path) -> None:
    """Four bars of 1.00x stood over an axis from 0.95 to 1.05."""
    same = [CellShape(settings=dict(list(SETTINGS.items())[:count])) for count in (1, 2, 3)]
    less = [*same[:2], CellShape(settings=SETTINGS, memory=0.98)]
    said = "Study copies: peak reserved memory is the baseline's throughout, within 1%."
    for cells, figures in ((same, ["stack-speed"]), (less, ["stack-speed", "stack-memory"])):
        blocks = compare(make_records([StudyShape(name="copies", cells=cells)], rounds=3, spread=0.001)).blocks
        part = stack_part(blocks, Gallery(folder=tmp_path, studio=Studio()))
        assert ["-".join(each.file.split("-")[:2]) for each in part.pictures] == figures
        assert (said in part.sentences) is ("stack-memory" not in figures)


SETTINGS = {"pin_memory": "true", "non_blocking": "true", "copy": "side-stream"}


def sweep_of(xs: list[float]) -> Figure:
    ys = [1.0 + x for x in xs]
    line = curves.Line(name="workers=8", xs=xs, ys=ys, low=ys, high=ys)
    figure = Figure(figsize=(6.6, 3.7))
    curves.sweep(figure, [line], [], x_label=axis_name("cost_per_sample_ms"), y_label="y", neutral=None, percent=False)
    return figure


def test_no_line_comes_from_a_nought() -> None:
    """From 0 to 1 ms the line rose as if what lies between had been measured."""
    figure = sweep_of([0, 1, 5, 20])
    (axes,) = figure.axes
    alone, joined = axes.lines
    assert [*map(float, alone.get_xdata())] == [0.0]
    assert alone.get_linestyle() == "None"
    assert [*map(float, joined.get_xdata())] == [1.0, 2.0, 3.0]
    assert [*map(float, joined.get_ydata())] == [2.0, 6.0, 21.0]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["0", "1", "5", "20"]
    assert (alone.get_marker(), alone.get_color()) == (joined.get_marker(), joined.get_color())
    assert legend_of(figure) == ["workers=8"]
    assert axes.get_xlabel() == "cost per sample (ms)"


def test_a_curve_of_a_nought_alone_has_its_name_in_the_legend() -> None:
    assert legend_of(sweep_of([0])) == ["workers=8"]


def test_other_sweeps_keep_their_logarithmic_axis() -> None:
    (axes,) = sweep_of([1, 5, 20]).axes
    assert axes.get_xscale() == "log"
    assert [*map(float, axes.lines[0].get_xdata())] == pytest.approx([1.0, 5.0, 20.0])


@pytest.mark.parametrize(
    ("axis", "said"),
    [("cost_per_sample_ms", "cost per sample (ms)"), ("sequence_length", "sequence length"), ("seconds", "seconds")],
)
def test_the_unit_of_an_axis_stands_in_brackets(axis: str, said: str) -> None:
    assert axis_name(axis) == said
