"""Do the intervals cover what they say, on data whose truth is known?

    pytest benchmarks/test_statistics_simulation.py            # the targets, some 20 s
    python -m benchmarks.test_statistics_simulation            # the tables of docs/statistics.md

A simulated block has the orders that `experiment.order` gives a real one. A trial's ln(tokens/s) is its arm's truth,
plus noise of the process (one draw a trial), plus the mean of the noise of its steps, plus what the machine did.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import stdtr

from harness.experiment.order import balanced_orders
from harness.judgement.judged import Word
from harness.judgement.stats import holm, ratio_interval, t_quantile
from harness.judgement.verdict import word_for

Numbers = NDArray[np.float64]
#: Place of a trial in its block (0 to 1) → change of ln(speed).
Drift = Callable[[Numbers, np.random.Generator], Numbers]

#: Standard deviations of ln(speed) between processes and between the steps of one, and the steps of a window.
PROCESS_SPREAD, STEP_SPREAD, STEPS = 0.01, 0.03, 50
#: Blocks simulated for a figure, and distinct orders among them.
BLOCKS, ORDERS = 100_000, 1_000
CONTROLS = 40
ROUNDS = (3, 5, 7)
ARMS = (3, 6)


def _steady(places: Numbers, _random: np.random.Generator) -> Numbers:
    return np.zeros_like(places)


def _linear(places: Numbers, _random: np.random.Generator) -> Numbers:
    return np.multiply(places, -0.05)


def _warming(places: Numbers, _random: np.random.Generator) -> Numbers:
    warm: Numbers = 0.05 * np.exp(-6 * places)
    return warm


def _wandering(places: Numbers, random: np.random.Generator) -> Numbers:
    """A random walk over the trials of the block that ends 3% away (one standard deviation)."""
    blocks, rounds, arms = places.shape
    walk = np.cumsum(random.normal(0, 0.03 / np.sqrt(rounds * arms), (blocks, rounds * arms)), axis=1)
    order = np.rint(places * (rounds * arms - 1)).astype(int).reshape(blocks, -1)
    moved: Numbers = np.take_along_axis(walk, order, axis=1).reshape(places.shape)
    return moved


def _pausing(places: Numbers, _random: np.random.Generator) -> Numbers:
    """The card cools down between rounds, and slows down by 2% within each: the hardest case for pairs."""
    _, rounds, arms = places.shape
    within = np.rint(places * (rounds * arms - 1)) % arms
    slower: Numbers = -0.02 * within / (arms - 1)
    return slower


#: What the machine does while a block runs.
DRIFTS: dict[str, Drift] = {
    "steady": _steady,
    "slows down by 5% in a line": _linear,
    "warms up: the first trials 5% faster": _warming,
    "wanders by 3%": _wandering,
}
HARDEST: dict[str, Drift] = {"slows down by 2% within each round": _pausing}


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """Shares of simulated blocks (and of runs of 40 controls)."""

    coverage: float
    """The 95% interval holds the truth."""
    wrongly_confirmed: float
    """The truth lies on the lower end of a range, and the interval within it."""
    false_alarms: float
    """At least one of 40 A/A controls excludes 1 after Holm's correction."""


def places(arms: int, rounds: int, count: int) -> Numbers:
    """Place of each arm in each round of `count` blocks, over the whole block, 0 to 1: (count, rounds, arms)."""
    found = np.empty((count, rounds, arms))
    for block in range(count):
        for row, order in enumerate(balanced_orders(arms, rounds, f"block {block}")):
            found[block, row, list(order)] = row * arms + np.arange(arms)
    return found / (arms * rounds - 1)


def logs_of_ratios(arms: int, rounds: int, drift: Drift, *, blocks: int = BLOCKS, seed: int = 0) -> Numbers:
    """ln(control ÷ baseline) of each round, whose truth is 0: (blocks, rounds)."""
    random = np.random.default_rng([seed, arms, rounds])
    where = places(arms, rounds, ORDERS)[random.integers(0, ORDERS, blocks)]
    spread = np.hypot(PROCESS_SPREAD, STEP_SPREAD / np.sqrt(STEPS))
    pair = drift(where, random)[:, :, :2] + random.normal(0, spread, (blocks, rounds, 2))
    return pair[:, :, 1] - pair[:, :, 0]


