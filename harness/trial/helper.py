"""The run's end of the helper process (`harness.trial.zygote`): start it, talk to it, make sure that it ends."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from harness.errors import LaunchError
from harness.trial import preload, processes
from harness.trial.channel import Channel, Message
from harness.trial.interrupts import Interrupts

#: torch and transformers from a cold network disk have been seen to take over a minute.
_SECONDS_TO_START = 300.0
#: It kills what runs under it and ends; when it does not, it is killed itself.
_SECONDS_TO_END = 3.0


class StoppedWhileStarting(Exception):  # noqa: N818 - not an error: the user asked for it
    """The run was stopped while the helper was still importing."""


class KilledWhileStarting(LaunchError):  # noqa: N818 - named like its sisters
    """Somebody killed the helper while it was still importing: that says nothing of the next one."""


class HelperGone(Exception):  # noqa: N818 - a fact about another process, handled where trials are watched
    """The helper process has ended, or no longer answers."""


class Helper:
    """A running helper. Use `Helper.start`."""

    def __init__(self, process: subprocess.Popen[bytes], channel: Channel) -> None:
        self._process = process
        self._channel = channel
        self._waiting: deque[Message] = deque()
        self._groups: set[int] = set()
        """Process groups of the trial that runs now, killed here should the helper be gone."""
        self.preloaded: Message = {}

    @classmethod
    def start(
        cls, *, modules: Iterable[str], gpu: bool, log: Path | None = None, interrupts: Interrupts | None = None
    ) -> Helper:
        """Start the process and wait until it has imported everything.

        Raises:
            KilledWhileStarting: it was killed.
            LaunchError: it died, imported something that must not be forked, or took too long.
            StoppedWhileStarting: `interrupts.now` was set meanwhile.
        """
        ours, its = socket.socketpair()
        command = [
            *processes.interpreter("harness.trial.zygote"), f"--socket={its.fileno()}", f"--parent={os.getpid()}",
            f"--preload={','.join(modules)}",
        ]  # fmt: skip
        with its, _output(log) as output:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=(its.fileno(),),
                env=processes.findable(preload.base_environment(os.environ, gpu=gpu)), start_new_session=True,
            )  # fmt: skip
            its.close()
            helper = cls(process, Channel(ours))
            try:
                helper._await_ready(interrupts)
            except HelperGone:
                status = process.wait()
                helper.close()
                # its own status, or what the keeper says of the zygote
                killed = status in (-signal.SIGKILL, 128 + signal.SIGKILL)
                raise (KilledWhileStarting if killed else LaunchError)(_why_it_died(status, output)) from None
            except BaseException:
                helper.close()
                raise
        return helper

    @property
    def keeper_pid(self) -> int:
        """The process that we started; the zygote is its child."""
        return self._process.pid

    @property
    def zygote_pid(self) -> int:
        """The process that forks the trials."""
        return int(self.preloaded["pid"])

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def launch(self, message: Message) -> None:
        """Ask for a trial. A helper that is gone is noticed by the next `receive`."""
        self._channel.send(message)

    def receive(self, *, until: float, interrupts: Interrupts | None = None) -> Message | None:
        """The next message; None when `until` (`time.monotonic()`) has passed or `interrupts` has woken us.

        Raises:
            HelperGone: it ended, and all that it said has been read.
        """
        if not self._waiting:
            self._wait(until, interrupts)
        if not self._waiting:
            return None
        message = self._waiting.popleft()
        if message["is"] == "forked":
            self._groups = set(message["pids"])
        elif message["is"] == "clean":
            self._groups.clear()
        return message

    def signal_groups(self, groups: Iterable[int], number: signal.Signals) -> None:
        """Send a signal to process groups of the trial (a rank's id is its group's)."""
        for group in groups:
            processes.signal_group(group, number)

    def close(self) -> None:
        """End it and everything under it, whatever state it is in."""
        self._channel.close()
        try:
            self._process.wait(timeout=_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            below = processes.descendants(self._process.pid)
            self._process.kill()
            processes.kill(below)
            self._process.wait()
        # Were keeper and zygote both killed, nobody has cleaned up: a rank dies with them, its group does not.
        self.signal_groups(self._groups, signal.SIGKILL)
        processes.wait_until_gone(self._groups, seconds=2.0)
        self._groups.clear()

    def _wait(self, until: float, interrupts: Interrupts | None) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._channel, selectors.EVENT_READ)
            if interrupts is not None:
                selector.register(interrupts, selectors.EVENT_READ)
            ready = {key.fileobj for key, _ in selector.select(max(0.0, until - time.monotonic()))}
        if interrupts is not None and interrupts in ready:
            interrupts.drain()
        if self._channel in ready:
            messages = self._channel.receive()
            if messages is None:
                raise HelperGone
            self._waiting.extend(messages)

    def _await_ready(self, interrupts: Interrupts | None) -> None:
        until = time.monotonic() + _SECONDS_TO_START
        while time.monotonic() < until:
            message = self.receive(until=until, interrupts=interrupts)
            if message is not None:
                self.preloaded = message
                return _raise_problems(message)
            if interrupts is not None and interrupts.now:
                raise StoppedWhileStarting
        raise LaunchError(
            f"The process that starts trials was not ready within {_SECONDS_TO_START:.0f} s; try --isolation spawn."
        )


def _raise_problems(message: Message) -> None:
    if message["problems"]:
        what = "; ".join(message["problems"])
        raise LaunchError(f"Trials cannot be forked from a process with these modules: {what}; use --isolation spawn.")


def _output(log: Path | None) -> IO[bytes]:
    """Where the helper's output goes; readable, so that its last words can be quoted."""
    return log.open("w+b") if log is not None else tempfile.TemporaryFile()


def _why_it_died(status: int, output: IO[bytes]) -> str:
    output.seek(0)
    lines = output.read().decode(errors="replace").strip().splitlines()
    number = -status if status < 0 else status - 128
    how = f"was killed by {processes.signal_name(number)}" if number > 0 else f"ended with status {status}"
    last = f": {lines[-1]}" if lines else ""
    return f"The process that starts trials {how} before it was ready{last}; check that torch can be imported."
