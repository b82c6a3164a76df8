"""Watch one trial from the fork to the last process of it: limits, a dead rank, a stop by the user."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from harness.trial.channel import Message
from harness.trial.helper import Helper, HelperGone
from harness.trial.interrupts import Interrupts

#: Called with the process ids of the ranks, in order, as soon as they exist.
OnForked = Callable[[tuple[int, ...]], None]


class Why(Enum):
    """Why processes of a trial were killed by us."""

    WALL_LIMIT = "wall limit"
    PEER_DIED = "a rank died"
    STOPPED = "the run was stopped"


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long the parent waits before it goes a step further, seconds."""

    after_sigterm_seconds: float = 2.0
    """From SIGTERM to SIGKILL."""
    after_rank_death_seconds: float = 5.0
    """From the death of one rank to SIGTERM for the others: long enough for them to say what they saw."""
    after_sigkill_seconds: float = 15.0
    """From SIGKILL to giving the helper up."""


@dataclass(kw_only=True)
class Ending:
    """What was seen of a trial's end."""

    pids: tuple[int, ...] = ()
    statuses: tuple[int | None, ...] = ()
    killed: Why | None = None
    running: tuple[int, ...] = ()
    """The ranks that still ran when we decided to kill."""
    first_dead: int | None = None
    """The rank that failed first, by itself."""
    helper_lost: bool = False
    left: tuple[int, ...] = ()
    """Processes that even SIGKILL did not end (stuck in a driver)."""
    peak_host_bytes: int | None = None


@dataclass(kw_only=True)
class _Watch:
    """The state of the watch: what is known, and when the next step is due."""

    helper: Helper
    ranks: int
    patience: Patience
    due: float
    """`time.monotonic()` of the next step: the wall limit at first, then the steps of killing."""
    ending: Ending = field(default_factory=Ending)
    statuses: dict[int, int] = field(default_factory=dict)
    deadline: float
    sent: signal.Signals | None = None
    clean: bool = False

    @property
    def running(self) -> tuple[int, ...]:
        return tuple(rank for rank in range(self.ranks) if rank not in self.statuses)

    def handle(self, message: Message) -> None:
        """Take in what the helper says."""
        if message["is"] == "forked":
            self.ending.pids = tuple(message["pids"])
        elif message["is"] == "ended":
            self._rank_ended(message["rank"], message["status"])
            self.ending.peak_host_bytes = max(self.ending.peak_host_bytes or 0, message["peak_host_bytes"])
        elif message["is"] == "clean":
            self.ending.left = tuple(message["left"])
            self.clean = True

    def _rank_ended(self, rank: int, status: int) -> None:
        self.statuses[rank] = status
        if status != 0 and self.ending.killed is None and self.ending.first_dead is None:
            self.ending.first_dead = rank
            self.due = min(self.deadline, time.monotonic() + self.patience.after_rank_death_seconds)

    def stop(self) -> None:
        """The user wants it to end now: no SIGTERM, no wait."""
        if self.ending.killed is None:
            self._decide(Why.STOPPED)
            self.due = min(self.due, time.monotonic() + self.patience.after_sigkill_seconds)
        if self.ending.pids and self.sent is not signal.SIGKILL:
            self._send(signal.SIGKILL, self.patience.after_sigkill_seconds)

    def step(self) -> None:
        """`due` has passed: go a step further."""
        if self.ending.killed is None and self.running:
            self._decide(Why.WALL_LIMIT if self.ending.first_dead is None else Why.PEER_DIED)
            self._send(signal.SIGTERM, self.patience.after_sigterm_seconds)
        elif self.sent is not signal.SIGKILL:
            self._send(signal.SIGKILL, self.patience.after_sigkill_seconds)
        else:
            raise HelperGone  # it should have said "clean" by now: it hangs, and is replaced

    def _decide(self, why: Why) -> None:
        self.ending.killed = why
        self.ending.running = self.running

    def _send(self, number: signal.Signals, patience_seconds: float) -> None:
        self.helper.signal_groups([self.ending.pids[rank] for rank in self.running if self.ending.pids], number)
        self.sent = number
        self.due = time.monotonic() + patience_seconds


def supervise(
    helper: Helper, *, ranks: int, deadline: float, patience: Patience,
    interrupts: Interrupts | None = None, on_forked: OnForked | None = None,
) -> Ending:  # fmt: skip
    """Wait for the end of the trial that `helper` was asked for; kill it when a limit passes.

    `deadline` is the wall limit as a moment of `time.monotonic()`. Returns when no process of the trial lives, or when
    the helper itself is lost (`helper_lost`: close it, which kills what it could not).
    """
    watch = _Watch(helper=helper, ranks=ranks, patience=patience, due=deadline, deadline=deadline)
    try:
        while not watch.clean:
            if interrupts is not None and interrupts.now:
                watch.stop()
            message = helper.receive(until=watch.due, interrupts=interrupts)
            if message is not None:
                watch.handle(message)
                if message["is"] == "forked" and on_forked is not None:
                    on_forked(watch.ending.pids)
            elif time.monotonic() >= watch.due:
                watch.step()
    except HelperGone:
        watch.ending.helper_lost = True
    watch.ending.statuses = tuple(watch.statuses.get(rank) for rank in range(ranks))
    return watch.ending
