"""How long the report on 10,000 trials takes, and how large it becomes: `pytest benchmarks/test_report_speed.py`.

The limits are those of the product: 10 s, 1 GB, a page of 5 MB; 5 s for the pages and tables without figures.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.results.lines import write_lines
from tests.records import many_records

COUNT = 10_000
ROOT = Path(__file__).parents[1]
#: Judge and report in a process of its own: its peak memory is that of the report alone. Prints kilobytes.
REPORT = """
import resource, sys
import harness
harness.render([sys.argv[1]], sys.argv[2], claims=sys.argv[3], figures=int(sys.argv[4]) if sys.argv[4:] else None)
own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(own + resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trials") / "trials.jsonl"
    write_lines(many_records(COUNT), path)
    return path


def test_report_of_10000_trials(benchmark: Any, trials: Path, tmp_path: Path) -> None:
    _measure(benchmark, trials, tmp_path)
    assert len(list((tmp_path / "figures").glob("*.svg"))) == 12
    assert benchmark.stats.stats.min < 10.0


def test_report_of_10000_trials_without_figures(benchmark: Any, trials: Path, tmp_path: Path) -> None:
    _measure(benchmark, trials, tmp_path, "0")
    assert benchmark.stats.stats.min < 5.0


def _measure(benchmark: Any, trials: Path, folder: Path, *figures: str) -> None:
    """The least of three runs counts; peak memory and the size of the page are noted and checked."""
    command = [sys.executable, "-c", REPORT, str(trials), str(folder), str(ROOT / "claims.yaml"), *figures]

    def run() -> int:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        return int(done.stdout)

    kilobytes = benchmark.pedantic(run, rounds=3)
    benchmark.extra_info["peak_megabytes"] = kilobytes / 1024
    size = (folder / "report.html").stat().st_size
    benchmark.extra_info["page_megabytes"] = size / 2**20
    assert size < 5 * 2**20
    assert kilobytes < 1024 * 1024
