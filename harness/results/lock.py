"""One writer for a store: an advisory lock of the operating system on `<store>.lock`, gone when its holder dies.

Not on the store itself: on NFS such a lock is one of SQLite's own kind, and would keep readers out. So a store has one
name: links are followed (`paths.behind_links`), a hard link is refused (`connection.refuse_other_files`).
"""

from __future__ import annotations

import fcntl
import os
from datetime import UTC, datetime
from pathlib import Path

from harness.errors import StoreLockedError
from harness.results.faults import explained

_held: set[int] = set()


class WriterLock:
    """Held from construction until `release`, `kill -9` included.

    flock rather than SQLite's own exclusive mode, so that others can read while a run writes. The file stays behind:
    removing it would let two writers in, one with the old file and one with a new.
    """

    def __init__(self, store: Path) -> None:
        """
        Raises:
            StoreLockedError: another process, or another Store of this one, writes to it.
            StoreError: the folder cannot be written.
        """
        self.path = store.with_name(store.name + ".lock")
        with explained(store):
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.ftruncate(self._file, 0)
                os.pwrite(self._file, f"{os.getpid()} since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC".encode(), 0)
            except BlockingIOError:
                holder = os.pread(self._file, 100, 0).decode(errors="replace") or "just started"
                os.close(self._file)
                raise StoreLockedError(
                    f"{store}: another run is writing to it (process {holder}); wait for it, stop it, or choose another"
                    " store"
                ) from None
            except OSError:
                os.close(self._file)
                raise
        _held.add(self._file)

    def release(self) -> None:
        """Let the next writer in; harmless when done twice."""
        if self._file in _held:
            _held.discard(self._file)
            os.close(self._file)


def _forget_in_child() -> None:
    """A forked child shares the lock and would hold it beyond its parent's death."""
    while _held:
        os.close(_held.pop())


os.register_at_fork(after_in_child=_forget_in_child)
