"""What SQLite says when a store cannot be read or written, as one sentence that says what to do."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.errors import StoreError

#: Writes what can be read of a damaged store, to be imported into a new one.
RESCUE = "`claimbench export STORE --to rest.jsonl --skip-damaged`"
_KEPT = "what was stored before is kept"
_READ_ONLY = "it cannot be written; change its permissions or choose another store"
#: Primary result code (https://www.sqlite.org/rescode.html) → sentence.
SENTENCES = {
    sqlite3.SQLITE_FULL: f"no space is left on its disk; free some and start again, {_KEPT}",
    sqlite3.SQLITE_IOERR: f"its disk refused to read or write (full, over a quota or failing); free some and start "
    f"again, {_KEPT}",
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_PERM: _READ_ONLY,
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; change the permissions of the file and its folder",
    sqlite3.SQLITE_NOTADB: "it is not a claimbench store (no SQLite file at all); give a store, or records as .jsonl",
    sqlite3.SQLITE_CORRUPT: f"it is damaged or cut short; copy it again, or import into a new store what {RESCUE}"
    " writes of it",
    sqlite3.SQLITE_BUSY: "another program has held it for a minute; close it there and start again",
}


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn errors of SQLite and of the file system into a StoreError that names `path`."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        sentence = SENTENCES.get(code, f"it cannot be used as a store ({error}); choose another store")
        raise StoreError(f"{path}: {sentence}") from error
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}; change that or choose another store") from error


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn a stored trial that cannot be read back into a StoreError that names `path`."""
    try:
        yield
    except (ValueError, TypeError, KeyError) as error:
        raise StoreError(
            f"{path}: it holds a trial that cannot be read ({error}); import exported records into a new store"
        ) from error
