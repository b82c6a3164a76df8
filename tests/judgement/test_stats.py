"""Intervals, corrections and labels, against numbers worked out by hand or taken from tables."""

from __future__ import annotations

import math

import numpy as np
import pytest

from harness.judgement import stats
from harness.judgement.stats import Summary


def test_quantiles_are_those_of_the_printed_tables() -> None:
    assert stats.t_quantile(2) == pytest.approx(4.3027, abs=1e-4)
    assert stats.t_quantile(4) == pytest.approx(2.7764, abs=1e-4)
    assert stats.t_quantile(6) == pytest.approx(2.4469, abs=1e-4)


def test_the_interval_of_three_ratios_worked_out_by_hand() -> None:
    # logs: 0, 0.01, 0.02; mean 0.01; s = 0.01; half = 4.3027 · 0.01 / √3 = 0.024841
    found = stats.ratio_interval([1.0, math.exp(0.01), math.exp(0.02)])
    assert found is not None
    assert found.value == pytest.approx(math.exp(0.01))
    assert found.low == pytest.approx(math.exp(0.01 - 0.024841), rel=1e-5)
    assert found.high == pytest.approx(math.exp(0.01 + 0.024841), rel=1e-5)
    assert found.rounds == 3


def test_two_ratios_have_an_interval_and_it_is_wide() -> None:
    # logs: 0, 0.02; mean 0.01; s = 0.01 · √2; half = 12.7062 · 0.01
    found = stats.ratio_interval([1.0, math.exp(0.02)])
    assert found is not None
    assert found.low == pytest.approx(math.exp(0.01 - 0.127062), rel=1e-6)
    assert found.high == pytest.approx(math.exp(0.01 + 0.127062), rel=1e-6)


def test_a_ratio_and_its_inverse_have_inverse_intervals() -> None:
    ratios = [1.4, 1.5, 1.7, 1.45]
    found, inverse = stats.ratio_interval(ratios), stats.ratio_interval([1 / ratio for ratio in ratios])
    assert found is not None
    assert inverse is not None
    assert found.low is not None
    assert inverse.high == pytest.approx(1 / found.low)


def test_one_ratio_has_no_interval_and_none_has_nothing() -> None:
    single = stats.ratio_interval([1.5])
    assert single is not None
    assert (single.low, single.high) == (None, None)
    assert stats.ratio_interval([]) is None
    assert stats.level_interval([]) is None


def test_a_level_is_averaged_on_the_plain_scale() -> None:
    # mean 0.90, s = 0.01, half = 4.3027 · 0.01 / √3 = 0.02484
    found = stats.level_interval([0.89, 0.90, 0.91])
    assert found is not None
    assert found.value == pytest.approx(0.90)
    assert found.low == pytest.approx(0.90 - 0.02484, abs=1e-5)
    assert found.high == pytest.approx(0.90 + 0.02484, abs=1e-5)
    single = stats.level_interval([0.9])
    assert single is not None
    assert (single.value, single.low, single.high) == (0.9, None, None)


def test_an_outlier_stays_in() -> None:
    found = stats.ratio_interval([1.0, 1.0, 1.0, 1.0, 2.0])
    assert found is not None
    assert found.rounds == 5
    assert found.value == pytest.approx(2 ** (1 / 5))


