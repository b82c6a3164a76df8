"""From trials to a metric's figure: which trials count, and on which scale the interval stands."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.judgement.blocks import compare
from harness.judgement.judged import Interval
from harness.judgement.metrics import metric_named
from harness.judgement.pairs import measure, shaped
from harness.results.record import Record
from harness.trial.outcome import Outcome
from tests.judgement.claiming import study
from tests.records import CellShape, make_records


@pytest.mark.parametrize(
    ("metric", "ends"),
    [
        ("step_time_ratio", (0.5, 0.4, 0.625, 0.48)),
        ("copy_speedup", (2.0, 1.6, 2.5, 1 / 0.48)),
        ("peak_saved", (0.5, 0.375, 0.6, 0.52)),
    ],
)
def test_an_interval_of_cell_over_baseline_on_the_metrics_own_scale(metric: str, ends: tuple[float, ...]) -> None:
    ratio = Interval(value=0.5, low=0.4, high=0.625, rounds=3, dropped=1, observed=(0.48,))
    found = shaped(metric_named(metric), ratio)
    assert (found.value, found.low, found.high, *found.observed) == pytest.approx(ends)
    assert (found.rounds, found.dropped) == (3, 1)
    single = shaped(metric_named(metric), replace(ratio, low=None, high=None, rounds=1))
    assert (single.low, single.high) == (None, None)


def test_a_trial_whose_timing_does_not_count_has_a_gradient_and_no_utilisation_or_peak() -> None:
    """Round 2 met a neighbour, round 3 crashed: utilisation and peak are of three trials, the gradient of two."""
    records = [_fallen(each) for each in make_records([study(CellShape(settings={"precision": "bf16"}))])]
    (block,) = compare(records).blocks
    cell = next(arm for arm in block.arms if arm.role == "cell")

    level = measure(metric_named("utilisation"), cell, None, "reserved")
    assert level is not None
    assert (level.interval.value, level.interval.rounds, level.interval.dropped) == (pytest.approx(0.5), 3, 2)
    peak = measure(metric_named("peak_saved"), cell, block.baseline, "reserved")
    assert peak is not None
    assert peak.interval.value == pytest.approx(0.0)
    gradient = measure(metric_named("gradient_error_ratio"), cell, None, "reserved")
    assert gradient is not None
    assert (gradient.interval.value, gradient.interval.rounds) == (pytest.approx(4.0), 2)


def _fallen(record: Record) -> Record:
    record = replace(record, peak_reserved_bytes=10 << 30, gradient_check={}, utilisation=0.5)
    if record.arm != "precision=bf16":
        return record
    if record.round == 1:
        return replace(record, gradient_check={"error": 0.01, "eager_error": 0.01})
    if record.round == 2:
        return replace(
            record, outcome=Outcome.INVALID, reason="a neighbour", utilisation=0.9, peak_reserved_bytes=20 << 30,
            gradient_check={"error": 0.04, "eager_error": 0.01},
        )  # fmt: skip
    return replace(record, outcome=Outcome.CRASH, reason="it crashed") if record.round == 3 else record
