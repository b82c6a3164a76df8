"""What a run tells while it fills a store, and what it says at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from harness.experiment.study import PlannedTrial
from harness.results.record import Record
from harness.trial.outcome import Outcome


@dataclass(frozen=True, kw_only=True)
class RunPlanned:
    """Before the first trial."""

    trials: int
    """Planned in all."""
    stored: int
    """Of these, in the store already: whole rounds."""
    seconds_left: float


@dataclass(frozen=True, kw_only=True)
class TrialStarted:
    """A process is asked for."""

    trial: PlannedTrial
    done: int
    """Trials with a result, those of earlier runs included."""
    trials: int
    attempt: int
    seconds_left: float


@dataclass(frozen=True, kw_only=True)
class TrialFinished:
    """A record is in the store."""

    trial: PlannedTrial
    record: Record
    done: int
    trials: int
    seconds_left: float


@dataclass(frozen=True, kw_only=True)
class RoundPostponed:
    """A round does not fit in what is left of the time budget; another run will do it."""

    study: str
    round: int
    needed_seconds: float
    left_seconds: float


@dataclass(frozen=True, kw_only=True)
class StopRequested:
    """The first Ctrl-C: the trial that runs will be the last."""

    trial: PlannedTrial | None


@dataclass(frozen=True, kw_only=True)
class Notice:
    """Something outside the trials that the user should know: a job of a cluster that was lost, for example."""

    text: str


Event = RunPlanned | TrialStarted | TrialFinished | RoundPostponed | StopRequested | Notice
OnEvent = Callable[[Event], None]


@dataclass(kw_only=True)
class Summary:
    """What one run did."""

    planned: int
    stored_before: int
    """Trials of the plan that were there already."""
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    """Of the trials that this run recorded; of a trial that was tried several times, the last."""
    launched: int = 0
    """Trials for which processes were started, retries included."""
    rounds_postponed: int = 0
    """Left out because they did not fit in the time budget."""
    rounds_lost: int = 0
    """That went to a cluster and did not come back, though nobody stopped the run."""
    interrupted: bool = False
    wall_seconds: float = 0.0

    @property
    def left(self) -> int:
        """Trials of the plan that another run has still to do."""
        done = sum(count for outcome, count in self.outcomes.items() if outcome is not Outcome.INTERRUPTED)
        return max(0, self.planned - self.stored_before - done)

    @property
    def trials_per_minute(self) -> float | None:
        """Launched trials over wall time; None when nothing was launched."""
        return 60 * self.launched / self.wall_seconds if self.launched and self.wall_seconds else None

    def __str__(self) -> str:
        nothing = "no trial" if self.left else "nothing to do"
        counts = ", ".join(f"{count} {outcome}" for outcome, count in self.outcomes.most_common()) or nothing
        parts = [f"{self.planned} trials planned, {self.stored_before} in the store already; this run: {counts}"]
        if self.trials_per_minute is not None:
            parts.append(f"{self.trials_per_minute:.1f} trials a minute")
        if self.rounds_postponed:
            parts.append(f"{_rounds(self.rounds_postponed)} did not fit in the time budget")
        if self.rounds_lost:
            parts.append(f"{_rounds(self.rounds_lost)} lost")
        if self.left:
            parts.append(f"{self.left} left")
        return "; ".join(parts)


def _rounds(count: int) -> str:
    return "1 round" if count == 1 else f"{count} rounds"
