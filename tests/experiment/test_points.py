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
        ("points: [{model: tiny}, {model: tini}]", "8:37", "unknown model 'tini'; did you mean 'tiny'?"),
        ("sweep: {model: tini}", "8:20", "unknown model 'tini'; did you mean 'tiny'?"),
        ("sweep: {model: [tiny, gpt.json]}", "8:27", "there is no file gpt.json beside the matrix"),
        ("sweep: {model: [tiny, tiny]}", "8:27", "stands in the list twice"),
        ("sweep: {model: [8]}", "8:21", "model: 8 is not a setting (text)"),
        ("combinations: [{model: tiny}]", "8:21", "the model is no axis: name it in the workload, or several in the"),
        ("baseline: {model: tiny}", "8:16", "the model is no axis"),
    ],
)
def test_what_is_wrong_with_a_point_is_said_at_its_place(tmp_path: Path, points: str, place: str, words: str) -> None:
    with pytest.raises(MatrixError) as error:
        read(tmp_path, points)
    assert f"matrix.yaml:{place}: " in str(error.value)
    assert words in str(error.value)


def test_a_sweep_over_models_replaces_that_of_the_workload(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text('{"model_type": "gpt2"}', encoding="utf-8")
    blocks = list(read(tmp_path, "sweep: {model: [mine.json, tiny-gpt2, tiny], batch_size: 2}").blocks())
    assert [dict(block.sweep) for block in blocks] == [
        {"model": "mine.json", "batch_size": 2},
        {"model": "tiny-gpt2", "batch_size": 2},
        {"model": "tiny", "batch_size": 2},
    ]
    for block in blocks:
        assert {arm.cell.workload.model for arm in block.arms} == {block.sweep["model"]}
        assert all(arm.cell["batch_size"] == 2 and "model" not in arm.cell.settings for arm in block.arms)
    assert len({block.key for block in blocks}) == 3
    (mine, *_), text = blocks, '{"model_type": "gpt2", "n_layer": 2}'
    (tmp_path / "mine.json").write_text(text, encoding="utf-8")
    edited = next(read(tmp_path, "sweep: {model: [mine.json], batch_size: 2}").blocks())
    assert edited.sweep == mine.sweep
    assert edited.key != mine.key, "trials of an edited file stand apart"


def test_a_model_that_is_not_swept_leaves_keys_as_they_were(tmp_path: Path) -> None:
    """Of a block that is stored: naming its model in the workload is what it was."""
    (plain,) = read(tmp_path, "steps: 30").blocks()
    (named,) = read(tmp_path, "sweep: {model: tiny}").blocks()
    assert plain.baseline.cell.key == named.baseline.cell.key
    assert plain.key == "3cd1c079db2acec9"
