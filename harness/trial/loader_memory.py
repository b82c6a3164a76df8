"""Host memory of what a trial starts beside its ranks, its loader workers, as seen from the run's own process.

`peak_host_bytes` is of the training process alone, by the kernel's own account. What workers hold, and batches that
wait in shared memory for the training to come to them, lie outside of it: there prefetching fills host memory
(pytorch#97432).

The process that is timed is not looked at, so that nothing is added to its window: reading a process's proportional
share locks its memory map. Batches that came to it ahead of their turn, because another worker was slower, lie mapped
and unread there and are counted nowhere: seen at a trial's start, before the workers' first batches are there.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from harness.trial.processes import descendants

#: `time.monotonic()` and bytes.
Readings = Sequence[tuple[float, int]]


class LoaderMemory:
    """Looks every other second at everything below a trial's ranks; a look takes the run some 15 ms a worker, on a core
    that the trial does not need where it has one to spare."""

    def __init__(self, *, interval_seconds: float = 2.0) -> None:
        self._interval_seconds = interval_seconds
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._readings: list[tuple[float, int]] = []

    def follow(self, ranks: Sequence[int]) -> None:
        """Begin, now that the ranks exist."""
        self._thread = threading.Thread(target=self._watch, args=(ranks,), name="loader-memory", daemon=True)
        self._thread.start()

    def end(self) -> Readings:
        """Stop; what was seen."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        return self._readings

    def _watch(self, ranks: Sequence[int]) -> None:
        while not self._stop.wait(self._interval_seconds):
            below = [pid for rank in ranks for pid in descendants(rank)]
            self._readings.append((time.monotonic(), bytes_of(below)))


def peak_within(readings: Readings, window: tuple[float, float] | None) -> int | None:
    """The most that was seen inside the window, or in the look nearest to it; None without a look or a window."""
    if window is None or not readings:
        return None
    inside = [size for at, size in readings if window[0] <= at <= window[1]]
    return max(inside) if inside else min(readings, key=lambda each: abs(each[0] - sum(window) / 2))[1]


def bytes_of(pids: Iterable[int]) -> int:
    """Proportional shares of the processes' memory (pages that several map are divided between them), and shared memory
    that they hold open without having it mapped. A process that is gone counts nothing."""
    proportional = 0
    waiting: dict[int, int] = {}
    for pid in pids:
        folder = Path("/proc") / str(pid)
        with suppress(OSError):
            proportional += _proportional(folder)
            waiting.update(_waiting(folder))
    return proportional + sum(waiting.values())


def _proportional(folder: Path) -> int:
    lines = (folder / "smaps_rollup").read_text(encoding="utf-8").splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def _waiting(folder: Path) -> dict[int, int]:
    """Inode → bytes of open segments of shared memory (`/dev/shm`) that this process does not map."""
    found: dict[int, int] = {}
    mapped = {line.split()[4] for line in (folder / "maps").read_text(encoding="utf-8").splitlines()}
    for entry in (folder / "fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            if os.readlink(entry).startswith("/dev/shm/"):
                about = entry.stat()
                if str(about.st_ino) not in mapped:
                    found[about.st_ino] = about.st_blocks * 512
    return found
