"""Judging a store of 10,000 trials: all of it under 3 s, without torch.

pytest benchmarks/test_judge_speed.py
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from harness.judgement.blocks import compare
from harness.judgement.claims import Claims
from harness.judgement.claims_file import read_claims
from harness.judgement.judge import judge
from harness.results.record import Record
from tests.records import many_records

TRIALS = 10_000
LIMIT_SECONDS = 3.0
CLAIMS = Path(__file__).parent.parent / "claims.yaml"

#: What `claimbench judge store --json` does between its imports and its output, timed in a process of its own.
WHOLE = """
import json, sys, time
import harness
start = time.process_time()
judgement = harness.judge([sys.argv[1]], sys.argv[2])
seconds = time.process_time() - start
print(json.dumps({"seconds": seconds, "verdicts": len(judgement.verdicts), "blocks": len(judgement.blocks),
                  "torch": "torch" in sys.modules}))
"""


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return many_records(TRIALS)


@pytest.fixture(scope="module")
def claims() -> Claims:
    return read_claims(CLAIMS)


@pytest.mark.benchmark(timer=time.process_time)
def test_judge_10000_records(benchmark: BenchmarkFixture, records: list[Record], claims: Claims) -> None:
    judgement = benchmark.pedantic(judge, args=(records, claims), rounds=3)
    assert len(judgement.blocks) == TRIALS // 40
    assert benchmark.stats is None or benchmark.stats["min"] < LIMIT_SECONDS


def test_compare_10000_records(benchmark: BenchmarkFixture, records: list[Record]) -> None:
    compared = benchmark.pedantic(compare, args=(records,), rounds=3)
    assert sum(len(arm.trials) for block in compared.blocks for arm in block.arms) == TRIALS


def test_read_the_claims(benchmark: BenchmarkFixture) -> None:
    assert benchmark.pedantic(read_claims, args=(CLAIMS,), rounds=3).claims


def test_read_and_judge_a_store_of_10000_trials_without_torch(records: list[Record], tmp_path: Path) -> None:
    """From the path to the verdicts, claims file included, in processor seconds: this machine may be busy."""
    from harness.results.store import Store

    path = tmp_path / "results.sqlite"
    with Store.open(path, writable=True) as store:
        store.add_all(records)
    command = [sys.executable, "-c", WHOLE, str(path), str(CLAIMS)]
    runs = [json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(3)]
    print(runs)
    assert {run["blocks"] for run in runs} == {TRIALS // 40}
    assert {run["torch"] for run in runs} == {False}
    assert min(run["seconds"] for run in runs) < LIMIT_SECONDS
