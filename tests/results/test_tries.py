"""`retries: N`: what is tried again, how often, and what is kept of each try. With real processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.environment import Environment
from harness.results.collect import Options, fill
from harness.results.events import Event, TrialStarted
from harness.results.record import Record
from harness.results.store import Store
from harness.trial.launch import LocalLauncher
from harness.trial.outcome import Outcome
from harness.trial.supervision import Patience
from tests.results.plans import a_block, a_plan

CPU = Environment(cores=2)
PATIENCE = Patience(after_sigterm_seconds=0.5, after_rank_death_seconds=0.5, after_sigkill_seconds=5.0)


@pytest.fixture
def launcher() -> Iterator[LocalLauncher]:
    with LocalLauncher(gpu=False, modules=("json",), entry="tests.trial.child:main", patience=PATIENCE) as launcher:
        yield launcher


def tried(
    folder: Path, launcher: LocalLauncher, deed: str, *, retries: int,
    also: Callable[[Event], None] = lambda event: None,
) -> tuple[Record, list[int]]:  # fmt: skip
    """The record of the one arm that does `deed`, and the numbers of the tries that were begun."""
    begun = []

    def listen(event: Event) -> None:
        if isinstance(event, TrialStarted) and event.trial.arm.name == "batch_size=2":
            begun.append(event.attempt)
        also(event)

    with Store.open(folder / "results.sqlite", writable=True) as store:
        options = Options(retries=retries, wall_limit_seconds=1.5)
        fill(store, a_plan(a_block(deeds={2: deed}, rounds=1)), launcher, CPU, options=options, on_event=listen)
        (record,) = (record for record in store.records() if record.arm == "batch_size=2")
    return record, begun


def test_a_timeout_is_tried_again_and_each_try_says_when_and_how_long(tmp_path: Path, launcher: LocalLauncher) -> None:
    record, begun = tried(tmp_path, launcher, "sleep", retries=2)
    assert begun == [1, 2, 3]
    assert record.outcome is Outcome.TIMEOUT
    assert [each["outcome"] for each in record.attempts] == ["timeout", "timeout"]
    for each in record.attempts:
        assert each["reason"].startswith("Not done after 1.5 s and killed; still running: rank 0.")
        assert 1.5 <= each["wall_seconds"] < 10
    moments = [*(each["started_at"] for each in record.attempts), record.started_at]
    assert moments == sorted(set(moments))


def test_tries_end_with_the_first_that_succeeds(tmp_path: Path, launcher: LocalLauncher) -> None:
    record, begun = tried(tmp_path, launcher, "train the second time", retries=5)
    assert begun == [1, 2]
    assert record.outcome is Outcome.OK
    assert len(record.losses) == 3
    assert [each["outcome"] for each in record.attempts] == ["crash"]
    assert record.attempts[0]["reason"].endswith("RuntimeError: not the first time")


@pytest.mark.parametrize(
    ("deed", "outcome"), [("run out of memory", Outcome.OOM), ("be inert", Outcome.INERT), ("train", Outcome.OK)]
)
def test_a_result_is_not_tried_again(tmp_path: Path, launcher: LocalLauncher, deed: str, outcome: Outcome) -> None:
    record, begun = tried(tmp_path, launcher, deed, retries=5)
    assert (record.outcome, record.attempts, begun) == (outcome, [], [1])


def test_without_retries_there_is_one_try(tmp_path: Path, launcher: LocalLauncher) -> None:
    record, begun = tried(tmp_path, launcher, "raise", retries=0)
    assert (record.outcome, record.attempts, begun) == (Outcome.CRASH, [], [1])


def test_a_run_that_is_being_stopped_tries_nothing_again(tmp_path: Path, launcher: LocalLauncher) -> None:
    def stop(event: Event) -> None:
        if isinstance(event, TrialStarted) and event.trial.arm.name == "batch_size=2":
            os.kill(os.getpid(), signal.SIGINT)

    record, begun = tried(tmp_path, launcher, "raise", retries=5, also=stop)
    assert (record.outcome, record.attempts, begun) == (Outcome.CRASH, [], [1])
