"""The statistics of `docs/statistics.md`: one number per trial, paired within rounds, Student's t, Holm.

scipy.special is imported inside the functions: nothing that only reads the claims pays for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from harness.experiment.study import FEWEST_ROUNDS
from harness.judgement.judged import Interval

#: Every interval is a 95% interval.
LEVEL = 0.95
#: Standard deviation of ln(tokens/s) between trials of one arm, above which it is called noisy or unstable.
NOISY = 0.02
UNSTABLE = 0.05
#: Noncentrality beyond which power is 1 even at two rounds' freedom, and scipy's series gives up.
FARTHEST = 35.0
#: With which a number of rounds would settle it, or find a difference.
CHANCE = 0.8
#: More rounds than this are no answer to "how many would settle it".
MOST_ROUNDS = 500


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Mean and standard deviation of one value a round."""

    mean: float
    deviation: float
    count: int

    @property
    def standard_error(self) -> float:
        return self.deviation / math.sqrt(self.count)


def summarise(values: Sequence[float]) -> Summary:
    """Mean and standard deviation (n - 1); the deviation of a single value is infinite: nothing is known of it."""
    count = len(values)
    mean = math.fsum(values) / count
    if count < 2:
        return Summary(mean=mean, deviation=math.inf, count=count)
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    return Summary(mean=mean, deviation=math.sqrt(variance), count=count)


@lru_cache(maxsize=4096)
def t_quantile(freedom: float, probability: float = 0.5 + LEVEL / 2) -> float:
    """Quantile of Student's t; 4.303 for 2 degrees of freedom and 97.5%."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, probability))


def t_interval(summary: Summary) -> tuple[float, float] | None:
    """95% interval of the mean, or None for a single value."""
    if summary.count < 2:
        return None
    half = t_quantile(summary.count - 1) * summary.standard_error
    return summary.mean - half, summary.mean + half


def ratio_interval(ratios: Sequence[float], *, dropped: int = 0) -> Interval | None:
    """Geometric mean of the ratios of the rounds with its 95% interval, exp(mean ± t·s/√n) over their logarithms.

    None without a ratio; low and high are None with a single one.
    """
    if not ratios:
        return None
    summary = summarise([math.log(ratio) for ratio in ratios])
    ends = t_interval(summary)
    return Interval(
        value=math.exp(summary.mean),
        low=math.exp(ends[0]) if ends else None,
        high=math.exp(ends[1]) if ends else None,
        rounds=len(ratios), dropped=dropped, observed=tuple(ratios),
    )  # fmt: skip


def level_interval(values: Sequence[float], *, dropped: int = 0) -> Interval | None:
    """Mean of a share or count of the rounds with its 95% interval, on the plain scale."""
    if not values:
        return None
    summary = summarise(values)
    ends = t_interval(summary)
    return Interval(
        value=summary.mean, low=ends[0] if ends else None, high=ends[1] if ends else None,
        rounds=len(values), dropped=dropped, observed=tuple(values),
    )  # fmt: skip


def offset_shown(ratios: Sequence[float], tests: int = 1) -> float:
    """The smallest offset from 1, as a share, that ratios of this spread tell apart from it: half of their interval.

    Args:
        tests: how many are corrected for, at Holm's strictest step: each at 0.05 ÷ tests.

    Returns:
        Infinity for a single ratio.
    """
    summary = summarise([math.log(ratio) for ratio in ratios])
    if summary.count < 2:
        return math.inf
    quantile = t_quantile(summary.count - 1, 1 - (1 - LEVEL) / (2 * tests))
    return math.expm1(min(quantile * summary.standard_error, FARTHEST))


def p_value(difference: float, standard_error: float, freedom: float) -> float:
    """Two-sided p of Student's t for a mean `difference` from zero; 1 where nothing is known of its error."""
    if not math.isfinite(standard_error):
        return 1.0
    if standard_error == 0:
        return 1.0 if difference == 0 else 0.0
    from scipy.special import stdtr

    return 2 * float(stdtr(freedom, -abs(difference / standard_error)))


