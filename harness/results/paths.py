"""Where files of the user's choice are written: a misspelt path is an error, no new tree; a link is what it names."""

from __future__ import annotations

import errno
import os
from pathlib import Path


def behind_links(path: Path | str) -> Path:
    """The file that a path names through whatever links: what is named after it is one for all of its names.

    A path without links stays as it was given, relative to the working folder or not.

    Raises:
        OSError: the links lead in a circle.
    """
    given = Path(path)
    try:
        real = given.resolve()
    except RuntimeError as error:  # until Python 3.12; an OSError from then on
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(given)) from error
    return given if real == given.absolute() else real


def folder_problem(path: Path) -> str | None:
    """Make the folder that `path` is to lie in, but none above it; why that cannot be, or None.

    Raises:
        OSError: it cannot be made.
    """
    try:
        path.parent.mkdir(exist_ok=True)
    except FileNotFoundError:
        return f"there is no folder {path.parent.parent}; check the path, or make it"
    return None
