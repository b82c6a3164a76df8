"""The table of metrics: what each reads in a record and how it is turned."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from harness.judgement import quantities
from harness.judgement.metrics import METRICS, Statistic, UnknownMetric, metric_named
from harness.results.record import Record
from tests.records import make_records


def trial(**fields: Any) -> Record:
    return replace(make_records(rounds=1)[0], **fields)


@pytest.mark.parametrize(
    ("metric", "fields", "value"),
    [
        ("step_time_ratio", {"step_seconds": [0.1, 0.2, 0.3]}, 0.2),
        ("step_time_ratio", {"step_seconds": []}, None),
        ("busy_time_ratio", {"figures": {"breakdown": {"measured_on": "gpu", "profiled_seconds": 0.055}}}, 0.055),
        (
            "busy_time_ratio",
            {"cell": {"devices": 2}, "figures": {"breakdown": {"measured_on": "gpu", "profiled_seconds": 0.055}}},
            None,
        ),
        ("busy_time_ratio", {"figures": {"breakdown": {"measured_on": "cpu", "profiled_seconds": 0.055}}}, None),
        ("busy_time_ratio", {"figures": {}}, None),
        ("data_wait_share", {"step_seconds": [0.1, 0.1], "phases": {"data_wait": 0.02}, "figures": {}}, 0.2),
        # the first of 20 steps waited 1.5 s of its 1.6, the others not at all: 1.5 s of 3.5
        (
            "data_wait_share",
            {"step_seconds": [0.1] * 19, "phases": {"data_wait": 0.075}, "figures": {"first_step_seconds": 1.6}},
            1.5 / 3.5,
        ),
        ("data_wait_share", {"step_seconds": [], "phases": {"data_wait": 1.0, "forward": 3.0}}, 0.25),
        ("data_wait_share", {"phases": {}}, None),
        ("optimizer_speedup", {"phases": {"optimizer": 0.003}}, 0.003),
        ("peak_saved", {"peak_reserved_bytes": 100}, 100.0),
        ("peak_saved", {"peak_reserved_bytes": None}, None),
        ("useful_tokens_ratio", {"figures": {"useful_tokens_per_second": 7.0}}, 7.0),
        ("useful_tokens_ratio", {"figures": {"useful_share": 0.5}, "tokens_per_second": 8.0}, 4.0),
        ("prediction_ratio", {"figures": {"predicted_bytes": 50}, "peak_reserved_bytes": 100}, 0.5),
        ("gradient_error_ratio", {"gradient_check": {"error": 0.01, "eager_error": 0.005}}, 2.0),
        ("gradient_error_ratio", {"gradient_check": {"skipped": "round 2"}}, None),
        ("activation_saved", {"model_state_bytes": {"activations": 12.0}}, 12.0),
        ("activation_saved", {"model_state_bytes": {"activations": 0.0}}, None),
        ("activation_saved", {"model_state_bytes": {"activations": -8.0}}, None),
        ("parameter_bytes_saved", {"model_state_bytes": {"parameters": 0.0}}, None),
        ("trainable_share_saved", {"parameters": {"total": 100, "trainable": 3}}, 3.0),
        ("figure:turned_on", {"figures": {"turned_on": True}}, 1.0),
        ("figure:words", {"figures": {"words": "some"}}, None),
        ("figure:a.b", {"figures": {"a": {"b": 4}}}, 4.0),
        ("mfu", {"mfu": None}, None),
    ],
)
def test_what_a_metric_reads(metric: str, fields: dict[str, Any], value: float | None) -> None:
    found = metric_named(metric).quantity(trial(**fields), "reserved")
    assert found == (None if value is None else pytest.approx(value))


@pytest.mark.parametrize("value", [True, False, "3", None, math.nan, math.inf, [1.0]])
def test_what_is_no_finite_number_is_no_figure(value: object) -> None:
    assert quantities.numeric(value) is None


def test_memory_used_is_a_share_of_the_device_that_the_trial_ran_on() -> None:
    record = trial(peak_device_bytes=42_760_404_992)
    assert quantities.memory_share(record, "device") == pytest.approx(0.5)
    assert quantities.memory_share(record, "host") is None


@pytest.mark.parametrize(
    ("states", "ranks", "value"),
    [
        ({"before_step": 1600.0, "parameters": 1.0}, [], 16.0),
        ({"parameters": 400.0, "gradients": 400.0, "optimizer": 800.0, "activations": 9e9}, [], 16.0),
        ({"before_step": 800.0}, [{"model_state_bytes": {"before_step": 900.0}}], 9.0),
        ({"parameters": 400.0, "optimizer": 800.0}, [], None),  # after the step, or of one that trains nothing
        ({}, [], None),
    ],
)
def test_model_state_is_counted_before_the_step_per_logical_parameter(
    states: dict[str, float], ranks: list[dict[str, Any]], value: float | None
) -> None:
    record = trial(model_state_bytes=states, ranks=ranks, parameters={"total": 100, "trainable": 100})
    assert quantities.state_per_parameter(record) == value


@pytest.mark.parametrize(
    ("metric", "ratio", "value"),
    [
        ("speedup", 1.5, 1.5),
        ("optimizer_speedup", 0.5, 2.0),  # half the time is twice the speed
        ("peak_saved", 0.6, 0.4),
        ("peak_ratio", 0.125, 8.0),
        ("figure_saved:bytes", 0.25, 0.75),
        ("figure_inverse:layer_seconds", 0.25, 4.0),
    ],
)
def test_shapes_turn_cell_over_baseline_into_the_metric_and_back(metric: str, ratio: float, value: float) -> None:
    found = metric_named(metric)
    assert found.shaped(ratio) == pytest.approx(value)
    assert found.unshaped(value) == pytest.approx(ratio)


def test_memory_has_no_interval_and_speed_has_one() -> None:
    assert METRICS["peak_saved"].statistic is Statistic.MAXIMUM
    assert METRICS["model_state_ratio"].statistic is Statistic.MAXIMUM
    assert METRICS["speedup"].statistic is Statistic.PAIRED
    assert METRICS["utilisation"].statistic is Statistic.LEVEL


@pytest.mark.parametrize(
    ("metric", "statistic"),
    [("figure_inverse:layer_peak_bytes", Statistic.MAXIMUM), ("figure_saved:peak_loader_bytes", Statistic.MAXIMUM),
     ("figure:layer_peak_bytes", Statistic.WORST), ("figure:allocated_growth_bytes", Statistic.LEVEL),
     ("figure_ratio:peak_seconds", Statistic.PAIRED), ("figure_ratio:unspeakable_bytes", Statistic.PAIRED)],
)  # fmt: skip
def test_a_kinds_own_peak_is_a_maximum_as_other_peaks_are(metric: str, statistic: Statistic) -> None:
    assert metric_named(metric).statistic is statistic


@pytest.mark.parametrize(
    ("metric", "better"),
    [("figure_ratio:tokens_per_second", True), ("figure_ratio:step_seconds", False),
     ("figure_inverse:step_seconds", True), ("figure_saved:peak_bytes", True), ("figure_ratio:ppl", None)],
)  # fmt: skip
def test_the_direction_of_a_figure_lives_in_its_unit(metric: str, better: bool | None) -> None:
    assert metric_named(metric).more_is_better is better


@pytest.mark.parametrize("name", ["speed_up", "figure", "figure:", "loss:x"])
def test_an_unknown_metric_is_named_with_a_suggestion(name: str) -> None:
    with pytest.raises(UnknownMetric, match=f"unknown metric '{name}'"):
        metric_named(name)
