"""The end of a trial's process: nothing that libraries do at exit changes the status of a trial that is over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any

import psutil
import pytest

from harness.trial import worker
from harness.trial.outcome import Outcome
from harness.trial.ranks import Ranks
from tests.training import cpu, spec_of

WHAT_ABORTS_AT_EXIT = """
import atexit, multiprocessing, os, sys, time
from harness.trial.processes import leave
atexit.register(os.abort)
worker = multiprocessing.Process(target=time.sleep, args=(600,), daemon=True)
worker.start()
print(worker.pid, end="")
{}(3)
"""


def ended_by(how: str) -> tuple[int, str]:
    said = subprocess.run(
        [sys.executable, "-c", WHAT_ABORTS_AT_EXIT.format(how)], check=False, capture_output=True, text=True, timeout=60
    )
    return said.returncode, said.stdout


def test_what_aborts_at_exit_is_not_reached_and_workers_end() -> None:
    assert ended_by("sys.exit")[0] == -6, "the case is real: the interpreter's own end aborts"
    status, worker = ended_by("leave")
    assert status == 3
    until = time.monotonic() + 10
    while psutil.pid_exists(int(worker)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not psutil.pid_exists(int(worker)), "a loader's worker would live on"


def test_a_killed_child_does_not_take_the_outcome_of_a_failed_trial_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's loader raises from its handler of SIGCHLD: here while the failure is being put into words."""

    def told(_number: int, _frame: object) -> None:
        raise RuntimeError("DataLoader worker (pid 1) is killed by signal: Killed.")

    def broken(*_: object) -> None:
        raise ConnectionResetError("the batch is lost")

    real, heard = signal.signal, []

    def set_late(number: int, handler: Any) -> Any:
        if handler is signal.SIG_DFL and not heard:
            heard.append(number)
            os.kill(os.getpid(), signal.SIGCHLD)  # just before it is silenced
        return real(number, handler)

    monkeypatch.setattr("harness.trial.kinds.runner", lambda kind: broken)
    monkeypatch.setattr(worker.signal, "signal", set_late)
    monkeypatch.setattr(worker.traceback, "print_exc", lambda: os.kill(os.getpid(), signal.SIGCHLD))
    spec, environment = spec_of(), cpu()
    before = real(signal.SIGCHLD, told)
    try:
        result = worker.outcome_of(spec, Ranks(), environment)
    finally:
        real(signal.SIGCHLD, before)
    assert heard == [signal.SIGCHLD]
    assert (result.outcome, result.reason) == (Outcome.CRASH, "ConnectionResetError: the batch is lost")
