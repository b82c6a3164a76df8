"""How long one trial takes that does next to nothing: a process, two steps of the tiny model, its record.

    pytest benchmarks/test_trial_start.py

The zygote imports torch once, outside these times; with `spawn` each trial does.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import harness
from harness.results.workplace import Workplace
from harness.trial.launch import Finished, LocalLauncher
from harness.trial.outcome import Outcome

MATRIX = """
schema: 1
workloads: {small: {model: tiny, data: synthetic, sequence_length: 16, batch_size: 1}}
baseline: {stream: cached}
studies: {start: {workload: small, axes: {optimizer: [for-loop]}, warmup_steps: 1, steps: 1}}
"""
TRIALS = {"zygote": 5, "spawn": 2}


@pytest.fixture(params=TRIALS)
def launcher(request: pytest.FixtureRequest) -> Iterator[LocalLauncher]:
    with LocalLauncher(gpu=False, isolation=request.param) as launcher:
        yield launcher


@pytest.mark.train
def test_start_of_a_trial(benchmark: BenchmarkFixture, launcher: LocalLauncher, tmp_path: Path) -> None:
    (tmp_path / "matrix.yaml").write_text(MATRIX, encoding="utf-8")
    plan = harness.plan(tmp_path / "matrix.yaml", scale="full", environment=harness.machine("cpu"))
    trial = next(each for each in plan.trials if each.round == 2)  # the first round has a gradient check of its own
    workplace = Workplace.beside(tmp_path / "results.sqlite")
    workplace.prepare_data([trial])
    attempts = count(1)

    def run() -> Finished:
        spec = workplace.spec(trial, fingerprint="start", attempt=next(attempts), gpu=False)
        variables = {**workplace.variables(spec, ()), "OMP_NUM_THREADS": "1"}
        return launcher.run(spec, ranks=1, wall_limit_seconds=300, environment=variables)

    assert run().outcome is Outcome.OK  # starts the helper, and a zygote imports torch
    rounds = TRIALS[launcher.isolation]
    finished: Finished = benchmark.pedantic(run, rounds=rounds)  # type: ignore[no-untyped-call]
    assert finished.result is not None
    benchmark.extra_info["startup_seconds"] = finished.result.measured.get("startup_seconds")
