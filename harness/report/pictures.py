"""From judged data to the figures of a claim."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from harness.judgement.judged import BlockResult, Interval, Verdict
from harness.judgement.pairs import device_count
from harness.judgement.words import is_wide
from harness.report import formats
from harness.report.figures import bars, curves, style
from harness.report.figures.gallery import Gallery, Picture
from harness.report.sweeps import Sweep

#: More lines than this on one figure tell nothing.
MOST_LINES = 8
#: Inches of every figure.
WIDTH = 6.6


#: The two ends of a claimed range; None where it is open.
Bounds = tuple[float | None, float | None]


def sweep_picture(claims: Sequence[tuple[Verdict, Bounds]], sweep: Sweep, gallery: Gallery) -> Picture | None:
    """The curve of a sweep with the range of each claim as a band."""
    shown = [curve for curve in sweep.curves if curve.points][:MOST_LINES]
    lines = [
        curves.Line(
            name=curve.name, xs=[point.x for point in curve.points], ys=[point.value for point in curve.points],
            low=[point.ends[0] for point in curve.points], high=[point.ends[1] for point in curve.points],
        )
        for curve in shown
    ]  # fmt: skip
    bands = [
        curves.Band(label=f"{verdict.claim}: {verdict.claimed}", low=bounds[0], high=bounds[1])
        for verdict, bounds in claims
        if bounds != (None, None)
    ]
    beyond = [line for verdict, _ in claims[:1] for line in extrapolated(verdict, sweep)]
    names = " and ".join(verdict.claim for verdict, _ in claims)
    drawing = partial(
        curves.sweep, lines=[*lines, *beyond], bands=bands,
        x_label=formats.axis_name(sweep.axis), y_label=sweep.metric.meaning,
        neutral=sweep.metric.neutral, percent=sweep.metric.unit == "share",
        names={point.x: point.label for curve in shown for point in curve.points if point.label},
    )  # fmt: skip
    where = f"{formats.axis_name(sweep.axis)}{f' at {sweep.fixed}' if sweep.fixed else ''}"
    points = [point for curve in shown for point in curve.points]
    wide = any(is_wide(sweep.metric, Interval(value=each.value, low=each.low, high=each.high)) for each in points)
    intervals = ", with 95% intervals" if wide else ""
    elsewhere = "" if sweep.study in {verdict.study for verdict, _ in claims} else sweep.study
    where += f" in study {elsewhere}" if elsewhere else ""
    caption = f"{names}: {sweep.metric.meaning}, by {where}{intervals}; claimed range as a band."
    if beyond:
        caption += " Dotted: extrapolated by the form that fits best."
    fixed = formats.slug(sweep.fixed) if sweep.fixed else ""
    labels = [each.name for each in (*lines, *beyond)] + [band.label for band in bands]
    size = (WIDTH, 3.7 + style.legend_inches(labels, WIDTH))
    apart = f"{elsewhere}-" if elsewhere else ""
    return gallery.draw(f"sweep-{names}-{apart}{sweep.axis}-{fixed}", caption, drawing, size=size)


def extrapolated(verdict: Verdict, sweep: Sweep) -> list[curves.Line]:
    """From the last measured number of devices on, where judging has predicted more."""
    own = [curve for curve in sweep.curves if curve.primary and curve.points and curve.device == verdict.device]
    if sweep.axis != "devices" or sweep.study != verdict.study or len(own) != 1:
        return []
    last = own[0].points[-1]
    more = {float(devices): each["ratio"] for devices, each in (verdict.details.get("predictions") or {}).items()}
    more = {devices: ratio for devices, ratio in more.items() if devices > last.x}
    if not more:
        return []
    xs, ys = [last.x, *more], [last.value, *more.values()]
    return [curves.Line(name="extrapolated", xs=xs, ys=ys, low=ys, high=ys, dotted=True)]


def phases_picture(block: BlockResult, gallery: Gallery) -> Picture | None:
    """Where the time of a step goes, one bar a cell."""
    cells = {arm.name: arm.phases for arm in block.arms if arm.phases and arm.role != "control"}
    if not cells:
        return None
    place = f" at {formats.settings(block.sweep)}" if block.sweep else ""
    caption = f"Phases of a step in study {block.study}{place}.{_cut([sum(each.values()) for each in cells.values()])}"
    drawing = partial(bars.phases, cells=cells)
    return gallery.draw(f"phases-{block.study}", caption, drawing, size=(WIDTH, bars.height(list(cells))))


def memory_picture(block: BlockResult, gallery: Gallery) -> Picture | None:
    """Peak memory in three views, one group of bars a cell."""
    views = ("allocated", "reserved", "device")
    cells = {
        arm.name: {view: arm.memory[view][0] for view in views if view in arm.memory}
        for arm in block.arms if arm.role != "control" and any(view in arm.memory for view in views)
    }  # fmt: skip
    if not any("allocated" in seen for seen in cells.values()):  # what trains nothing leaves a device as it is
        return None
    place = f" at {formats.settings(block.sweep)}" if block.sweep else ""
    caption = f"Peak memory in study {block.study}{place}, largest of all trials{_on_fullest(block)}."
    caption += _cut([max(each.values()) for each in cells.values()])
    drawing = partial(bars.memory, cells=cells)
    return gallery.draw(
        f"memory-{block.study}", caption, drawing, size=(WIDTH, bars.height(list(cells), each=bars.GROUP))
    )


def _cut(lengths: Sequence[float]) -> str:
    """What the caption says of bars that end before their value."""
    return " A bar with an arrow goes on beyond the axis, to the number on it." if bars.reach_of(lengths) else ""


def _on_fullest(block: BlockResult) -> str:
    """Of several devices one speaks for all."""
    several = any(device_count(arm.cell) > 1 for arm in block.arms)
    return ", on the fullest device" if several else ""
