"""The store: one SQLite file that keeps every trial of every run.

    with Store.open(Path("results.sqlite"), writable=True) as store:
        if not store.round_is_complete(block.key, arms, round_number, fingerprint):
            store.supersede(block.key, round_number, fingerprint)
            store.add(record)

A copied file is whole (rollback journal, no side files between transactions), each trial is on the disk when `add`
returns, one process writes while any number read, and nothing is ever deleted.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from harness.errors import StoreError
from harness.results.connection import open_for_reading, open_for_writing, refuse_other_files
from harness.results.faults import explained
from harness.results.lock import WriterLock
from harness.results.paths import behind_links, folder_problem
from harness.results.record import Record
from harness.results.schema import keep_environment
from harness.results.stored import all_records, sound_records
from harness.trial.outcome import SETTLED, TRANSIENT, Outcome

#: Fields of a record that have a column or a table of their own.
_ELSEWHERE = ("environment", "superseded")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One `claimbench run` that wrote to the store: enough to repeat it."""

    number: int
    started_at: str
    """ISO 8601, UTC."""
    finished_at: str | None
    """None: still running, or ended without saying so."""
    arguments: tuple[str, ...]
    matrix_hash: str
    matrix_text: str
    claimbench_version: str


class Store:
    """An open store. Use `Store.open`; closes itself as a context manager."""

    def __init__(self, path: Path, database: sqlite3.Connection, lock: WriterLock | None) -> None:
        self.path = path
        self._database = database
        self._lock = lock

    @classmethod
    def open(cls, path: Path | str, *, writable: bool = False) -> Self:
        """Open for reading, or as the one writer (which creates the file, and its folder, and migrates an older one).

        An older store opened for reading is migrated in memory; the file stays as it is. A link to a store is the store
        itself: lock and work folder are named after that.

        Raises:
            StoreLockedError: another run writes to it.
            StoreSchemaError: a newer claimbench wrote it.
            StoreError: absent, unreadable, damaged, read-only, or no store.
        """
        with explained(Path(path)):
            path = behind_links(path)
        if not writable:
            return cls(path, open_for_reading(path), None)
        with explained(path):
            problem = folder_problem(path)
        if problem:
            raise StoreError(f"{path}: {problem}")
        refuse_other_files(path)
        lock = WriterLock(path)
        try:
            return cls(path, open_for_writing(path), lock)
        except BaseException:
            lock.release()
            raise

    def close(self) -> None:
        self._database.close()
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # writing

    def add(self, record: Record) -> bool:
        """Keep one trial; on the disk when this returns. False: it was there already (see `Record.identity`)."""
        return self.add_all([record]) == 1

    def add_all(self, records: Iterable[Record]) -> int:
        """Keep many in one transaction, all or none; the number that was new.

        A trial that is there already stays as it is, except that `superseded` carries over.
        """
        with self._transaction() as database:
            return sum(_insert(database, record) for record in records)

    def add_round(self, records: Sequence[Record]) -> bool:
        """Keep a round that ran elsewhere, whole: what else stands for it is superseded, all in one transaction.

        Keeping it a second time changes nothing. False: every arm of it has another result already; nothing is kept.
        """
        first = records[0]
        where = (first.block, first.round, first.fingerprint)
        names = {record.identity for record in records}
        with self._transaction() as database:
            there = database.execute(
                "SELECT fingerprint, block, arm, round, attempt, started_at FROM trials"
                " WHERE block = ? AND round = ? AND fingerprint = ? AND NOT superseded", where,
            ).fetchall()  # fmt: skip
            others = [row for row in there if tuple(row) not in names]
            if others and self.round_is_complete(first.block, {each.arm for each in records}, *where[1:]):
                return False
            database.executemany(
                "UPDATE trials SET superseded = 1 WHERE fingerprint = ? AND block = ? AND arm = ? AND round = ?"
                " AND attempt = ? AND started_at = ?", others,
            )  # fmt: skip
            for record in records:
                _insert(database, record)
        return True

    def supersede(self, block: str, round_number: int, fingerprint: str) -> int:
        """Mark the trials of a round as replaced by a rerun of it; they stay, unjudged. The number marked."""
        with self._transaction() as database:
            return database.execute(
                "UPDATE trials SET superseded = 1 WHERE block = ? AND round = ? AND fingerprint = ? AND NOT superseded",
                (block, round_number, fingerprint),
            ).rowcount

    def begin_run(self, *, arguments: Sequence[str], matrix_hash: str, matrix_text: str, version: str) -> int:
        """Note that a run starts; its number, for `finish_run`."""
        with self._transaction() as database:
            cursor = database.execute(
                "INSERT INTO runs (started_at, arguments, matrix_hash, matrix_text, claimbench_version)"
                " VALUES (?, ?, ?, ?, ?)",
                (_now(), json.dumps(list(arguments)), matrix_hash, matrix_text, version),
            )
            return int(cursor.lastrowid or 0)

    def finish_run(self, number: int) -> None:
        """Note that run `number` came to its end."""
        with self._transaction() as database:
            database.execute("UPDATE runs SET finished_at = ? WHERE id = ?", (_now(), number))

    # reading

    def records(self, *, include_superseded: bool = True, damaged: list[str] | None = None) -> Iterator[Record]:
        """All trials in the order in which they were stored, as one consistent view.

        Records of one environment share its dictionary: do not change it.

        Args:
            damaged: gets a line for each trial that cannot be read, which is then left out.

        Raises:
            StoreError: one cannot be read, and there is no `damaged`.
        """
        if damaged is None:
            return all_records(self._database, self.path, include_superseded=include_superseded)
        return sound_records(self._database, self.path, include_superseded=include_superseded, damaged=damaged)

    def count(self) -> int:
        """Trials kept, superseded ones included."""
        with explained(self.path):
            return int(self._database.execute("SELECT count(*) FROM trials").fetchone()[0])

    def settled_arms(
        self, block: str, round_number: int, fingerprint: str, *, retry: Iterable[Outcome] = ()
    ) -> frozenset[str]:
        """Arms of a round that have their result.

        A crash or a timeout is a result unless `retry` names it; `interrupted` never is. Trials count together only
        where one machine in one state ran them, so two halves of a round, imported from two machines, make no whole.
        """
        words = sorted((SETTLED | TRANSIENT) - frozenset(retry))
        with explained(self.path):
            rows = self._database.execute(
                "SELECT environment, arm FROM trials WHERE block = ? AND round = ? AND fingerprint = ?"
                f" AND NOT superseded AND outcome IN ({', '.join('?' * len(words))})",
                (block, round_number, fingerprint, *words),
            ).fetchall()
        return largest_together(rows)

    def round_is_complete(
        self, block: str, arms: Iterable[str], round_number: int, fingerprint: str, *, retry: Iterable[Outcome] = ()
    ) -> bool:
        """Whether every one of `arms` has its result. If not, supersede the round and run it again whole."""
        return set(arms) <= self.settled_arms(block, round_number, fingerprint, retry=retry)

    def next_attempt(self, block: str, arm: str, round_number: int, fingerprint: str) -> int:
        """The number that the next trial of this arm in this round gets: 1 when there was none."""
        with explained(self.path):
            row = self._database.execute(
                "SELECT max(attempt) FROM trials WHERE block = ? AND arm = ? AND round = ? AND fingerprint = ?",
                (block, arm, round_number, fingerprint),
            ).fetchone()
        return int(row[0] or 0) + 1

    def arms_without_gradient_check(self, block: str, fingerprint: str) -> frozenset[str]:
        """Arms whose first round has ended and none of whose rounds has compared its first gradient, or said why not.

        A comparison counts where the trial does: with an outcome of `ok`, or of `invalid`, which is of the timing.
        """
        with explained(self.path):
            rows = self._database.execute(
                "SELECT arm FROM trials WHERE block = ? AND fingerprint = ? AND NOT superseded GROUP BY arm HAVING"
                " min(round) = 1 AND NOT max(outcome IN (?, ?) AND json_extract(record, '$.gradient_check') != '{}')",
                (block, fingerprint, Outcome.OK, Outcome.INVALID),
            ).fetchall()
        return frozenset(str(row[0]) for row in rows)

    def runs(self) -> list[Run]:
        """All runs that wrote to the store, oldest first."""
        with explained(self.path):
            rows = self._database.execute(
                "SELECT id, started_at, finished_at, arguments, matrix_hash, matrix_text, claimbench_version"
                " FROM runs ORDER BY id"
            ).fetchall()
        return [
            Run(
                number=row[0], started_at=row[1], finished_at=row[2], arguments=tuple(json.loads(row[3])),
                matrix_hash=row[4], matrix_text=row[5], claimbench_version=row[6],
            )
            for row in rows
        ]  # fmt: skip

    def problems(self) -> list[str]:
        """What SQLite's own integrity check finds; empty for a sound store."""
        with explained(self.path):
            found = [str(row[0]) for row in self._database.execute("PRAGMA integrity_check")]
        return [] if found == ["ok"] else found

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        if self._lock is None:
            raise StoreError(f"{self.path}: it was opened for reading; open it as the writer to change it")
        with explained(self.path):
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._database
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:  # a full disk has rolled it back already
                    self._database.execute("ROLLBACK")
                raise


def largest_together(rows: Iterable[tuple[str, str]]) -> frozenset[str]:
    """Of pairs of environment and arm: the most arms that one environment has."""
    together: dict[str, set[str]] = {}
    for environment, arm in rows:
        together.setdefault(environment, set()).add(arm)
    largest: set[str] = max(together.values(), key=len, default=set())
    return frozenset(largest)


def _insert(database: sqlite3.Connection, record: Record) -> int:
    environment = keep_environment(database, record.environment)
    added = database.execute(
        "INSERT OR IGNORE INTO trials"
        " (fingerprint, block, arm, round, attempt, started_at, outcome, superseded, record, environment)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (*record.identity, record.outcome, record.superseded, record.as_text(without=_ELSEWHERE), environment),
    ).rowcount
    if not added and record.superseded:
        database.execute(
            "UPDATE trials SET superseded = 1 WHERE fingerprint = ? AND block = ? AND arm = ? AND round = ?"
            " AND attempt = ? AND started_at = ?",
            record.identity,
        )
    return added


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
