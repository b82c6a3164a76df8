"""The folder of a report that the user gave no name: never that of a report on other trials (a link is its store)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import count
from pathlib import Path

from harness.errors import EnvironmentProblem

REPORTS = Path("reports")
#: In each such folder: what the report is on, a line each, counted from the working folder.
SOURCES = "sources.txt"


def free_folder(name: str, sources: Iterable[Path | str]) -> Path:
    """`reports/NAME`; where that is there and not known to be the report on `sources`, `reports/NAME-2` and so on."""
    wanted = _text(sources)
    for number in count(1):
        folder = REPORTS / (name if number == 1 else f"{name}-{number}")
        if not folder.exists() or (wanted and _noted(folder) == wanted):
            return folder
    raise AssertionError("numbers do not end")


def note_sources(folder: Path, sources: Iterable[Path | str]) -> None:
    """Note in the folder of a report what it is on.

    Raises:
        EnvironmentProblem: it cannot be written.
    """
    try:
        (folder / SOURCES).write_text(_text(sources), encoding="utf-8")
    except OSError as error:
        raise EnvironmentProblem(f"{folder / SOURCES} cannot be written: {error.strerror}; free some space") from error


def _noted(folder: Path) -> str | None:
    try:
        return (folder / SOURCES).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _text(sources: Iterable[Path | str]) -> str:
    return "".join(f"{os.path.relpath(os.path.realpath(each))}\n" for each in sources)
