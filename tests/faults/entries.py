"""Entries of trial processes that meet a fault of their surroundings, then do what the real worker does."""

from __future__ import annotations

import os
import resource
import signal
import time
from pathlib import Path

from harness.environment import Environment
from harness.trial.ranks import Ranks
from harness.trial.spec import TrialResult, TrialSpec


def short_of_memory(spec_path: Path) -> int:
    """The real worker on a host with a gigabyte left for it."""
    from harness.trial import worker

    used_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used_bytes + 2**30, used_bytes + 2**30))
    return worker.main(spec_path)


def out_of_python_memory(spec_path: Path) -> int:
    """The real worker, in whose trial Python itself gets no more memory."""
    from harness.trial import worker
    from harness.trial.kinds import training

    training.run = _devour
    return worker.main(spec_path)


def _devour(spec: TrialSpec, ranks: Ranks, environment: Environment) -> TrialResult:
    raise AssertionError(bytearray(2**62))


def hang_in_a_collective(spec_path: Path) -> int:
    """Rank 0 waits for a batch that rank 1 never has."""
    rank = _connect()
    if rank == 1:
        time.sleep(600)
    _all_reduce()
    return 0


def die_in_a_collective(spec_path: Path) -> int:
    """Rank 1 is killed while rank 0 waits for it."""
    rank = _connect()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    _all_reduce()
    return 0


def _connect() -> int:
    import torch.distributed as dist

    dist.init_process_group("gloo")
    return int(dist.get_rank())


def _all_reduce() -> None:
    import torch
    import torch.distributed as dist

    for _ in range(3):
        dist.all_reduce(torch.ones(4))
