"""Figures: drawn in processes of their own or here, the same bytes; what a crowded one still says."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import combinations, pairwise
from operator import mul, truediv
from pathlib import Path

import psutil
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text

from harness.judgement.metrics import METRICS
from harness.report.figures import bars, curves, scatter, style
from harness.report.figures.drawing import Job, write
from harness.report.figures.gallery import INLINE_LIMIT_BYTES, Gallery
from harness.report.figures.scatter import Spot
from harness.report.figures.studio import Studio
from harness.report.pictures import extrapolated
from harness.report.sweeps import Curve, Point, Sweep
from harness.report.tables import Table
from tests.commands import ROOT
from tests.judgement.claiming import make_claim, verdict_on
from tests.report.reading import legend_of


def jobs(folder: Path, count: int = 5) -> list[Job]:
    """Bars of different lengths; `folder` is there."""
    folder.mkdir(exist_ok=True)
    return [
        Job(
            path=folder / f"bars-{number}", size=(4.0, 2.0),
            drawing=partial(bars.phases, cells={"a cell": {"forward": 0.1 + number, "backward": 0.2}}),
        )
        for number in range(count)
    ]  # fmt: skip


def drawn_by(studio: Studio, asked: list[Job]) -> list[str]:
    for job in asked:
        studio.ask(job)
    return studio.finish()


def test_phases_stand_in_the_order_of_time() -> None:
    recorded = ["backward", "between", "copy", "data_wait", "of_its_own", "forward", "optimizer"]
    assert bars.in_time([*recorded, "forward"]) == [
        "data_wait", "copy", "forward", "backward", "optimizer", "between", "of_its_own",
    ]  # fmt: skip


def own_processes() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))


def test_a_studio_draws_the_same_bytes_as_this_process(tmp_path: Path) -> None:
    with Studio() as studio:
        theirs = drawn_by(studio, jobs(tmp_path / "studio"))
    ours = [write(job) for job in jobs(tmp_path / "here")]

    assert theirs == ours
    assert len(set(ours)) == 5
    for file in (tmp_path / "here").iterdir():
        assert (tmp_path / "studio" / file.name).read_bytes() == file.read_bytes()


def test_the_page_gets_each_figure_under_its_own_name_and_caption(tmp_path: Path) -> None:
    gallery = Gallery(folder=tmp_path, studio=Studio(), budget=2)
    asked = []
    for number, job in enumerate(jobs(tmp_path, 3)):
        drawing = partial(bars.phases, cells={f"cell-{number}": {"forward": 1.0}})
        asked.append(gallery.draw(job.path.name, f"Of {number}.", drawing))
    assert asked[2] is None
    assert gallery.left_out == {"bars-2": "Of 2."}
    gallery.finish()
    for number, picture in enumerate(asked[:2]):
        assert picture is not None
        inline = gallery.inline(picture)
        assert f">cell-{number}<" in inline
        assert f'aria-label="Of {number}."' in inline


def test_a_studio_that_was_not_opened_draws_in_this_process(tmp_path: Path) -> None:
    assert drawn_by(Studio(), jobs(tmp_path, 1)) == [(tmp_path / "bars-0.svg").read_text(encoding="utf-8")]


def test_a_studio_that_was_killed_loses_no_figure(tmp_path: Path) -> None:
    before = own_processes()
    with Studio() as studio:
        (child,) = own_processes() - before
        child.kill()
        assert len(drawn_by(studio, jobs(tmp_path, 2))) == 2
    assert len(list(tmp_path.glob("*.png"))) == 2


def test_no_process_is_left_when_an_error_ends_it() -> None:
    before = own_processes()
    with pytest.raises(LookupError, match="1 more"), Studio():
        raise LookupError(f"{len(own_processes() - before)} more")
    assert own_processes() == before


def test_a_file_that_cannot_be_written_is_the_error_of_who_asked(tmp_path: Path) -> None:
    asked = jobs(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with Studio() as studio, pytest.raises(FileNotFoundError):
        drawn_by(studio, asked)


def test_no_process_outlives_a_parent_that_was_killed() -> None:
    code = (
        "import psutil, time; from harness.report.figures.studio import Studio\n"
        "with Studio(): print(psutil.Process().children()[0].pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        os.kill(parent.pid, signal.SIGKILL)
    psutil.wait_procs([child], timeout=20)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def spots(studies: int, cells: int = 1) -> list[Spot]:
    return [
        Spot(group=f"study-{study}", x=1.0 + study + cell / cells, y=100.0 - study)
        for study in range(studies) for cell in range(cells)
    ]  # fmt: skip


def test_twelve_studies_have_a_name_each() -> None:
    figure = Figure()
    scatter.pareto(figure, spots=spots(12), front=[])
    assert legend_of(figure) == [f"study-{number}" for number in range(12)]


def test_of_more_studies_those_on_the_front_have_a_name_and_the_last_line_counts_the_others() -> None:
    figure = Figure()
    scatter.pareto(figure, spots=spots(20), front=[Spot(group="study-17", x=18.0, y=83.0, label="1")])
    assert legend_of(figure) == [*(f"study-{number}" for number in range(11)), "study-17", "8 more studies"]


def test_a_figure_of_2000_cells_is_small_enough_for_the_page(tmp_path: Path) -> None:
    drawing = partial(scatter.pareto, spots=spots(250, 8), front=[])
    svg = write(Job(path=tmp_path / "pareto", drawing=drawing, size=(6.6, 4.4)))
    assert len(svg) < INLINE_LIMIT_BYTES


@pytest.mark.parametrize(
    ("ends", "least", "labels"), [((2.0, 33.0), 4, {"2", "4", "8", "16", "32"}), ((20.1, 20.2), 3, set())]
)
def test_an_axis_has_numbers_on_it_however_close_its_values_lie(
    ends: tuple[float, float], least: int, labels: set[str]
) -> None:
    figure = Figure()
    axes = figure.subplots()
    axes.set_xlim(ends)
    style.doubling(axes, "x")
    figure.canvas.draw()
    low, high = axes.get_xlim()
    within = [tick for tick in axes.get_xticks() if low <= tick <= high]
    shown = {text.get_text() for text in axes.get_xticklabels()}
    assert len(within) >= least
    assert labels <= shown


def test_numbers_of_points_that_lie_on_each_other_are_one_label() -> None:
    figure = Figure(figsize=(6.6, 4.4))
    front = [
        Spot(group="g", x=x, y=y, label=label) for x, y, label in ((2, 100, "1"), (8, 3000, "2"), (8.1, 3010, "3"))
    ]
    scatter.pareto(figure, front, front)
    assert [text.get_text() for text in figure.axes[0].texts] == ["1", "2, 3"]


def test_a_piece_of_a_stack_that_is_not_certain_is_a_hollow_bar() -> None:
    """On an H200 a switch that does nothing was as full a bar as bf16."""
    steps = [bars.Step(name="baseline", value=1.0), bars.Step(name="bf16", value=2.0),
             bars.Step(name="empty_cache", value=2.4, certain=False)]  # fmt: skip
    figure = Figure(figsize=(6, 3))
    bars.waterfall(figure, steps, unit="speed")
    _, full, hollow = (to_hex(patch.get_facecolor()) for patch in figure.axes[0].patches)
    assert (full, hollow) == (style.SERIES[0].lower(), style.PAPER.lower())
    assert to_hex(figure.axes[0].patches[2].get_edgecolor()) == style.SERIES[0].lower()


@pytest.mark.parametrize(("reached", "at", "side"), [(2.0, 2.0, "left"), (0.5, 0.5, "right"), (1.0, 1.0, "left")])
def test_what_a_stack_has_reached_is_written_where_the_bar_ends(reached: float, at: float, side: str) -> None:
    """Of a bar that went left, from 1.87 to 1.12, "1.12x" stood at 1.87."""
    figure = Figure(figsize=(6, 3))
    bars.waterfall(figure, [bars.Step(name="baseline", value=1.0), bars.Step(name="a", value=reached)], unit="memory")
    label = figure.axes[0].texts[1]
    assert (label.get_text(), label.xy, label.get_ha()) == (f"{reached:.2f}x", (at, 1), side)
    assert (label.xyann[0] < 0) is (side == "right")


def test_numbers_of_a_stack_stand_inside_the_figure() -> None:
    """`1.87x` stood beyond the right edge; `1.09x`, a little below the bar before it, over the names at the left."""
    reached = {"baseline": 1.0, "batch_size=64": 1.1, "workers=8": 1.09, "compile=default": 3.14, "full": 2.69}
    steps = [bars.Step(name=name, value=value) for name, value in reached.items()]
    with style.look():
        figure = drawn(bars.height(["a"] * 5), partial(bars.waterfall, steps=steps, unit="speed"))
        (axes,) = figure.axes
        inside = axes.get_window_extent()
        boxes = [text.get_window_extent() for text in axes.texts]
        assert all(inside.x0 <= box.x0 and box.x1 <= inside.x1 for box in boxes)


def lab(colour: str) -> tuple[float, ...]:
    """CIELAB at D65, in which one unit is about what an eye can just tell apart."""
    linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in to_rgb(colour)]
    weights = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    xyz = [sum(map(mul, row, linear)) for row in weights]
    x, y, z = (each ** (1 / 3) if each > 0.008856 else 7.787 * each + 16 / 116
               for each in map(truediv, xyz, (0.95047, 1.0, 1.08883)))  # fmt: skip
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def palettes() -> list[list[str]]:
    """The colours of the series in the page's style sheet: light, dark and printed."""
    sheet = (ROOT / "harness/report/templates/report.css").read_text(encoding="utf-8")
    found = re.findall(r"--c(\d): (#\w{6})", sheet)
    return [[colour for _, colour in found[start : start + 8]] for start in range(0, len(found), 8)]


