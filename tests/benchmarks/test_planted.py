"""A slowdown in the step of real trials is found by comparing two runs, and the exit code says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.planted import environment_with_planted, spread
from benchmarks.test_planted_slowdown import found_share
from tests.records import CellShape, StudyShape, make_records


@pytest.mark.alone
@pytest.mark.train
@pytest.mark.timeout(900)
def test_half_a_step_is_found_or_as_much_as_the_machine_can_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In three rounds of steady steps; 15% in five: `benchmarks/test_planted_slowdown.py`."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert found_share(tmp_path, share=0.5, threshold=0.05, what="steady", rounds=3) >= 0.5


def test_the_spread_is_that_between_trials_pooled_over_cells() -> None:
    cells = tuple(CellShape(settings={"batch_size": size}, ratio=size / 8) for size in (16, 32, 64))
    records = make_records([StudyShape(name="s", cells=cells)], rounds=200, spread=0.03)
    assert spread(records) == pytest.approx(0.03, rel=0.1)


def test_the_outside_technique_is_installed_by_its_entry_point(tmp_path: Path) -> None:
    script = "from harness.techniques.registry import techniques; print([type(each).__name__ for each in techniques()])"
    environment = environment_with_planted(tmp_path)
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert "'Planted'" in done.stdout