def intervals(logs: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Mean, half width of the 95% interval and two-sided p of each row: `stats.ratio_interval`, many at a time."""
    rounds = logs.shape[1]
    mean, error = logs.mean(axis=1), logs.std(axis=1, ddof=1) / np.sqrt(rounds)
    return mean, t_quantile(rounds - 1) * error, 2 * stdtr(rounds - 1, -np.abs(mean) / error)


def simulate(arms: int, rounds: int, drift: Drift, *, blocks: int = BLOCKS) -> Simulated:
    """One row of the table."""
    mean, half, p = intervals(logs_of_ratios(arms, rounds, drift, blocks=blocks))
    runs = p[: len(p) // CONTROLS * CONTROLS].reshape(-1, CONTROLS)
    return Simulated(
        coverage=float(np.mean(np.abs(mean) <= half)), wrongly_confirmed=float(np.mean(mean - half >= 0)),
        false_alarms=float(np.mean([min(holm(run.tolist())) < 0.05 for run in runs])),
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("drift", DRIFTS)
@pytest.mark.parametrize("arms", ARMS)
@pytest.mark.parametrize("rounds", ROUNDS)
def test_intervals_cover_and_edges_are_rarely_confirmed_wrongly(arms: int, rounds: int, drift: str) -> None:
    found = simulate(arms, rounds, DRIFTS[drift])
    assert 0.93 <= found.coverage <= 0.97
    assert found.wrongly_confirmed <= 0.03
    assert found.false_alarms <= 0.06


def test_the_many_at_a_time_intervals_are_those_of_the_product() -> None:
    logs = logs_of_ratios(4, 5, _linear, blocks=200)
    mean, half, _ = intervals(logs)
    for row, middle, width in zip(logs, mean, half, strict=True):
        interval = ratio_interval(np.exp(row).tolist())
        assert interval is not None
        assert interval.low == pytest.approx(np.exp(middle - width))
        assert interval.high == pytest.approx(np.exp(middle + width))


def test_confirming_means_that_the_whole_interval_is_inside() -> None:
    logs = logs_of_ratios(4, 5, _steady, blocks=2_000)
    mean, half, _ = intervals(logs)
    words = [word_for(1.0, 1.5, lo, hi) for lo, hi in zip(np.exp(mean - half), np.exp(mean + half), strict=True)]
    assert words.count(Word.CONFIRMED) == int(np.sum(mean - half >= 0))


def test_the_simulation_can_fail_baseline_first_covers_too_little() -> None:
    """What the design avoids: the baseline is always the first of its round, the card slows down within a round."""
    assert baseline_first_coverage(rounds=5) < 0.85


def test_the_simulation_can_fail_pooled_steps_cover_too_little() -> None:
    """What the design avoids: steps as samples. Twice 5 processes of 50 steps make 250 samples an arm."""
    assert pooled_coverage(rounds=5) < 0.65


def baseline_first_coverage(rounds: int, blocks: int = 20_000) -> float:
    """How often an interval covers the truth where the cell always runs later, on a card that is 1% slower by then."""
    random = np.random.default_rng(1)
    spread = np.hypot(PROCESS_SPREAD, STEP_SPREAD / np.sqrt(STEPS))
    mean, half, _ = intervals(random.normal(0, spread * np.sqrt(2), (blocks, rounds)) - 0.01)
    return float(np.mean(np.abs(mean) <= half))


def pooled_coverage(rounds: int, blocks: int = 5_000) -> float:
    """How often an interval over pooled steps covers the truth."""
    random = np.random.default_rng(2)
    process = random.normal(0, PROCESS_SPREAD, (blocks, 2, rounds, 1))
    steps = (process + random.normal(0, STEP_SPREAD, (blocks, 2, rounds, STEPS))).reshape(blocks, 2, -1)
    gap = steps[:, 1].mean(axis=1) - steps[:, 0].mean(axis=1)
    error = np.sqrt(steps.var(axis=2, ddof=1).sum(axis=1) / steps.shape[2])
    return float(np.mean(np.abs(gap) <= t_quantile(2 * steps.shape[2] - 2) * error))


def table() -> str:
    """The table of docs/statistics.md."""
    head = (
        "the machine",
        "arms",
        "rounds",
        "95% interval covers",
        "edge confirmed wrongly",
        "false alarm in 40 controls",
    )
    lines = [f"| {' | '.join(head)} |", "|---|---|---|---|---|---|"]
    for name, drift in {**DRIFTS, **HARDEST}.items():
        for arms in ARMS:
            for rounds in ROUNDS:
                found = simulate(arms, rounds, drift, blocks=4 * BLOCKS)
                shares = (found.coverage, found.wrongly_confirmed, found.false_alarms)
                lines.append(f"| {name} | {arms} | {rounds} | {' | '.join(f'{share:.1%}' for share in shares)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
    print(f"\nsteps pooled as samples, 5 rounds: the 95% interval covers {pooled_coverage(rounds=5):.1%}")
    print(f"baseline always first, 5 rounds: the 95% interval covers {baseline_first_coverage(rounds=5):.1%}")
