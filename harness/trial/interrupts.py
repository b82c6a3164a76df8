"""Ctrl-C, twice: the first lets the trial finish, the second stops now. Waiting code is woken, never interrupted."""

from __future__ import annotations

import contextlib
import select
import signal
import socket
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self


class Interrupts:
    """While entered, signals set `soft` and `now` instead of raising in the middle of a write to the store.

    SIGINT once sets `soft`: finish this trial, then stop. SIGINT again, SIGTERM or SIGHUP set `now`: kill and stop.
    A signal that this process was started to ignore stays ignored: SIGHUP under nohup, SIGINT after `&` in a script.
    `fileno` turns readable with each signal, for a selector. Outside the main thread nothing is installed, and the
    owner sets the two by `request`.
    """

    def __init__(self) -> None:
        self.soft = False
        self.now = False
        self.hung_up = False
        """SIGHUP: the terminal is gone, and nobody asked for the end of what runs elsewhere."""
        self.on_soft: Callable[[], None] = lambda: None
        """Called at the first SIGINT."""
        self.followers: list[Interrupts] = []
        """Those of other threads: asked for whatever this one is asked for."""
        self._before: dict[signal.Signals, Any] = {}
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def fileno(self) -> int:
        return self._reader.fileno()

    def drain(self) -> None:
        """Forget that `fileno` was readable; the flags stay."""
        try:
            self._reader.recv(4096)
        except BlockingIOError:
            return

    def sleep(self, seconds: float) -> None:
        """Wait; a signal ends it."""
        if select.select([self], [], [], seconds)[0]:
            self.drain()

    def request(self, *, now: bool) -> None:
        """Ask for a stop, as a signal would."""
        for each in self.followers:
            each.request(now=now)
        first = not self.soft
        self.now = self.now or now or self.soft
        self.soft = True
        with contextlib.suppress(BlockingIOError):  # full: it is readable already
            self._writer.send(b"!")
        if first and not self.now:
            self.on_soft()

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self.close()

    def close(self) -> None:
        """Nobody asks any more; called by `with`."""
        self._reader.close()
        self._writer.close()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.hung_up = self.hung_up or number == signal.SIGHUP
        self.request(now=number != signal.SIGINT)