def test_colours_of_series_are_told_apart_on_light_and_on_dark_pages() -> None:
    """The eighth was a second blue: `tuned-gpt2` looked like `checkpointing`, circles both."""
    light, dark, printed = palettes()
    assert light == printed == list(style.SERIES)
    for palette in (light, dark):
        assert min(math.dist(lab(one), lab(other)) for one, other in combinations(palette, 2)) > 25


def test_no_two_of_sixteen_series_have_colour_and_sign_alike() -> None:
    looks = [(style.colour(index), style.marker(index)) for index in range(16)]
    lines = [(style.colour(index), style.line(index)) for index in range(16)]
    assert len(set(looks)) == len(set(lines)) == 16
    for eight in (looks[:8], looks[8:], lines[:8], lines[8:]):
        assert len({colour for colour, _ in eight}) == len({sign for _, sign in eight}) == 8


def test_a_thousandth_does_not_fill_a_figure() -> None:
    """A stack whose memory rose by 0.014% in one piece was a full hatched bar over an axis from 0 to 0.00016 "+1"."""
    steps = [bars.Step(name=name, value=value) for name, value in
             (("baseline", 1.0), ("pin_memory=true", 1.0), ("copy=side-stream", 1.00014))]  # fmt: skip
    with style.look():
        figure = Figure(figsize=(6, 3))
        bars.waterfall(figure, steps, unit="memory")
        figure.canvas.draw()
        (axes,) = figure.axes
        low, high = axes.get_xlim()
        assert high - low == pytest.approx(0.1)
        assert low < 1 < high
        assert axes.xaxis.get_offset_text().get_text() == ""
        wide = Figure(figsize=(6, 3))
        bars.waterfall(
            wide, [bars.Step(name="baseline", value=1.0), bars.Step(name="compile", value=2.0)], unit="speed"
        )
        assert wide.axes[0].get_xlim()[1] > 2, "a wide one is left as it is"
        same = Figure(figsize=(6, 3))
        dot = bars.Dot(name="a and b", value=1.001, low=1.0, high=1.002)
        bars.interactions(same, [(dot, 1.0005)])
        assert span(same.axes[0].get_xlim()) == pytest.approx(0.1)
        flat = Figure(figsize=(6, 3))
        line = curves.Line(name="a cell", xs=[1, 2], ys=[1.0, 1.001], low=[1.0, 1.0], high=[1.0, 1.002])
        curves.sweep(flat, [line], [], x_label="x", y_label="speedup", neutral=1.0, percent=False)
        assert span(flat.axes[0].get_ylim()) >= 0.1


