"""The four designs, sweeps and arms, with every cell written out by hand."""

from __future__ import annotations

import pytest

from harness.experiment.axes import Setting
from harness.experiment.cell import Cell, Workload
from harness.experiment.designs import DESIGNS, Axes, blocks_of, count, sweep_points, swept_settings
from harness.experiment.study import Block, Design, Role, Study

DEFAULTS: dict[str, Setting] = {"precision": "fp32", "attention": "sdpa", "compile": "off", "batch_size": 8}
BASELINE = Cell(workload=Workload(name="w", model="tiny"), settings=DEFAULTS, defaults=DEFAULTS)
AXES: Axes = {"precision": ("tf32", "bf16"), "attention": ("flash2",)}


def cells(design: Design, axes: Axes) -> list[dict[str, object]]:
    return [dict(changes) for _, changes in DESIGNS[design](axes)]


def only_block(**parts: object) -> Block:
    (block,) = blocks_of(Study(name="s", baseline=BASELINE, **parts))  # type: ignore[arg-type]
    return block


def test_one_at_a_time_changes_one_setting() -> None:
    assert cells(Design.ONE_AT_A_TIME, AXES) == [{"precision": "tf32"}, {"precision": "bf16"}, {"attention": "flash2"}]


def test_factorial_is_every_combination_with_the_baselines_own_settings_and_without_the_baseline() -> None:
    assert cells(Design.FACTORIAL, AXES) == [
        {"attention": "flash2"},
        {"precision": "tf32"},
        {"precision": "tf32", "attention": "flash2"},
        {"precision": "bf16"},
        {"precision": "bf16", "attention": "flash2"},
    ]


def test_cumulative_adds_one_setting_a_cell_in_the_written_order() -> None:
    assert cells(Design.CUMULATIVE, {**AXES, "compile": ("default",)}) == [
        {"precision": "tf32"},
        {"precision": "bf16"},
        {"precision": "bf16", "attention": "flash2"},
        {"precision": "bf16", "attention": "flash2", "compile": "default"},
    ]
    backwards = {"compile": ("default",), "attention": ("flash2",)}
    assert cells(Design.CUMULATIVE, backwards) == [
        {"compile": "default"},
        {"compile": "default", "attention": "flash2"},
    ]


def test_leave_one_out_is_the_stack_and_the_stack_less_each() -> None:
    axes = {"precision": ("bf16",), "attention": ("flash2",), "compile": ("default",)}
    block = only_block(design=Design.LEAVE_ONE_OUT, axes=axes)
    assert {arm.name: arm.cell.changes_from(BASELINE) for arm in block.arms} == {
        "baseline": {},
        "control": {},
        "stack": {"precision": "bf16", "attention": "flash2", "compile": "default"},
        "stack less precision": {"attention": "flash2", "compile": "default"},
        "stack less attention": {"precision": "bf16", "compile": "default"},
        "stack less compile": {"precision": "bf16", "attention": "flash2"},
    }


@pytest.mark.parametrize("design", Design)
def test_cells_are_counted_without_being_made(design: Design) -> None:
    axes = {"precision": ("tf32", "bf16", "amp-bf16"), "attention": ("flash2", "eager"), "compile": ("default",)}
    if design is Design.LEAVE_ONE_OUT:
        axes = {axis: settings[:1] for axis, settings in axes.items()}
    assert count(design, axes) == len(cells(design, axes))
    assert count(design, {}) == 0


def test_several_swept_axes_give_every_combination_of_points() -> None:
    assert sweep_points({"sequence_length": (512, 1024), "batch_size": (1, 2)}) == (
        {"sequence_length": 512, "batch_size": 1},
        {"sequence_length": 512, "batch_size": 2},
        {"sequence_length": 1024, "batch_size": 1},
        {"sequence_length": 1024, "batch_size": 2},
    )
    assert sweep_points({}) == ({},)


def test_the_settings_of_written_points_by_axis() -> None:
    points = [{"batch_size": 4, "sequence_length": 512}, {"batch_size": 2, "sequence_length": 1024}]
    assert swept_settings(points) == {"batch_size": (4, 2), "sequence_length": (512, 1024)}


def test_a_block_has_baseline_control_and_cells_named_by_what_differs() -> None:
    block = only_block(axes=AXES, combinations=({"attention": "eager", "precision": "bf16"},))
    assert [(arm.name, arm.role) for arm in block.arms] == [
        ("baseline", Role.BASELINE),
        ("control", Role.CONTROL),
        ("precision=tf32", Role.CELL),
        ("precision=bf16", Role.CELL),
        ("attention=flash2", Role.CELL),
        ("precision=bf16 attention=eager", Role.CELL),
    ]
    assert block.arms[1].cell == block.baseline.cell


def test_the_sweep_moves_the_whole_block_baseline_included() -> None:
    study = Study(
        name="s", baseline=BASELINE, axes={"attention": ("flash2",)}, points=({"batch_size": 1}, {"batch_size": 2})
    )
    first, second = blocks_of(study)
    assert [arm.cell["batch_size"] for arm in first.arms] == [1, 1, 1]
    assert [arm.cell["batch_size"] for arm in second.arms] == [2, 2, 2]
    assert [arm.name for arm in second.arms] == ["baseline", "control", "attention=flash2"]
    assert first.key != second.key


def test_a_study_that_compares_nothing_has_no_control() -> None:
    assert [arm.name for arm in only_block(kind="estimator").arms] == ["baseline"]
