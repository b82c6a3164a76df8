"""How rounds get to where they run: the small interface behind which launchers are swapped.

What travels is a round of a block, all its cells once: it never splits, so every pair that is ever compared ran on one
device. A carrier takes the rounds that a store lacks and runs them somewhere; whoever owns the store (or, inside a job
of a cluster, the folder that records are left in) is its desk, and the only writer.

    collect.InTurn             one after the other, on this machine's first devices
    side_by_side.SideBySide    on several GPUs of this machine, each with a zygote of its own
    slurm.carrier.OnSlurm      in jobs of a cluster
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from harness.experiment.study import PlannedTrial
from harness.results.record import Record
from harness.results.rounds import Round
from harness.results.tries import Tries
from harness.trial.interrupts import Interrupts


@dataclass(frozen=True, kw_only=True)
class Orders:
    """What a desk says of a round that may begin."""

    attempts: Mapping[str, int]
    """The number of the next try of each arm."""
    looks: frozenset[str] = frozenset()
    """Arms whose first gradient is to be compared: once a block, in the first of an arm's rounds that ends ok."""


class Desk(Protocol):
    """Where a carrier asks before it begins a round, and reports what became of it: from one thread alone."""

    @property
    def interrupts(self) -> Interrupts: ...

    def begin(self, each: Round) -> Orders | None:
        """A round is about to be sent off. None: it must not be, time is up or the run is being stopped."""
        ...

    def started(self, trial: PlannedTrial, attempt: int) -> None: ...

    def finished(self, trial: PlannedTrial, record: Record) -> None: ...

    def delivered(self, each: Round, records: Sequence[Record]) -> None:
        """A round that ran elsewhere has come back whole. Must be kept when this returns."""
        ...

    def found(self, records: Sequence[Record]) -> None:
        """A whole round that this run did not ask for has come back: another plan's. Must be kept all the same."""
        ...

    def lost(self, each: Round) -> None:
        """What carried a round came to its end without it, and it is not sent again."""
        ...

    def notice(self, text: str) -> None:
        """Something that the user should know."""
        ...


class Carrier(Protocol):
    """Takes rounds to where they run, and their records back to the desk."""

    @property
    def width(self) -> int:
        """How many rounds run at a time."""
        ...

    def leftovers(self) -> Iterable[Sequence[Record]]:
        """Whole rounds that came back after an earlier run had died; each is let go when the next is asked for."""
        ...

    def carry(self, rounds: Sequence[Round], desk: Desk) -> None:
        """Run them; returns when all have been reported or given up, or the run is stopped."""
        ...


def run_round(
    tries: Tries, each: Round, orders: Orders, *,
    started: Callable[[PlannedTrial, int], None], finished: Callable[[PlannedTrial, Record], None],
) -> None:  # fmt: skip
    """Run a round in the calling thread, trial after trial, up to where it is stopped."""
    for trial in each.trials:
        if tries.interrupts.soft:
            return

        def begins(attempt: int, trial: PlannedTrial = trial) -> None:
            started(trial, attempt)

        name = trial.arm.name
        record = tries.record(
            trial, each, attempt=orders.attempts[name], gradient_check=name in orders.looks, on_start=begins
        )
        finished(trial, record)
        tries.workplace.tidy(trial, record)
