"""Time one action over and over: what the kinds share that look at a part of a step."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from harness.trial import memory
from harness.trial.clock import STEP, CudaClock, Timeline, Times, clock_for

#: Marks of one repetition at most, its start included.
_MARKS = 4


@dataclass(frozen=True, kw_only=True)
class Repeated:
    """What a window of repetitions gave."""

    times: Times
    window: tuple[float, float]
    peaks: dict[str, int]
    missing: dict[str, str]
    allocated_before: int | None

    @property
    def seconds(self) -> float:
        """Mean of one repetition."""
        return self.times.window_seconds / len(self.times.step_seconds)


def repeat(action: Callable[[Timeline], Any], device: torch.device, *, warmup: int, steps: int) -> Repeated:
    """Run `action` `warmup` times, then time `steps` times of it: no synchronise but at both ends.

    `action` gets the timeline, for marks of its own.
    """
    unread = Timeline(clock_for(device))
    for _ in range(warmup):
        action(unread)
    unread.clock.settle()
    memory.reset_peaks(device)
    timeline = Timeline(clock_for(device))
    if isinstance(timeline.clock, CudaClock):
        timeline.clock.reserve((steps + 1) * _MARKS)
    before = memory.allocated(device)
    start = time.monotonic()
    for _ in range(steps):
        timeline(STEP)
        action(timeline)
    timeline.end()
    window = (start, time.monotonic())
    peaks, missing = memory.read_peaks(device)
    return Repeated(times=timeline.times(), window=window, peaks=peaks, missing=missing, allocated_before=before)
