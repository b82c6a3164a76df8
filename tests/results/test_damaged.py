"""A store in which a trial, an environment or a page of the file is damaged: it is named, and the rest is kept."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from harness.errors import RecordsError, StoreError
from harness.results.load import read_records
from harness.results.record import Record
from harness.results.store import Store
from tests.commands import claimbench
from tests.records import CPU, CellShape, StudyShape, make_records

#: Rounds of baseline, control and one cell; then a round of the same on another machine.
CELL = CellShape(settings={"precision": "bf16"})
HERE = make_records([StudyShape(name="precision", cells=(CELL,))], rounds=2)
THERE = make_records([StudyShape(name="elsewhere", cells=(CELL,))], rounds=1, environment=CPU, fingerprint="cpu")
RECORDS = [*HERE, *THERE]
THIRD = f"trial 3 (study precision, round {HERE[2].round}, arm {HERE[2].arm})"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with Store.open(tmp_path / "results.sqlite", writable=True) as store:
        store.add_all(RECORDS)
    return tmp_path / "results.sqlite"


def damage(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        assert database.execute(statement).rowcount == 1


def identities(records: list[Record]) -> list[object]:
    return [record.identity for record in records]


#: What replaces the text of trial 3.
BAD_BYTE = "CAST(CAST(substr(record, 1, length(record) - 4) AS BLOB) || x'ff' || CAST('\"}' AS BLOB) AS TEXT)"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(BAD_BYTE, id="a byte that is no text"),
        pytest.param("substr(record, 1, length(record) - 1)", id="cut short"),
        pytest.param("""replace(record, '"outcome":', '"outcone":')""", id="a name"),
        pytest.param("""replace(record, '"seed":', '"sead":')""", id="another name"),
        pytest.param("""replace(record, '"figures":{', '"figures":["x"],"f":{')""", id="a list for a mapping"),
    ],
)
def test_the_damaged_trial_is_named_and_all_others_are_kept(path: Path, text: str) -> None:
    damage(path, f"UPDATE trials SET record = {text} WHERE id = 3")
    before = path.read_bytes()

    with pytest.raises(StoreError) as raised:
        read_records(path)
    assert f"{path}: {THIRD} is damaged and cannot be read (" in str(raised.value)
    for command in (["status"], ["export", "--to", "x.csv"], ["import", "results.sqlite", "--store", "new.sqlite"]):
        said = claimbench(*command, cwd=path.parent)
        assert (said.code, said.err.count("\n")) == (2, 1)
        assert "--skip-damaged" in said.err

    said = claimbench("export", "--to", "rest.jsonl", "--skip-damaged", cwd=path.parent)
    assert (said.code, said.out) == (0, f"{len(RECORDS) - 1} trials written to rest.jsonl, 1 damaged left out\n")
    assert said.err.startswith(f"damaged: results.sqlite: {THIRD} (")
    assert path.read_bytes() == before, "nothing that is stored is changed"

    said = claimbench("import", "rest.jsonl", "--store", "new.sqlite", cwd=path.parent)
    assert said.out == f"{len(RECORDS) - 1} trials added to new.sqlite, 0 were there already\n"
    assert sorted(map(str, identities(read_records(path.parent / "new.sqlite")))) == sorted(
        map(str, identities([*RECORDS[:2], *RECORDS[3:]]))
    )


@pytest.mark.parametrize("text", ["'3'", "'[]'", "x'00'"], ids=["a number", "a list", "no text"])
def test_what_is_no_record_at_all_is_named_by_what_stands_beside_it(path: Path, text: str) -> None:
    damage(path, f"UPDATE trials SET record = {text} WHERE id = 3")
    name = f"trial 3 (block {HERE[2].block}, round {HERE[2].round}, arm {HERE[2].arm})"
    with pytest.raises(StoreError) as raised:
        read_records(path)
    assert f"{name} is damaged" in str(raised.value)
    damaged: list[str] = []
    assert len(read_records(path, damaged=damaged)) == len(RECORDS) - 1
    assert [name in line for line in damaged] == [True]


@pytest.mark.parametrize("content", ["'{'", "CAST(x'7bff7d' AS TEXT)"])
def test_a_damaged_environment_takes_its_own_trials_alone(path: Path, content: str) -> None:
    key = f"(SELECT environment FROM trials WHERE id = {len(HERE) + 1})"
    damage(path, f"UPDATE environments SET content = {content} WHERE hash = {key}")
    damaged: list[str] = []
    assert identities(read_records(path, damaged=damaged)) == identities(HERE)
    assert ["study elsewhere" in line for line in damaged] == [True] * len(THERE)


def test_where_nothing_can_be_read_that_is_said(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE trials SET record = '{'")
    with pytest.raises(RecordsError, match="none of its trials can be read"):
        read_records(path, damaged=[])


def test_a_damaged_page_of_the_file_takes_what_stands_on_it_alone(tmp_path: Path) -> None:
    """Each page in turn. The first tells what the file is; without a table's own page its rows are not found."""
    path = tmp_path / "results.sqlite"
    with Store.open(path, writable=True) as store:
        total = store.add_all(make_records(rounds=1))
    sound = path.read_bytes()
    with closing(sqlite3.connect(path)) as database:
        size = database.execute("PRAGMA page_size").fetchone()[0]
        roots = dict(database.execute("SELECT rootpage, name FROM sqlite_master WHERE rootpage"))
    for number in range(2, len(sound) // size + 1):
        path.write_bytes(sound[: (number - 1) * size] + b"\xa5" * size + sound[number * size :])
        damaged: list[str] = []
        if roots.get(number) in ("trials", "environments"):
            with pytest.raises(RecordsError, match="none of its trials can be read"):
                read_records(path, damaged=damaged)
            assert len(damaged) == total
            continue
        records = read_records(path, damaged=damaged)
        assert len({record.identity for record in records}) == len(records) == total - len(damaged)
        assert len(damaged) <= (0 if number in roots else 1), "a record of this size has pages of its own"
