"""What a trial's end means: the outcome, and the sentence that explains it."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from harness.trial.outcome import TRANSIENT, Outcome
from harness.trial.processes import signal_name
from harness.trial.spec import TrialResult
from harness.trial.supervision import Ending, Why

#: As many lines of standard error are kept with a crash; each is cut, since some tracebacks print whole tensors.
_TAIL_LINES = 20
_TAIL_WIDTH = 300
#: What a rank says whose neighbour is gone: gloo, NCCL, the store of the ranks, the system.
_BROKEN = re.compile(
    r"connection ?(was |is )?(likely )?(reset|refused|closed|abort|lost|timed out)|closed by peer|broken ?pipe"
    r"|read error|got 0 bytes|nccl|gloo|remote (process|worker)|dist(store|network|backend)error"
    r"|socket (timeout|closed)|client socket|pair closure|monitoredbarrier",
    re.IGNORECASE,
)
#: torch's words (and `worker.outcome_of`'s) for a loader worker that is gone: by SIGKILL, before its signal was seen,
#: or as its batch was fetched. One that ended with an exit code was not killed.
_WORKER = re.compile(
    r"DataLoader worker \(pid(\(s\))? [\d, ]+\) (is killed by signal: Killed|exited unexpectedly(?! with exit code))"
    r"|DataLoader worker ended before its batch was fetched|Caught (ConnectionResetError|EOFError) in pin memory thread"
)
#: Where torch has the tensors that processes share.
_SHM = "/dev/shm"
#: torch's words for batches that find no room there: of the worker that hands one over, and of the process that loses
#: a worker which touched a page that does not exist.
_SHARED_MEMORY = re.compile(
    r"unable to \w+ (to )?(shared memory|file </torch_)|(insufficient|out of) shared memory"
    r"|DataLoader worker .{0,60} is killed by signal: Bus error",
    re.IGNORECASE,
)
#: What any rank may say, and then goes for the trial.
FAILURES = frozenset({Outcome.CRASH, Outcome.OOM, Outcome.UNSUPPORTED, Outcome.INTERRUPTED})


@dataclass(frozen=True, kw_only=True)
class Classified:
    """An outcome with its reason, and the child's result where it counts."""

    outcome: Outcome
    reason: str
    result: TrialResult | None = None
    warnings: tuple[str, ...] = ()
    stderr_tail: str = ""


def classify(
    ending: Ending, *, directory: Path, record_path: Path, wall_limit_seconds: float, killed_for_memory: bool
) -> Classified:
    """Decide from the result file, the ranks' ends and what we did ourselves.

    A result that was written counts, with two exceptions. That all is well, said by rank 0 of a job that lost another
    rank, is not believed (a failure is written by whichever rank failed). And what follows from a process that was
    killed (`_cause`) is not its own reason. `killed_for_memory` says that the kernel killed some process for lack of
    memory while the trial ran.
    """
    found = _classify(
        ending, directory=directory, record_path=record_path, wall_limit_seconds=wall_limit_seconds,
        killed_for_memory=killed_for_memory,
    )  # fmt: skip
    if found.outcome in TRANSIENT and _SHARED_MEMORY.search(f"{found.reason}\n{found.stderr_tail}"):
        return replace(found, reason=f"{_shared_memory()} {found.reason}")
    return found


def _classify(
    ending: Ending, *, directory: Path, record_path: Path, wall_limit_seconds: float, killed_for_memory: bool
) -> Classified:
    tail = _tail(directory, ending)
    result, unreadable = _read(record_path)
    lost_rank = ending.first_dead not in (None, 0)
    if result is not None and (result.outcome in FAILURES or not lost_rank):
        outcome, reason = _cause(result, ending, killed_for_memory)
        crashed = result.outcome is Outcome.CRASH
        return Classified(
            outcome=outcome, reason=_with(tail, reason) if crashed else reason, result=result,
            warnings=() if result.outcome in FAILURES else _afterwards(ending), stderr_tail=tail,
        )  # fmt: skip
    outcome, sentence = _without_result(ending, wall_limit_seconds, killed_for_memory)
    if unreadable:
        sentence = f"{sentence} {unreadable}"
    reason = sentence if outcome is Outcome.INTERRUPTED else _with(tail, sentence)
    return Classified(outcome=outcome, reason=reason, stderr_tail=tail)


def _shared_memory() -> str:
    """What a trial without room for its batches is told: torch waits for ever for one that got none.

    The size is that of this process's own /dev/shm, which the trial has too.
    """
    room = "its size is not known"
    with contextlib.suppress(OSError):
        disk = os.statvfs(_SHM)
        free, whole = disk.f_bavail * disk.f_frsize / 2**20, disk.f_blocks * disk.f_frsize / 2**20
        room = f"{whole:,.4g} MiB, of which {free:,.4g} are free now"
    return (
        f"{_SHM}, through which loader workers hand their batches over, was full or is too small ({room}); enlarge it "
        "(docker: --shm-size) or use fewer workers and less prefetch."
    )


