"""One JSON object a line over a socket: how a run and the helper that forks its trials talk."""

from __future__ import annotations

import json
import socket
from typing import Any

Message = dict[str, Any]


class Channel:
    """One end. Reading never blocks, so that either side can wait for several things at once with a selector."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._end = end
        self._unread = b""

    def fileno(self) -> int:
        return self._end.fileno()

    def send(self, message: Message) -> bool:
        """Send one message whole; False when the other end is gone."""
        line = json.dumps(message).encode() + b"\n"
        self._end.setblocking(True)
        try:
            self._end.sendall(line)
        except (BrokenPipeError, ConnectionResetError):
            return False
        finally:
            self._end.setblocking(False)
        return True

    def receive(self) -> list[Message] | None:
        """All whole messages that have arrived, perhaps none; None when the other end is gone and all is read."""
        closed = self._read_what_is_there()
        *lines, self._unread = self._unread.split(b"\n")
        if not lines and closed:
            return None
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        self._end.close()

    def _read_what_is_there(self) -> bool:
        while True:
            try:
                received = self._end.recv(65536)
            except BlockingIOError:
                return False
            except ConnectionResetError:
                return True
            if not received:
                return True
            self._unread += received
