"""Time inside the window: marks on a timeline, read only after it has ended.

On a GPU a mark is a CUDA event on the stream that does the work: recording one neither waits nor synchronises, and the
time between two is the device's own. On a CPU a mark is the host's clock. Each mark closes the stretch since the last
one and gives it a name.
"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

#: Name of the mark that begins a step. What lies between a step's last mark and the next `STEP` counts as `between`.
STEP = "step"
BETWEEN = "between"


class Clock(Protocol):
    """A source of marks."""

    def mark(self) -> Any:
        """A point in time; cheap."""

    def seconds(self, start: Any, end: Any) -> float:
        """Seconds between two marks; only after `settle`."""

    def settle(self) -> None:
        """Wait until everything before the last mark has been done."""


class HostClock:
    """The host's monotonic clock; for work that the host itself does."""

    def __init__(self, read: Callable[[], float] = time.perf_counter) -> None:
        self._read = read

    def mark(self) -> float:
        return self._read()

    def seconds(self, start: float, end: float) -> float:
        return end - start

    def settle(self) -> None:
        """Nothing is outstanding on a host."""


class CudaClock:
    """CUDA events on the current stream."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._spare: list[torch.cuda.Event] = []

    def reserve(self, marks: int) -> None:
        """Create events before the window, so that none is created inside it."""
        self._spare.extend(torch.cuda.Event(enable_timing=True) for _ in range(marks - len(self._spare)))

    def mark(self) -> torch.cuda.Event:
        event = self._spare.pop() if self._spare else torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, start: torch.cuda.Event, end: torch.cuda.Event) -> float:
        return float(start.elapsed_time(end)) / 1e3

    def settle(self) -> None:
        torch.cuda.synchronize(self._device)


@dataclass(frozen=True, kw_only=True)
class Times:
    """What a timeline says once it has settled. Seconds."""

    step_seconds: list[float]
    window_seconds: float
    phases: dict[str, float]
    """Mean seconds a step, by name."""


class Timeline:
    """Marks of a window, from the first `STEP` to `end`."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._marks: list[tuple[str, Any]] = []

    def __call__(self, name: str) -> None:
        """Close the present stretch under `name`."""
        self._marks.append((name, self.clock.mark()))

    def end(self) -> None:
        """Close the last step and wait for the device: the one synchronise at the end of the window."""
        self(STEP)
        self.clock.settle()

    def times(self) -> Times:
        """Add it up. The window is the time between the first and the last `STEP`, not the sum of its parts."""
        steps = [mark for name, mark in self._marks if name == STEP]
        count = len(steps) - 1
        if count < 1:
            raise ValueError("a timeline needs at least one whole step")
        totals: defaultdict[str, float] = defaultdict(float)
        for (_, before), (name, after) in itertools.pairwise(self._marks):
            totals[BETWEEN if name == STEP else name] += self.clock.seconds(before, after)
        return Times(
            step_seconds=[self.clock.seconds(a, b) for a, b in itertools.pairwise(steps)],
            window_seconds=self.clock.seconds(steps[0], steps[-1]),
            phases={name: total / count for name, total in totals.items()},
        )


def clock_for(device: torch.device) -> Clock:
    """The clock of a device."""
    return CudaClock(device) if device.type == "cuda" else HostClock()
