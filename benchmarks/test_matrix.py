"""Every cell of the matrix as a benchmark: its measured step times, replayed.

    pytest benchmarks --benchmark-json out.json                      the whole matrix, then the harness's own speed
    pytest benchmarks/test_matrix.py --study attention --rounds 5    one study

A trial runs isolated as always; what pytest-benchmark sees is the time of each of its steps, not that of starting a
process. `docs/benchmarks.md` says how to read the result.
"""

from __future__ import annotations

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.blocks import Blocks, CellName, Stopped
from benchmarks.replay import ReplayedClock, extra_info, step, step_seconds
from harness.trial.outcome import Outcome


@pytest.mark.timeout(0)  # the first cell of a block waits for all of it; each trial has a wall limit of its own
def test_cell(benchmark: BenchmarkFixture, clock: ReplayedClock, blocks: Blocks, name: CellName) -> None:
    try:
        block, arm = blocks.cell(name)
    except Stopped as stopped:
        pytest.exit(str(stopped), returncode=130)
    if set(arm.outcomes) == {Outcome.UNSUPPORTED}:
        pytest.skip(arm.reason)
    if set(arm.outcomes) != {Outcome.OK}:
        pytest.fail(arm.reason, pytrace=False)
    steps = step_seconds(arm.trials)
    if not steps:
        pytest.skip(f"a trial of kind {block.kind} has no steps to time; `claimbench report` shows its figures")
    benchmark.extra_info.update(extra_info(block, arm))
    clock.load(steps)
    benchmark.pedantic(step, rounds=len(steps), iterations=1)  # type: ignore[no-untyped-call]
