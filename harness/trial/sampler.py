"""The devices as seen from the run's own process while a trial runs: the process that is timed never asks NVML.

sampler.begin(); …; sampler.follow(pids); …; figures = device_figures(sampler.end(), window)
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

from harness.trial.device import DeviceSamples
from harness.trial.nvml import Meter, Reading


class Sampler:
    """Reads every device of the run ten times a second, in a thread of the run's process, while a trial runs."""

    def __init__(self, meters: Sequence[Meter] = (), *, interval_seconds: float = 0.1) -> None:
        self._all_meters = tuple(meters)
        self._meters: tuple[Meter, ...] = ()
        self._interval_seconds = interval_seconds
        self._stop = threading.Event()
        self._looking = threading.Lock()
        """Held for a whole look: one that began before `follow` must not be kept after it."""
        self._thread: threading.Thread | None = None
        self._readings: list[list[Reading]] = []
        self._before: list[Reading | None] = []
        self._groups: frozenset[int] = frozenset()
        self._ours: set[int] = set()

    def begin(self, devices: int | None = None) -> None:
        """Look once before the trial exists, then start sampling the first `devices` (None: all)."""
        self._stop.clear()
        self._meters = self._all_meters[:devices]
        self._readings = [[] for _ in self._meters]
        self._groups, self._ours = frozenset(), set()
        self._before = [meter.read() for meter in self._meters]
        if self._meters:
            self._thread = threading.Thread(target=self._sample, name="sampler", daemon=True)
            self._thread.start()

    def follow(self, pids: Sequence[int]) -> None:
        """Tell whose memory is the trial's own: these processes, and all of the process groups that they lead.

        What was seen before they existed is forgotten: the first trial of a run waits for the helper that forks it,
        which tries the device in a process of its own.
        """
        with self._looking:
            self._groups = frozenset(pids)
            self._ours.update(pids)
            for place, meter in enumerate(self._meters):
                reading = meter.read()
                if not self._ours & reading.processes.keys():  # they are too young to hold memory on a device
                    self._before[place] = reading
                self._readings[place][:] = [reading]

    def end(self) -> tuple[DeviceSamples, ...]:
        """Stop sampling; a DeviceSamples a device."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        return tuple(
            DeviceSamples(
                before=before, readings=tuple(readings), ours=frozenset(self._ours),
                power_limit_watts=meter.power_limit_watts,
            )
            for before, readings, meter in zip(self._before, self._readings, self._meters, strict=True)
        )  # fmt: skip

    def _sample(self) -> None:
        while True:
            with self._looking:
                for meter, readings in zip(self._meters, self._readings, strict=True):
                    reading = meter.read()
                    readings.append(reading)
                    # asked now, for the process may be gone when the trial has ended
                    self._ours.update(pid for pid in reading.processes if _group_of(pid) in self._groups)
            if self._stop.wait(self._interval_seconds):
                return


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except (ProcessLookupError, PermissionError):
        return None
