"""The zygote's own parent, a process that imports nothing and does nothing but clean up when the zygote is gone.

A zygote killed with SIGKILL takes its trials with it, but not what those had started in sessions of their own: these
come to the keeper, which has adopted them in advance, and are killed here.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from types import FrameType

from harness.trial import processes

#: How long killed processes may take to be gone: freeing a device's memory is slow, a dead driver call endless.
SECONDS_TO_DIE = 10.0


def keep(run: int, serve: Callable[[int], int]) -> int:
    """Fork, call `serve(keeper's id)` in the child, wait for its end, kill all that it left; return its status.

    `run` is the process that the keeper belongs to: when that ends, the child is told to (SIGTERM).
    """
    keeper = os.getpid()
    child = os.fork()
    if child == 0:
        os._exit(serve(keeper))
    processes.adopt_orphans()

    def stop(number: int, frame: FrameType | None) -> None:
        # The signal also comes when only the thread that started us has ended: then the run is still our parent.
        if os.getppid() != run:
            os.kill(child, signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)
    processes.die_with_parent(run, signal.SIGTERM)
    status = _wait_for(child)
    kill_descendants()
    return status if status >= 0 else 128 - status


def kill_descendants() -> tuple[int, list[int]]:
    """Kill all that runs under this process, and what that starts meanwhile: how many there were, who would not die."""
    until = time.monotonic() + SECONDS_TO_DIE
    seen: set[int] = set()
    while (living := processes.descendants(os.getpid())) and time.monotonic() < until:
        seen.update(living)
        processes.kill(living)
        processes.wait_until_gone(living, seconds=0.5)
        reap()
    return len(seen), living


def reap() -> None:
    """Collect every child that has ended."""
    while (ended := peek()) is not None:
        os.waitpid(ended, 0)


def peek() -> int | None:
    """Id of a child that has ended and is not yet collected, or None."""
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return found.si_pid if found is not None else None


def _wait_for(child: int) -> int:
    while True:
        ended, status = os.wait()
        if ended == child:
            return os.waitstatus_to_exitcode(status)
