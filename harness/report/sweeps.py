"""A claim along a sweep: its metric at every point, and a sentence that says where it holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.judgement.claims import Claim, show_settings
from harness.judgement.judged import BlockResult, Interval
from harness.judgement.metrics import Metric
from harness.judgement.site import one_a_point, worth
from harness.judgement.words import Bounds, measured, number
from harness.report import formats
from harness.report.families import Family, families
from harness.report.measure import measured as reading
from harness.report.tables import Table


@dataclass(frozen=True, kw_only=True)
class Point:
    """The metric at one value of the swept axis."""

    x: float
    value: float
    low: float | None
    high: float | None
    different: bool = False
    """Parity fails here, so that nothing holds."""
    label: str = ""
    """What stands at `x` where that is no number of the axis: a model."""

    @property
    def at(self) -> str:
        """The value of the axis, in words."""
        return self.label or f"{self.x:g}"

    @property
    def ends(self) -> tuple[float, float]:
        """The interval, or the value twice where the rules give none."""
        return (self.value, self.value) if self.low is None or self.high is None else (self.low, self.high)


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One cell along the axis; other swept axes and the device are part of the name where they vary."""

    name: str
    points: tuple[Point, ...]
    absent: tuple[str, ...]
    """`8192: oom` for each point without a figure."""
    primary: bool
    """Of the claim's primary cell."""
    device: str = ""


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """All curves of a claim along one line of sweep points."""

    study: str
    axis: str
    fixed: str
    """What all points share, in words; empty where the curves differ in it."""
    metric: Metric
    curves: tuple[Curve, ...]
    sentences: tuple[str, ...]
    table: Table


def sweeps_of(claim: Claim, metric: Metric, blocks: Sequence[BlockResult], further: str = "") -> tuple[Sweep, ...]:
    """The claim along each line of its study's sweep points; nothing where there are no two measured points.

    Args:
        further: the study whose blocks these are, where that is not the claim's own; words then say so.
    """
    cells = [dict(cell) for cell in (claim.cell, *claim.also) if cell or metric.neutral is None]
    found = []
    for group in families(blocks):
        curves = [_curve(claim, metric, cell, family, group) for cell in cells for family in group]
        curves = [curve for curve in curves if len(curve.points) > 1 or (curve.points and curve.absent)]
        if any(len(curve.points) > 1 for curve in curves):
            found.append(_sweep(claim, metric, group, curves, further))
    return tuple(found)


def _sweep(
    claim: Claim, metric: Metric, group: Sequence[Family], curves: Sequence[Curve], further: str
) -> Sweep:  # fmt: skip
    axis = group[0].axis
    named = len(curves) > 1 or not curves[0].primary
    there = [f"In study {further}"] if further else []
    subjects = [", ".join([*there, *([curve.name] if named else [])]) for curve in curves]
    sentences = (where_it_holds(curve, axis, metric, claim.bounds, subject)
                 for curve, subject in zip(curves, subjects, strict=True))  # fmt: skip
    fixed = "; ".join(_own_words(family) for family in group) if len(group) == 1 else ""
    at = "".join([f" at {fixed}" if fixed else "", f", in study {further}" if further else ""])
    return Sweep(
        study=further or claim.study, axis=axis, fixed=fixed, metric=metric, curves=tuple(curves),
        sentences=tuple(sentence for sentence in sentences if sentence),
        table=_table(claim, axis, at, metric, curves),
    )  # fmt: skip


def where_it_holds(curve: Curve, axis: str, metric: Metric, bounds: Bounds, subject: str = "") -> str:
    """`Holds from sequence length 2048 upward; at 512 it is 1.05x.` Empty where the claim has no range.

    Args:
        subject: what holds there, where that has to be said: `compile=default`, `In study compile-batch`.
    """
    if bounds == (None, None) or not curve.points:
        return ""
    points = sorted(curve.points, key=lambda point: point.x)
    verdicts = [_inside(point, bounds) for point in points]
    others = [point for point, inside in zip(points, verdicts, strict=True) if inside is not True]
    rest = ", ".join(_place(point, metric, bounds) for point in _most_telling(others))
    holds = f"{subject}: holds" if subject else "Holds"
    text = f"{holds} {_where(points, verdicts, formats.axis_name(axis))}{f'; {rest}' if rest else ''}"
    absent = f"; no figure at {', '.join(curve.absent)}" if curve.absent else ""
    return f"{text}{absent}."


