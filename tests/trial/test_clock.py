"""Speed and phases against a clock whose every reading is known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

pytestmark = pytest.mark.train


def timeline_of(readings: list[tuple[str, float]]) -> object:
    from harness.trial.clock import HostClock, Timeline

    times: Iterator[float] = iter([time for _, time in readings])
    timeline = Timeline(HostClock(read=lambda: next(times)))
    for name, _ in readings:
        timeline(name)
    return timeline.times()


def test_fifty_steps_of_known_length_are_a_ratio_of_totals() -> None:
    # a step of 0.5 s and a pause of 0.1 s after it: 50 steps last 30 s, and 50 * 1000 tokens run at 1000 / 0.6 a second
    readings = []
    for number in range(50):
        start = number * 0.6
        readings += [("step", start), ("data_wait", start + 0.05), ("copy", start + 0.06), ("forward", start + 0.2),
                     ("backward", start + 0.45), ("optimizer", start + 0.5)]  # fmt: skip
    readings.append(("step", 50 * 0.6))
    times = timeline_of(readings)
    assert times.window_seconds == pytest.approx(30.0)
    assert 50 * 1000 / times.window_seconds == pytest.approx(1000 / 0.6)
    assert times.step_seconds == pytest.approx([0.6] * 50)
    assert times.phases == pytest.approx(
        {"data_wait": 0.05, "copy": 0.01, "forward": 0.14, "backward": 0.25, "optimizer": 0.05, "between": 0.1}
    )
    assert sum(times.phases.values()) == pytest.approx(0.6)


def test_uneven_steps_give_the_mean_rate_not_the_mean_of_rates() -> None:
    # 1 s and 3 s: two steps of 100 tokens in 4 s are 50 tokens/s; the mean of 100 and 33.3 would be 66.7
    times = timeline_of([("step", 0.0), ("optimizer", 1.0), ("step", 1.0), ("optimizer", 4.0), ("step", 4.0)])
    assert 200 / times.window_seconds == pytest.approx(50.0)


def test_micro_batches_add_up_within_their_phase() -> None:
    times = timeline_of(
        [
            ("step", 0.0),
            ("forward", 1.0),
            ("backward", 3.0),
            ("forward", 4.0),
            ("backward", 6.0),
            ("optimizer", 7.0),
            ("step", 7.0),
        ]
    )
    assert times.phases == pytest.approx({"forward": 2.0, "backward": 4.0, "optimizer": 1.0, "between": 0.0})


def test_a_window_without_a_whole_step_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one whole step"):
        timeline_of([("step", 0.0)])


class Event:
    """torch.cuda.Event on a device on which a quarter of a second goes by to each: milliseconds, and only if timed."""

    made = 0
    now = 0.0

    def __init__(self, enable_timing: bool = False) -> None:
        self.timed, self.at = enable_timing, -1.0
        Event.made += 1

    def record(self) -> None:
        Event.now += 250.0
        self.at = Event.now

    def elapsed_time(self, end: Event) -> float:
        assert self.timed
        assert end.timed
        return end.at - self.at


def test_a_gpu_is_timed_by_its_own_events_which_are_there_before_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.trial.clock import STEP, CudaClock, HostClock, Timeline, clock_for

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    monkeypatch.setattr(Event, "made", 0)
    assert isinstance(clock_for(torch.device("cpu")), HostClock)
    clock: Any = clock_for(torch.device("cuda", 1))
    assert isinstance(clock, CudaClock)
    clock.reserve(3)
    timeline = Timeline(clock)
    for name in (STEP, "forward", STEP):
        timeline(name)
    assert Event.made == 3
    assert timeline.times().window_seconds == 0.5
    timeline.end()
    assert Event.made == 4, "one more than was reserved"
    assert timeline.times().step_seconds == [0.5, 0.25]