def test_a_long_label_at_the_side_is_not_cut_off() -> None:
    """`model state per parameter and rank before the step, baseline over cell` lost its last word."""
    meaning = METRICS["model_state_ratio"].meaning
    with style.look():
        figure = Figure(figsize=(6.6, 3.7), layout="constrained")
        line = curves.Line(name="zero=1", xs=[1, 2], ys=[1.0, 1.8], low=[1.0, 1.8], high=[1.0, 1.8])
        curves.sweep(figure, [line], [], x_label="devices", y_label=meaning, neutral=1.0, percent=False)
        figure.canvas.draw()
        label = figure.axes[0].yaxis.label
        box = label.get_window_extent()
        assert label.get_text().replace("\n", " ") == meaning
        assert box.y0 >= 0
        assert box.y1 <= figure.bbox.height


@pytest.mark.parametrize(
    ("measured", "beyond"),
    [([1, 2], [2, 8, 64]), ([1, 8], [8, 64]), ([1, 16], [16, 64]), ([1, 64], [])],
)
def test_a_limit_goes_on_from_the_last_measured_point(measured: list[float], beyond: list[float]) -> None:
    verdict = verdict_on(make_claim(form="limit", range=None, limit=4, study="zero"), [])
    verdict = replace(verdict, device="H100", details={"predictions": {"8": {"ratio": 3.0}, "64": {"ratio": 3.8}}})
    found = extrapolated(verdict, swept(measured))
    assert [list(line.xs) for line in found] == ([beyond] if beyond else [])
    assert all(line.dotted and line.ys[0] == measured[-1] / 2 for line in found)
    assert extrapolated(replace(verdict, details={}), swept(measured)) == []
    assert extrapolated(verdict, swept(measured, axis="batch_size")) == []
    assert extrapolated(replace(verdict, study="scaling"), swept(measured)) == [], "a further study's curve"
    both = swept(measured)
    other = replace(both.curves[0], device="H200", points=both.curves[0].points[:1])
    assert extrapolated(verdict, replace(both, curves=(other, *both.curves))) == found, "of the verdict's own device"
    twice = replace(both, curves=(both.curves[0], both.curves[0]))
    assert extrapolated(verdict, twice) == [], "which of two is not known"


