"""Loaded by every Python process whose PYTHONPATH names this folder: notes, and forbids, each look outside.

Loopback and local sockets are let through: ranks of one machine speak to each other by them.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

NOTES = os.environ.get("CLAIMBENCH_OFFLINE_NOTES")
LOOPBACK = ("127.", "localhost", "::1")


def note(words: str) -> None:
    with open(f"{NOTES}.{os.getpid()}", "a", encoding="utf-8") as file:
        file.write(f"{words}\n")


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    """What Python asks of the network goes through one of these events (PEP 578)."""
    if event == "socket.getaddrinfo":
        host = arguments[0]
    elif event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        address = arguments[1]
        host = address[0] if isinstance(address, tuple) else None  # a path: a local socket
    else:
        return
    name = host.decode() if isinstance(host, bytes) else host
    if name is not None and not str(name).startswith(LOOPBACK):
        note(f"{event} {name}")
        raise OSError(f"{event}: the network is cut off in this test")


if NOTES:
    with contextlib.suppress(OSError):
        note("started " + " ".join(sys.orig_argv[:4]))
    sys.addaudithook(watch)
