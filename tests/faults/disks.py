"""A small file system of its own, for a test that fills it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, *, kilobytes: int) -> Iterator[Path]:
    """A tmpfs at `folder`. Only root may mount one."""
    folder.mkdir()
    options = f"size={kilobytes}k"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no file system may be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def enlarge(folder: Path, *, kilobytes: int) -> None:
    subprocess.run(["mount", "-o", f"remount,size={kilobytes}k", str(folder)], check=True)


def fill(folder: Path, *, leave_kilobytes: int) -> None:
    """Somebody else's file takes all but a little."""
    (folder / "somebody's").write_bytes(bytes(max(0, shutil.disk_usage(folder).free - (leave_kilobytes << 10))))
