"""What a study tells its kind of trial: misspelt names, wrong types and impossible values are said before a launch."""

from __future__ import annotations

from pathlib import Path

import pytest

import harness
from harness.errors import MatrixError
from harness.experiment.matrix import read_matrix
from harness.techniques.registry import axis_table
from harness.trial.kinds import KINDS

MATRIX = """\
schema: 1
rounds: 3
workloads:
  small: {model: tiny, sequence_length: 64, batch_size: 4}
studies:
  a:
    workload: small
    kind: KIND
    axes: {workers: [2]}
    options: {OPTIONS}
"""


def write(folder: Path, kind: str, options: str) -> Path:
    path = folder / "matrix.yaml"
    path.write_text(MATRIX.replace("KIND", kind).replace("OPTIONS", options), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("kind", "options", "column", "words"),
    [
        ("loader-only", "second: 1", 15, "kind 'loader-only' has no option 'second'; did you mean 'seconds'?"),
        ("training", "foo: 1", 15, "kind 'training' has no option 'foo'; known: wall_limit_seconds"),
        ("training", "epochs: 3", 15, "kind 'training' has no option 'epochs'; known: wall_limit_seconds"),
        ("training", "pilot: true", 15, "kind 'training' has no option 'pilot'"),
        ("loader-only", 'seconds: "abc"', 24, "seconds: must be a number, not 'abc'"),
        ("loader-only", "seconds: true", 24, "seconds: must be a number, not true"),
        ("loader-only", "seconds: .nan", 24, "infinity and not-a-number are no values here; write a number"),
        ("loader-only", "seconds: [1]", 24, "seconds: must be a number, not a list"),
        ("loader-only", "seconds: ", 15, "seconds: must be a number, not nothing"),
        ("loader-only", "seconds: -1", 24, "seconds: -1 is out of range; use 0 to 86400"),
        ("epoch-turnaround", "epochs: -3", 23, "epochs: -3 is out of range; use 2 or more"),
        ("epoch-turnaround", "epochs: 1", 23, "epochs: 1 is out of range; use 2 or more"),
        ("epoch-turnaround", "batches: 1.5", 24, "batches: must be a whole number, not 1.5"),
        ("copy-only", "mebibytes: 0", 26, "mebibytes: 0 is out of range; use 1 to 65536"),
        ("opt-levels", "levels: O1", 23, "levels: must be a list of some of O0, O1, O2, O3, not 'O1'"),
        ("opt-levels", "levels: []", 23, "levels: must be a list of some of O0, O1, O2, O3, not an empty one"),
        ("opt-levels", "levels: [O1, O5]", 23, "levels: 'O5' is not one of O0, O1, O2, O3"),
        ("training", "wall_limit_seconds: 0", 35, "wall_limit_seconds: 0 is out of range; use 1 or more"),
    ],
)
def test_what_a_kind_cannot_be_told(tmp_path: Path, kind: str, options: str, column: int, words: str) -> None:
    path = write(tmp_path, kind, options)
    with pytest.raises(MatrixError) as error:
        harness.read_matrix(path)
    assert str(error.value).startswith(f"{path}:10:{column}: {words}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("loader-only", "seconds: 0.5, wall_limit_seconds: 900"), ("training", ""),
        ("training", "wall_limit_seconds: 60"),
        ("epoch-turnaround", "epochs: 2, batches: 1"), ("copy-only", "mebibytes: 64"),
        ("opt-levels", "levels: [O2, O0]"), ("workers-late", "workers: 16, prefetch: 2"),
        ("batch-finder", "max_batch_size: 32, ceiling: 256, resolution: 0.1"),
    ],
)  # fmt: skip
def test_what_it_can(tmp_path: Path, kind: str, options: str) -> None:
    (study,) = harness.read_matrix(write(tmp_path, kind, options)).studies
    assert list(study.options) == [each.partition(":")[0] for each in options.split(", ") if ":" in each]


def test_a_kind_that_declares_no_options_takes_any(tmp_path: Path) -> None:
    (study,) = read_matrix(write(tmp_path, "mine", "foo: [a]"), axis_table(), [*KINDS, "mine"]).studies
    assert study.options == {"foo": ["a"]}
