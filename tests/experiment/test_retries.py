"""`retries: N` in a matrix: how often a trial that crashed or ran out of time is tried again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.experiment.matrix import read_matrix
from harness.experiment.plan import make_plan
from tests.experiment.conftest import HEAD, make_axes

MATRIX = HEAD + "studies: {a: {workload: small, axes: {attention: flash2}}}\n"


def test_a_matrix_says_how_often(tmp_path: Path) -> None:
    path = tmp_path / "matrix.yaml"
    for text, expected in ((MATRIX, 0), (f"retries: 2\n{MATRIX}", 2)):
        path.write_text(text)
        assert make_plan(read_matrix(path, make_axes()), lambda cell, kind: None).retries == expected


@pytest.mark.parametrize(
    ("value", "sentence"), [("-1", "use 0 or more"), ("11", "use 10 or less"), ("x", "whole number")]
)
def test_a_matrix_that_says_it_wrong(problems: Callable[[str], list[str]], value: str, sentence: str) -> None:
    (line,) = problems(f"retries: {value}\n{MATRIX}")
    assert line.startswith("matrix.yaml:1:10: retries: ")
    assert sentence in line
