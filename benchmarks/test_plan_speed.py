"""How fast a matrix of 10,000 cells is planned: read, check, expand, order, count. The target is under 2 s and 300 MB.

Run it alone for the figures: pytest benchmarks/test_plan_speed.py
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CELLS = 10_000
TARGET_SECONDS = 2.0
TARGET_BYTES = 300 << 20
#: What the assertion allows beyond the target: the machine that runs it may be busy with other things.
PATIENCE = 5

#: What `claimbench plan` does, in a fresh process, with the axes that are installed. Prints a line of JSON.
PLAN = """
import json, resource, sys, time
start = time.perf_counter()
from harness.experiment.describe import summarise
from harness.experiment.matrix import read_matrix
from harness.experiment.plan import make_plan
from harness.techniques.registry import axis_table
summary = summarise(make_plan(read_matrix(sys.argv[1], axis_table()), lambda cell, kind: None))
print(json.dumps({
    "seconds": time.perf_counter() - start,
    "processor_seconds": time.process_time(),
    "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    "cells": summary.cells,
    "trials": summary.trials,
}))
"""


def write_matrix(path: Path) -> Path:
    """10 studies of 2 lengths, each with 500 arms: the baseline, its control and 498 batch sizes."""
    sizes = ", ".join(str(size) for size in range(2, 500))
    lines = ["schema: 1", "rounds: 5", "workloads: {small: {model: tiny, batch_size: 1}}", "studies:"]
    for number in range(10):
        lines += [
            f"  study-{number}:",
            "    workload: small",
            "    sweep: {sequence_length: [32, 64]}",
            f"    axes: {{batch_size: [{sizes}]}}",
        ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def plan(matrix: Path) -> dict[str, Any]:
    """Plan it in a fresh interpreter, imports included."""
    output = subprocess.run(
        [sys.executable, "-c", PLAN, str(matrix)], check=True, capture_output=True, text=True
    ).stdout
    figures: dict[str, Any] = json.loads(output)
    return figures


def test_plan_of_10000_cells(benchmark: Any, tmp_path: Path) -> None:
    matrix = write_matrix(tmp_path / "matrix.yaml")
    runs: list[dict[str, Any]] = []
    benchmark.pedantic(lambda: runs.append(plan(matrix)), rounds=3, iterations=1)
    assert {run["cells"] for run in runs} == {CELLS}
    assert {run["trials"] for run in runs} == {CELLS * 5}
    best = min(run["processor_seconds"] for run in runs)
    peak = max(run["peak_bytes"] for run in runs)
    benchmark.extra_info.update(
        processor_seconds=best,
        peak_mebibytes=peak >> 20,
        target_seconds=TARGET_SECONDS,
        target_mebibytes=TARGET_BYTES >> 20,
    )
    assert peak < TARGET_BYTES
    assert best < TARGET_SECONDS * PATIENCE


@pytest.mark.parametrize("arms", [5, 500])
def test_orders_of_a_round(benchmark: Any, arms: int) -> None:
    from harness.experiment.order import balanced_orders

    orders = benchmark(lambda: list(balanced_orders(arms, 5, "seed")))
    assert len(orders) == 5
