"""What a store keeps, and what it says a rerun still has to do."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.errors import StoreError
from harness.results.record import Record
from harness.results.store import Store
from harness.trial.outcome import Outcome
from tests.records import CPU, CellShape, StudyShape, make_records

CELL = CellShape(settings={"precision": "bf16"})
STUDY = StudyShape(name="precision", cells=(CELL,))
ARMS = ("baseline", "control", "precision=bf16")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store.open(path, writable=True) as opened:
        yield opened


def one_round(**changes: object) -> list[Record]:
    """The three trials of round 1."""
    return make_records([replace(STUDY, cells=(replace(CELL, **changes),))], rounds=1)  # type: ignore[arg-type]


def place(record: Record) -> tuple[str, int, str]:
    return record.block, record.round, record.fingerprint


def test_records_come_back_equal_and_in_the_order_in_which_they_were_stored(store: Store) -> None:
    records = make_records(rounds=2)
    for record in records:
        assert store.add(record)
    assert list(store.records()) == records
    assert store.count() == len(records)


def test_an_environment_is_kept_once_and_joined_back(store: Store) -> None:
    store.add_all(make_records([STUDY], rounds=3))
    store.add_all(make_records([STUDY], rounds=3, environment=CPU, fingerprint="cpu"))
    database = store._database
    assert database.execute("SELECT count(*) FROM environments").fetchone()[0] == 2
    assert {len(record.environment["devices"]) for record in store.records()} == {0, 1}


def test_adding_a_trial_again_changes_nothing(store: Store) -> None:
    first, *rest = one_round()
    assert store.add(first)
    assert not store.add(replace(first, reason="another word"))
    assert store.add_all([first, *rest]) == 2
    assert next(store.records()) == first


def test_superseded_is_a_mark_on_one_round_and_loses_nothing(store: Store) -> None:
    records = make_records([STUDY], rounds=2)
    store.add_all(records)
    assert store.supersede(*place(records[0])) == 3
    assert [record.superseded for record in store.records()] == [record.round == 1 for record in records]
    assert [record.round for record in store.records(include_superseded=False)] == [2, 2, 2]
    assert store.supersede(*place(records[0])) == 0


def test_superseded_carries_over_when_a_trial_is_added_again_and_is_never_taken_back(store: Store) -> None:
    (record, *_) = one_round()
    store.add(record)
    store.add(replace(record, superseded=True))
    assert next(store.records()).superseded
    store.add(record)
    assert next(store.records()).superseded


@pytest.mark.parametrize("table", ["trials", "environments", "runs"])
def test_nothing_can_be_deleted(store: Store, table: str) -> None:
    store.add_all(one_round())
    store.begin_run(arguments=(), matrix_hash="", matrix_text="", version="")
    with pytest.raises(Exception, match="nothing is ever deleted"):
        store._database.execute(f"DELETE FROM {table}")
    assert store._database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


def test_a_failure_in_the_middle_of_many_keeps_none_of_them(store: Store) -> None:
    def some() -> Iterator[Record]:
        yield from one_round()
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError):
        store.add_all(some())
    assert store.count() == 0
    assert store.add_all(one_round()) == 3


def test_a_store_opened_for_reading_refuses_to_be_written(store: Store, path: Path) -> None:
    store.add_all(one_round())
    with Store.open(path) as reader:
        with pytest.raises(StoreError, match="opened for reading"):
            reader.add(one_round()[0])
        assert reader.count() == 3


@pytest.mark.parametrize(
    ("outcome", "settled", "settled_when_retried"),
    [
        (Outcome.OK, True, True),
        (Outcome.OOM, True, True),
        (Outcome.UNSUPPORTED, True, True),
        (Outcome.INERT, True, True),
        (Outcome.INVALID, True, True),
        (Outcome.CRASH, True, False),
        (Outcome.TIMEOUT, True, False),
        (Outcome.INTERRUPTED, False, False),
    ],
)
def test_which_outcomes_are_results(store: Store, outcome: Outcome, settled: bool, settled_when_retried: bool) -> None:
    records = one_round(outcome=outcome)
    store.add_all(records)
    where = place(records[0])
    assert ("precision=bf16" in store.settled_arms(*where)) is settled
    retry = (Outcome.CRASH, Outcome.TIMEOUT)
    block, number, fingerprint = where
    assert store.round_is_complete(block, ARMS, number, fingerprint) is settled
    assert store.round_is_complete(block, ARMS, number, fingerprint, retry=retry) is settled_when_retried


def test_a_round_is_whole_only_with_every_arm(store: Store) -> None:
    records = one_round()
    block, number, fingerprint = place(records[0])
    store.add_all(records[:2])
    assert store.settled_arms(block, number, fingerprint) == {record.arm for record in records[:2]}
    assert not store.round_is_complete(block, ARMS, number, fingerprint)
    store.add(records[2])
    assert store.round_is_complete(block, ARMS, number, fingerprint)
    assert not store.round_is_complete(block, (*ARMS, "precision=tf32"), number, fingerprint)


def test_other_rounds_and_fingerprints_do_not_count(store: Store) -> None:
    records = one_round()
    block, number, fingerprint = place(records[0])
    store.add_all(records)
    assert not store.round_is_complete(block, ARMS, number + 1, fingerprint)
    assert not store.round_is_complete(block, ARMS, number, "another")


def test_a_superseded_round_is_missing_until_it_was_run_again(store: Store) -> None:
    records = one_round()
    block, number, fingerprint = place(records[0])
    store.add_all(records)
    store.supersede(block, number, fingerprint)
    assert store.settled_arms(block, number, fingerprint) == frozenset()
    again = [replace(record, attempt=store.next_attempt(block, record.arm, number, fingerprint)) for record in records]
    assert [record.attempt for record in again] == [2, 2, 2]
    store.add_all(again)
    assert store.round_is_complete(block, ARMS, number, fingerprint)
    assert store.count() == 6


def test_halves_of_a_round_from_two_machines_make_no_whole(store: Store) -> None:
    records = one_round()
    elsewhere = {**records[0].environment, "host": "another"}
    store.add_all(records[:1])
    store.add_all(replace(record, environment=elsewhere) for record in records[1:])
    assert store.settled_arms(*place(records[0])) == {record.arm for record in records[1:]}


def test_runs_are_noted_with_what_repeats_them(store: Store) -> None:
    number = store.begin_run(
        arguments=("run", "--matrix", "matrix.yaml"), matrix_hash="abc", matrix_text="schema: 1\n", version="0.1.0"
    )
    (running,) = store.runs()
    assert running.finished_at is None
    assert (running.arguments, running.matrix_hash) == (("run", "--matrix", "matrix.yaml"), "abc")
    assert (running.matrix_text, running.claimbench_version) == ("schema: 1\n", "0.1.0")
    store.finish_run(number)
    (finished,) = store.runs()
    assert finished.finished_at is not None
    assert finished.started_at <= finished.finished_at


def test_a_copied_file_is_whole_at_any_moment_between_trials(store: Store, path: Path, tmp_path: Path) -> None:
    for number, record in enumerate(one_round(), start=1):
        store.add(record)
        copy = tmp_path / f"copy-{number}.sqlite"
        copy.write_bytes(path.read_bytes())
        with Store.open(copy) as copied:
            assert copied.count() == number
            assert copied.problems() == []


def test_others_read_while_one_writes(store: Store, path: Path) -> None:
    records = make_records([STUDY], rounds=2)
    store.add_all(records[:3])
    with Store.open(path) as reader:
        seen = reader.records()
        next(seen)  # in the middle of reading
        store.add_all(records[3:])
        assert len(list(seen)) == 2
        assert reader.count() == 6


def test_a_transaction_is_on_the_disk_when_it_has_ended(store: Store) -> None:
    """synchronous FULL and a rollback journal: after a power failure the trial is there, in one file."""
    asked = {name: store._database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("synchronous", "journal_mode")}
    assert asked == {"synchronous": 2, "journal_mode": "delete"}
