"""Faults that a sweep meets at night, each really done to trials; after each the run goes on and nothing is left."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
import pytest

from harness.environment import Environment, detect
from harness.results.collect import Options, fill
from harness.results.record import Record
from harness.results.store import Store
from harness.trial.launch import ENTRY, LocalLauncher
from harness.trial.nvml import meters
from harness.trial.outcome import Outcome
from harness.trial.processes import alive
from tests.faults.driver import SMALL, TINY, short
from tests.faults.runs import CHILD, Run, check_complete
from tests.results.plans import a_block, a_plan

pytestmark = pytest.mark.train


@pytest.fixture
def launcher(session_launcher: LocalLauncher) -> LocalLauncher:
    return session_launcher


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data that the first test prepares for all."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture
def folder(tmp_path: Path, prepared: Path) -> Path:
    """Where a test's store lies."""
    (tmp_path / ".claimbench").mkdir()
    (tmp_path / ".claimbench" / "data").symlink_to(prepared)
    return tmp_path


@pytest.fixture(scope="module")
def machine() -> Environment:
    return replace(detect(), devices=())


def one_trial(
    folder: Path, launcher: LocalLauncher, machine: Environment, *, entry: str = ENTRY, limit: float = 120,
    meanwhile: Callable[[], None] = lambda: None, steps: int = 3, options: Options | None = None, **settings: Any,
) -> Record:  # fmt: skip
    """Run a block in which one cell differs by `settings`; its record. Its neighbours must be well."""
    block = a_block(sizes=(), rounds=1, workload=TINY, settings=SMALL, steps=steps)
    cell = block.baseline.cell.but(**settings)
    plan = a_plan(replace(block, arms=(replace(block.baseline, name="the cell", cell=cell),)))
    aside = threading.Thread(target=meanwhile)
    aside.start()
    with Store.open(folder / "results.sqlite", writable=True) as store:
        with mock.patch.object(launcher, "entry", entry):  # of the session's: given back whatever happens
            fill(store, plan, launcher, machine, options=options or Options(wall_limit_seconds=limit))
        aside.join()
        after = replace(block, study="after", steps=3)
        fill(store, a_plan(after), launcher, machine)
        records = list(store.records())
    assert [record.outcome for record in records[1:]] == [Outcome.OK, Outcome.OK], [each.reason for each in records]
    assert launcher._helper is None or psutil.Process(launcher._helper.zygote_pid).children(recursive=True) == []
    return records[0]


def forked(generation: int) -> psutil.Process | None:
    """A process that many forks below this one: 1 the keeper, 2 the zygote, 3 a rank, 4 a loader worker."""
    with contextlib.suppress(psutil.NoSuchProcess):  # they come and go while we look
        for process in psutil.Process().children(recursive=True):
            depth = len(process.parents()) - len(psutil.Process().parents())
            if depth == generation and "harness.trial.zygote" in process.cmdline():
                return process
    return None


def wait_for(look: Callable[[], psutil.Process | None], *, seconds: float = 60) -> psutil.Process:
    """What `look` finds, as soon as it finds something."""
    until = time.monotonic() + seconds
    while (found := look()) is None:
        assert time.monotonic() < until, "no such process appeared"
        time.sleep(0.05)
    return found


def test_a_host_without_memory_for_a_tensor(folder: Path, launcher: LocalLauncher, machine: Environment) -> None:
    record = one_trial(
        folder, launcher, machine, entry="tests.faults.entries:short_of_memory", batch_size=1024, sequence_length=1024
    )
    assert record.outcome is Outcome.OOM, record.reason
    assert record.reason == "out of host memory", record.reason


def test_a_host_without_memory_for_python(folder: Path, launcher: LocalLauncher, machine: Environment) -> None:
    record = one_trial(folder, launcher, machine, entry="tests.faults.entries:out_of_python_memory")
    assert (record.outcome, record.reason) == (Outcome.OOM, "out of host memory")