def test_what_is_extrapolated_has_no_sign_where_it_was_measured() -> None:
    """Four devices were measured, and looked like a point of the dotted line."""
    measured = curves.Line(name="zero=1", xs=[1, 2, 4], ys=[1.0, 1.8, 2.6], low=[1.0, 1.8, 2.6], high=[1.0, 1.8, 2.6])
    beyond = curves.Line(name="extrapolated", xs=[4, 8], ys=[2.6, 3.0], low=[2.6, 3.0], high=[2.6, 3.0], dotted=True)
    figure = Figure()
    curves.sweep(figure, [measured, beyond], [], x_label="devices", y_label="y", neutral=None, percent=False)
    first, second = figure.axes[0].lines[:2]
    assert (first.get_markevery(), second.get_markevery()) == (None, slice(1, None))
    assert list(second.get_xdata()) == [4, 8], "the line itself begins there"
    assert len(figure.axes[0].containers) == 0, "no whiskers without an interval"


def swept(measured: list[float], axis: str = "devices") -> Sweep:
    points = tuple(Point(x=devices, value=devices / 2, low=None, high=None) for devices in measured)
    return Sweep(
        study="zero", axis=axis, fixed="", metric=METRICS["model_state_ratio"], sentences=(),
        curves=(Curve(name="zero=1", points=points, absent=(), primary=True, device="H100"),),
        table=Table(caption="", columns=(), rows=()),
    )  # fmt: skip


