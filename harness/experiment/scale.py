"""The smoke scale: the same matrix in tiny shapes, for a machine without a GPU. It shows that the cells run.

Kept of a study: its baseline and control, the first cells of its design, the ends of its sweep, and a training step of
the user's own; any other model becomes `tiny`, so that a sweep over models is one point. Its numbers are never
presented as if they were measured on a GPU.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from harness.experiment.axes import Setting
from harness.experiment.cell import Cell, Workload
from harness.experiment.designs import blocks_of
from harness.experiment.matrix import Matrix
from harness.experiment.study import MODEL as SWEPT_MODEL
from harness.experiment.study import Arm, Block, Design, Role, Study, SweepPoint
from harness.experiment.workloads import contents_of, is_step

FULL, SMOKE = "full", "smoke"

MODEL = "tiny"
#: What a plan and a run say at their head.
NOTE = (
    f"smoke scale: sizes are cut down and every model but a training step of your own is {MODEL!r}, to show that the "
    "cells run; --scale full runs the matrix itself"
)
ROUNDS, WARMUP_STEPS, STEPS = 3, 2, 6
#: The largest number of an axis. Of several in a study the largest becomes this, the next at most half of it, and on,
#: so that they stay different and in order.
LARGEST: Mapping[str, int | float] = {
    "sequence_length": 64,
    "batch_size": 4,
    "accumulation": 4,
    "workers": 2,
    "cost_per_sample_ms": 5.0,
}
#: Not halved: one device is another thing than two, and a pipeline needs as many micro-batches.
MOST: Mapping[str, int] = {"devices": 2, "micro_batches": 2}
SETTINGS_AN_AXIS = 2
#: Studies that are named as left out.
MOST_NAMED = 4
COMBINATIONS = 2
CELLS: Mapping[Design, int] = {Design.FACTORIAL: 4, Design.CUMULATIVE: 3, Design.LEAVE_ONE_OUT: 3}
#: Compilation takes longer than the rest of a smoke run: one cell alone is compiled, in this mode if there is one.
COMPILE, NOT_COMPILED, PREFERRED = "compile", "off", "default"

#: Axis and number → the smaller number.
Smaller = Mapping[tuple[str, Setting], Setting]


def blocks(matrix: Matrix, scale: str) -> Iterator[Block]:
    """The blocks of a matrix at a scale, `full` or `smoke`."""
    if scale == FULL:
        yield from matrix.blocks()
        return
    tiny = cache(_tiny)  # it reads the data of one's own, which several studies may share
    shrunk = [block for study in matrix.studies if study.smoke for block in shrink(study, tiny)]
    chosen = _compiled_cell(shrunk)
    for block in shrunk:
        compiled = _changed(block, partial(_uncompiled, unless=chosen))
        chosen = None if any(arm.cell.key == chosen for arm in compiled.arms) else chosen
        if len(compiled.arms) > 2 or len(block.arms) == 1:
            yield compiled


def left_out(matrix: Matrix, kept: Sequence[Block]) -> str:
    """What of a matrix the smoke scale leaves out, in words; empty where that is nothing."""
    here = {block.study for block in kept}
    gone = [study.name for study in matrix.studies if study.name not in here]
    all_cells, cells = (sum(arm.role is Role.CELL for block in blocks for arm in block.arms)
                        for blocks in (matrix.blocks(), kept))  # fmt: skip
    named = f" ({', '.join(gone[:MOST_NAMED])}{' and others' if len(gone) > MOST_NAMED else ''})"
    parts = [f"{len(gone)} of {len(matrix.studies)} studies{named}"] if gone else []
    parts += [f"{all_cells - cells} of {all_cells} cells"] if cells < all_cells else []
    return f"left out at this scale: {', '.join(parts)}" if parts else ""


def shrink(study: Study, tiny: Callable[[Workload], Workload] | None = None) -> list[Block]:
    """The blocks of a study in tiny shapes, with few cells, points, rounds and steps.

    Args:
        tiny: makes a workload that of the smoke scale, where other studies have their workloads made so too.
    """
    tiny = tiny or cache(_tiny)
    full = [_fewer_cells(block, study) for block in blocks_of(_shortened(study))]
    smaller = _smaller(full)
    shrunk = [
        replace(
            _changed(block, lambda cell: _small(cell, smaller, tiny)),
            sweep=_small_point(block, smaller, tiny),
            rounds=min(study.rounds, ROUNDS),
            warmup_steps=min(study.warmup_steps, WARMUP_STEPS),
            steps=min(study.steps, STEPS),
        )
        for block in full
    ]
    return list({block.key: block for block in shrunk}.values())  # of several models one is left


def _shortened(study: Study) -> Study:
    one_by_one = study.design is Design.ONE_AT_A_TIME
    return replace(
        study,
        axes={axis: values[:SETTINGS_AN_AXIS] if one_by_one else values for axis, values in study.axes.items()},
        points=study.points if len(study.points) < 2 else (study.points[0], study.points[-1]),
        combinations=study.combinations[:COMBINATIONS],
    )


def _fewer_cells(block: Block, study: Study) -> Block:
    first = len(block.arms) - len(study.combinations[:COMBINATIONS])
    designed, combined = block.arms[:first], block.arms[first:]
    limit = CELLS.get(study.design)
    kept = designed if limit is None else designed[: 2 + limit]
    return replace(block, arms=(*kept, *combined))


def _changed(block: Block, change: Callable[[Cell], Cell]) -> Block:
    """The block with every cell changed, less the arms that have become the baseline or another arm."""
    old, baseline = block.baseline.cell, change(block.baseline.cell)
    arms: list[Arm] = []
    seen = {baseline.key}
    for arm in block.arms:
        cell = change(arm.cell)
        if arm.role is Role.CELL and cell.key in seen:
            continue
        seen.add(cell.key)
        named = arm.role is not Role.CELL or arm.name != arm.cell.label(old)
        arms.append(replace(arm, cell=cell, name=arm.name if named else cell.label(baseline)))
    return replace(block, arms=tuple(arms))


def _small(cell: Cell, smaller: Smaller, tiny: Callable[[Workload], Workload]) -> Cell:
    """A step of the user's own stays: it reads the sizes in the settings, and is what the run is to show."""
    settings, shared = (
        {axis: smaller.get((axis, value), value) for axis, value in each.items()}
        for each in (cell.settings, cell.shared)
    )
    return replace(cell, workload=tiny(cell.workload), settings=settings, shared=shared)


