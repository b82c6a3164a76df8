"""The tables of a store, and the steps that bring an older store to the present version (`PRAGMA user_version`).

A step is never changed once released: a store of any age walks through those it lacks, in order, in one transaction.
Nothing here or elsewhere deletes a trial; the tables refuse it themselves.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable

#: "clmb": marks the file as a claimbench store (`PRAGMA application_id`; `file` and backup tools see it too).
APPLICATION_ID = 0x636C6D62


def _trials(database: sqlite3.Connection) -> None:
    """0 → 1: one table, each record whole with its environment inside."""
    database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    database.execute(
        """CREATE TABLE trials (
            id INTEGER PRIMARY KEY,
            fingerprint TEXT NOT NULL,
            block TEXT NOT NULL,
            arm TEXT NOT NULL,
            round INTEGER NOT NULL,
            attempt INTEGER NOT NULL,
            started_at TEXT NOT NULL,
            outcome TEXT NOT NULL,
            superseded INTEGER NOT NULL DEFAULT 0,
            record TEXT NOT NULL,
            UNIQUE (fingerprint, block, arm, round, attempt, started_at)
        )"""
    )
    database.execute("CREATE INDEX trials_of_a_round ON trials (block, round, fingerprint)")


def _environments_and_runs(database: sqlite3.Connection) -> None:
    """1 → 2: each environment once, under its hash; the runs that wrote the store; nothing can be deleted."""
    database.execute("CREATE TABLE environments (hash TEXT PRIMARY KEY, content TEXT NOT NULL)")
    database.execute("ALTER TABLE trials ADD COLUMN environment TEXT REFERENCES environments (hash)")
    for number, text in database.execute("SELECT id, record FROM trials").fetchall():
        content = json.loads(text)
        key = keep_environment(database, content.pop("environment", {}))
        database.execute("UPDATE trials SET record = ?, environment = ? WHERE id = ?", (_text(content), key, number))
    database.execute(
        """CREATE TABLE runs (
            id INTEGER PRIMARY KEY,
            started_at TEXT NOT NULL,
            finished_at TEXT,
            arguments TEXT NOT NULL,
            matrix_hash TEXT NOT NULL,
            matrix_text TEXT NOT NULL,
            claimbench_version TEXT NOT NULL
        )"""
    )
    for table in ("trials", "environments", "runs"):
        database.execute(
            f"""CREATE TRIGGER {table}_are_kept BEFORE DELETE ON {table}
            BEGIN SELECT RAISE(ABORT, 'nothing is ever deleted from a store'); END"""
        )


#: Step number n brings version n to version n + 1.
MIGRATIONS: tuple[Callable[[sqlite3.Connection], None], ...] = (_trials, _environments_and_runs)
#: Version of the stores that this claimbench writes.
STORE_SCHEMA = len(MIGRATIONS)


def version_of(database: sqlite3.Connection) -> int:
    return int(database.execute("PRAGMA user_version").fetchone()[0])


def migrate(database: sqlite3.Connection, *, to: int = STORE_SCHEMA) -> None:
    """Bring the store to version `to`: all steps or none."""
    database.execute("BEGIN IMMEDIATE")
    try:
        for version in range(version_of(database), to):
            MIGRATIONS[version](database)
            database.execute(f"PRAGMA user_version = {version + 1}")
    except BaseException:
        database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


def keep_environment(database: sqlite3.Connection, environment: object) -> str:
    """Store an environment unless it is there; its hash."""
    text = _text(environment)
    key = hashlib.sha256(text.encode()).hexdigest()[:16]
    database.execute("INSERT OR IGNORE INTO environments (hash, content) VALUES (?, ?)", (key, text))
    return key


def _text(content: object) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
