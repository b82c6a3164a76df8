"""Sweep points that are written out: axes that move together, in place of every combination of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import MatrixError
from harness.experiment.axes import Axis, AxisTable
from harness.experiment.matrix import Matrix, read_matrix

AXES = AxisTable(
    [
        Axis(name="sequence_length", default=1024, number=int, minimum=1),
        Axis(name="batch_size", default=8, number=int, minimum=1),
        Axis(name="attention", default="sdpa", settings={"sdpa": "", "eager": ""}),
    ]
)
MATRIX = """\
schema: 1
workloads:
  small: {{model: tiny, sequence_length: 64, batch_size: 4}}
studies:
  long:
    workload: small
    axes: {{attention: [eager]}}
    {points}
"""


def read(folder: Path, points: str) -> Matrix:
    file = folder / "matrix.yaml"
    file.write_text(MATRIX.format(points=points), encoding="utf-8")
    return read_matrix(file, AXES)


def test_each_point_is_a_block_with_the_points_settings_in_every_cell(tmp_path: Path) -> None:
    listed = "points: [{sequence_length: 128, batch_size: 4}, {sequence_length: 256, batch_size: 2}]"
    blocks = list(read(tmp_path, listed).blocks())
    assert [dict(block.sweep) for block in blocks] == [
        {"sequence_length": 128, "batch_size": 4},
        {"sequence_length": 256, "batch_size": 2},
    ]
    for block in blocks:
        assert [arm.name for arm in block.arms] == ["baseline", "control", "attention=eager"]
        assert all({axis: arm.cell[axis] for axis in block.sweep} == block.sweep for arm in block.arms)


def test_a_sweep_over_the_same_axes_is_every_combination(tmp_path: Path) -> None:
    swept = "sweep: {sequence_length: [128, 256], batch_size: [4, 2]}"
    assert len(list(read(tmp_path, swept).blocks())) == 4


@pytest.mark.parametrize(
    ("points", "place", "words"),
    [
        ("points: [{batch_size: 2}, {sequence_length: 8}]", "8:14", "each point must name the same axes"),
        ("points: [{batch_size: 2}, {batch_size: 2}]", "8:31", "stands in the list twice"),
        ("points: [{batch_sise: 2}]", "8:15", "did you mean 'batch_size'"),
        ("points: {batch_size: 2}", "8:13", "must be a list"),
        ("points: [{attention: sdpa}]", "7:12", "attention stands in axes and in sweep"),
        ("points: [{batch_size: 2}]\n    sweep: {batch_size: [4]}", "8:5", "either sweep or points"),
    ],
)
def test_what_is_wrong_with_a_point_is_said_at_its_place(tmp_path: Path, points: str, place: str, words: str) -> None:
    with pytest.raises(MatrixError) as error:
        read(tmp_path, points)
    assert f"matrix.yaml:{place}: " in str(error.value)
    assert words in str(error.value)
