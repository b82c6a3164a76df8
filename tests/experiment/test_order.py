"""The order of the arms in a round favours none of them."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from statistics import mean

import pytest

from harness.experiment.order import balanced_orders, trial_seed

SEEDS = range(60)


@pytest.mark.parametrize("arms", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("rounds", [1, 3, 5, 7])
def test_every_arm_runs_once_in_every_round(arms: int, rounds: int) -> None:
    orders = list(balanced_orders(arms, rounds, "seed"))
    assert len(orders) == rounds
    assert all(sorted(order) == list(range(arms)) for order in orders)


@pytest.mark.parametrize(("arms", "rounds"), [(2, 4), (3, 3), (4, 8), (5, 5), (6, 12)])
def test_over_whole_multiples_every_arm_has_every_position_equally_often(arms: int, rounds: int) -> None:
    for seed in SEEDS:
        counts = Counter(
            (arm, at) for order in balanced_orders(arms, rounds, str(seed)) for at, arm in enumerate(order)
        )
        assert len(counts) == arms * arms
        assert set(counts.values()) == {rounds // arms}


@pytest.mark.parametrize(("arms", "rounds"), [(4, 3), (4, 5), (6, 5), (7, 3), (7, 10), (12, 5)])
def test_otherwise_positions_differ_by_one_at_most(arms: int, rounds: int) -> None:
    for seed in SEEDS:
        counts = Counter(
            (arm, at) for order in balanced_orders(arms, rounds, str(seed)) for at, arm in enumerate(order)
        )
        every = [counts[arm, at] for arm in range(arms) for at in range(arms)]
        # a position is taken once a round: over k whole squares and a part, k or k + 1 times
        assert max(every) - min(every) <= 1


@pytest.mark.parametrize(("arms", "rounds"), [(4, 3), (5, 3), (6, 5), (7, 5), (12, 3), (20, 6)])
def test_with_fewer_rounds_than_arms_none_is_always_early(arms: int, rounds: int) -> None:
    """An arm's mean position strays from the middle by a sixth of the way from first to last at most."""
    for seed in SEEDS:
        positions: dict[int, list[int]] = {arm: [] for arm in range(arms)}
        for order in balanced_orders(arms, rounds, str(seed)):
            for at, arm in enumerate(order):
                positions[arm].append(at)
        middle = (arms - 1) / 2
        assert max(abs(mean(at) - middle) for at in positions.values()) <= (arms - 1) / 6 + 1e-9


def test_over_many_seeds_the_mean_position_of_every_arm_is_the_middle() -> None:
    positions: dict[int, list[int]] = {arm: [] for arm in range(5)}
    for seed in range(2000):
        for order in balanced_orders(5, 3, str(seed)):
            for at, arm in enumerate(order):
                positions[arm].append(at)
    # 6000 positions with a standard deviation of 1.41: 0.06 is over three standard errors
    assert all(abs(mean(at) - 2) < 0.06 for at in positions.values())


def test_with_an_even_number_every_arm_follows_every_other_equally_often() -> None:
    follows = Counter(pair for order in balanced_orders(6, 6, "seed") for pair in pairwise(order))
    assert len(follows) == 6 * 5
    assert set(follows.values()) == {1}


def test_the_order_is_a_function_of_the_seed() -> None:
    assert list(balanced_orders(5, 5, "a")) == list(balanced_orders(5, 5, "a"))
    assert list(balanced_orders(5, 5, "a")) != list(balanced_orders(5, 5, "b"))


def test_a_trials_seed_depends_on_study_and_round_alone_and_never_changes() -> None:
    # the first 8 digits of `printf "attention\n1" | sha256sum`, halved: another value would part stored rounds
    assert trial_seed("attention", 1) == 1300725186
    assert len({trial_seed(study, number) for study in "abcdef" for number in range(1, 100)}) == 6 * 99
    assert all(0 <= trial_seed("a", number) < 2**31 for number in range(100))