def _with(tail: str, reason: str) -> str:
    return f"{reason}\n{tail}" if tail else reason


def _cause(result: TrialResult, ending: Ending, killed_for_memory: bool) -> tuple[Outcome, str]:
    """What a result says; of a crash that followed from another process's death, that death, then what it says."""
    if result.outcome is not Outcome.CRASH:
        return result.outcome, result.reason
    killed = _killed_by_a_signal(ending, killed_for_memory)
    if killed is not None and _BROKEN.search(result.reason):
        outcome, sentence = _of_a_dead_rank(ending, killed, killed_for_memory)
        return outcome, f"{sentence} The others then: {result.reason}"
    if killed_for_memory and _WORKER.search(result.reason):
        reason = f"The kernel killed a loader worker because the host ran out of memory: {result.reason}"
        return Outcome.OOM, reason
    return result.outcome, result.reason


def _without_result(ending: Ending, wall_limit_seconds: float, killed_for_memory: bool) -> tuple[Outcome, str]:
    if ending.killed is Why.STOPPED:
        return Outcome.INTERRUPTED, "The run was stopped while this trial ran."
    if ending.killed is Why.WALL_LIMIT:
        where = _ranks(ending.running)
        return Outcome.TIMEOUT, f"Not done after {wall_limit_seconds:g} s and killed; still running: {where}."
    if ending.first_dead is not None:
        return _of_a_dead_rank(ending, ending.first_dead, killed_for_memory)
    if ending.helper_lost:
        return Outcome.CRASH, "The process that starts trials ended while this trial ran; the next gets a new one."
    return Outcome.CRASH, "Ended with status 0 but wrote no result."


def _killed_by_a_signal(ending: Ending, killed_for_memory: bool) -> int | None:
    """The rank that a signal ended, where another failed too and can have written the result.

    Which of them is seen to end first says nothing: a rank whose connection breaks is gone within milliseconds. Not
    SIGABRT: a rank that waits for one that failed aborts itself. Not those that we ended.
    """
    ended = {rank: status for rank, status in enumerate(ending.statuses) if status and rank not in ending.running}
    killed = [rank for rank, status in ended.items() if status < 0 and signal_name(-status) != "SIGABRT"]
    if not killed or len(ended) + len(ending.running) == len(killed):
        return None
    for_memory = [rank for rank in killed if killed_for_memory and signal_name(-ended[rank]) == "SIGKILL"]
    return [*for_memory, *killed][0]


def _of_a_dead_rank(ending: Ending, rank: int, killed_for_memory: bool) -> tuple[Outcome, str]:
    status = ending.statuses[rank] or 0
    who = f"Rank {rank} of {len(ending.statuses)}" if len(ending.statuses) > 1 else "The process"
    after = f"; {_ranks(ending.running)} did not end by itself and was killed" if ending.running else ""
    if status >= 0:
        return Outcome.CRASH, f"{who} ended with status {status}{after}."
    if signal_name(-status) != "SIGKILL":
        return Outcome.CRASH, f"{who} was killed by {signal_name(-status)}{after}."
    if killed_for_memory:
        return Outcome.OOM, f"{who} was killed by the kernel because the host ran out of memory{after}."
    return Outcome.CRASH, f"{who} was killed by SIGKILL, sent neither by claimbench nor for lack of memory{after}."


def _afterwards(ending: Ending) -> tuple[str, ...]:
    """What went wrong once the result was written: no harm to its figures, but said."""
    warnings = []
    if ending.killed is not None and ending.running:
        warnings.append(f"{_ranks(ending.running)} did not end after the result was written and was killed")
    for rank, status in enumerate(ending.statuses):
        if status is not None and status < 0 and rank not in ending.running:
            warnings.append(f"rank {rank} was killed by {signal_name(-status)} after the result was written")
    if ending.left:
        warnings.append(f"processes {', '.join(map(str, ending.left))} did not die of SIGKILL")
    return tuple(warnings)


def _ranks(ranks: tuple[int, ...]) -> str:
    word = "rank" if len(ranks) == 1 else "ranks"
    return f"{word} {', '.join(map(str, ranks))}" if ranks else "none"


def _read(path: Path) -> tuple[TrialResult | None, str]:
    """The result, or why there is none that can be read (empty when nothing was written)."""
    try:
        return TrialResult.read(path), ""
    except FileNotFoundError:
        return None, ""
    except (OSError, ValueError) as error:
        return None, f"Its result could not be read ({error})."


def _tail(directory: Path, ending: Ending) -> str:
    """The last lines of standard error of the rank that failed first, or of rank 0."""
    candidates = [ending.first_dead, *ending.running, 0]
    for rank in dict.fromkeys(each for each in candidates if each is not None):
        lines = last_lines(directory / f"rank{rank}.stderr")
        if lines:
            return "\n".join(lines)
    return ""


def last_lines(path: Path) -> list[str]:
    """The end of a text that may be long, cut to what is worth keeping; empty where there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 65536))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line[:_TAIL_WIDTH] for line in text.strip().splitlines()[-_TAIL_LINES:]]