def test_a_loader_worker_that_is_killed(folder: Path, launcher: LocalLauncher, machine: Environment) -> None:
    def kill_a_loader_worker() -> None:
        wait_for(lambda: forked(4)).kill()

    record = one_trial(folder, launcher, machine, meanwhile=kill_a_loader_worker, steps=20_000, workers=1)
    assert record.outcome is Outcome.CRASH
    # torch's own watch over its workers sees it, or the batch that was being fetched from it is lost
    assert record.reason.startswith(("RuntimeError: DataLoader worker", "DataLoader worker ended before its batch"))


def test_a_rank_that_never_joins_the_others(folder: Path, launcher: LocalLauncher, machine: Environment) -> None:
    entry = "tests.faults.entries:hang_in_a_collective"
    record = one_trial(folder, launcher, machine, entry=entry, limit=5, parallel="ddp", devices=2)
    assert record.outcome is Outcome.TIMEOUT
    assert record.reason.startswith("Not done after 5 s and killed; still running: ranks 0, 1.")


def test_a_rank_that_is_killed_while_the_other_waits(
    folder: Path, launcher: LocalLauncher, machine: Environment
) -> None:
    entry = "tests.faults.entries:die_in_a_collective"
    record = one_trial(folder, launcher, machine, entry=entry, parallel="ddp", devices=2)
    assert record.outcome is Outcome.CRASH
    assert record.reason.startswith("Rank 1 of 2 was killed by SIGKILL")
    assert record.wall_seconds is not None
    assert record.wall_seconds < 60


def test_ctrl_c_once_at_a_running_command_finishes_its_trial(tmp_path: Path) -> None:
    run = Run(tmp_path, "short", CHILD)
    for _ in range(5):
        assert run.wait_for("finished") is not None
    assert run.wait_for("started") is not None
    everything = run.everything()
    os.kill(run.pid, signal.SIGINT)
    last = run.wait_for("finished")
    assert last is not None
    assert last.endswith(" ok")
    assert run.finish() == 130
    assert [pid for pid in everything if alive(pid)] == []
    assert Run(tmp_path, "short", CHILD).finish() == 0
    check_complete(tmp_path, short())


def test_ctrl_c_twice_at_a_running_command_stops_it_now(tmp_path: Path) -> None:
    run = Run(tmp_path, "sleepers", CHILD)
    assert run.wait_for("started") is not None
    everything = run.everything()
    os.kill(run.pid, signal.SIGINT)
    time.sleep(0.5)  # two signals at once are one to the kernel
    os.kill(run.pid, signal.SIGINT)
    last = run.wait_for("finished")
    assert last is not None
    assert last.endswith(" interrupted")
    assert run.finish() == 130
    assert [pid for pid in everything if alive(pid)] == []


@pytest.mark.gpu
def test_a_cell_that_is_out_of_device_memory_leaves_the_device_as_it_was(folder: Path) -> None:
    machine = detect()
    options = Options(meters=meters(device.uuid for device in machine.devices))
    used_before = options.meters[0].read().used_bytes
    with LocalLauncher(gpu=True) as launcher:
        record = one_trial(folder, launcher, machine, options=options, batch_size=4096, sequence_length=8192)
        used_after = options.meters[0].read().used_bytes
    assert record.outcome is Outcome.OOM
    assert record.peak_device_bytes is not None
    assert used_before is not None
    assert used_after is not None
    assert abs(used_after - used_before) < 32 << 20


@pytest.mark.gpu
def test_a_kill_of_a_trial_on_the_device_gives_its_memory_back(folder: Path) -> None:
    machine = detect()
    (meter, *_) = meters(device.uuid for device in machine.devices)
    used_before = meter.read().used_bytes or 0

    def on_the_device() -> psutil.Process | None:
        if launcher._helper is None:  # not ready: what uses the device is the child that tries whether it can
            return None
        return forked(3) if (meter.read().used_bytes or 0) > used_before + (100 << 20) else None

    def kill_it() -> None:
        wait_for(on_the_device).kill()

    with LocalLauncher(gpu=True) as launcher:
        record = one_trial(folder, launcher, machine, meanwhile=kill_it, steps=20_000)
    assert record.outcome is Outcome.CRASH
    assert record.reason.startswith("The process was killed by SIGKILL")
    assert abs((meter.read().used_bytes or 0) - used_before) < 32 << 20
