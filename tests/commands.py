"""Calls the command line as a user does, and tells its exit code and what it printed.

`claimbench` calls its entry point in this process, which spares a second of imports a time; `started` is a process of
its own, for what signals do.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from harness.cli import main

ROOT = Path(__file__).resolve().parents[1]

#: Two studies, three rounds, on any machine. One cell takes a few seconds, nearly all of it to start.
SMALL_MATRIX = """\
schema: 1
rounds: 3
workloads:
  small: {model: tiny, data: synthetic, sequence_length: 32, batch_size: 2}
studies:
  optimizer:
    workload: small
    axes: {optimizer: [for-loop]}
    warmup_steps: 2
    steps: 4
  attention:
    workload: small
    baseline: {attention: eager}
    axes: {attention: [flash2]}
    warmup_steps: 2
    steps: 4
"""


@dataclass(frozen=True, kw_only=True)
class Said:
    """How a command ended."""

    code: int
    out: str
    err: str


def claimbench(*arguments: str | Path, cwd: Path) -> Said:
    """Run `claimbench` with `cwd` as the working folder."""
    out, err = io.StringIO(), io.StringIO()
    words = ["claimbench", *map(str, arguments)]
    with contextlib.chdir(cwd), mock.patch.object(sys, "argv", words), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
    return Said(code=code, out=out.getvalue(), err=err.getvalue())


@contextmanager
def started(*arguments: str | Path, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """Start `claimbench` and hand over the running process; killed at the end if it is still there."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    process = subprocess.Popen(
        [sys.executable, "-m", "harness.cli", *map(str, arguments)], cwd=cwd, env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        try:
            yield process
        finally:
            process.kill()
