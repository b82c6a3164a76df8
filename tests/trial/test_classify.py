"""What a trial's end means, where several ranks end in different ways."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.trial import torchrun
from harness.trial.classify import _SHARED_MEMORY, _WORKER, Classified, classify
from harness.trial.outcome import Outcome
from harness.trial.spec import TrialResult
from harness.trial.supervision import Ending, Why

BROKEN = "RuntimeError: Connection closed by peer [127.0.0.1]:34101"
KILLED, ABORTED, SEGMENTATION_FAULT = -9, -6, -11


def of(
    folder: Path, ending: Ending, says: str = BROKEN, *, outcome: Outcome = Outcome.CRASH, for_memory: bool = False
) -> Classified:
    path = folder / "result.json"
    TrialResult(outcome=outcome, reason=says).write(path)
    return classify(ending, directory=folder, record_path=path, wall_limit_seconds=1, killed_for_memory=for_memory)


def test_a_rank_killed_for_memory_makes_the_trial_out_of_memory(tmp_path: Path) -> None:
    found = of(tmp_path, Ending(statuses=(1, KILLED), first_dead=1), for_memory=True)
    assert found.outcome is Outcome.OOM
    assert found.reason == (
        "Rank 1 of 2 was killed by the kernel because the host ran out of memory. "
        f"The others then: {BROKEN}"
    )  # fmt: skip


@pytest.mark.parametrize("seen_first", [0, 1])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_broke_is_the_cause_of_the_broken_connection(tmp_path: Path, rank: int, seen_first: int) -> None:
    """Both are gone by the time that the helper looks: a test of two ranks failed in 7 of 36 runs beside others."""
    statuses = (SEGMENTATION_FAULT, 1) if rank == 0 else (1, SEGMENTATION_FAULT)
    found = of(tmp_path, Ending(statuses=statuses, first_dead=seen_first))
    assert found.outcome is Outcome.CRASH
    assert found.reason.startswith(f"Rank {rank} of 2 was killed by SIGSEGV.")


def test_the_others_may_still_hang_when_they_are_killed(tmp_path: Path) -> None:
    ending = Ending(statuses=(-15, SEGMENTATION_FAULT), first_dead=1, killed=Why.PEER_DIED, running=(0,))
    assert of(tmp_path, ending).reason.startswith("Rank 1 of 2 was killed by SIGSEGV; rank 0 did not end by itself")


@pytest.mark.parametrize(
    "ending",
    [
        Ending(statuses=(1, ABORTED), first_dead=1),
        Ending(statuses=(1, 1), first_dead=1),
        Ending(statuses=(SEGMENTATION_FAULT,), first_dead=0),
        Ending(statuses=(1, -15), first_dead=0, killed=Why.PEER_DIED, running=(1,)),
    ],
    ids=["aborted since the other failed", "both failed", "alone, after it had written", "ended by us"],
)
def test_otherwise_the_rank_that_failed_has_said_why(tmp_path: Path, ending: Ending) -> None:
    assert of(tmp_path, ending).reason == BROKEN


def test_another_error_than_a_broken_connection_is_the_cause_itself(tmp_path: Path) -> None:
    ending = Ending(statuses=(1, SEGMENTATION_FAULT), first_dead=1)
    found = of(tmp_path, ending, "ValueError: a wrong shape", for_memory=True)
    assert (found.outcome, found.reason) == (Outcome.CRASH, "ValueError: a wrong shape")


@pytest.mark.parametrize(
    "says",
    [
        "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed. ",
        "RuntimeError: DataLoader worker (pid(s) 4711, 4712) exited unexpectedly",
        "DataLoader worker ended before its batch was fetched: [Errno 104] Connection reset by peer",
    ],
)
@pytest.mark.parametrize(("for_memory", "outcome"), [(True, Outcome.OOM), (False, Outcome.CRASH)])
def test_a_loader_worker_that_the_kernel_killed_for_memory(
    tmp_path: Path, for_memory: bool, outcome: Outcome, says: str
) -> None:
    found = of(tmp_path, Ending(statuses=(1,), first_dead=0), says, for_memory=for_memory)
    assert found.outcome is outcome
    assert found.reason.endswith(says)
    assert ("the host ran out of memory" in found.reason) == for_memory


def test_a_loader_worker_that_ended_by_itself_was_not_killed(tmp_path: Path) -> None:
    says = "RuntimeError: DataLoader worker (pid 4711) exited unexpectedly with exit code 1. Details are lost."
    found = of(tmp_path, Ending(statuses=(1,), first_dead=0), says, for_memory=True)
    assert (found.outcome, found.reason) == (Outcome.CRASH, says)


def test_of_two_ranks_that_signals_ended_the_one_killed_for_memory_counts(tmp_path: Path) -> None:
    ending = Ending(statuses=(SEGMENTATION_FAULT, 1, KILLED), first_dead=0)
    found = of(tmp_path, ending, for_memory=True)
    assert found.outcome is Outcome.OOM
    assert found.reason.startswith("Rank 2 of 3 was killed by the kernel")
    assert of(tmp_path, ending).reason.startswith("Rank 0 of 3 was killed by SIGSEGV")


@pytest.mark.parametrize(
    ("says", "broken"),
    [
        (BROKEN, True),
        ("RuntimeError: [gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:50597: Connection reset by peer", True),
        ("DistBackendError: NCCL error: remote process exited or there was a network error", True),
        ("DistStoreError: wait timeout after 300000ms, keys: /default_pg/0//0", True),
        ("DistNetworkError: failed to recv, got 0 bytes", True),
        ("RuntimeError: The client socket has timed out after 60s while trying to connect to (127.0.0.1, 2950).", True),
        ("TimeoutError: [Errno 110] Connection timed out", True),
        ("ConnectionAbortedError: [Errno 103] Software caused connection abort", True),
        ("ConnectionResetError: no message", True),
        ("OSError: Socket closed", True),
        ("RuntimeError: WorkNCCL(SeqNum=3, OpType=ALLREDUCE) ran for 600000 milliseconds before timing out.", True),
        ("RuntimeError: ncclRemoteError: A call failed possibly due to a network error", True),
        ("HFValidationError: 'remote/x' is not a local folder", False),
        ("ValueError: a wrong shape", False),
        ("OSError: no socket_options.json in the model folder", False),
    ],
)
def test_words_of_a_broken_connection(tmp_path: Path, says: str, broken: bool) -> None:
    found = of(tmp_path, Ending(statuses=(1, SEGMENTATION_FAULT), first_dead=0), says, for_memory=False)
    assert found.reason.startswith("Rank 1 of 2 was killed by SIGSEGV") == broken
    assert says in found.reason


@pytest.mark.train
def test_torch_still_says_it_in_these_words() -> None:
    from torch.utils.data import DataLoader

    with pytest.raises(RuntimeError, match=_WORKER.pattern):
        next(iter(DataLoader(_Killed(), num_workers=1)))  # type: ignore[arg-type]


class _Killed:
    """A dataset whose worker is killed."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return index


