"""Where files of the user's choice are written: a misspelt path is an error, no new tree of folders."""

from __future__ import annotations

from pathlib import Path


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
