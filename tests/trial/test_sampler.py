"""What the devices did during a trial, with NVML replaced at its boundary by meters whose readings are known."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import replace

import pytest

from harness.errors import EnvironmentProblem
from harness.trial import nvml
from harness.trial.device import DeviceSamples, device_figures
from harness.trial.nvml import NvmlMeter, Reading
from harness.trial.sampler import Sampler

OURS, THEIRS = 4001, 17
GIB = 2**30


def a_reading(at: float, **changes: object) -> Reading:
    """A reading of a device that does 900 W·s a second and nothing unusual."""
    usual = Reading(
        at=at, utilisation=0.9, sm_mhz=1900.0, power_watts=600.0, temperature=50.0, energy_joules=1000 + 600 * at,
        used_bytes=3 * GIB, processes={OURS: 2 * GIB},
    )  # fmt: skip
    return replace(usual, **changes)  # type: ignore[arg-type]


def samples_of(
    *readings: Reading, before: Reading | None = None, ours: frozenset[int] = frozenset({OURS})
) -> DeviceSamples:
    return DeviceSamples(before=before, readings=readings, ours=ours, power_limit_watts=700.0)


def test_the_energy_of_a_window_lies_between_the_counters_samples() -> None:
    # 100 J at 1 s, 200 J at 2 s, 500 J at 3 s; from 1.5 s (150 J) to 2.5 s (350 J) that is 200 J
    counters = {1.0: 100.0, 2.0: 200.0, 3.0: 500.0}
    samples = samples_of(*(a_reading(at, energy_joules=joules) for at, joules in counters.items()))
    assert samples.energy_joules((1.5, 2.5)) == pytest.approx(200.0)


@pytest.mark.parametrize("window", [(0.5, 2.0), (2.0, 3.5)], ids=["before the first sample", "after the last"])
def test_energy_is_not_guessed_beyond_the_samples(window: tuple[float, float]) -> None:
    assert samples_of(a_reading(1.0), a_reading(2.0), a_reading(3.0)).energy_joules(window) is None


def test_figures_come_from_the_window_alone() -> None:
    figures = device_figures(
        [
            samples_of(
                a_reading(0.0, sm_mhz=500.0, utilisation=0.0, throttle_reasons=frozenset({"hw_slowdown"})),
                a_reading(1.0, sm_mhz=1900.0, utilisation=0.8, throttle_reasons=frozenset({"sw_power_cap"})),
                a_reading(2.0, sm_mhz=1800.0, utilisation=1.0, temperature=61.0),
                a_reading(3.0, sm_mhz=500.0, utilisation=0.0, temperature=80.0),
            )
        ],
        (0.9, 2.1),
    )
    assert figures.utilisation == 1.0, "the look at 1.0 s tells of the time before the window too"
    assert figures.clocks["sm_mhz"] == pytest.approx(1850.0)
    assert figures.clocks["sm_mhz_min"] == 1800.0
    assert figures.clocks["throttle_reasons"] == ["sw_power_cap"]
    assert figures.clocks["temperature"] == 61.0
    assert figures.clocks["power_limit_watts"] == 700.0
    assert figures.energy_joules == pytest.approx(720.0)  # 600 W for 1.2 s
    assert figures.power_watts == pytest.approx(600.0)
    assert figures.missing == {}


@pytest.mark.parametrize(("end", "told"), [(0.3, False), (0.99, False), (1.0, True), (2.0, True)])
def test_a_window_that_is_shorter_than_a_look_tells_of_has_no_utilisation_and_no_energy(end: float, told: bool) -> None:
    """As on an H200: the device is idle before the window and busy in it, and each look is of the second before."""
    looks = [
        a_reading(at, utilisation=max(0.0, min(1.0, at)), power_watts=100 + 500 * max(0.0, min(1.0, at)),
                  energy_joules=100 * at + 500 * max(0.0, at))
        for at in (place / 10 for place in range(-10, 31))
    ]  # fmt: skip
    figures = device_figures([samples_of(*looks)], (0.0, end))
    assert figures.clocks["sm_mhz"] == 1900.0, "a clock is that of the moment"
    assert figures.peak_device_bytes == 2 * GIB
    if told:
        assert figures.utilisation == 1.0
        assert (figures.power_watts, figures.energy_joules) == (pytest.approx(600.0), pytest.approx(600.0 * end))
        assert figures.missing == {}
    else:
        assert (figures.utilisation, figures.energy_joules, figures.power_watts) == (None, None, None)
        why = (
            f"the window lasted {end:.2f} s, and no look at the device tells of it alone: each may be of the whole"
            " second before it; take more steps"
        )
        assert figures.missing == {"utilisation": why, "energy_joules_per_token": why}


def test_power_without_a_counter_is_that_of_looks_that_tell_of_the_window_alone() -> None:
    powers = {0.2: 100.0, 0.9: 450.0, 1.5: 600.0}
    looks = [a_reading(at, energy_joules=None, power_watts=watts) for at, watts in powers.items()]
    assert device_figures([samples_of(*looks)], (0.0, 2.0)).power_watts == 600.0


def test_two_devices_add_their_energy_and_average_their_utilisation() -> None:
    def one(utilisation: float) -> DeviceSamples:
        return samples_of(*(a_reading(at, utilisation=utilisation) for at in (0.0, 1.0, 2.0)))

    figures = device_figures([one(1.0), one(0.5)], (0.5, 2.0))
    assert figures.energy_joules == pytest.approx(1800.0)
    assert figures.utilisation == pytest.approx(0.75)
    assert figures.peak_device_bytes == 2 * GIB, "the device that held most, not the sum"


def test_power_and_energy_of_a_trial_are_those_of_all_its_devices_or_none() -> None:
    telling, without_counter, silent = (
        # it idles before and after the window, and a look in its first second tells of that too
        samples_of(
            *(
                a_reading(at, **{"power_watts": watts, **changes})
                for at, watts in ((0.0, 60), (1.0, 330), (1.6, 600), (2.1, 60))
            )
        )
        for changes in ({}, {"energy_joules": None}, {"energy_joules": None, "power_watts": None})
    )
    both = device_figures([telling, telling], (0.5, 2.0))
    assert (both.energy_joules, both.power_watts) == (pytest.approx(1800.0), pytest.approx(1200.0))
    one_counter = device_figures([telling, without_counter], (0.5, 2.0))
    assert one_counter.energy_joules is None, "that of one device is not that of the trial"
    assert one_counter.power_watts == pytest.approx(1200.0), "by the power readings of both"
    assert device_figures([telling, silent], (0.5, 2.0)).power_watts is None


def test_devices_that_nobody_reads_leave_no_energy_of_the_trial() -> None:
    """Of a trial over two nodes the first one's meters are read."""
    one = samples_of(*(a_reading(at) for at in (0.0, 1.0, 2.0)))
    half = device_figures([one, one], (0.5, 2.0), devices=4)
    assert (half.energy_joules, half.power_watts, half.clocks["power_watts"]) == (None, None, None)
    assert half.missing["energy_joules_per_token"] == (
        "a trial over several nodes is metered on the first, and that is 2 of its 4 devices"
    )
    assert half.utilisation == pytest.approx(0.9), "a mean, which the first node's devices give"
    assert device_figures([one, one], (0.5, 2.0), devices=2).power_watts == pytest.approx(1200.0)


