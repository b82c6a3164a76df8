"""From matrix.yaml to studies: where a setting may stand, and which place wins."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from harness.errors import MatrixError
from harness.experiment.axes import AxisTable
from harness.experiment.cell import Workload
from harness.experiment.matrix import read_matrix
from harness.experiment.study import Design
from harness.experiment.workloads import BUILT_IN_DATA, BUILT_IN_MODELS
from tests.experiment.conftest import HEAD, KINDS, Read

ROOT = Path(__file__).parents[2]


def test_defaults_then_matrix_then_workload_then_study_then_sweep(read: Read) -> None:
    matrix = read("""\
        schema: 1
        workloads:
          small: {model: tiny, sequence_length: 64, batch_size: 4}
        baseline: {precision: tf32, attention: eager}
        studies:
          a:
            workload: small
            baseline: {precision: bf16}
            axes: {compile: [default]}
            sweep: {sequence_length: [32, 48]}
        """)
    first, second = matrix.blocks()
    cell = second.arms[2].cell
    shown = ["checkpointing", "attention", "batch_size", "precision", "sequence_length", "compile"]
    assert [cell[axis] for axis in shown] == ["off", "eager", 4, "bf16", 48, "default"]
    assert (first.baseline.cell["sequence_length"], first.baseline.cell["compile"]) == (32, "off")
    assert first.sweep == {"sequence_length": 32}


def test_what_a_study_does_not_say(read: Read) -> None:
    (study,) = read("""\
        schema: 1
        workloads: {small: {model: tiny}}
        studies: {a: {workload: small, axes: {attention: flash2}}}
        """).studies
    assert (study.kind, study.design, study.smoke, study.question) == ("training", Design.ONE_AT_A_TIME, True, "")
    assert (study.rounds, study.warmup_steps, study.steps, study.options) == (5, 8, 30, {})
    assert study.points == ({},)
    assert study.axes == {"attention": ("flash2",)}
    assert (study.baseline.workload.model, study.baseline.workload.data) == ("tiny", "stdlib")


def test_what_a_study_says(read: Read) -> None:
    (study,) = read(
        HEAD
        + """\
studies:
  a:
    question: Does the number of workers matter?
    workload: small
    kind: loader-only
    design: factorial
    axes: {workers: [2, 4], pin_memory: true}
    points: [{batch_size: 2, sequence_length: 64}, {batch_size: 4, sequence_length: 32}]
    rounds: 7
    warmup_steps: 0
    steps: 50
    options: {seconds: 3, words: [a, b]}
    smoke: false
"""
    ).studies
    assert (study.kind, study.design, study.smoke) == ("loader-only", Design.FACTORIAL, False)
    assert (study.rounds, study.warmup_steps, study.steps) == (7, 0, 50)
    assert study.options == {"seconds": 3, "words": ["a", "b"]}
    assert study.axes == {"workers": (2, 4), "pin_memory": (True,)}
    assert study.points == ({"batch_size": 2, "sequence_length": 64}, {"batch_size": 4, "sequence_length": 32})
    assert study.question == "Does the number of workers matter?"


def test_a_kind_that_compares_nothing_needs_no_cells_and_may_run_once(read: Read) -> None:
    (block,) = read(HEAD + "studies:\n  a: {workload: small, kind: estimator, rounds: 1}\n").blocks()
    assert [arm.name for arm in block.arms] == ["baseline"]
    assert block.rounds == 1


def test_off_is_a_word_and_zero_a_number(read: Read) -> None:
    (study,) = read(HEAD + "studies:\n  a:\n    workload: small\n    axes: {zero: [0, 1, offload]}\n").studies
    assert study.baseline["zero"] == "off"
    assert study.axes == {"zero": (0, 1, "offload")}


def test_a_cell_is_the_same_wherever_its_settings_stand(read: Read) -> None:
    text = (
        HEAD
        + """\
studies:
  a: {workload: small, axes: {attention: flash2}}
  b: {workload: small, baseline: {attention: flash2}, axes: {compile: default}}
  c: {workload: small, combinations: [{attention: flash2, compile: default}]}