def _small_point(block: Block, smaller: Smaller, tiny: Callable[[Workload], Workload]) -> SweepPoint:
    point = {axis: smaller.get((axis, value), value) for axis, value in block.sweep.items()}
    return {**point, SWEPT_MODEL: tiny(block.baseline.cell.workload).model} if SWEPT_MODEL in point else point


def _tiny(workload: Workload) -> Workload:
    """What its trials read is the tiny model and the same data, so that only the data's file can change under them."""
    if is_step(workload.model):
        return workload
    contents = contents_of(MODEL, workload.data, Path(workload.folder)) if workload.contents else ""
    return replace(workload, model=MODEL, contents=contents)


def _smaller(full: list[Block]) -> Smaller:
    numbers: dict[str, set[int | float]] = defaultdict(set)
    for block in full:
        for arm in block.arms:
            for axis in (*LARGEST, *MOST):
                value = arm.cell.settings.get(axis)
                if isinstance(value, int | float) and not isinstance(value, bool):
                    numbers[axis].add(value)
    smaller: dict[tuple[str, Setting], Setting] = {}
    for axis, values in numbers.items():
        for value, small in _ladder(axis, values):
            smaller[axis, value] = small
    return smaller


def _ladder(axis: str, values: set[int | float]) -> Iterator[tuple[int | float, int | float]]:
    if axis in MOST:
        yield from ((value, min(value, MOST[axis])) for value in values)
        return
    top = LARGEST[axis]
    for value in sorted(values, reverse=True):
        small = min(value, top)
        yield value, small if isinstance(value, float) else int(small)
        top = small / 2 if isinstance(value, float) else max(1, int(small) // 2)


def _compiled_cell(shrunk: list[Block]) -> str | None:
    """Key of the one cell that stays compiled."""
    first: str | None = None
    for block in shrunk:
        for arm in block.arms:
            mode = arm.cell.settings.get(COMPILE, NOT_COMPILED)
            if arm.role is Role.CELL and block.baseline.cell.settings.get(COMPILE) == NOT_COMPILED != mode:
                if mode == PREFERRED:
                    return arm.cell.key
                first = first or arm.cell.key
    return first


def _uncompiled(cell: Cell, unless: str | None) -> Cell:
    if cell.settings.get(COMPILE, NOT_COMPILED) == NOT_COMPILED or cell.key == unless:
        return cell
    off: dict[str, Setting] = {COMPILE: NOT_COMPILED}
    return replace(cell.but(**off), shared={**cell.shared, **off})
