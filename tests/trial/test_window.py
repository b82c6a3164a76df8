"""Where a window waits for the device and where it must not, and from when on peaks of memory count."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from harness.trial import measure, memory, training
from harness.trial.clock import CudaClock
from harness.trial.ranks import Ranks
from harness.trial.training import TrainingRun, build
from tests.training import cpu, spec_of

STEPS, WARMUP = 5, 2


class QueueingDevice:
    """A clock like a GPU's: a mark is queued, and stands on the device's clock only once somebody has waited."""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.reached: set[int] = set()
        self.queued = 0

    def mark(self) -> int:
        self.log.append("mark")
        self.queued += 1
        return self.queued

    def seconds(self, start: int, end: int) -> float:
        # torch raises here: "Both events must be completed before calculating elapsed time"
        assert {start, end} <= self.reached, "asked for the time of an event that the device has not reached"
        return float(end - start)

    def settle(self) -> None:
        self.log.append("settle")
        self.reached = set(range(1, self.queued + 1))


@pytest.mark.train
def test_one_wait_at_each_end_of_the_window_and_none_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    monkeypatch.setattr(training, "clock_for", lambda device: QueueingDevice(log))
    monkeypatch.setattr(memory, "reset_peaks", lambda device: log.append("peaks"))
    run = TrainingRun(spec_of(warmup_steps=WARMUP, steps=STEPS), Ranks(), cpu())
    build(run, [])
    measured = measure.measure(run)
    start = log.index("peaks")
    assert log.count("peaks") == 1, "forgotten once, between warm-up and window"
    assert log[:start].count("settle") == WARMUP
    assert log[start - 1] == "settle", "what warm-up queued is done before the window"
    # a step: its start, data, copy, forward, backward, optimizer; and the last step's end
    assert log[start + 1 :] == ["mark"] * (6 * STEPS + 1) + ["settle"]
    assert measured.times is not None
    assert measured.times.window_seconds == 6 * STEPS
    assert measured.times.step_seconds == [6.0] * STEPS


class Driver:
    """What is asked of torch's allocator and of the device, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[Any] = []
        for name in ("synchronize", "empty_cache", "reset_peak_memory_stats"):
            monkeypatch.setattr(torch.cuda, name, lambda *on, name=name: self.asked.append((name, *on)))


def test_peaks_are_reset_once_the_cache_of_what_has_run_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    driver, device = Driver(monkeypatch), torch.device("cuda", 1)
    memory.reset_peaks(device)
    assert driver.asked == [("synchronize", device), ("empty_cache",), ("reset_peak_memory_stats", device)]
    memory.reset_peaks(torch.device("cpu"))
    assert len(driver.asked) == 3, "nothing is asked of CUDA for a CPU"


def test_the_clock_of_a_gpu_waits_for_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    driver, device = Driver(monkeypatch), torch.device("cuda", 1)
    CudaClock(device).settle()
    assert driver.asked == [("synchronize", device)]


def test_peaks_of_a_gpu_are_the_allocators_own(monkeypatch: pytest.MonkeyPatch) -> None:
    device = torch.device("cuda", 1)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda on: {device: 7}[on])
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda on: {device: 11}[on])
    figures, missing = memory.read_peaks(device)
    assert (figures["peak_allocated_bytes"], figures["peak_reserved_bytes"], missing) == (7, 11, {})