def test_memory_is_that_of_our_processes_where_they_can_be_matched() -> None:
    readings = [a_reading(float(at), processes={OURS: at * GIB, 4002: 1 * GIB, THEIRS: 9 * GIB}) for at in (1, 5, 2)]
    assert samples_of(*readings, ours=frozenset({OURS, 4002})).peak_bytes() == 6 * GIB


@pytest.mark.parametrize("processes", [{}, {999999: 5 * GIB}, {OURS: None}], ids=["none shown", "other ids", "no size"])
def test_memory_is_what_the_device_gained_where_they_cannot(processes: Mapping[int, int | None]) -> None:
    before = a_reading(0.0, used_bytes=1 * GIB, processes={})
    readings = [a_reading(1.0, used_bytes=4 * GIB, processes=processes), a_reading(2.0, used_bytes=3 * GIB)]
    unmatched = [replace(reading, processes=processes) for reading in readings]
    assert samples_of(*unmatched, before=before).peak_bytes() == 3 * GIB


def test_a_foreign_process_is_found_with_its_memory() -> None:
    samples = samples_of(
        a_reading(1.0), a_reading(2.0, processes={OURS: GIB, THEIRS: 3 * GIB}), before=a_reading(0.0, processes={})
    )
    assert samples.foreign() == [{"pid": THEIRS, "bytes": 3 * GIB}]


