"""Figures in words: enough digits, and a direction that nobody has to guess."""

from __future__ import annotations

import pytest

from harness.judgement.judged import Interval
from harness.judgement.metrics import metric_named
from harness.judgement.words import claimed, is_wide, measured, number, phrase, span
from tests.judgement.claiming import make_claim


@pytest.mark.parametrize(
    ("metric", "value", "text"),
    [
        ("speedup", 0.0143, "0.0143x"),
        ("speedup", 0.2, "0.20x"),
        ("speedup", 0.998, "0.998x"),
        ("speedup", 26.25, "26.25x"),
        ("speedup", 0.0, "0.00x"),
        ("peak_saved", 0.473, "47.3%"),
    ],
)
def test_a_number_keeps_three_figures_where_two_digits_would_leave_one(metric: str, value: float, text: str) -> None:
    assert number(metric_named(metric), value) == text


def test_an_end_that_does_not_reach_the_bound_does_not_look_as_if_it_did() -> None:
    metric, bounds = metric_named("step_time_ratio"), (1.2, 1.3)
    crossing = Interval(value=1.204, low=1.198, high=1.21, rounds=3)
    assert span(metric, crossing, bounds) == "[1.198x, 1.21x]"
    assert measured(metric, crossing, bounds) == "1.204x [1.198x, 1.21x]"
    assert number(metric, 1.2 + 1e-12, bounds) == "1.20x", "it is the bound"
    assert number(metric_named("peak_saved"), 0.29996, (0.3, 0.5)) == "29.996%"
    assert number(metric, 1.2 - 1e-8, bounds) == "1.200000x", "digits end somewhere"


@pytest.mark.parametrize(
    ("metric", "interval", "text"),
    [
        ("figure_inverse:turnaround_seconds", Interval(value=25.19, low=21.73, high=29.21),
         "turnaround time 25.19x shorter [21.73x, 29.21x]"),
        ("figure_inverse:turnaround_seconds", Interval(value=0.5, low=0.4, high=0.8),
         "turnaround time 2.00x longer [1.25x, 2.50x]"),
        ("figure_inverse:layer_peak_bytes", Interval(value=4.0), "layer peak memory 4.00x smaller"),
        ("model_state_ratio", Interval(value=1.97), "model state 1.97x smaller"),
        ("optimizer_speedup", Interval(value=1.1, low=1.05, high=1.2), "optimizer time 1.10x shorter [1.05x, 1.20x]"),
        ("peak_saved", Interval(value=0.102), "peak saved 10.2%"),
        ("peak_saved", Interval(value=-2.949), "peak memory 294.9% more"),
        ("peak_saved", Interval(value=-0.0001), "peak saved 0.0%"),
        ("figure_saved:step_seconds", Interval(value=-0.1, low=-0.2, high=0.05), "step time 10.0% more [-5.0%, 20.0%]"),
        ("figure:first_epoch_seconds", Interval(value=3.485), "first epoch time 3.485 seconds"),
        ("speedup", Interval(value=0.41, low=0.36, high=0.47), "speedup 0.41x [0.36x, 0.47x]"),
    ],
)  # fmt: skip
def test_a_figure_by_itself_says_its_direction(metric: str, interval: Interval, text: str) -> None:
    assert phrase(metric_named(metric), interval) == text


@pytest.mark.parametrize(
    ("metric", "value", "observed", "text"),
    [
        ("peak_saved", 0.223, (0.223, 0.223, 0.312), "22.3% (22.3% to 31.2% by trial)"),
        ("peak_saved", 0.409, (0.409, 0.412), "40.9%"),
        ("peak_saved", -0.12, (-0.12, -0.05), "needs 12.0% more (5.0% to 12.0% by trial)"),
        ("peak_ratio", 1.22, (1.22, 1.4), "1.22x (1.22x to 1.40x by trial)"),
        ("peak_ratio", 1.22, (1.22, 1.23), "1.22x"),
        ("speedup", 1.5, (1.2, 1.8), "1.50x"),
    ],
)
def test_memory_by_trial(metric: str, value: float, observed: tuple[float, ...], text: str) -> None:
    assert measured(metric_named(metric), Interval(value=value, observed=observed)) == text


def test_what_saves_less_than_nothing_needs_more() -> None:
    assert measured(metric_named("peak_saved"), Interval(value=-2.949)) == "needs 294.9% more"


@pytest.mark.parametrize(
    ("metric", "interval", "text"),
    [
        ("busy_time_ratio", Interval(value=1.1912, low=1.1908, high=1.1914), "1.1912x [1.1908x, 1.1914x]"),
        ("busy_time_ratio", Interval(value=0.3204, low=0.3188, high=0.3221), "0.320x [0.319x, 0.322x]"),
        ("speedup", Interval(value=0.998, low=0.9979, high=0.9983), "0.9980x [0.9979x, 0.9983x]"),
        ("speedup", Interval(value=1.5, low=1.49999, high=1.50001), "1.50x"),
        ("speedup", Interval(value=1.5, low=1.46, high=1.54), "1.50x [1.46x, 1.54x]"),
        ("speedup", Interval(value=1.5), "1.50x"),
        ("speedup", Interval(value=0.01433, low=0.01432, high=0.01434), "0.0143x"),
        ("utilisation", Interval(value=0.9312, low=0.9311, high=0.9314), "93.12% [93.11%, 93.14%]"),
        ("figure_saved:step_seconds", Interval(value=-0.1204, low=-0.1204, high=-0.1202),
         "needs 12.04% more [12.02%, 12.04%]"),
        ("figure:first_epoch_seconds", Interval(value=3.48512, low=3.48511, high=3.48513),
         "3.485 seconds"),
    ],
)  # fmt: skip
def test_a_narrow_interval_is_printed_with_the_digits_that_show_it(metric: str, interval: Interval, text: str) -> None:
    """`busy time ratio 1.19x` read as if there were no interval."""
    assert measured(metric_named(metric), interval) == text


def test_a_narrow_interval_is_printed_alike_everywhere() -> None:
    metric = metric_named("optimizer_speedup")
    narrow = Interval(value=1.2342, low=1.2339, high=1.2344)
    assert span(metric, narrow) == "[1.2339x, 1.2344x]"
    assert phrase(metric, narrow) == "optimizer time 1.2342x shorter [1.2339x, 1.2344x]"
    assert is_wide(metric, narrow)
    same = Interval(value=1.2, low=1.2, high=1.2)
    assert span(metric, same) == measured(metric, same) == "1.20x"
    assert not is_wide(metric, same)
    assert span(metric, narrow, (1.234, None)) == "[1.2339x, 1.2344x]"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"metric": "figure_inverse:busy_seconds", "range": [2, 4]}, "busy time 2x to 4x shorter"),
        ({"metric": "peak_ratio", "form": "exact", "value": 7.6, "tolerance": 0.38, "range": None},
         "peak memory 7.6x (±0.38x) smaller"),
        ({"metric": "model_state_ratio", "form": "limit", "limit": 4, "range": None},
         "model state 4x smaller for many devices"),
        ({"metric": "step_time_ratio", "range": [1.2, 1.3]}, "step time ratio 1.2x to 1.3x"),
        ({"metric": "speedup"}, "speedup 1.5x to 2x"),
    ],
)  # fmt: skip
def test_a_claim_says_its_direction(fields: dict[str, object], text: str) -> None:
    assert claimed(make_claim(**fields)) == text
