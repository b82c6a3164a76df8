"""The first gradient of a cell is compared in its first round that ends ok: a round that fails hides no wrong mask."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from harness.environment import Environment
from harness.experiment.order import trial_seed
from harness.experiment.study import Plan
from harness.results.carrier import Orders
from harness.results.collect import fill
from harness.results.record import Record
from harness.results.rounds import rounds_of
from harness.results.side_by_side import SideBySide
from harness.results.slurm.job import Job, errand_of
from harness.results.slurm.node import Outbox
from harness.results.store import Store
from harness.results.workplace import Workplace
from harness.trial.interrupts import Interrupts
from harness.trial.launch import LocalLauncher
from harness.trial.outcome import Outcome
from tests.records import many_records
from tests.results.plans import a_block, a_plan

CPU = Environment(cores=2, processor="a CPU", packages={"torch": "2.13.0"})
CELL = "batch_size=2"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "results.sqlite", writable=True) as store:
        yield store


@pytest.fixture
def launcher() -> Iterator[LocalLauncher]:
    with LocalLauncher(gpu=False, modules=("json",), entry="tests.trial.child:main") as launcher:
        yield launcher


def plan_of(rounds: int, failing: Sequence[int] = ()) -> Plan:
    """A cell that crashes in some rounds, with a baseline and a control that never do."""
    seeds = [trial_seed("study", number) for number in failing]
    return a_plan(a_block(deeds={1: "train", 2: "look"}, rounds=rounds, options={"failing_seeds": seeds}))


def checked(store: Store) -> list[int]:
    return sorted(record.round for record in store.records() if record.arm == CELL and record.gradient_check)


@pytest.mark.parametrize(
    ("failing", "looked"), [((), [1]), ((1,), [2]), ((1, 2), [3]), ((2,), [1]), ((1, 2, 3, 4), [])]
)
def test_it_is_looked_for_until_a_round_has_shown_it(
    failing: tuple[int, ...], looked: list[int], store: Store, launcher: LocalLauncher
) -> None:
    fill(store, plan_of(4, failing), launcher, CPU)
    assert checked(store) == looked
    for record in store.records():
        if not record.gradient_check and record.outcome is Outcome.CRASH:
            assert record.missing["gradient_check"] == "the trial ended as crash"


def test_a_run_that_goes_on_later_looks_where_the_first_could_not(store: Store, launcher: LocalLauncher) -> None:
    whole = plan_of(3, failing=(1,))
    first = replace(whole, trials=tuple(each for each in whole.trials if each.round == 1))
    fill(store, first, launcher, CPU)
    assert checked(store) == []
    fill(store, whole, launcher, CPU)
    assert checked(store) == [2]


def test_lanes_look_too(store: Store) -> None:
    from harness.results.collect import Options, fill_by

    carrier = SideBySide(
        environment=CPU, workplace=Workplace.beside(store.path),
        make_launcher=lambda variables: LocalLauncher(gpu=False, modules=("json",), entry="tests.trial.child:main"),
    )  # fmt: skip
    fill_by(carrier, store, plan_of(3, failing=(1,)), CPU, options=Options())
    assert checked(store) == [2]


def record_of(arm: str, block: str, **fields: object) -> Record:
    return replace(many_records(1)[0], arm=arm, block=block, **fields)  # type: ignore[arg-type]


WHAT_COUNTS = pytest.mark.parametrize(
    ("outcome", "check", "owed"),
    [
        (Outcome.OK, {"error": 0.1, "eager_error": 0.1}, False),
        (Outcome.OK, {"skipped": "lora: another set of weights is trained"}, False),
        (Outcome.OK, {}, True),
        (Outcome.INVALID, {"error": 0.1, "eager_error": 0.1}, False),
        (Outcome.INERT, {"error": 0.1, "eager_error": 0.1}, True),
        (Outcome.TIMEOUT, {}, True),
    ],
)


@WHAT_COUNTS
def test_a_job_that_was_sent_all_rounds_at_once_looks_in_the_next(
    outcome: Outcome, check: dict[str, object], owed: bool, tmp_path: Path
) -> None:
    rounds = list(rounds_of(plan_of(3), CPU))
    arms = [trial.arm.name for trial in rounds[0].trials]
    orders = [Orders(attempts=dict.fromkeys(arms, 1), looks=frozenset(arms if each.number == 1 else ()))
              for each in rounds]  # fmt: skip
    errands = tuple(errand_of(each, 0, order) for each, order in zip(rounds, orders, strict=True))
    job = Job(name="claimbench-1", scale="smoke", gpu=False, seconds=600.0, data_folder="data",
              blocks=(rounds[0].block,), errands=errands)  # fmt: skip
    job.write(tmp_path)
    (tmp_path / "rounds").mkdir()
    with Interrupts() as interrupts:
        outbox = Outbox(folder=tmp_path, job=Job.read(tmp_path), interrupts=interrupts)
        outbox.expect(outbox.job, CPU)
        assert outbox.begin(rounds[0]) == orders[0]
        for trial in rounds[0].trials:
            good = {"outcome": Outcome.OK, "gradient_check": {"error": 0.1, "eager_error": 0.1}}
            this = {"outcome": outcome, "gradient_check": check}
            outbox.finished(
                trial, record_of(trial.arm.name, rounds[0].key, **(this if trial.arm.name == CELL else good))
            )
        second = outbox.begin(rounds[1])
    assert second is not None
    assert second.looks == ({CELL} if owed else set())


@WHAT_COUNTS
def test_what_counts_as_a_look(outcome: Outcome, check: dict[str, object], owed: bool, store: Store) -> None:
    record = record_of(CELL, "b" * 16, outcome=outcome, gradient_check=check, round=1, superseded=False)
    store.add(record)
    assert store.arms_without_gradient_check(record.block, record.fingerprint) == ({CELL} if owed else set())
    assert store.arms_without_gradient_check(record.block, "another") == set()


def test_a_look_of_a_round_that_was_replaced_is_none(store: Store) -> None:
    looked = record_of(CELL, "b" * 16, outcome=Outcome.OK, gradient_check={"error": 0.1, "eager_error": 0.1}, round=1)
    store.add(replace(looked, superseded=True))
    store.add(replace(looked, superseded=False, gradient_check={}, attempt=looked.attempt + 1))
    assert store.arms_without_gradient_check(looked.block, looked.fingerprint) == {CELL}


def test_a_later_round_owes_nothing_while_the_first_has_not_ended(store: Store) -> None:
    record = record_of(CELL, "b" * 16, outcome=Outcome.OK, gradient_check={}, round=2, superseded=False)
    store.add(record)
    assert store.arms_without_gradient_check(record.block, record.fingerprint) == set()
