"""What a comparison of two runs can find: the power of Welch's test on the logarithms of the trials' speeds."""

from __future__ import annotations

import math
from functools import cache

#: Level of one comparison, before it is divided among the cells.
LEVEL = 0.05
#: The chance with which a slowdown is to be found, and the standard normal quantile of it.
CHANCE, QUANTILE = 0.8, 0.8416
#: Noncentrality beyond the critical value from which on power is 1, and scipy's series gives up.
FAR = 30.0
#: Points of the quadrature over how the two runs share the variance, an even number; off by 0.0001 at most.
NODES = 8


def power_between(ratio: float, spread: float, trials: float, *, level: float = LEVEL) -> float:
    """Chance that two runs of `trials` each differ significantly when the true ratio of their speeds is `ratio`.

    `spread` is the standard deviation of ln(speed) between the trials of a run; `level` is 0.05 for one cell, divided
    by the number of cells under Holm's correction at its strictest.
    """
    from scipy.special import nctdtr

    freedom = trials - 1
    if freedom <= 0 or not math.isfinite(spread):
        return 0.0
    if not spread:
        return float(ratio != 1)
    centre = abs(math.log(ratio)) / (spread * math.sqrt(2 / trials))
    return math.fsum(
        weight * (1.0 if centre > critical + FAR else 1 - float(nctdtr(2 * freedom, centre, critical)))
        for critical, weight in _critical_values(freedom, level)
    )


@cache
def _critical_values(freedom: float, level: float) -> tuple[tuple[float, float], ...]:
    """Welch's critical values and their chances, which add up to 1, for two runs of one spread.

    The share that one run has in the sum of both variances is Beta distributed, whatever the sum; it sets the degrees
    of freedom, between those of one run and those of both. Which of the two runs has it is no matter.
    """
    from scipy.special import roots_jacobi, stdtrit

    nodes, weights = roots_jacobi(NODES, freedom / 2 - 1, freedom / 2 - 1)
    share = (1 + nodes) / 2
    critical = stdtrit(freedom / (share**2 + (1 - share) ** 2), 1 - level / 2)
    half = slice(NODES // 2, None)
    return tuple(zip(critical[half].tolist(), (2 * weights[half] / weights.sum()).tolist(), strict=True))


def smallest_slowdown(spread: float, trials: float, *, threshold: float, level: float = LEVEL) -> float | None:
    """The smallest true slowdown, as a share of the step's time, that is found in 4 of 5 comparisons.

    Found means significant and beyond the threshold. None where nothing is known of the spread.
    """
    if not math.isfinite(spread) or 2 * trials <= 2:
        return None
    beyond = math.log1p(threshold) + QUANTILE * spread * math.sqrt(2 / trials)
    low, high = 0.0, 60 * spread
    for _ in range(50):
        middle = (low + high) / 2
        found = power_between(math.exp(middle), spread, trials, level=level) >= CHANCE
        low, high = (low, middle) if found else (middle, high)
    return math.expm1(max(high, beyond))
