"""Signals: what each asks for, and that those which a process was started to ignore stay ignored."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from harness.trial.interrupts import Interrupts

#: Sends itself a signal, as a hangup or Ctrl-C would, and says what it took it for.
_SIGNALLED = """
import os, signal, sys
from harness.trial.interrupts import Interrupts
with Interrupts() as interrupts:
    os.kill(os.getpid(), getattr(signal, sys.argv[1]))
    print(interrupts.soft, interrupts.now)
    os.kill(os.getpid(), signal.SIGTERM)
    print(interrupts.soft, interrupts.now)
"""


def said_by(*command: str) -> list[str]:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")[:2]


def test_under_nohup_a_hangup_is_ignored_and_sigterm_is_not() -> None:
    assert said_by("nohup", sys.executable, "-c", _SIGNALLED, "SIGHUP") == ["False False", "True True"]


def test_in_the_background_of_a_script_ctrl_c_is_ignored() -> None:
    """A shell without job control starts `command &` so: Ctrl-C at the script is not meant for it."""
    command = ["sh", "-c", '"$@" & wait $!', "sh", sys.executable, "-c", _SIGNALLED, "SIGINT"]
    assert said_by(*command) == ["False False", "True True"]


@pytest.mark.parametrize(
    ("number", "asked"),
    [
        (signal.SIGINT, (True, False, False)),
        (signal.SIGTERM, (True, True, False)),
        (signal.SIGHUP, (True, True, True)),
    ],
)
def test_what_a_signal_asks_for(number: signal.Signals, asked: tuple[bool, bool, bool]) -> None:
    before = {each: signal.signal(each, signal.SIG_DFL) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        with Interrupts() as interrupts:
            os.kill(os.getpid(), number)
            assert (interrupts.soft, interrupts.now, interrupts.hung_up) == asked
        assert {signal.getsignal(each) for each in before} == {signal.SIG_DFL}, "as they were"
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
