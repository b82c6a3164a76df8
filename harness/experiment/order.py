"""In which order the arms of a block run, and from which seed.

An order that favours an arm biases it: the first trial of a round meets a cooler device, the one after a heavy cell a
warmer one. So each arm takes each position equally often over the rounds, and follows each other arm equally often.
The construction is a Williams design (E. J. Williams, 1949): the zigzag 0, 1, n-1, 2, n-2, … shifted by one a round.
Over n rounds every arm has every position once, and for even n every arm follows every other once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from random import Random


def trial_seed(study: str, round_number: int) -> int:
    """The seed of weights and batches: a function of study and round alone. From 0 to 2**31 - 1, on every machine."""
    digest = hashlib.sha256(f"{study}\n{round_number}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def balanced_orders(arms: int, rounds: int, seed: str) -> Iterator[tuple[int, ...]]:
    """The order of arms 0..arms-1 in each round, as far apart between rounds as their number allows.

    With fewer rounds than arms, the shifts are spread evenly, so that no arm is early (or late) in all of them.
    """
    random = Random(seed)
    for first in range(0, rounds, arms):
        yield from _square(arms, min(arms, rounds - first), random)


def _square(arms: int, rounds: int, random: Random) -> Iterator[tuple[int, ...]]:
    """Up to `arms` rounds in which no arm has the same position twice."""
    names = random.sample(range(arms), arms)
    start = random.randrange(arms)
    shifts = [start + index * arms // rounds for index in range(rounds)]
    random.shuffle(shifts)
    zigzag = _zigzag(arms)
    if random.random() < 0.5:  # for odd n the square and its mirror image together balance who follows whom
        zigzag.reverse()
    for shift in shifts:
        yield tuple(names[(place + shift) % arms] for place in zigzag)


def _zigzag(arms: int) -> list[int]:
    """0, 1, n-1, 2, n-2, …: neighbours differ by every step from 1 to n-1."""
    return [(index + 1) // 2 if index % 2 else (arms - index // 2) % arms for index in range(arms)]
