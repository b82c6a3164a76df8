"""Host memory of loader workers: what prefetching fills, seen from outside (pytorch#97432)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.environment import Environment
from harness.experiment.cell import Workload
from harness.results.collect import fill
from harness.results.store import Store
from harness.trial.launch import LocalLauncher
from harness.trial.loader_memory import LoaderMemory, bytes_of, peak_within
from harness.trial.processes import descendants
from tests.results.plans import a_block, a_plan

MIB = 1 << 20

LOADER = """
import sys, time
from pathlib import Path
from harness.trial.batching import LoaderSettings
from harness.trial.corpus import prepare
from harness.trial.data import make_loader
from tests.training import spec_of

spec = spec_of(workers=2, prefetch=int(sys.argv[1]), batch_size=256, sequence_length=1024)
folder = prepare(spec.data, 512, Path(spec.data_directory))
# none is taken: until the first comes, batches of the faster worker go to the training process, which has them mapped
loader = iter(make_loader(folder, LoaderSettings.of(spec.settings), seed=1, rank=0, batches=400))
print("ready", flush=True)
time.sleep(100)
"""


@contextmanager
def running(code: str, *arguments: str) -> Iterator[int]:
    """A process that has said that it is ready."""
    process = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process.pid
    finally:
        process.kill()
        process.wait()


def settled(pid: int, at_least: int = 0) -> int:
    """Bytes below a process once they no longer grow for three looks, and are about what they must come to; on a busy
    machine workers pause for longer than a look. After a minute they are taken as they are."""
    looks, until = [-MIB, 0, MIB], time.monotonic() + 60
    while (max(looks) - min(looks) > MIB // 4 or looks[-1] < at_least) and time.monotonic() < until:
        time.sleep(0.7)
        looks = [*looks[1:], bytes_of(descendants(pid))]
    return looks[-1]


@pytest.mark.train
def test_batches_that_wait_for_the_training_are_counted() -> None:
    batch = 256 * 1024 * 8  # tokens of 8 bytes
    more = 2 * 30 * batch  # 30 batches for each of 2 workers
    if shutil.disk_usage("/dev/shm").free < 2 * more:
        pytest.skip("shared memory has no room for this many batches")
    # side by side: a share of pages changes with every other process that maps the same libraries
    with running(LOADER, "2") as small, running(LOADER, "32") as large:
        settled(large, at_least=settled(small) + int(0.9 * more))
        few, many = (bytes_of(descendants(pid)) for pid in (small, large))
    # the batches once, not twice; beside them a worker that makes them faster than it hands them on keeps up to 20 MiB
    # of its heap for more
    assert 0.95 * more < many - few < 1.5 * more


HOLDER = """
import os, sys, time
from pathlib import Path
segment = Path("/dev/shm") / f"claimbench-test-{os.getpid()}"
file = segment.open("w+b")
segment.unlink()
file.write(bytes(16 << 20)); file.flush()
if os.fork() == 0:
    time.sleep(100)
print("ready", flush=True)
time.sleep(100)
"""


def test_a_segment_counts_once_however_many_hold_it() -> None:
    with running(HOLDER) as pid:
        child = descendants(pid)
        alone, both = bytes_of(child), bytes_of([pid, *child])
        os.kill(child[0], 9)
        assert 16 * MIB <= alone < 40 * MIB
        assert alone < both < alone + 16 * MIB


SHARER = """
import mmap, os, time
shared = mmap.mmap(-1, 32 << 20)
shared.write(bytes(32 << 20))
ours, theirs = os.pipe()
if os.fork() == 0:
    sum(shared[offset] for offset in range(0, 32 << 20, 4096))
    os.write(theirs, b"x")
    time.sleep(100)
os.read(ours, 1)
print("ready", flush=True)
time.sleep(100)
"""


def test_memory_that_two_processes_map_is_divided_between_them() -> None:
    with running(SHARER) as pid:
        (child,) = descendants(pid)
        alone, both = bytes_of([child]), bytes_of([pid, child])
        os.kill(child, 9)
    assert 16 * MIB <= alone < 28 * MIB
    assert 32 * MIB <= both < 50 * MIB


def test_a_process_that_is_gone_counts_nothing() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert bytes_of([gone.pid]) == 0


def test_the_window_decides_what_counts() -> None:
    readings = [(1.0, 50), (2.0, 10), (3.0, 30), (4.0, 90)]
    assert peak_within(readings, (1.5, 3.5)) == 30
    assert peak_within(readings, (2.1, 2.3)) == 10, "the nearest look where none lies inside"
    assert peak_within(readings, None) is None
    assert peak_within([], (1.0, 2.0)) is None


def test_it_looks_below_the_ranks_and_not_at_them() -> None:
    with running(HOLDER) as pid:
        memory = LoaderMemory(interval_seconds=0.05)
        memory.follow((pid,))
        time.sleep(2.0)
        readings = memory.end()
        below = bytes_of(descendants(pid))
    assert len(readings) >= 3
    assert readings[-1][1] == pytest.approx(below, rel=0.1)
    assert LoaderMemory().end() == [], "it never followed anybody"


@pytest.mark.train
def test_a_record_keeps_what_its_loader_held(tmp_path: Path) -> None:
    workload = Workload(name="small", model="tiny", data="synthetic")
    settings = {"sequence_length": 64, "stream": "cached", "cost_per_sample_ms": 60.0}
    block = a_block(workload=workload, rounds=1, steps=40, settings=settings)
    with_workers = [arm.cell.but(workers=2) if arm.name.startswith("batch") else arm.cell for arm in block.arms]
    arms = tuple(type(arm)(name=arm.name, role=arm.role, cell=cell)
                 for arm, cell in zip(block.arms, with_workers, strict=True))  # fmt: skip
    plan = a_plan(type(block)(**{**vars(block), "arms": arms}))
    cpu = Environment(cores=2, processor="a CPU")
    with Store.open(tmp_path / "s.sqlite", writable=True) as store, LocalLauncher(gpu=False) as launcher:
        fill(store, plan, launcher, cpu)
        by_arm = {record.arm: record for record in store.records()}
    cell, baseline = by_arm["batch_size=2"], by_arm["baseline"]
    assert (cell.outcome, baseline.outcome) == ("ok", "ok"), (cell.reason, baseline.reason)
    assert cell.figures["peak_loader_bytes"] > MIB
    assert "peak_loader_bytes" not in baseline.figures, "it has no workers"
    assert cell.peak_host_bytes is not None
