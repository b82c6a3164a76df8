"""Stores of other versions, and files that are no stores."""

import json
import sqlite3
from pathlib import Path

import pytest

from harness.errors import StoreError, StoreSchemaError
from harness.results.schema import STORE_SCHEMA
from harness.results.store import Store
from tests.records import make_records

RECORDS = make_records(rounds=2)

#: Version 1 as it was, written out by hand: it must not change when the code does.
VERSION_1 = """
PRAGMA application_id = 1668050274;
PRAGMA user_version = 1;
CREATE TABLE trials (
    id INTEGER PRIMARY KEY, fingerprint TEXT NOT NULL, block TEXT NOT NULL, arm TEXT NOT NULL, round INTEGER NOT NULL,
    attempt INTEGER NOT NULL, started_at TEXT NOT NULL, outcome TEXT NOT NULL, superseded INTEGER NOT NULL DEFAULT 0,
    record TEXT NOT NULL, UNIQUE (fingerprint, block, arm, round, attempt, started_at)
);
CREATE INDEX trials_of_a_round ON trials (block, round, fingerprint);
"""


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "old.sqlite"
    database = sqlite3.connect(path)
    database.executescript(VERSION_1)
    for record in RECORDS:
        row = (*record.identity, str(record.outcome), record.round == 1, json.dumps(record.as_json()))
        database.execute(
            "INSERT INTO trials (fingerprint, block, arm, round, attempt, started_at, outcome, superseded, record)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            row,
        )
    database.commit()
    database.close()
    return path


def version_of(path: Path) -> int:
    database = sqlite3.connect(path)
    try:
        return int(database.execute("PRAGMA user_version").fetchone()[0])
    finally:
        database.close()


def test_an_older_store_is_migrated_by_its_writer_and_keeps_everything(old: Path) -> None:
    with Store.open(old, writable=True) as store:
        kept = list(store.records())
        assert [record.identity for record in kept] == [record.identity for record in RECORDS]
        assert [record.losses for record in kept] == [record.losses for record in RECORDS]
        assert [record.environment for record in kept] == [record.environment for record in RECORDS]
        assert [record.superseded for record in kept] == [record.round == 1 for record in RECORDS]
        assert store.runs() == []
    assert version_of(old) == STORE_SCHEMA


def test_an_older_store_is_read_as_it_is(old: Path) -> None:
    before = old.read_bytes()
    with Store.open(old) as store:
        assert [record.identity for record in store.records()] == [record.identity for record in RECORDS]
    assert old.read_bytes() == before


def test_a_migration_that_fails_leaves_the_older_store(old: Path) -> None:
    database = sqlite3.connect(old)
    database.execute("UPDATE trials SET record = 'no JSON' WHERE id = 3")
    database.commit()
    database.close()
    before = old.read_bytes()
    with pytest.raises(StoreError, match="cannot be read"):
        Store.open(old, writable=True)
    assert version_of(old) == 1
    assert old.read_bytes() == before


def test_a_stored_trial_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "odd.sqlite"
    with Store.open(path, writable=True) as store:
        store.add_all(RECORDS)
        store._database.execute("UPDATE trials SET record = '{}' WHERE id = 3")
    with Store.open(path) as store, pytest.raises(StoreError, match="cannot be read"):
        list(store.records())


@pytest.mark.parametrize("writable", [False, True])
def test_a_newer_store_is_refused_and_left_alone(tmp_path: Path, writable: bool) -> None:
    path = tmp_path / "newer.sqlite"
    Store.open(path, writable=True).close()
    database = sqlite3.connect(path)
    database.execute(f"PRAGMA user_version = {STORE_SCHEMA + 1}")
    database.close()
    before = path.read_bytes()
    with pytest.raises(StoreSchemaError, match=rf"schema {STORE_SCHEMA + 1}.*upgrade claimbench"):
        Store.open(path, writable=writable)
    assert path.read_bytes() == before


@pytest.mark.parametrize("writable", [False, True])
def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path, writable: bool) -> None:
    path = tmp_path / "notes.sqlite"
    path.write_bytes(b"These are notes of mine. " * 100)
    with pytest.raises(StoreError, match="not a claimbench store"):
        Store.open(path, writable=writable)
    assert path.read_bytes() == b"These are notes of mine. " * 100


@pytest.mark.parametrize("writable", [False, True])
def test_a_database_of_another_program_is_refused_and_left_alone(tmp_path: Path, writable: bool) -> None:
    path = tmp_path / "cookies.sqlite"
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE trials (id)")
    database.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="another program"):
        Store.open(path, writable=writable)
    assert path.read_bytes() == before


def test_a_store_cut_short_says_so(tmp_path: Path) -> None:
    path = tmp_path / "short.sqlite"
    with Store.open(path, writable=True) as store:
        store.add_all(RECORDS)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StoreError, match="damaged"):
        Store.open(path, writable=True)
    with pytest.raises(StoreError, match="damaged"), Store.open(path) as store:
        list(store.records())


def test_an_absent_store_is_not_made_by_reading(tmp_path: Path) -> None:
    path = tmp_path / "absent.sqlite"
    with pytest.raises(StoreError, match="there is no store"):
        Store.open(path)
    assert not path.exists()


def test_an_empty_file_reads_as_an_empty_store(tmp_path: Path) -> None:
    """What a run leaves that was killed in its first instant."""
    path = tmp_path / "empty.sqlite"
    path.touch()
    with Store.open(path) as store:
        assert list(store.records()) == []


def test_names_with_odd_characters_work(tmp_path: Path) -> None:
    path = tmp_path / "50% ? done #1.sqlite"
    with Store.open(path, writable=True) as store:
        store.add_all(RECORDS)
    assert path.is_file()
    with Store.open(path) as store:
        assert store.count() == len(RECORDS)