def paired_p(differences: Sequence[float]) -> float:
    """Two-sided p that the mean of paired differences is zero."""
    if len(differences) < 2:
        return 1.0
    summary = summarise(differences)
    return p_value(summary.mean, summary.standard_error, summary.count - 1)


def welch(first: Summary, second: Summary) -> tuple[float, float, float]:
    """Difference of two means, its standard error and Welch's degrees of freedom."""
    parts = [(each.standard_error**2, each.count - 1) for each in (first, second)]
    variance = sum(square for square, _ in parts)
    if not math.isfinite(variance):
        return first.mean - second.mean, math.inf, 1.0
    weight = sum(square**2 / freedom for square, freedom in parts)
    return first.mean - second.mean, math.sqrt(variance), variance**2 / weight if weight else 1.0


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p values, in the order given: reject where at most 0.05.

    Source: S. Holm, A simple sequentially rejective multiple test procedure, Scand. J. Statist. 6 (1979).
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted = [1.0] * len(p_values)
    largest = 0.0
    for place, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - place) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def noise_label(spread: float | None) -> str:
    """`noisy` above 2% between trials, `unstable` above 5%, else empty."""
    if spread is None or spread <= NOISY:
        return ""
    return "unstable" if spread > UNSTABLE else "noisy"


def rounds_to_settle(summary: Summary, low: float | None, high: float | None) -> int | None:
    """The fewest rounds, more than there are, after which the interval would lie on one side of each end of [low, high]
    with a chance of `CHANCE`, if the mean and spread seen are the true ones.

    `low` and `high` are on the scale of the summary (logarithms for a ratio). None: the mean stands (almost) on an end
    of the range, or nothing is known of the spread, so that no affordable number of rounds would do.
    """
    if summary.count < 2:
        return None
    distances = [abs(summary.mean - end) for end in (low, high) if end is not None]
    outside = (low is not None and summary.mean < low) or (high is not None and summary.mean > high)
    if outside:
        distances = [min(distances)]
    for rounds in range(max(FEWEST_ROUNDS, summary.count + 1), MOST_ROUNDS + 1):
        missed = math.fsum(_missed(distance, summary.deviation, rounds) for distance in distances)
        if 1 - missed >= CHANCE:
            return rounds
    return None


def _missed(distance: float, deviation: float, rounds: int) -> float:
    """Chance that the interval crosses an end that lies so far from the true mean: Student's noncentral t."""
    if deviation == 0:
        return 0.0 if distance else 1.0
    from scipy.special import nctdtr

    centre = distance * math.sqrt(rounds) / deviation
    return 0.0 if centre > FARTHEST else float(nctdtr(rounds - 1, centre, t_quantile(rounds - 1)))


def power(ratio: float, spread: float, rounds: int) -> float:
    """Chance that a true `ratio` is told apart from 1 after `rounds` pairs.

    `spread` is the standard deviation of one ln(ratio): √2 times that of an arm where the two arms are independent.
    """
    from scipy.special import nctdtr

    if spread <= 0:
        return 1.0 if ratio != 1 else 0.0
    centre = abs(math.log(ratio)) * math.sqrt(rounds) / spread
    if centre > FARTHEST:
        return 1.0
    critical = t_quantile(rounds - 1)
    other_side = 0.0 if centre > 8 else float(nctdtr(rounds - 1, centre, -critical))  # below 1e-15, and scipy gives NaN
    return 1 - float(nctdtr(rounds - 1, centre, critical)) + other_side


def smallest_found(spread: float, rounds: int, *, chance: float = CHANCE) -> float:
    """The smallest true ratio above 1 that `rounds` pairs find with the given chance."""
    low, high = 1.0, math.exp(50 * spread) if spread < 1 else math.inf
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if power(middle, spread, rounds) >= chance else (middle, high)
    return high
