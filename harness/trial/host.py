"""What the host did while a window ran: whether the thread that launches the work was slow, waiting, or held up.

Read once before the window and once after it, so that it costs no step anything. Where the host sets the pace, trials
of one cell differ by what stands here: the thread's own processor time grew (a slower core), it was put off the core
(involuntary switches), or the hypervisor gave the core to somebody else (steal).
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import psutil

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

#: Of the window, the processor time withheld by the hypervisor from which on a trial is warned of. All cores together:
#: which of them were meant for this process is not known.
STEAL_SHARE = 0.05


@dataclass(frozen=True, kw_only=True)
class HostReading:
    """A look at the clocks and counters of this thread, this process and this machine."""

    wall_seconds: float
    thread_seconds: float
    """Processor time of the calling thread."""
    process_seconds: float
    """Processor time of all threads of the process."""
    involuntary_switches: int | None
    """How often the thread was put off its core while it had work; None where the system does not say."""
    voluntary_switches: int | None
    """How often it waited for something."""
    steal_seconds: float | None
    """Processor time that the hypervisor gave to others, all cores together; None where it is no Linux."""


def read_host() -> HostReading:
    """Now, for the calling thread."""
    who = getattr(resource, "RUSAGE_THREAD", None)
    usage = resource.getrusage(who) if who is not None else None
    return HostReading(
        wall_seconds=time.monotonic(), thread_seconds=time.thread_time(), process_seconds=time.process_time(),
        involuntary_switches=usage.ru_nivcsw if usage else None,
        voluntary_switches=usage.ru_nvcsw if usage else None, steal_seconds=_steal_seconds(),
    )  # fmt: skip


def between(before: HostReading, after: HostReading) -> dict[str, float]:
    """The differences by name, without what the system does not say."""
    return {
        name: later - earlier
        for name, later in vars(after).items()
        if later is not None and (earlier := getattr(before, name)) is not None
    }


def held_up(host: dict[str, float]) -> str:
    """In words where the hypervisor withheld more than `STEAL_SHARE` of the window; else nothing."""
    wall, steal = host.get("wall_seconds", 0.0), host.get("steal_seconds", 0.0)
    if not wall or steal <= STEAL_SHARE * wall:
        return ""
    return f"the hypervisor withheld processor time of {100 * steal / wall:.0f}% of the window, all cores together"


def _steal_seconds() -> float | None:
    steal = getattr(psutil.cpu_times(), "steal", None)
    return None if steal is None else float(steal)
