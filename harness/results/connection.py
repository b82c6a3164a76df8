"""Opening the SQLite file of a store: is it one, of which version, sound, and safe against a crash."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from harness.errors import StoreError, StoreSchemaError
from harness.results.faults import RESCUE, SENTENCES, explained, readable
from harness.results.schema import APPLICATION_ID, STORE_SCHEMA, migrate, version_of

SQLITE_MAGIC = b"SQLite format 3\x00"
#: Seconds to wait for a reader or for a writer's commit, both of which take milliseconds.
BUSY_SECONDS = 60.0
#: SQLite names its journal after the database: two names are two journals (https://sqlite.org/howtocorrupt.html).
_SEVERAL_NAMES = (
    "it has another name (a hard link), under which another run could write to it at the same time; copy it"
    " to a file of its own with `cp` and give that"
)


def refuse_other_files(path: Path) -> None:
    """Before anything is written, the lock beside it included. An empty file is a store to be.

    Raises:
        StoreError: it is a folder or a device, no SQLite file, a database of another program, or a file of two names.
    """
    if path.is_dir():
        raise StoreError(f"{path}: it is a folder; give the path of a file")
    with explained(path):
        there = path.exists()
        if there and not path.is_file():
            raise StoreError(f"{path}: it is a device or a pipe, no file; give the path of a file")
        if there and path.stat().st_nlink > 1:
            raise StoreError(f"{path}: {_SEVERAL_NAMES}")
        start = first_bytes(path) if there else b""
    if start and start != SQLITE_MAGIC:
        raise StoreError(f"{path}: {SENTENCES[sqlite3.SQLITE_NOTADB]}")
    if start:
        with explained(path), readable(path), closing(_connect(path, "rw")) as database:
            _check_kind(path, database)


def first_bytes(path: Path) -> bytes:
    """As many as tell an SQLite file, fewer where there are no more.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        return file.read(len(SQLITE_MAGIC))


def open_for_writing(path: Path) -> sqlite3.Connection:
    """Create or migrate the file. The caller holds the writer's lock.

    Raises:
        StoreError: see `Store.open`.
    """
    with explained(path), readable(path):
        database = _connect(path, "rwc")
        try:
            _check_kind(path, database)
            database.execute("PRAGMA journal_mode = DELETE")
            database.execute("PRAGMA synchronous = FULL")
            migrate(database)
            found = database.execute("PRAGMA quick_check(1)").fetchone()[0]
            if found != "ok":
                raise StoreError(f"{path}: it is damaged ({found}); import what {RESCUE} writes of it into a new store")
        except BaseException:
            database.close()
            raise
    return database


def open_for_reading(path: Path) -> sqlite3.Connection:
    """The file itself, or, for an older version, a migrated copy in memory.

    Raises:
        StoreError: see `Store.open`.
    """
    if not path.is_file():
        raise StoreError(f"{path}: there is no store; give the path of one, or make it with `claimbench run`")
    with explained(path), readable(path):
        # "rw" and query_only, not "ro": what a killed writer left half done must be rolled back before reading
        database = _connect(path, "rw")
        try:
            database.execute("PRAGMA query_only = ON")
            _check_kind(path, database)
            if version_of(database) == STORE_SCHEMA:
                return database
            copy = sqlite3.connect(":memory:", isolation_level=None)
            database.backup(copy)
            migrate(copy)
        except BaseException:
            database.close()
            raise
        database.close()
    return copy


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    place = f"file:{quote(os.fsencode(path.absolute()))}?mode={mode}"
    return sqlite3.connect(place, uri=True, timeout=BUSY_SECONDS, isolation_level=None)


def _check_kind(path: Path, database: sqlite3.Connection) -> None:
    """Refuse what is no store of ours, or a newer one; an empty file is a store to be."""
    mark = database.execute("PRAGMA application_id").fetchone()[0]
    empty = not database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if mark != APPLICATION_ID and not empty:
        raise StoreError(f"{path}: it is a database of another program, not a claimbench store; give another path")
    version = version_of(database)
    if version > STORE_SCHEMA:
        raise StoreSchemaError(
            f"{path}: a newer claimbench wrote it (schema {version}, this one knows {STORE_SCHEMA}); upgrade claimbench"
        )
