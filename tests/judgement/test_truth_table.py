"""The truth table of verdicts: the specification of `harness.judgement.verdict`."""

from __future__ import annotations

import math
from typing import Any

import pytest

from harness.judgement.claims import Claim
from harness.judgement.judged import Interval, Word
from harness.judgement.metrics import metric_named
from harness.judgement.pairs import Measured
from harness.judgement.stats import Summary
from harness.judgement.verdict import decide, helped, word_for

CONFIRMED, BELOW, ABOVE = Word.CONFIRMED, Word.REFUTED_BELOW, Word.REFUTED_ABOVE
OPEN, REACHED, NOT_REACHED = Word.INCONCLUSIVE, Word.REACHED, Word.NOT_REACHED


def claim(**fields: Any) -> Claim:
    source = {"document": "D1", "quote": "a few words"}
    given = {"id": "it", "statement": "It is faster.", "sources": [source], "study": "s", "metric": "speedup"}
    return Claim(**{**given, **fields})


def paired(low: float, high: float) -> Measured:
    """A ratio with its interval, from five rounds."""
    middle = (math.log(low) + math.log(high)) / 2
    return Measured(
        interval=Interval(value=math.exp(middle), low=low, high=high, rounds=5),
        summary=Summary(mean=middle, deviation=0.01, count=5), ratio=math.exp(middle),
    )  # fmt: skip


def memory(value: float) -> Measured:
    """A ratio of peaks: no interval."""
    return Measured(interval=Interval(value=value, rounds=5, observed=(value,)), ratio=value)


@pytest.mark.parametrize(
    ("claimed", "measured", "word"),
    [
        # claimed [1.5, 2], both ends closed
        ((1.5, 2.0), (1.60, 1.70), CONFIRMED),
        ((1.5, 2.0), (1.50, 2.00), CONFIRMED),
        ((1.5, 2.0), (1.499, 1.70), OPEN),
        ((1.5, 2.0), (1.90, 2.001), OPEN),
        ((1.5, 2.0), (1.40, 2.10), OPEN),
        ((1.5, 2.0), (1.30, 1.499), BELOW),
        ((1.5, 2.0), (1.30, 1.50), OPEN),
        ((1.5, 2.0), (2.001, 2.40), ABOVE),
        ((1.5, 2.0), (2.00, 2.40), OPEN),
        # one-sided: at least 0.9
        ((0.9, None), (0.90, 0.99), CONFIRMED),
        ((0.9, None), (5.00, 6.00), CONFIRMED),
        ((0.9, None), (0.85, 0.95), OPEN),
        ((0.9, None), (0.80, 0.89), BELOW),
        # one-sided: at most 0.1
        ((None, 0.1), (0.00, 0.10), CONFIRMED),
        ((None, 0.1), (0.05, 0.15), OPEN),
        ((None, 0.1), (0.11, 0.15), ABOVE),
        # a figure without an interval is an interval of one point
        ((0.3, 0.5), (0.30, 0.30), CONFIRMED),
        ((0.3, 0.5), (1 - 0.7, 1 - 0.7), CONFIRMED),  # 0.30000000000000004
        ((0.7, 0.9), (1 - 0.3, 1 - 0.3), CONFIRMED),
        ((0.3, 0.5), (0.29, 0.29), BELOW),
        ((0.3, 0.5), (0.51, 0.51), ABOVE),
    ],
)
def test_a_range_and_an_interval(
    claimed: tuple[float | None, float | None], measured: tuple[float, float], word: Word
) -> None:
    assert word_for(*claimed, *measured) == word