def test_an_error_of_memory_that_a_rank_saw_itself_stands(tmp_path: Path) -> None:
    found = of(tmp_path, Ending(statuses=(1, SEGMENTATION_FAULT), first_dead=1), outcome=Outcome.OOM)
    assert (found.outcome, found.reason) == (Outcome.OOM, BROKEN)


@pytest.mark.parametrize("outcome", [Outcome.OOM, Outcome.UNSUPPORTED, Outcome.INTERRUPTED])
def test_what_another_rank_than_the_first_wrote_is_the_trials_also_over_several_nodes(
    tmp_path: Path, outcome: Outcome
) -> None:
    found = of(tmp_path, Ending(statuses=(1, 1), first_dead=1), "so it is", outcome=outcome)
    assert (found.outcome, found.reason) == (outcome, "so it is")
    written = tmp_path / "result.json"
    TrialResult(outcome=outcome, reason="so it is").write(written)
    assert torchrun._ending(1, None, written, 60)[:2] == (outcome, "so it is")


@pytest.mark.parametrize(
    ("status", "why", "wrote", "wanted"),
    [
        (0, None, Outcome.OK, (Outcome.OK, "")),
        (0, None, Outcome.INERT, (Outcome.INERT, "as it says")),
        (0, None, None, (Outcome.CRASH, "Ended with status 0 but wrote no result.")),
        # rank 0 was done, and another one was lost
        (1, None, Outcome.OK, (Outcome.CRASH, "torchrun ended with status 1.")),
        (1, None, Outcome.OOM, (Outcome.OOM, "as it says")),
        (-15, Outcome.TIMEOUT, Outcome.OK, (Outcome.TIMEOUT, "Not done after 60 s and killed, on every node.")),
        (-15, Outcome.INTERRUPTED, None, (Outcome.INTERRUPTED, "The run was stopped while this trial ran.")),
    ],
)
def test_over_several_nodes_that_all_is_well_needs_all_of_them(
    tmp_path: Path, status: int, why: Outcome | None, wrote: Outcome | None, wanted: tuple[Outcome, str]
) -> None:
    written = tmp_path / "result.json"
    if wrote is not None:
        TrialResult(outcome=wrote, reason="" if wrote is Outcome.OK else "as it says").write(written)
    assert torchrun._ending(status, why, written, 60)[:2] == wanted


