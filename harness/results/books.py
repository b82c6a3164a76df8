"""The books of a run: what is still to do, how long it will take, what has been stored; the parent's desk."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from harness.experiment.study import PlannedTrial
from harness.results.budget import Estimates
from harness.results.carrier import Orders
from harness.results.events import (
    Event,
    Notice,
    OnEvent,
    RoundPostponed,
    RunPlanned,
    StopRequested,
    Summary,
    TrialFinished,
    TrialStarted,
)
from harness.results.record import Record
from harness.results.rounds import Round
from harness.results.store import Store
from harness.trial.interrupts import Interrupts

#: Above so many trials to do, the time left is summed anew once a second, not at every event.
_MANY = 2000


@dataclass(kw_only=True)
class Books:
    """Everything that one run writes to the store goes through here."""

    store: Store
    todo: Sequence[Round]
    interrupts: Interrupts
    on_event: OnEvent
    estimates: Estimates
    summary: Summary
    time_budget_seconds: float | None = None
    width: int = 1
    """Rounds that run at a time."""
    began: float = field(default_factory=time.monotonic)
    running: PlannedTrial | None = None
    _pending: dict[int, PlannedTrial] = field(default_factory=dict)
    """Trials still to do, by identity."""
    _begun: set[int] = field(default_factory=set)
    """Trials of rounds that have begun, by identity."""
    _left: tuple[float, float] = (0.0, float("-inf"))
    """Seconds of the pending ones, and when they were summed."""
    _untold: list[Event] = field(default_factory=list)
    _telling: bool = False

    def open(self) -> None:
        """Say what there is to do."""
        self._pending = {id(trial): trial for each in self.todo for trial in each.trials}
        self._tell(
            RunPlanned(
                trials=self.summary.planned, stored=self.summary.stored_before, seconds_left=self._seconds_left()
            )
        )

    def close(self) -> None:
        """The carrier has ended."""
        self.summary.interrupted = self.interrupts.soft and self.summary.left > 0
        self.summary.wall_seconds = time.monotonic() - self.began

    def announce_stop(self) -> None:
        """The first Ctrl-C."""
        self._tell(StopRequested(trial=self.running))

    def begin(self, each: Round) -> Orders | None:
        """Supersede what an earlier, unfinished run of the round left, number its tries, and say where to look."""
        if self.interrupts.soft or not self._fits(each):
            return None
        each.supersede(self.store)
        self._begun |= {id(trial) for trial in each.trials}
        where = (each.number, each.circumstances.fingerprint)
        names = [trial.arm.name for trial in each.trials]
        return Orders(
            attempts={name: self.store.next_attempt(each.key, name, *where) for name in names},
            looks=self._looks(each),
        )

    def _looks(self, each: Round) -> frozenset[str]:
        """Arms whose first gradient this round is to compare: the first does, and the next where that did not end."""
        if each.number == 1:
            return frozenset(trial.arm.name for trial in each.trials)
        if each.block.kind != "training":
            return frozenset()
        return self.store.arms_without_gradient_check(each.key, each.circumstances.fingerprint)

    def started(self, trial: PlannedTrial, attempt: int) -> None:
        """A process of the trial is asked for."""
        self.running = trial
        self.summary.launched += 1
        counts = {"done": self._done, "trials": self.summary.planned}
        self._tell(TrialStarted(trial=trial, **counts, attempt=attempt, seconds_left=self._seconds_left()))

    def finished(self, trial: PlannedTrial, record: Record) -> None:
        """Store a trial: it is on the disk when this returns."""
        self.store.add(record)
        self._count(trial, record)

    def delivered(self, each: Round, records: Sequence[Record]) -> None:
        """Store a round that ran elsewhere, all of it or nothing."""
        self.store.add_round(records)
        by_arm = {record.arm: record for record in records}
        for trial in each.trials:
            record = by_arm[trial.arm.name]
            self.summary.launched += (trial.refusal is None) * (1 + len(record.attempts))
            self._count(trial, record)

    def found(self, records: Sequence[Record]) -> None:
        """Store a round of another plan: nothing here is done by it."""
        self.store.add_round(records)

    def lost(self, each: Round) -> None:
        """Another run has to do it: this one has failed."""
        for trial in each.trials:
            self._pending.pop(id(trial), None)
        self.summary.rounds_lost += 1

    def notice(self, text: str) -> None:
        """Tell the user."""
        self._tell(Notice(text=text))

    def _count(self, trial: PlannedTrial, record: Record) -> None:
        self._pending.pop(id(trial), None)
        self.estimates.learn(trial, record)
        self.summary.outcomes[record.outcome] += 1
        self.running = None
        counts = {"done": self._done, "trials": self.summary.planned}
        self._tell(TrialFinished(trial=trial, record=record, **counts, seconds_left=self._seconds_left()))

    def _fits(self, each: Round) -> bool:
        if self.time_budget_seconds is None:
            return True
        needed = sum(map(self.estimates.seconds, each.trials))
        left = self.time_budget_seconds - (time.monotonic() - self.began)
        if needed > left:
            for trial in each.trials:
                self._pending.pop(id(trial), None)
            self.summary.rounds_postponed += 1
            self._tell(
                RoundPostponed(
                    study=each.block.study, round=each.number, needed_seconds=needed, left_seconds=max(0.0, left)
                )
            )
        return needed <= left

    @property
    def _done(self) -> int:
        return self.summary.planned - self.summary.left

    def _seconds_left(self) -> float:
        """Of what is going to run: no round begins that the budget does not hold, but those that have begun end."""
        now = time.monotonic()
        if len(self._pending) <= _MANY or now - self._left[1] > 1.0:
            self._left = (self._seconds_of(self._pending.values()), now)
        if self.time_budget_seconds is None:
            return self._left[0]
        begun = self._seconds_of(trial for key, trial in self._pending.items() if key in self._begun)
        return max(begun, min(self._left[0], self.time_budget_seconds - (now - self.began)))

    def _seconds_of(self, trials: Iterable[PlannedTrial]) -> float:
        return sum(map(self.estimates.seconds, trials)) / self.width

    def _tell(self, event: Event) -> None:
        """One event at a time: Ctrl-C may come while one is printed, and is told when that has been."""
        self._untold.append(event)
        if self._telling:
            return
        self._telling = True
        try:
            while self._untold:
                self.on_event(self._untold.pop(0))
        finally:
            self._telling = False