def _where(points: Sequence[Point], inside: Sequence[bool | None], axis: str) -> str:
    first, last = points[0].at, points[-1].at
    held = [index for index, each in enumerate(inside) if each is True]
    if not held:
        sure = "for certain " if None in inside else ""
        return f"{sure}at no {axis} measured ({first} to {last})"
    if len(held) == len(points):
        return f"at every {axis} measured ({first} to {last})"
    contiguous = held == list(range(held[0], held[-1] + 1))
    if contiguous and held[-1] == len(points) - 1 and len(held) > 1:
        return f"from {axis} {points[held[0]].at} upward"
    if contiguous and held[0] == 0 and len(held) > 1:
        return f"up to {axis} {points[held[-1]].at}"
    if contiguous and len(held) > 1:
        return f"from {axis} {points[held[0]].at} to {points[held[-1]].at}"
    return f"at {axis} {_and([points[index].at for index in held])} only"


def _inside(point: Point, bounds: Bounds) -> bool | None:
    """True: the whole interval lies in the range; False: all of it outside; None: undecided."""
    if point.different:
        return False
    low, high = point.ends
    floor = float("-inf") if bounds[0] is None else bounds[0]
    ceiling = float("inf") if bounds[1] is None else bounds[1]
    if floor <= low and high <= ceiling:
        return True
    return False if high < floor or low > ceiling else None


def _place(point: Point, metric: Metric, bounds: Bounds) -> str:
    if _inside(point, bounds) is None:
        undecided = measured(metric, Interval(value=point.value, low=point.low, high=point.high), bounds)
        return f"at {point.at} it is {undecided} (undecided)"
    different = " (fast but different)" if point.different else ""
    return f"at {point.at} it is {number(metric, point.value, bounds)}{different}"


def _most_telling(points: Sequence[Point]) -> Sequence[Point]:
    """All of a few, else the two ends: a sentence is not a table."""
    return points if len(points) <= 3 else (points[0], points[-1])


def _and(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _curve(claim: Claim, metric: Metric, cell: Mapping[str, object], family: Family, group: Sequence[Family]) -> Curve:
    points, absent = [], []
    sites = one_a_point(cell, claim.baseline, family.blocks).values()
    # of several at one value (in the smoke scale too) the last one stands
    best = {family.place(site.block): site.block for site in sorted(sites, key=worth)}
    for x, block in sorted(best.items(), key=lambda each: each[0]):
        read = reading(block, cell, dict(claim.baseline), metric, claim.view)
        found = read.interval
        if found is not None:
            points.append(Point(x=x, value=found.value, low=found.low, high=found.high, different=read.different,
                                label=family.label(block)))  # fmt: skip
        elif read.absent:
            absent.append(f"{family.label(block) or f'{x:g}'} ({read.absent})")
    devices = {other.blocks[0].device for other in group}
    fixed = family.fixed if len(devices) > 1 else _own_words(family)
    name = show_settings(cell) if len(group) == 1 else f"{show_settings(cell)} ({fixed})"
    return Curve(name=name, points=tuple(points), absent=tuple(absent), primary=cell == claim.cell,
                 device=family.blocks[0].device)  # fmt: skip


def _own_words(family: Family) -> str:
    """What is fixed, without the device: that stands on the first screen."""
    return family.fixed.removesuffix(family.blocks[0].device).rstrip(", ")


def _table(claim: Claim, axis: str, at: str, metric: Metric, curves: Sequence[Curve]) -> Table:
    xs = dict(sorted((point.x, point.at) for curve in curves for point in curve.points))
    rows = []
    for curve in curves:
        found = {point.x: point for point in curve.points}
        rows.append((curve.name, *(_cell(metric, found.get(x), claim.bounds) for x in xs)))
    return Table(
        caption=f"{metric.meaning}, by {formats.axis_name(axis)}{at}", columns=("cell", *xs.values()),
        rows=tuple(rows), numeric=frozenset(range(1, len(xs) + 1)),
    )  # fmt: skip


def _cell(metric: Metric, point: Point | None, bounds: Bounds) -> str:
    if point is None:
        return formats.ABSENT
    return measured(metric, Interval(value=point.value, low=point.low, high=point.high), bounds)