NO_ROOM = "RuntimeError: unable to allocate shared memory(shm) for file </torch_18_23_0>: No space left on device (28)"
BUS_ERROR = (
    "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Bus error. It is possible that dataloader's "
    "workers are out of shared memory. Please try to raise your shared memory limit."
)
NAMED = "/dev/shm, through which loader workers hand their batches over, was full or is too small ("


def test_a_trial_that_waits_for_a_batch_for_which_there_was_no_room_names_dev_shm(tmp_path: Path) -> None:
    (tmp_path / "rank0.stderr").write_text(f"Traceback\n{NO_ROOM}\n")
    ending = Ending(statuses=(-15,), killed=Why.WALL_LIMIT, running=(0,))
    found = classify(
        ending, directory=tmp_path, record_path=tmp_path / "none", wall_limit_seconds=120, killed_for_memory=False
    )
    disk = os.statvfs("/dev/shm")
    assert found.outcome is Outcome.TIMEOUT
    assert found.reason.startswith(f"{NAMED}{disk.f_blocks * disk.f_frsize / 2**20:,.4g} MiB, of which ")
    assert "or use fewer workers and less prefetch. Not done after 120 s and killed; still running" in found.reason
    assert found.reason.endswith(NO_ROOM)


@pytest.mark.parametrize(
    ("says", "is_it"),
    [
        (BUS_ERROR, True),
        ("ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory", True),
        ("RuntimeError: unable to write to file </torch_18_23_0>: No space left on device (28)", True),
        ("RuntimeError: unable to mmap 1024 bytes from file <model.bin>: Cannot allocate memory (12)", False),
        ("RuntimeError: CUDA error: out of memory; shared memory of the block: 48 KiB", False),
    ],
)
def test_words_of_a_full_dev_shm(tmp_path: Path, says: str, is_it: bool) -> None:
    found = of(tmp_path, Ending(statuses=(1,), first_dead=0), says)
    assert found.outcome is Outcome.CRASH
    assert found.reason.startswith(NAMED) == is_it
    assert found.reason.endswith(says)


def test_a_result_is_not_blamed_on_what_a_loader_said(tmp_path: Path) -> None:
    (tmp_path / "rank0.stderr").write_text(NO_ROOM)
    found = of(tmp_path, Ending(statuses=(0,)), "", outcome=Outcome.OK)
    assert (found.outcome, found.reason) == (Outcome.OK, "")


@pytest.mark.train
def test_torch_still_says_that_dev_shm_is_full_in_these_words() -> None:
    """In a mount namespace of its own, where /dev/shm is 64 KiB."""
    program = "import torch; torch.ones(1 << 20).share_memory_()"
    mount = "mount -t tmpfs -o size=64k tmpfs /dev/shm || exit 99"
    said = subprocess.run(
        ["unshare", "-m", "sh", "-c", f'{mount}; exec "$0" -c "{program}"', sys.executable],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if said.returncode == 99 or "unshare" in said.stderr:
        pytest.skip("no file system may be mounted here")
    assert said.returncode == 1
    assert _SHARED_MEMORY.search(said.stderr)
