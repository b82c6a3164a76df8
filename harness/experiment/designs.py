"""From a study to its blocks: the four designs, the sweep, the A/A control."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from harness.experiment.axes import Setting
from harness.experiment.cell import Cell
from harness.experiment.study import MODEL, Arm, Block, Design, Role, Study, SweepPoint

Axes = Mapping[str, Sequence[Setting]]
#: The settings in which a cell differs from its baseline.
Changes = Mapping[str, Setting]
#: A cell of a design: its name, or None where the settings in which it differs name it.
Named = tuple[str | None, Changes]


def one_at_a_time(axes: Axes) -> Iterator[Named]:
    """The baseline with one setting changed, for each setting."""
    for axis, settings in axes.items():
        for setting in settings:
            yield None, {axis: setting}


def factorial(axes: Axes) -> Iterator[Named]:
    """Every combination of the settings with each other and with the baseline's own; the baseline itself left out."""
    levels: list[list[Changes]] = [[{}, *({axis: setting} for setting in settings)] for axis, settings in axes.items()]
    for combination in itertools.product(*levels):
        changes = {axis: setting for level in combination for axis, setting in level.items()}
        if changes:
            yield None, changes


def cumulative(axes: Axes) -> Iterator[Named]:
    """A stack that grows by one setting a cell, in written order; a second setting of an axis replaces the first."""
    stack: dict[str, Setting] = {}
    for axis, settings in axes.items():
        for setting in settings:
            stack[axis] = setting
            yield None, dict(stack)


def leave_one_out(axes: Axes) -> Iterator[Named]:
    """The whole stack (one setting of every axis), then the stack less each one. The baseline has none of it."""
    stack = {axis: settings[0] for axis, settings in axes.items()}
    yield "stack", stack
    for axis in axes:
        yield f"stack less {axis}", {other: setting for other, setting in stack.items() if other != axis}


DESIGNS: Mapping[Design, Callable[[Axes], Iterator[Named]]] = {
    Design.ONE_AT_A_TIME: one_at_a_time,
    Design.FACTORIAL: factorial,
    Design.CUMULATIVE: cumulative,
    Design.LEAVE_ONE_OUT: leave_one_out,
}


def count(design: Design, axes: Axes) -> int:
    """How many cells a design makes, without making them."""
    if not axes:
        return 0
    if design is Design.FACTORIAL:
        return prod(1 + len(settings) for settings in axes.values()) - 1
    if design is Design.LEAVE_ONE_OUT:
        return 1 + len(axes)
    return sum(len(settings) for settings in axes.values())


def sweep_points(sweep: Axes) -> tuple[SweepPoint, ...]:
    """Every combination of the swept axes, the last axis fastest; one empty point without a sweep."""
    return tuple(dict(zip(sweep, values, strict=True)) for values in itertools.product(*sweep.values()))


def swept_settings(points: Sequence[SweepPoint]) -> dict[str, tuple[Setting, ...]]:
    """The settings of each axis at points that are written out."""
    axes = dict.fromkeys(axis for point in points for axis in point)
    return {axis: tuple(dict.fromkeys(point[axis] for point in points if axis in point)) for axis in axes}


def cells_of(study: Study) -> Iterator[Named]:
    """The cells that a study compares with its baseline: its design's, then its named combinations."""
    if study.axes:
        yield from DESIGNS[study.design](study.axes)
    for combination in study.combinations:
        yield None, combination


def blocks_of(study: Study) -> Iterator[Block]:
    """One block a sweep point."""
    cells = list(cells_of(study))
    for point in study.points:
        baseline = _at(study, point)
        yield Block(
            study=study.name,
            kind=study.kind,
            sweep=point,
            arms=tuple(_arms(baseline, cells)),
            rounds=study.rounds,
            warmup_steps=study.warmup_steps,
            steps=study.steps,
            options=study.options,
        )


def _at(study: Study, point: SweepPoint) -> Cell:
    """The baseline at a sweep point."""
    settings = {axis: setting for axis, setting in point.items() if axis != MODEL}
    there = study.baseline.but(**settings) if settings else study.baseline
    return replace(there, workload=study.models[str(point[MODEL])]) if MODEL in point else there


def _arms(baseline: Cell, cells: Sequence[Named]) -> Iterator[Arm]:
    yield Arm(name="baseline", role=Role.BASELINE, cell=baseline)
    if cells:  # a study that compares nothing needs no noise floor
        yield Arm(name="control", role=Role.CONTROL, cell=baseline)
    for name, changes in cells:
        cell = baseline.but(**changes)
        yield Arm(name=name or cell.label(baseline), role=Role.CELL, cell=cell)
