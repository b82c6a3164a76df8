"""Processes of a test trial leave a file named after their id (`tests.trial.child`); here they are looked for."""

from __future__ import annotations

import time
from pathlib import Path

from harness.trial.processes import alive


def noted(directory: Path) -> list[int]:
    """Ids of all processes that ever said that they lived."""
    notes = directory / "alive"
    return [int(note.name) for note in notes.iterdir()] if notes.is_dir() else []


def living(directory: Path) -> list[int]:
    """Those that live still."""
    return [pid for pid in noted(directory) if alive(pid)]


def wait_for_notes(directory: Path, count: int, *, seconds: float = 30) -> list[int]:
    """Wait until so many processes have said that they live."""
    until = time.monotonic() + seconds
    while len(noted(directory)) < count:
        assert time.monotonic() < until, f"only {noted(directory)} of {count} processes appeared"
        time.sleep(0.02)
    return noted(directory)
