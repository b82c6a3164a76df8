"""Stored trials as records, and what is said of one that is damaged: which it is, and how to keep the others."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from harness.errors import StoreError, printable
from harness.results.as_now import as_now
from harness.results.faults import RESCUE, explained
from harness.results.lines import as_read_back
from harness.results.record import Record

# texts as bytes: a bad one would otherwise end the query, with nothing to say of which trial it is
_ROWS = "SELECT id, CAST(record AS BLOB), CAST(environment AS BLOB), superseded FROM trials"
_WHAT = "SELECT CAST(record AS BLOB), round, CAST(arm AS BLOB), CAST(block AS BLOB) FROM trials WHERE id = ?"
_ENVIRONMENT = "SELECT CAST(content AS BLOB) FROM environments WHERE CAST(hash AS BLOB) = ?"
#: What comes of bytes that are no record any more.
_FAULTS = (ValueError, TypeError, KeyError, AttributeError, RecursionError)
_Row = tuple[int, bytes, bytes, int]


def all_records(database: sqlite3.Connection, path: Path, *, include_superseded: bool) -> Iterator[Record]:
    """All trials in the order in which they were stored, as one consistent view.

    Raises:
        StoreError: one is damaged: which, and the command that leaves it out.
    """
    with explained(path):
        database.execute("BEGIN")  # one view over both tables; ended before the first record is made
        try:
            query = f"{_ROWS} WHERE ? OR NOT superseded ORDER BY id"
            rows = database.execute(query, (include_superseded,)).fetchall()
            contents = "SELECT CAST(hash AS BLOB), CAST(content AS BLOB) FROM environments"
            kept = dict(database.execute(contents).fetchall())
        finally:
            database.execute("COMMIT")
    environment = cache(lambda key: json.loads(kept[key]))
    for row in rows:
        try:
            record = _record(row, environment)
        except _FAULTS as error:
            raise StoreError(
                f"{path}: {_which(database, row[0])} is damaged and cannot be read ({_why(error)});"
                f" {RESCUE} writes the others, for `claimbench import` into a new store"
            ) from error
        yield record


def sound_records(
    database: sqlite3.Connection, path: Path, *, include_superseded: bool, damaged: list[str]
) -> Iterator[Record]:
    """Each trial by itself, so that one that is damaged, or whose page of the file is, takes no other with it.

    Args:
        damaged: gets a line for each that is left out; what is not can be imported again.

    Raises:
        StoreError: not even a list of the trials can be read.
    """

    @cache
    def environment(key: bytes) -> Any:
        return json.loads(database.execute(_ENVIRONMENT, (key,)).fetchone()[0])

    for number in _numbers(database, path):
        try:
            row = database.execute(f"{_ROWS} WHERE id = ?", (number,)).fetchone()
            record = _record(row, environment)
            as_read_back(record)
        except (*_FAULTS, sqlite3.DatabaseError) as error:
            damaged.append(f"{path}: {_which(database, number)} ({_why(error)})")
            continue
        if include_superseded or not record.superseded:
            yield record


def _record(row: _Row, environment: Callable[[bytes], Any]) -> Record:
    _, text, key, superseded = row
    return as_now(Record.from_text(text.decode(), environment=environment(key), superseded=bool(superseded)))


def _numbers(database: sqlite3.Connection, path: Path) -> list[int]:
    """Of all rows: those that the table lists and those that its index does, for either may be damaged."""
    found: set[int] = set()
    for how in ("NOT INDEXED", "INDEXED BY trials_of_a_round"):
        with suppress(sqlite3.DatabaseError):
            for (number,) in database.execute(f"SELECT id FROM trials {how}"):
                found.add(number)
    if not found:
        with explained(path):
            return [number for (number,) in database.execute("SELECT id FROM trials ORDER BY id")]
    return sorted(found)


def _which(database: sqlite3.Connection, number: int) -> str:
    """`trial 3 (study precision, round 2, arm baseline)`, as far as that can be read."""
    try:
        text, round_number, arm, block = database.execute(_WHAT, (number,)).fetchone()
    except (sqlite3.DatabaseError, TypeError):
        return f"trial {number}"
    study = re.search(rb'"study":"([^"\\]+)"', text or b"")
    name = f"study {_text(study[1])}" if study else f"block {_text(block)}"
    return f"trial {number} ({name}, round {round_number}, arm {_text(arm)})"


def _text(content: bytes) -> str:
    return printable(content.decode(errors="replace"))


def _why(error: BaseException) -> str:
    return printable(f"{type(error).__name__}: {error}" if isinstance(error, KeyError) else str(error))