"""
    )
    a, b, c = read(text).blocks()
    assert a.arms[2].cell.key == b.baseline.cell.key
    assert b.arms[2].cell.key == c.arms[2].cell.key


def test_files_count_from_the_folder_of_the_matrix(
    tmp_path: Path, axes: AxisTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "deep"
    folder.mkdir()
    (folder / "text.txt").write_text("some text")
    (folder / "step.py").write_text("def build(device, settings): ...")
    (folder / "shape").mkdir()
    (folder / "shape" / "config.json").write_text('{"model_type": "llama"}')
    for number, model in enumerate(["step.py:build", "shape", "shape/config.json"]):
        (folder / f"{number}.yaml").write_text(
            f"schema: 1\nworkloads: {{w: {{model: '{model}', data: text.txt}}}}\n"
            "studies: {a: {workload: w, axes: {attention: flash2}}}\n"
        )
        monkeypatch.chdir(tmp_path)
        workload = read_matrix(f"deep/{number}.yaml", axes).studies[0].baseline.workload
        assert (workload.model, workload.data) == (model, "text.txt")
        assert (workload.model_source, workload.data_source) == (f"deep/{model}", "deep/text.txt")
        monkeypatch.chdir(folder)
        beside = read_matrix(f"{number}.yaml", axes).studies[0].baseline
        assert beside.key == read_matrix(folder / f"{number}.yaml", axes).studies[0].baseline.key


def test_built_in_words_are_no_paths() -> None:
    workload = Workload(name="w", model="tiny", data="synthetic", folder="deep")
    assert (workload.model_source, workload.data_source) == ("tiny", "synthetic")


def test_the_words_for_models_and_data_are_those_that_trials_know() -> None:
    from harness.trial.corpus import BUILT_IN
    from harness.trial.shapes import SHAPES

    assert set(SHAPES) == set(BUILT_IN_MODELS)
    assert set(BUILT_IN) == set(BUILT_IN_DATA)


def test_a_matrix_may_have_a_million_trials_with_a_thousand_rounds(read: Read) -> None:
    def text(cells: int) -> str:
        sizes = list(range(1000, 1000 + cells))
        return HEAD + f"studies:\n  a: {{workload: small, axes: {{batch_size: {sizes}}}, rounds: 1000}}\n"

    assert [study.rounds for study in read(text(998)).studies] == [1000]  # with the baseline and its control
    with pytest.raises(MatrixError, match="more than 1,000,000 trials"):
        read(text(999))


def test_a_choice_of_studies_and_rounds(read: Read) -> None:
    matrix = read(
        HEAD + "studies:\n" + "".join(f"  {n}: {{workload: small, axes: {{attention: flash2}}}}\n" for n in "abc")
    )
    assert [study.name for study in matrix.only(["c", "a"]).studies] == ["a", "c"]
    assert matrix.only([]) == matrix
    assert {study.rounds for study in matrix.with_rounds(9).studies} == {9}
    with pytest.raises(MatrixError, match=r"unknown study 'd'"):
        matrix.only(["d"])
    assert {study.rounds for study in matrix.with_rounds(1).studies} == {1}, "one look at whether all runs"
    with pytest.raises(MatrixError, match=r"0 rounds: use 1 to 1000"):
        matrix.with_rounds(0)


def test_the_matrix_knows_its_file_by_content(read: Read, tmp_path: Path, axes: AxisTable) -> None:
    matrix = read(HEAD + "studies: {a: {workload: small, axes: {attention: flash2}}}\n")
    shutil.copy(matrix.file, tmp_path / "copy.yaml")
    assert read_matrix(tmp_path / "copy.yaml", axes).hash == matrix.hash
    assert len(matrix.hash) == 64


def test_the_small_example_reads(axes: AxisTable) -> None:
    matrix = read_matrix(ROOT / "examples" / "small.yaml", axes, KINDS)
    assert [study.name for study in matrix.studies] == ["precision", "attention"]
    assert {study.baseline.workload.model for study in matrix.studies} == {"tiny"}
