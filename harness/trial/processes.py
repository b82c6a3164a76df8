"""Processes on Linux: tie a child to its parent, find and kill every process that a trial left, read how one ended."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NoReturn

from harness.errors import LaunchError

# Options of prctl(2), from <linux/prctl.h>.
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

#: Python that imports nothing from the working folder, which is the user's: neither its `torch.py` nor its `shadow.py`.
PYTHON = (sys.executable, "-P")


def interpreter(module: str) -> list[str]:
    """The command of a fresh interpreter that runs one of our modules."""
    return [*PYTHON, "-m", module]


def findable(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment`, for an `interpreter` to find us where claimbench is not installed: in the working folder."""
    ours = Path(__file__).resolve().parents[2]
    if ours != Path.cwd():
        return dict(environment)
    return {**environment, "PYTHONPATH": os.pathsep.join(filter(None, [environment.get("PYTHONPATH"), str(ours)]))}


def die_with_parent(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel send `number` to this process when its parent ends, however that happens.

    `parent` is the process id that the caller expects. The kernel watches only from this call on, so a parent that died
    before it is noticed here. The signal also comes when merely the *thread* of the parent that forked this process
    ends (prctl(2)).

    Raises:
        LaunchError: not on Linux.
    """
    _prctl(_PR_SET_PDEATHSIG, int(number))
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends, so that none can slip out of `descendants`.

    Raises:
        LaunchError: not on Linux.
    """
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def descendants(pid: int) -> list[int]:
    """Ids of the living processes under `pid`, whatever their group or session. Empty when there is no such process."""
    import psutil

    try:
        children = psutil.Process(pid).children(recursive=True)
        return [child.pid for child in children if child.status() != psutil.STATUS_ZOMBIE]
    except psutil.NoSuchProcess:
        return []


def signal_group(group: int, number: signal.Signals) -> None:
    """Send a signal to a whole process group; one that is gone already is no error."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        # PermissionError: the id has been recycled by another user's process, so it is not ours any more.
        return


def kill(pids: Iterable[int]) -> None:
    """Send SIGKILL to each; one that is gone already is no error."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


def alive(pid: int) -> bool:
    """Whether the process runs still; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in {"Z", "X"}


def wait_until_gone(pids: Iterable[int], *, seconds: float) -> list[int]:
    """Wait until none of the processes runs any more; return those that still do after `seconds`.

    Polls: they need not be children of the caller, and the wait is over in milliseconds after SIGKILL.
    """
    until = time.monotonic() + seconds
    left = [pid for pid in pids if alive(pid)]
    while left and time.monotonic() < until:
        time.sleep(0.02)
        left = [pid for pid in left if alive(pid)]
    return left


def signal_name(number: int) -> str:
    """`SIGSEGV` for 11; `signal 99` for a number without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def memory_kills() -> int:
    """How many processes the kernel has killed for lack of host memory since boot, in this machine and control group.

    Compare two readings: a rise says that a SIGKILL in between may have been the out-of-memory killer's.
    """
    counters = [Path("/proc/vmstat"), *_control_group_events()]
    return sum(_counter(path, "oom_kill") for path in counters)


def leave(status: int) -> NoReturn:
    """End this process of a trial with `status`, at once.

    The interpreter's own end destroys what libraries hold, and now and then aborts there: "terminate called without an
    active exception", from a thread of the process group (gloo, torch 2.13: one of some twenty trials of two ranks).
    The result is written by then, and a rank that ends by a signal makes a crash of it. Worker processes of a loader
    are ended here, as the interpreter would do.
    """
    try:
        for child in multiprocessing.active_children():
            child.terminate()
    finally:
        end(status)


def end(status: int) -> NoReturn:
    """End this process with `status` and nothing else, once what it said is written."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # a full disk, a closed pipe
            stream.flush()
    os._exit(status)


def free_port() -> int:
    """A TCP port of the loopback interface that nothing listened on a moment ago."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _prctl(option: int, value: int) -> None:
    if sys.platform != "linux":
        raise LaunchError("Trials run on Linux only: their processes are tied to the run by prctl(2).")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise LaunchError(f"prctl({option}) failed ({os.strerror(code)}); trials cannot be tied to this run.")


def _control_group_events() -> list[Path]:
    """`memory.events` (version 2) or `memory.oom_control` (version 1) of this process's control group."""
    found = []
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            found.append(Path("/sys/fs/cgroup") / path.lstrip("/") / "memory.events")
        elif "memory" in controllers.split(","):
            found.append(Path("/sys/fs/cgroup/memory") / path.lstrip("/") / "memory.oom_control")
    return found


def _counter(path: Path, name: str) -> int:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    pairs = (line.split() for line in lines)
    return sum(int(pair[1]) for pair in pairs if len(pair) == 2 and pair[0] == name and pair[1].isdigit())