@pytest.mark.parametrize(
    ("form", "found", "word", "sentence"),
    [
        ({"form": "range", "range": [1.5, 2]}, paired(1.6, 1.7), CONFIRMED,
         "the whole interval [1.60x, 1.70x] lies within 1.5x to 2x"),
        ({"form": "range", "range": [1.5, 2]}, paired(1.2, 1.3), BELOW, "below 1.50x: worse than claimed"),
        ({"form": "range", "range": [1.5, 2]}, paired(2.2, 2.3), ABOVE, "above 2.00x: better than claimed"),
        ({"form": "range", "range": [1.5, 2]}, paired(1.45, 1.6), OPEN, "crosses 1.50x; about "),
        ({"form": "at-least", "bound": 1.5}, paired(1.5, 3), CONFIRMED, "is at least 1.5x"),
        ({"form": "at-least", "bound": 1.5}, paired(1.1, 1.2), BELOW, "below 1.50x"),
        ({"form": "at-least", "bound": 1.5}, paired(1.4, 1.55), OPEN, "crosses 1.50x; about "),
        ({"form": "at-most", "bound": 1.05, "metric": "step_time_ratio"}, paired(1.0, 1.09), OPEN, "crosses 1.05x"),
        ({"form": "at-most", "bound": 1.05, "metric": "step_time_ratio"}, paired(1.0, 1.04), CONFIRMED, "at most"),
        ({"form": "at-most", "bound": 1.05, "metric": "step_time_ratio"}, paired(1.1, 1.2), ABOVE, "worse than"),
        ({"form": "exact", "value": 1.8, "tolerance": 0.1}, paired(1.7, 1.9), CONFIRMED, "is 1.8x (±0.1x)"),
        ({"form": "exact", "value": 1.8, "tolerance": 0.1}, paired(1.69, 1.9), OPEN, "crosses 1.70x"),
        ({"form": "exact", "value": 1.8, "tolerance": 0.1}, paired(1.91, 1.95), ABOVE, "above 1.90x"),
        ({"form": "up-to", "bound": 2}, paired(2.0, 2.1), REACHED, "reaches 2.00x"),
        ({"form": "up-to", "bound": 2}, paired(2.5, 2.6), REACHED, "the whole interval [2.50x, 2.60x] reaches 2.00x"),
        ({"form": "up-to", "bound": 2}, paired(1.9, 2.1), NOT_REACHED, "reaching it is not shown"),
        ({"form": "up-to", "bound": 2}, paired(1.1, 1.2), NOT_REACHED, "stays below 2.00x"),
        ({"form": "range", "range": [0.3, 0.5], "metric": "peak_saved"}, memory(0.3), CONFIRMED, "30.0% lies within"),
        ({"form": "range", "range": [0.3, 0.5], "metric": "peak_saved"}, memory(0.6), ABOVE, "better than claimed"),
        ({"form": "exact", "value": 7.6, "tolerance": 0.38, "metric": "peak_ratio"}, memory(1.4), BELOW, "below 7.22x"),
        ({"form": "at-least", "bound": 0.9, "metric": "trainable_share_saved"}, memory(0.99), CONFIRMED, "99.0% is at"),
        ({"form": "statement", "range": [0.95, None]}, paired(0.96, 1.1), CONFIRMED, "is at least 0.95x"),
    ],
)  # fmt: skip
def test_forms_of_claims(form: dict[str, Any], found: Measured, word: Word, sentence: str) -> None:
    it = claim(**form)
    decision = decide(it, metric_named(it.metric or ""), found)
    assert decision.word == word
    assert sentence in decision.reason
    assert (decision.rounds_needed is not None) == (word is OPEN), "what is settled needs no further round"


@pytest.mark.parametrize(
    ("rounds", "word", "reason"),
    [
        ((0.22, 0.31, 0.312, 0.25, 0.4), BELOW,
         "22.0% lies below 30.0%: worse than claimed; by itself 3 of 5 rounds say otherwise"),
        ((0.22, 0.31), BELOW, "22.0% lies below 30.0%: worse than claimed; by itself 1 of 2 rounds says otherwise"),
        ((0.35, 0.6), CONFIRMED, "35.0% lies within 30% to 50%; by itself 1 of 2 rounds says otherwise"),
        ((0.35, 0.4), CONFIRMED, "35.0% lies within 30% to 50%"),
    ],
)  # fmt: skip
def test_rounds_whose_peaks_alone_would_say_otherwise_are_counted(
    rounds: tuple[float, ...], word: Word, reason: str
) -> None:
    found = Measured(interval=Interval(value=rounds[0], rounds=len(rounds), observed=rounds), ratio=rounds[0])
    decision = decide(claim(form="range", range=[0.3, 0.5], metric="peak_saved"), metric_named("peak_saved"), found)
    assert decision.word == word
    assert decision.reason == reason


def test_one_round_of_speed_has_no_interval_and_settles_nothing() -> None:
    single = Measured(interval=Interval(value=1.7, rounds=1), summary=Summary(mean=0.5, deviation=math.inf, count=1))
    decision = decide(claim(form="range", range=[1.5, 2]), metric_named("speedup"), single)
    assert decision.word == OPEN
    assert decision.reason == "a single round gives no interval; run three at least"


def test_an_inconclusive_verdict_says_how_many_rounds_would_settle_it() -> None:
    # ln(1.55/1.5) = 0.0328 away, of a spread of 0.05: 0.656 standard deviations
    found = Measured(
        interval=Interval(value=1.55, low=1.48, high=1.62, rounds=5),
        summary=Summary(mean=math.log(1.55), deviation=0.05, count=5), ratio=1.55,
    )  # fmt: skip
    decision = decide(claim(form="range", range=[1.5, 2]), metric_named("speedup"), found)
    assert decision.rounds_needed == 21
    assert "about 21 rounds would settle it at the spread seen, with a chance of 80%" in decision.reason


