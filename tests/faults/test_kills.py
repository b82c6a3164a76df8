"""kill -9 of a run in the middle: nothing survives it, nothing is lost, and the next run completes it."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.results.collect import fill
from harness.results.store import Store
from harness.trial.launch import LocalLauncher
from harness.trial.processes import alive
from tests.faults.driver import PLANS, environment, short
from tests.faults.runs import CHILD, Run, check_complete, losses
from tests.trial.notes import living, wait_for_notes

#: 20 in CI (and few of trials that import torch, which take minutes there), 200 of either before a release.
KILLS = int(os.environ.get("CLAIMBENCH_KILLS", "20"))
KILLS_OF_REAL_TRIALS = int(os.environ.get("CLAIMBENCH_KILLS", "2"))
PLAN_OF_REAL_TRIALS = "real" if "CLAIMBENCH_KILLS" in os.environ else "few"


def test_no_child_or_grandchild_survives_a_kill_of_the_run(tmp_path: Path) -> None:
    run = Run(tmp_path, "sleepers", CHILD)
    assert run.wait_for("started") is not None
    (trial,) = wait_for_folder(tmp_path / ".claimbench" / "stores" / "results.sqlite" / "trials")
    noted = wait_for_notes(trial, 4)
    assert run.kill() == []
    assert [pid for pid in noted if alive(pid)] == []
    assert living(trial) == []


def test_a_kill_before_the_first_trial_leaves_nothing_either(tmp_path: Path) -> None:
    run = Run(tmp_path, "few")
    assert run.wait_for("started") is not None  # asked for; the helper is still importing
    while run.helper() is None:
        time.sleep(0.01)
    assert run.kill() == []


def test_a_killed_run_is_completed_by_the_next_and_a_third_starts_nothing(tmp_path: Path) -> None:
    run = Run(tmp_path, "short", CHILD)
    for _ in range(4):
        assert run.wait_for("finished") is not None
    assert run.wait_for("started") is not None
    assert run.kill() == []
    with Store.open(tmp_path / "results.sqlite") as store:
        kept = [record.identity for record in store.records()]
    assert len(kept) in (4, 5)  # the fifth may have ended before the signal came
    assert Run(tmp_path, "short", CHILD).finish() == 0
    records = check_complete(tmp_path, short())
    with Store.open(tmp_path / "results.sqlite") as store:
        assert [record.identity for record in store.records()][: len(kept)] == kept, "nothing was removed"
    third = Run(tmp_path, "short", CHILD)
    assert third.finish() == 0
    assert [line for line in third.lines if line.startswith("started")] == []
    same_cell = [record.losses for record in records if record.round == 1 and record.baseline]
    assert same_cell[0] == same_cell[1], "baseline and control are the same computation"


@pytest.mark.timeout(7200)
def test_random_kills_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    survive_kills(tmp_path, "quick", CHILD, kills=KILLS)
    undisturbed = tmp_path / "undisturbed"
    undisturbed.mkdir()
    assert Run(undisturbed, "quick", CHILD).finish() == 0
    compare_with(undisturbed, tmp_path, "quick")


@pytest.mark.train
@pytest.mark.timeout(7200)
def test_random_kills_of_real_trials(tmp_path: Path, session_launcher: LocalLauncher) -> None:
    survive_kills(tmp_path, PLAN_OF_REAL_TRIALS, kills=KILLS_OF_REAL_TRIALS)
    with Store.open(tmp_path / "undisturbed" / "results.sqlite", writable=True) as store:
        fill(store, PLANS[PLAN_OF_REAL_TRIALS](), session_launcher, environment(PLAN_OF_REAL_TRIALS))
    compare_with(tmp_path / "undisturbed", tmp_path, PLAN_OF_REAL_TRIALS)


def compare_with(undisturbed: Path, tmp_path: Path, plan: str) -> None:
    """A run that was killed and resumed has the same trials, once each, with the same losses as an undisturbed one."""
    expected = losses(check_complete(undisturbed, PLANS[plan]()))
    killed = list(tmp_path.glob("killed-*"))
    assert killed
    for folder in killed:
        assert losses(check_complete(folder, PLANS[plan]())) == expected


def survive_kills(tmp_path: Path, plan: str, *entry: str, kills: int) -> None:
    """So many kills at random moments of a run, resumed each time; then the run, undisturbed, to its end.

    A run that is complete before all kills are spent is followed by one with a fresh store.
    """
    draw = random.Random(2026)
    hits = victims(draw)
    folders = (tmp_path / f"killed-{number}" for number in range(kills))
    left = kills
    while left:
        folder = next(folders)
        folder.mkdir()
        complete = False
        while not complete and left:
            complete, spent = disturb(Run(folder, plan, *entry), hits, draw, left)
            left -= spent
        assert complete or Run(folder, plan, *entry).finish() == 0


def victims(draw: random.Random) -> Iterator[str]:
    while True:
        yield draw.choice(["run", "keeper", "zygote", "rank"])


def disturb(run: Run, hits: Iterator[str], draw: random.Random, left: int) -> tuple[bool, int]:
    """Kill parts of one run until the run itself is hit or ends; whether it ended by itself, and how many kills."""
    spent = 0
    while spent < left:
        for _ in range(draw.randint(1, 4)):
            if run.wait_for("started") is None:
                assert run.process.wait() == 0, run.lines[-1]
                return True, spent
        time.sleep(draw.uniform(0.0, 0.4))
        victim = next(hits)
        spent += strike(run, victim)
        if victim == "run":
            return False, spent
    return run.finish() == 0, spent


def strike(run: Run, victim: str) -> bool:
    """One SIGKILL; False when there was nobody to hit just then."""
    if victim == "run":
        assert run.kill() == []
        return True
    helper = run.helper() if run.process.poll() is None else None
    if helper is None:
        return False
    ranks = run.everything()[3:]
    pid = {"keeper": helper[0], "zygote": helper[1], "rank": ranks[0] if ranks else None}[victim]
    if pid is None or not alive(pid):
        return False
    os.kill(pid, signal.SIGKILL)
    return True


def wait_for_folder(parent: Path) -> list[Path]:
    while not parent.is_dir() or not list(parent.iterdir()):
        time.sleep(0.02)
    return list(parent.iterdir())