def span(limits: tuple[float, float]) -> float:
    return limits[1] - limits[0]


TUNED = "precision=bf16 attention=sdpa-cudnn compile={} optimizer=fused batch_size={}"
NAMES = ("baseline", TUNED.format("default", 32), TUNED.format("reduce-overhead", 64))


def within(figure: Figure, *texts: Text) -> bool:
    """Whether all of it can be seen."""
    boxes = [text.get_window_extent() for text in texts]
    return all(b.x0 >= 0 and b.y0 >= 0 and b.x1 <= figure.bbox.width and b.y1 <= figure.bbox.height for b in boxes)


def drawn(height: float, draw: Callable[[Figure], None]) -> Figure:
    figure = Figure(figsize=(6.6, height), layout="constrained")
    canvas = FigureCanvasAgg(figure)
    draw(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    return figure


def test_a_long_claim_is_whole_in_the_legend() -> None:
    """It ended in `7.6x (±0.38x) smal…`, beyond both edges of the figure."""
    label = "flash-memory-high: peak memory 7.6x (±0.38x) smaller"
    line = curves.Line(name="attention=sdpa-flash", xs=[1, 2], ys=[0.1, 0.2], low=[0.1, 0.2], high=[0.1, 0.2])
    bands = [curves.Band(label=text, low=0.1, high=0.2) for text in ("flash-memory-low: peak saved 10% to 20%", label)]
    with style.look():
        figure = drawn(3.7, partial(curves.sweep, lines=[line], bands=bands, x_label="x", y_label="y", neutral=None,
                                    percent=True))  # fmt: skip
        (legend,) = figure.legends
        assert legend_of(figure) == [line.name, *(band.label for band in bands)]
        assert within(figure, *legend.get_texts())
        assert legend.get_window_extent().x0 >= 0


@pytest.mark.parametrize("cells", [NAMES, tuple(f"batch_size={2**power}" for power in range(8))])
def test_cells_that_differ_late_in_their_names_are_told_apart_in_figures(cells: tuple[str, ...]) -> None:
    """Both were `precision=bf16 attention=sdpa-cudnn compile=…`."""
    phases = {name: {"forward": 0.1, "backward": 0.2} for name in cells}
    losses = [curves.LossLine(name=name, losses=[3.0, 2.0, 1.0 + index], rounds=3) for index, name in enumerate(cells)]
    with style.look():
        bars_of = drawn(bars.height(cells), partial(bars.phases, cells=phases))
        labels = bars_of.axes[0].get_yticklabels()
        assert [each.get_text().replace("\n", " ") for each in labels] == list(cells)
        assert within(bars_of, *labels, *bars_of.legends[0].get_texts())
        tops = [(each.get_window_extent().y0, each.get_window_extent().y1) for each in labels]
        assert all(upper[0] >= lower[1] for upper, lower in pairwise(tops)), "no name is written over the next"
        height = 4.1 + style.legend_inches(cells, 6.6)
        curves_of = drawn(height, partial(curves.losses, lines=losses, margin=None))
        assert [each.replace("\n", " ") for each in legend_of(curves_of)] == list(cells)
        assert within(curves_of, *curves_of.legends[0].get_texts())
        assert curves_of.axes[0].get_window_extent().height > 1.5 * curves_of.dpi, "the curves keep their room"


def test_a_name_without_end_is_cut_in_its_middle() -> None:
    text = style.wrap(" ".join(f"axis_{number}=setting" for number in range(40)))
    assert len(text.split("\n")) == 4
    assert text.startswith("axis_0=setting")
    assert text.endswith("axis_39=setting")
