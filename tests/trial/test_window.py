"""Where a window waits for the device and where it must not, what its phases hold, and from when on peaks count."""

from __future__ import annotations

import resource
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from harness.techniques.registry import techniques
from harness.trial import measure, memory, training
from harness.trial.clock import CudaClock, HostClock
from harness.trial.host import read_host
from harness.trial.kinds import repeat as repeating
from harness.trial.ranks import Ranks
from harness.trial.training import TrainingRun, build
from tests.training import cpu, spec_of
from tests.trial.test_clock import Event

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
    # by this clock the parent finds the meters' readings that lie in the window
    now = SimpleNamespace(monotonic=lambda: log.append("now") or len(log), perf_counter=time.perf_counter)
    monkeypatch.setattr(measure, "time", now)
    run = TrainingRun(spec_of(warmup_steps=WARMUP, steps=STEPS), Ranks(), cpu())
    build(run, [])
    measured = measure.measure(run)
    start = log.index("peaks")
    assert log.count("peaks") == 1, "forgotten once, between warm-up and window"
    assert log[:start].count("settle") == WARMUP
    assert log[start - 1] == "settle", "what warm-up queued is done before the window"
    # a step: its start, data, copy, forward, backward, optimizer; and the last step's end
    assert log[start + 1 :] == ["now"] + ["mark"] * (6 * STEPS + 1) + ["settle", "now"]
    assert measured.window == (start + 2, len(log))
    assert measured.times is not None
    assert measured.times.window_seconds == 6 * STEPS
    assert measured.times.step_seconds == [6.0] * STEPS


@pytest.mark.train
@pytest.mark.parametrize("accumulation", [1, 3])
def test_events_of_a_gpu_are_all_there_before_the_window(accumulation: int, monkeypatch: pytest.MonkeyPatch) -> None:
    device, made_before = torch.device("cuda", 0), []
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    monkeypatch.setattr(training, "clock_for", lambda _: CudaClock(device))
    monkeypatch.setattr(measure, "read_host", lambda: made_before.append(Event.made) or read_host())
    run = TrainingRun(spec_of(warmup_steps=1, steps=STEPS, accumulation=accumulation), Ranks(), cpu())
    build(run, [])
    measure.measure(run)
    at_its_start, at_its_end = made_before
    assert at_its_end == at_its_start


def test_repetitions_are_waited_for_at_each_end_and_not_between(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    monkeypatch.setattr(repeating, "clock_for", lambda device: QueueingDevice(log))
    monkeypatch.setattr(memory, "reset_peaks", lambda device: log.append("peaks"))
    measured = repeating.repeat(lambda timeline: log.append("work"), torch.device("cpu"), warmup=2, steps=3)
    assert log == ["work"] * 2 + ["settle", "peaks"] + ["mark", "work"] * 3 + ["mark", "settle"]
    assert measured.times.step_seconds == [1.0] * 3
    assert measured.seconds == 1.0


#: What makes the host wait for a GPU: a number read from a tensor, the places of its entries, whether two are the same.
WAITS = {torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default, torch.ops.aten.equal.default}


class Waits(TorchDispatchMode):
    """Which files ask for a number. Not torch's AdamW: the count of its steps lies on the host, also on a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.asked_by: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in WAITS:
            frames = [Path(frame.filename) for frame in reversed(traceback.extract_stack()[:-1])]
            if not any(each.parts[-3:-1] == ("torch", "optim") for each in frames):
                whose = next(each for each in frames if "torch" not in each.parts)
                self.asked_by["/".join(whose.parts[-2:])] += 1
        return function(*args, **(kwargs or {}))


@pytest.mark.train
@pytest.mark.parametrize(("settings", "asked"), [({}, {}), ({"monitor": "item"}, {"techniques/monitors.py": 3})])
@pytest.mark.parametrize("accumulation", [1, 2])
def test_no_number_is_read_inside_the_window_but_by_a_monitor(
    settings: dict[str, Any], asked: dict[str, int], accumulation: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU each waits for the device (pytorch#43947), whatever the clock is asked."""
    run = TrainingRun(spec_of(warmup_steps=2, steps=3, accumulation=accumulation, **settings), Ranks(), cpu())
    build(run, techniques())
    waits = Waits()
    times = type(run.timeline).times
    with ExitStack() as window:
        monkeypatch.setattr(memory, "reset_peaks", lambda device: window.enter_context(waits))
        monkeypatch.setattr(type(run.timeline), "times", lambda timeline: (window.close(), times(timeline))[1])
        measure.measure(run)
    # transformers 5.24 asks once a forward whether positions begin anew (masking_utils.find_packed_sequence_indices)
    assert waits.asked_by.pop("transformers/masking_utils.py", 0) <= 3 * accumulation
    assert waits.asked_by == asked


@pytest.mark.train
def test_losses_are_copies() -> None:
    """A CUDA graph writes each replay's loss to the same memory (pytorch#169545)."""
    run = TrainingRun(spec_of(), Ranks(), cpu())
    build(run, [])
    same = torch.zeros(())
    run.micro_step = lambda batch: same.add_(1.0)
    run.update = lambda: None
    for _ in range(3):
        run.step()
    assert [float(loss) for loss in run.losses] == [1.0, 2.0, 3.0]


class Seconds:
    """A clock that stands still but for what is told to take a second."""

    def __init__(self) -> None:
        self.now = 0.0

    def of(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **named: Any) -> Any:
            self.now += 1.0
            return inner(*arguments, **named)

        return timed

    def of_each(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            self.now += 1.0
            yield batch


@pytest.mark.train
@pytest.mark.parametrize(
    ("part", "phase"),
    [
        ("batches", "data_wait"),
        ("copy", "copy"),
        ("loss_of", "forward"),
        ("backward", "backward"),
        ("update", "optimizer"),
    ],
)
def test_what_a_part_takes_stands_in_its_phase_and_in_no_other(
    part: str, phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = Seconds()
    monkeypatch.setattr(training, "clock_for", lambda device: HostClock(read=lambda: seconds.now))
    run = TrainingRun(spec_of(steps=STEPS, accumulation=2), Ranks(), cpu())
    build(run, [])
    plain = getattr(run, part)
    setattr(run, part, seconds.of_each(plain) if part == "batches" else seconds.of(plain))
    times = measure.measure(run).times
    assert times is not None
    a_step = 1.0 if part == "update" else 2.0
    assert {name: took for name, took in times.phases.items() if took} == {phase: a_step}
    assert times.window_seconds == a_step * STEPS


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


def test_what_a_gpus_allocator_holds_now_and_how_often_it_was_full(monkeypatch: pytest.MonkeyPatch) -> None:
    device = torch.device("cuda", 1)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda on: {device: 5}[on])
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda on: {device: {"num_alloc_retries": 3, "num_ooms": 1}}[on])
    assert (memory.allocated(device), memory.allocator_retries(device)) == (5, 3)
    assert (memory.allocated(torch.device("cpu")), memory.allocator_retries(torch.device("cpu"))) == (None, 0)


def test_host_memory_is_told_by_the_system_in_kibibytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrusage", lambda who: {resource.RUSAGE_SELF: SimpleNamespace(ru_maxrss=3)}[who])
    figures, missing = memory.read_peaks(torch.device("cpu"))
    assert figures == {"peak_host_bytes": 3072}
    assert set(missing) == {"peak_allocated_bytes", "peak_reserved_bytes"}