def test_our_own_processes_under_unknown_ids_are_not_foreign_but_those_before_us_are() -> None:
    before = a_reading(0.0, processes={THEIRS: GIB})
    samples = samples_of(a_reading(1.0, processes={THEIRS: GIB, 999999: 2 * GIB}), before=before)
    assert samples.foreign() == [{"pid": THEIRS, "bytes": GIB}]


def test_memory_in_use_with_nobody_to_be_seen_is_foreign() -> None:
    before = a_reading(0.0, processes={}, used_bytes=20 * GIB)
    hidden = [a_reading(at, processes={}, used_bytes=23 * GIB) for at in (1.0, 2.0)]
    assert samples_of(*hidden, before=before).foreign() == [{"pid": None, "bytes": 20 * GIB}]
    shown = [a_reading(at, processes={OURS: 4 * GIB}, used_bytes=24 * GIB) for at in (1.0, 2.0)]
    assert samples_of(*shown, before=before).foreign((0.5, 2.5)) == [{"pid": None, "bytes": 20 * GIB}]


def test_memory_that_the_driver_takes_back_from_the_trial_before_is_nobodys() -> None:
    # seen on an H200: 13.9 GiB without a process at the last look before a trial, all of it gone when it had started
    before = a_reading(0.0, processes={}, used_bytes=14 * GIB)
    young = a_reading(0.1, processes={}, used_bytes=1 << 20)
    shown = [a_reading(at, processes={OURS: 4 * GIB}, used_bytes=4 * GIB + (300 << 20)) for at in (1.0, 2.0)]
    assert samples_of(young, *shown, before=before).foreign((0.9, 2.1)) == []
    hidden = [a_reading(at, processes={}, used_bytes=4 * GIB) for at in (1.0, 2.0)]
    samples = samples_of(young, *hidden, before=before)
    assert samples.foreign((0.9, 2.1)) == []
    assert samples.peak_bytes((0.9, 2.1)) == 4 * GIB - (1 << 20)


def test_an_idle_device_has_nobody_foreign() -> None:
    before = a_reading(0.0, processes={}, used_bytes=4 << 20)
    assert samples_of(a_reading(1.0), before=before).foreign() == []


def test_without_a_device_every_figure_says_why_it_is_absent() -> None:
    figures = device_figures([], (0.0, 1.0))
    assert set(figures.missing) == {"peak_device_bytes", "utilisation", "energy_joules_per_token"}
    assert figures.utilisation is None


def test_a_trial_without_a_window_keeps_its_memory_and_its_neighbours() -> None:
    figures = device_figures([samples_of(a_reading(1.0, processes={OURS: GIB, THEIRS: GIB}))], None)
    assert figures.peak_device_bytes == GIB
    assert figures.clocks == {"foreign": [{"pid": THEIRS, "bytes": GIB}]}
    assert figures.missing["utilisation"] == "the trial ended before its window did"


def test_what_the_device_does_not_tell_is_missing_and_no_number() -> None:
    silent = [Reading(at=float(at)) for at in range(3)]
    figures = device_figures([samples_of(*silent)], (0.5, 2.0))
    assert (figures.utilisation, figures.energy_joules, figures.clocks["sm_mhz"]) == (None, None, None)
    assert figures.missing["utilisation"] == "the device does not tell"


class CountingMeter:
    """A meter that tells which look it is."""

    power_limit_watts = 700.0

    def __init__(self, pids: Mapping[int, int | None]) -> None:
        self.looks = 0
        self.pids = pids

    def read(self) -> Reading:
        self.looks += 1
        return a_reading(time.monotonic(), used_bytes=self.looks, processes=self.pids)

    def wait_for_looks(self, count: int) -> None:
        """Until so many more have begun: a busy machine takes its time."""
        until, wanted = time.monotonic() + 60, self.looks + count
        while self.looks < wanted:
            assert time.monotonic() < until, "nobody looks"
            time.sleep(0.005)


def test_the_sampler_looks_before_and_during_a_trial_and_not_after() -> None:
    meter = CountingMeter({})
    sampler = Sampler([meter], interval_seconds=0.01)
    sampler.begin()
    meter.wait_for_looks(3)
    (samples,) = sampler.end()
    looks = meter.looks
    time.sleep(0.05)
    assert meter.looks == looks
    assert samples.before is not None
    assert samples.before.used_bytes == 1
    assert len(samples.readings) == looks - 1 >= 3


