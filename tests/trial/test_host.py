"""What the host did during a window, seen from the thread that launches the work."""

from __future__ import annotations

import sys
import threading
import time

import pytest

from harness.trial.host import HostReading, between, held_up, read_host
from tests.training import run_trial


def reading(**fields: object) -> HostReading:
    known = {"wall_seconds": 10.0, "thread_seconds": 4.0, "process_seconds": 6.0, "involuntary_switches": 3,
             "voluntary_switches": 5, "steal_seconds": 1.0}  # fmt: skip
    return HostReading(**{**known, **fields})  # type: ignore[arg-type]


def test_differences_by_name_without_what_the_system_does_not_say() -> None:
    later = reading(wall_seconds=12.0, thread_seconds=5.5, process_seconds=9.0, involuntary_switches=4,
                    voluntary_switches=15, steal_seconds=1.25)  # fmt: skip
    assert between(reading(), later) == {
        "wall_seconds": 2.0, "thread_seconds": 1.5, "process_seconds": 3.0, "involuntary_switches": 1,
        "voluntary_switches": 10, "steal_seconds": 0.25,
    }  # fmt: skip
    bare = {"involuntary_switches": None, "voluntary_switches": None, "steal_seconds": None}
    assert between(reading(**bare), reading(**bare, wall_seconds=11.0)) == {
        "wall_seconds": 1.0, "thread_seconds": 0.0, "process_seconds": 0.0,
    }  # fmt: skip


def test_a_thread_that_works_and_one_that_waits_are_told_apart() -> None:
    start = read_host()
    until = time.thread_time() + 0.2
    while time.thread_time() < until:
        pass
    worked = between(start, read_host())
    start = read_host()
    time.sleep(0.2)
    waited = between(start, read_host())
    assert worked["thread_seconds"] >= 0.2
    assert waited["wall_seconds"] >= 0.2
    assert waited["thread_seconds"] < 0.1
    if sys.platform == "linux":
        assert waited["voluntary_switches"] >= 1
        assert worked["involuntary_switches"] >= 0
        assert worked["steal_seconds"] >= 0


def test_the_process_counts_its_other_threads_and_the_thread_does_not() -> None:
    def work() -> None:
        until = time.thread_time() + 0.2
        while time.thread_time() < until:
            pass

    start = read_host()
    other = threading.Thread(target=work)
    other.start()
    other.join()
    seen = between(start, read_host())
    assert seen["process_seconds"] >= 0.2
    assert seen["thread_seconds"] < 0.15


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ({"wall_seconds": 4.0, "steal_seconds": 0.5},
         "the hypervisor withheld processor time of 12% of the window, all cores together"),
        ({"wall_seconds": 4.0, "steal_seconds": 0.2}, ""),
        ({"wall_seconds": 4.0}, ""),
        ({}, ""),
    ],
)  # fmt: skip
def test_a_window_that_the_hypervisor_held_up_is_warned_of(host: dict[str, float], words: str) -> None:
    assert held_up(host) == words


@pytest.mark.train
def test_a_trial_keeps_what_its_host_did() -> None:
    result = run_trial(steps=6)
    host, steps = result.measured["figures"]["host"], result.measured["step_seconds"]
    assert host["wall_seconds"] == pytest.approx(sum(steps), rel=0.5, abs=0.1)
    assert 0 < host["thread_seconds"] <= host["wall_seconds"] + 0.05, "a thread has one core"
    assert host["process_seconds"] >= host["thread_seconds"] - 0.01
