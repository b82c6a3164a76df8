"""Sparing the collector of garbage what is none: looking for cycles among 10,000 records again and again takes longer
than reading them (2.2 s with it, 0.7 s without)."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """For work that makes much that stays and no cycles."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()
