"""`claimbench --help` answers in under 0.3 s in a fresh process, and what people type most soon after.

The least of several tries counts, so that a busy machine does not.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TRIES = 7


@pytest.mark.parametrize(
    ("command", "bound_seconds"),
    [("--help", 0.3), ("run --help", 0.3), ("plan", 2.0), ("claims", 2.0), ("doctor", 2.0)],
)
def test_a_command_answers_at_once(command: str, bound_seconds: float) -> None:
    least = min(_seconds(command.split()) for _ in range(TRIES))
    print(f"claimbench {command}: {least:.3f} s")
    assert least < bound_seconds


def _seconds(arguments: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-m", "harness.cli", *arguments], cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started
