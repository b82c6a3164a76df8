"""What isolation costs: the same small plan with trials forked from a zygote and with a fresh interpreter each.

pytest benchmarks/test_isolation_cost.py -m gpu -s
"""

from __future__ import annotations

import math
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

MATRIX = """
schema: 1
rounds: 3
workloads:
  gpt2: {model: gpt2-124m, sequence_length: 1024, batch_size: 8}
baseline: {precision: bf16, stream: cached}
studies:
  isolation:
    workload: gpt2
    steps: 60
    axes: {optimizer: [fused]}
"""


def run_once(folder: Path, isolation: str) -> list[Any]:
    """The plan's records under one isolation."""
    import harness

    folder.mkdir()
    (folder / "matrix.yaml").write_text(MATRIX)
    plan = harness.plan(folder / "matrix.yaml")
    harness.run(plan, folder / "store.sqlite", isolation=isolation)
    return [record for record in harness.read([folder / "store.sqlite"]) if record.outcome == "ok"]


def beyond(record: Any) -> float:
    """Seconds of a trial beyond its warm-up and its window."""
    window = sum(record.step_seconds) + record.figures.get("first_step_seconds", 0.0)
    return float(record.wall_seconds - window - record.figures["warmup_seconds"])


@pytest.mark.gpu
def test_a_forked_trial_costs_three_seconds_and_measures_the_same(tmp_path: Path) -> None:
    records = {isolation: run_once(tmp_path / isolation, isolation) for isolation in ("zygote", "spawn")}
    for isolation, each in records.items():
        # the first round's trials carry the gradient check, which is no part of an ordinary trial
        ordinary = [record for record in each if record.round > 1]
        per_minute = 60 / mean(record.wall_seconds for record in ordinary)
        cost = mean(beyond(record) for record in ordinary)
        print(f"{isolation}: {len(each)} trials, {cost:.2f} s beyond warm-up and window, {per_minute:.1f} a minute")
    forked, fresh = ([math.log(r.tokens_per_second) for r in records[i] if r.baseline] for i in ("zygote", "spawn"))
    gap = mean(forked) - mean(fresh)
    floor = _noise_floor(records["zygote"])
    low, high = math.exp(-floor), math.exp(floor)
    print(f"tokens/s of zygote over spawn: {math.exp(gap):.4f}; A/A noise floor: {low:.4f} to {high:.4f}")
    assert mean(beyond(record) for record in records["zygote"] if record.round > 1) <= 3.0
    assert abs(gap) <= floor


def _noise_floor(records: list[Any]) -> float:
    """The larger end of the A/A control's 95% interval, as a log ratio."""
    from scipy.stats import t as student

    rounds = sorted({record.round for record in records})
    by = {(record.round, record.control): math.log(record.tokens_per_second) for record in records if record.baseline}
    gaps = [by[number, True] - by[number, False] for number in rounds]
    middle = mean(gaps)
    spread = math.sqrt(sum((gap - middle) ** 2 for gap in gaps) / (len(gaps) - 1))
    half = float(student.ppf(0.975, len(gaps) - 1)) * spread / math.sqrt(len(gaps))
    return max(abs(middle - half), abs(middle + half))