@pytest.mark.parametrize("form", [{"form": "at-least", "bound": 1.5}, {"form": "range", "range": [1.5, 2]}])
def test_rounds_are_counted_on_the_scale_of_the_statistics_where_the_metric_turns_it_round(
    form: dict[str, Any],
) -> None:
    """Copies 1.55 times faster are 1/1.55 of the time: the same distance from 1.5 as a speed of 1.55x."""
    found = Measured(
        interval=Interval(value=1.55, low=1.48, high=1.62, rounds=5),
        summary=Summary(mean=-math.log(1.55), deviation=0.05, count=5), ratio=1 / 1.55,
    )  # fmt: skip
    decision = decide(claim(**form, metric="copy_speedup"), metric_named("copy_speedup"), found)
    assert (decision.word, decision.rounds_needed) == (OPEN, 21)


def test_on_the_very_end_of_the_range_no_number_of_rounds_settles_it() -> None:
    found = Measured(
        interval=Interval(value=1.5, low=1.45, high=1.55, rounds=5),
        summary=Summary(mean=math.log(1.5), deviation=0.05, count=5), ratio=1.5,
    )  # fmt: skip
    decision = decide(claim(form="range", range=[1.5, 2]), metric_named("speedup"), found)
    assert decision.rounds_needed is None
    assert "not even 500 rounds" in decision.reason


def test_rounds_needed_on_an_inverted_metric_use_the_scale_of_the_statistics() -> None:
    # optimizer_speedup is baseline ÷ cell: 1.15 is ln r = -0.1398; the nearer end 1.1 is -0.0953, 0.0445 away: 1.11
    # standard deviations. On the plain scale it were 0.05.
    found = Measured(
        interval=Interval(value=1.15, low=1.09, high=1.21, rounds=5),
        summary=Summary(mean=-math.log(1.15), deviation=0.04, count=5), ratio=1 / 1.15,
    )  # fmt: skip
    it = claim(form="range", range=[1.1, 1.3], metric="optimizer_speedup")
    assert decide(it, metric_named("optimizer_speedup"), found).rounds_needed == 9
    # in the middle of the range both ends are 0.0835 away, 0.835 standard deviations of 0.1, and either may be crossed:
    # of simulated blocks 80% are settled by 17.1 rounds
    middle = Measured(
        interval=Interval(value=math.sqrt(1.1 * 1.3), low=1.05, high=1.36, rounds=5),
        summary=Summary(mean=-math.log(1.1 * 1.3) / 2, deviation=0.1, count=5), ratio=1 / math.sqrt(1.1 * 1.3),
    )  # fmt: skip
    assert decide(it, metric_named("optimizer_speedup"), middle).rounds_needed == 18


def test_rounds_needed_on_a_level_use_the_plain_scale() -> None:
    # 0.02 away, of a spread of 0.03: of simulated blocks 78% are settled by 19 rounds, 81% by 20
    found = Measured(
        interval=Interval(value=0.92, low=0.89, high=0.95, rounds=5),
        summary=Summary(mean=0.92, deviation=0.03, count=5),
    )  # fmt: skip
    it = claim(form="at-least", bound=0.9, metric="utilisation")
    assert decide(it, metric_named("utilisation"), found).rounds_needed == 20


@pytest.mark.parametrize(
    ("metric", "interval", "word"),
    [
        ("speedup", Interval(value=1.2, low=1.1, high=1.3), "yes"),
        ("speedup", Interval(value=1.0, low=0.9, high=1.1), "not shown"),
        ("speedup", Interval(value=0.8, low=0.7, high=0.9), "no"),
        ("speedup", Interval(value=1.2), "not shown"),
        ("step_time_ratio", Interval(value=1.25, low=1.2, high=1.3), "no"),
        ("step_time_ratio", Interval(value=0.8, low=0.7, high=0.9), "yes"),
        ("peak_saved", Interval(value=0.2, observed=(0.2, 0.21)), "yes"),
        ("peak_saved", Interval(value=0.0, observed=(0.0, 0.001)), "not shown"),
        ("peak_saved", Interval(value=-0.1, observed=(-0.1, -0.09)), "no"),
        ("peak_saved", Interval(value=-0.1, observed=(-0.1, 0.2)), "not shown"),
        ("peak_ratio", Interval(value=1.6, observed=(1.6,)), "yes"),
        ("utilisation", Interval(value=0.9, low=0.8, high=0.95), ""),
        ("memory_used_share", Interval(value=0.9, low=0.8, high=0.95), ""),
        ("scaling_efficiency", Interval(value=0.96, low=0.95, high=0.97), ""),
        ("gradient_error_ratio", Interval(value=0.9), ""),
        ("speedup", None, ""),
    ],
)
def test_whether_it_helped_at_all(metric: str, interval: Interval | None, word: str) -> None:
    assert helped(metric_named(metric), interval) == word