def test_processes_in_a_ranks_group_are_ours() -> None:
    script = "import os, time\nif pid := os.fork(): print(pid, flush=True)\ntime.sleep(30)"
    rank = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert rank.stdout is not None
    below = int(rank.stdout.readline())
    try:
        meter = CountingMeter({rank.pid: GIB, below: GIB, 1: GIB})
        sampler = Sampler([meter], interval_seconds=0.01)
        sampler.begin()
        sampler.follow((rank.pid,))
        meter.wait_for_looks(1)
        (samples,) = sampler.end()
        assert samples.ours == {rank.pid, below}
        assert samples.foreign() == [{"pid": 1, "bytes": GIB}]
    finally:
        os.killpg(rank.pid, signal.SIGKILL)
        rank.wait()


def test_a_process_of_the_trial_before_is_not_ours_any_more() -> None:
    sampler = Sampler([CountingMeter({OURS: GIB})], interval_seconds=60)
    sampler.begin()
    sampler.follow((OURS,))
    (first,) = sampler.end()
    assert first.before is not None
    assert first.before.used_bytes == 1, "at the next look it held memory, which is not what was there before it"
    sampler.begin()
    sampler.follow((OURS + 1,))
    (second,) = sampler.end()
    assert (first.ours, second.ours) == ({OURS}, {OURS + 1})
    assert second.foreign() == [{"pid": OURS, "bytes": GIB}]


class SlowMeter(CountingMeter):
    """Its second look, the first in the background, sees what is there and comes back only when it is told to."""

    def __init__(self, pids: Mapping[int, int | None]) -> None:
        super().__init__(pids)
        self.has_seen, self.may_end = threading.Event(), threading.Event()

    def read(self) -> Reading:
        reading = super().read()
        if reading.used_bytes == 2:
            self.has_seen.set()
            assert self.may_end.wait(60)
        return reading


def test_what_tried_the_device_before_the_trial_existed_is_no_neighbour() -> None:
    """A run's first trial waits for the helper, which computes on the device in a process of its own. A look that saw
    it and ends once the trial exists came to stand among the trial's own."""
    meter = SlowMeter({THEIRS: GIB})
    sampler = Sampler([meter], interval_seconds=0.01)
    sampler.begin()
    assert meter.has_seen.wait(60)
    meter.pids = {}
    followed = threading.Thread(target=sampler.follow, args=((OURS,),))
    followed.start()
    followed.join(0.2)
    meter.may_end.set()
    followed.join()
    meter.pids = {OURS: 2 * GIB}
    meter.wait_for_looks(1)
    (samples,) = sampler.end()
    assert samples.foreign() == []
    assert samples.before is not None
    assert samples.before.processes == {}
    assert samples.peak_bytes() == 2 * GIB


def test_a_process_that_is_gone_before_the_window_disturbs_no_step() -> None:
    leaving = a_reading(1.0, processes={OURS: GIB, THEIRS: 9 * GIB})
    alone = [a_reading(at) for at in (2.0, 3.0, 4.0)]
    samples = samples_of(leaving, *alone)
    assert device_figures([samples], (2.0, 4.0)).clocks["foreign"] == []
    assert device_figures([samples], (0.5, 4.0)).clocks["foreign"] == [{"pid": THEIRS, "bytes": 9 * GIB}]
    assert device_figures([samples], None).clocks["foreign"] == [{"pid": THEIRS, "bytes": 9 * GIB}]


def test_only_the_devices_of_the_trial_are_sampled() -> None:
    sampler = Sampler([CountingMeter({}), CountingMeter({})])
    sampler.begin(1)
    assert len(sampler.end()) == 1
    sampler.begin(0)
    assert sampler.end() == ()


def test_a_machine_without_nvml_has_no_meters(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: NvmlMeter, uuid: str) -> None:
        raise EnvironmentProblem("no driver")

    monkeypatch.setattr(NvmlMeter, "__init__", refuse)
    assert nvml.meters(["GPU-1"]) == ()


def test_memory_after_the_window_is_not_the_cells() -> None:
    # seen on an H100: 15.4 GiB in the window, 19.9 GiB while the gradient check held models of its own
    readings = [a_reading(float(second), processes={OURS: (8 if second < 4 else 20) * GIB}) for second in range(8)]
    samples = samples_of(*readings)
    assert samples.peak_bytes((1.0, 3.0)) == 8 * GIB
    assert device_figures([samples], (1.0, 3.0)).peak_device_bytes == 8 * GIB
    assert samples.peak_bytes() == 20 * GIB
