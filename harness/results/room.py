"""A disk that fills up while trials run: the run ends with a sentence, and no cell is blamed for it."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from harness.errors import LaunchError
from harness.trial.launch import Finished
from harness.trial.outcome import Outcome

#: What programs say of a full disk (ENOSPC), and of a full quota (EDQUOT), of which the disk itself knows nothing.
_FULL, _QUOTA = "No space left on device", "Disk quota exceeded"
#: With less than this no result can be written, whatever the trial has been able to say of it.
_NOTHING_BYTES = 64 << 10
#: With more than this it was another disk that was full (`/dev/shm`, by a cell's own doing): a crash like any other.
_LITTLE_BYTES = 256 << 20


def check_room(finished: Finished, folders: Iterable[Path]) -> None:
    """Look whether a trial crashed because the disk under one of `folders` is full.

    Raises:
        LaunchError: it did. Nothing is stored of the trial, so that the next run, with room, runs it.
    """
    if finished.outcome is not Outcome.CRASH:
        return
    for folder in folders:
        free = shutil.disk_usage(folder).free
        if free < _NOTHING_BYTES or (_FULL in finished.reason and free < _LITTLE_BYTES) or _QUOTA in finished.reason:
            raise LaunchError(
                f"{folder}: no space is left on its disk ({free / 2**20:.1f} MiB free), and a trial ended of it; free "
                "some and run again, what is stored is kept."
            )