def test_holm_worked_out_by_hand() -> None:
    # sorted 0.01, 0.02, 0.04: 3·0.01 = 0.03, max(0.03, 2·0.02) = 0.04, max(0.04, 1·0.04) = 0.04
    assert stats.holm([0.04, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    assert stats.holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    assert stats.holm([0.001, 0.5]) == pytest.approx([0.002, 0.5])
    assert stats.holm([]) == []


def test_welch_worked_out_by_hand() -> None:
    # standard errors 0.1/√4 = 0.05 and 0.2/√4 = 0.1: together √0.0125 = 0.1118;
    # freedom 0.0125² / (0.0025²/3 + 0.01²/3) = 4.4118
    gap, error, freedom = stats.welch(
        Summary(mean=1.0, deviation=0.1, count=4), Summary(mean=0.7, deviation=0.2, count=4)
    )
    assert gap == pytest.approx(0.3)
    assert error == pytest.approx(0.111803, abs=1e-6)
    assert freedom == pytest.approx(4.41176, abs=1e-5)


def test_welch_knows_nothing_of_the_error_of_a_single_trial() -> None:
    gap, error, freedom = stats.welch(stats.summarise([1.0]), Summary(mean=0.7, deviation=0.2, count=4))
    assert (gap, error) == (pytest.approx(0.3), math.inf)
    assert stats.p_value(gap, error, freedom) == 1.0


def test_trials_that_agree_to_the_last_digit_leave_no_error() -> None:
    """What is made of the freedom stays a number: the error times any quantile is none at all."""
    gap, error, freedom = stats.welch(*(Summary(mean=mean, deviation=0.0, count=3) for mean in (1.0, 0.7)))
    assert (gap, error) == (pytest.approx(0.3), 0.0)
    assert stats.t_quantile(freedom) * error == 0.0
    assert [stats.power(ratio, 0.0, 3) for ratio in (1.0, 1.001)] == [0.0, 1.0]


def test_the_offset_that_a_control_could_show_is_half_of_its_interval() -> None:
    # s = 0.01, n = 3: t(0.975, 2)·s/√3 = 4.3027·0.01/1.7321 = 0.024841
    ratios = [math.exp(-0.01), 1.0, math.exp(0.01)]
    assert stats.offset_shown(ratios) == pytest.approx(math.expm1(0.024841), rel=1e-4)
    # of 55: p = 0.05/110 a side; two degrees of freedom have t = (1 - 2p)/√(2p(1 - p)) = 33.14
    assert stats.offset_shown(ratios, 55) == pytest.approx(math.expm1(33.144 * 0.01 / math.sqrt(3)), rel=1e-3)
    assert stats.offset_shown([1.0]) == math.inf
    # s = 0.01·√2, n = 2: t(0.975, 1)·s/√2 = 12.7062·0.01
    assert stats.offset_shown([1.0, math.exp(0.02)]) == pytest.approx(math.expm1(0.127062), rel=1e-5)


def test_p_values() -> None:
    assert stats.p_value(4.3027, 1.0, 2) == pytest.approx(0.05, abs=1e-5)
    assert stats.p_value(0.0, 0.0, 4) == 1.0
    assert stats.p_value(0.1, 0.0, 4) == 0.0
    assert stats.p_value(0.1, math.inf, 1) == 1.0
    assert stats.paired_p([0.3]) == 1.0
    assert stats.paired_p([0.0, 0.02]) == pytest.approx(0.5, abs=1e-9)  # t = 1 with one degree of freedom: Cauchy
    # mean 0.01 of s 0.01: t = √3 with two degrees, whose distribution is ½ + t ÷ 2√(2 + t²)
    assert stats.paired_p([0.0, 0.01, 0.02]) == pytest.approx(1 - math.sqrt(3) / math.sqrt(5), abs=1e-9)


@pytest.mark.parametrize(
    ("spread", "label"),
    [(None, ""), (0.0, ""), (0.02, ""), (0.021, "noisy"), (0.05, "noisy"), (0.051, "unstable")],
)
def test_noise_labels(spread: float | None, label: str) -> None:
    assert stats.noise_label(spread) == label


def test_power_grows_with_rounds_and_is_the_level_where_nothing_differs() -> None:
    assert stats.power(1.0, 0.014, 5) == pytest.approx(0.05, abs=1e-6)
    powers = [stats.power(1.03, 0.014, rounds) for rounds in (3, 5, 7)]
    assert powers == sorted(powers)
    assert powers[-1] > 0.95


@pytest.mark.parametrize("rounds", [2, 5])  # two tell 12 times their spread
def test_the_smallest_ratio_that_is_found_has_the_power_asked_for(rounds: int) -> None:
    ratio = stats.smallest_found(0.014, rounds, chance=0.8)
    assert stats.power(ratio, 0.014, rounds) == pytest.approx(0.8, abs=1e-3)


@pytest.mark.parametrize("rounds", [3, 5, 6, 7, 10])
def test_power_is_what_a_simulation_finds(rounds: int) -> None:
    logs = np.random.default_rng(rounds).normal(math.log(1.02), 0.014, (20_000, rounds))
    half = stats.t_quantile(rounds - 1) * logs.std(axis=1, ddof=1) / math.sqrt(rounds)
    found = float(np.mean(np.abs(logs.mean(axis=1)) > half))
    assert stats.power(1.02, 0.014, rounds) == pytest.approx(found, abs=0.015)


def test_the_smallest_ratio_that_is_found_shrinks_with_rounds() -> None:
    found = [stats.smallest_found(0.014, rounds) for rounds in (3, 5, 6, 7, 10)]
    assert found == sorted(found, reverse=True)


@pytest.mark.parametrize("away", [0.03, 0.05, 0.2])
@pytest.mark.parametrize("inside", [True, False])
def test_rounds_to_settle_do_so_four_times_in_five(away: float, inside: bool) -> None:
    """As often as simulated blocks of a known truth are settled; one round less would not do."""
    low, high = (-away, away) if inside else (away, 2 * away)
    rounds = stats.rounds_to_settle(Summary(mean=0.0, deviation=0.05, count=2), low, high)
    assert rounds is not None

    def settled(count: int) -> float:
        values = np.random.default_rng(1).normal(0.0, 0.05, (100_000, count))
        half = stats.t_quantile(count - 1) * values.std(axis=1, ddof=1) / math.sqrt(count)
        lows, highs = values.mean(axis=1) - half, values.mean(axis=1) + half
        return float(np.mean((lows >= low) & (highs <= high) if inside else highs < low))

    assert settled(rounds) > 0.795
    assert rounds == 3 or settled(rounds - 1) < 0.805


@pytest.mark.parametrize(("low", "high"), [(0.02, 0.03), (-0.03, -0.02)])
def test_outside_a_narrow_range_its_near_end_alone_has_to_be_told_apart(low: float, high: float) -> None:
    """Inside a range whose ends are as far away, one on each side, a round more is needed."""
    seen = Summary(mean=0.0, deviation=0.02, count=3)
    near = (low, None) if low > 0 else (None, high)
    assert stats.rounds_to_settle(seen, low, high) == stats.rounds_to_settle(seen, *near) == 10
    assert stats.rounds_to_settle(seen, -0.02, 0.03) == 11


def test_rounds_to_settle_are_more_than_there_are() -> None:
    assert stats.rounds_to_settle(Summary(mean=0.0, deviation=0.05, count=9), None, 0.5) == 10


def test_rounds_to_settle_are_five_hundred_at_most() -> None:
    away = math.log(stats.smallest_found(0.05, stats.MOST_ROUNDS))  # which so many rounds tell from zero, and no fewer
    for share, rounds in ((1 + 1e-4, 500), (1 - 1e-4, None)):
        assert stats.rounds_to_settle(Summary(mean=share * away, deviation=0.05, count=5), 0.0, None) == rounds


def test_rounds_that_agree_to_the_last_digit_settle_all_but_the_very_end() -> None:
    assert stats.rounds_to_settle(Summary(mean=0.5, deviation=0.0, count=3), 0.4, None) == 4
    assert stats.rounds_to_settle(Summary(mean=0.5, deviation=0.0, count=3), 0.5, None) is None


def test_rounds_to_settle_needs_a_spread() -> None:
    assert stats.rounds_to_settle(Summary(mean=0.1, deviation=math.inf, count=1), 0.0, 1.0) is None
