"""Standard output and standard error that cannot end a command: a full disk, a reader that left, another alphabet.

What cannot be printed is lost, and the command goes on: hours of trials do not hang on a line about them.
"""

from __future__ import annotations

import errno
import io
import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


@contextmanager
def unfailing() -> Iterator[None]:
    """While entered, writing to the two streams of this process raises nothing; streams of a caller's own stay.

    Where something could not be printed it says so, and a command that has done all that it should ends with 2: not
    where its reader has left (`| head`).
    """
    _open_standard_descriptors()
    if sys.stdout is not sys.__stdout__ or sys.stderr is not sys.__stderr__:
        yield
        return
    printed, before = _Unfailing(1), (sys.stdout, sys.stderr)
    sys.stdout, sys.stderr = _text(printed, sys.stdout), _text(_Unfailing(2), sys.stderr)
    try:
        yield
    except SystemExit as end:
        if end.code:
            raise
    finally:
        sys.stdout.flush()
        lost = _say_what_is_lost(printed)
        sys.stderr.flush()
        sys.stdout, sys.stderr = before
    if lost:
        sys.exit(2)


def _say_what_is_lost(printed: _Unfailing) -> bool:
    """Whether there is anything to say."""
    if printed.lost is None or printed.lost.errno == errno.EPIPE:
        return False
    why = printed.lost.strerror
    sys.stderr.write(
        f"error: standard output could not be written ({why}); what was printed is lost, what was done is kept\n"
    )
    return True


class _Unfailing(io.FileIO):
    """An open descriptor; what cannot be written to it is dropped."""

    lost: OSError | None = None
    """Why something was."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "wb", closefd=False)

    def write(self, data: ReadableBuffer, /) -> int:
        """All of it, or at least as if: the number of bytes is never less than there are to write."""
        try:
            while (written := super().write(data)) is None:  # a terminal that somebody made non-blocking
                select.select([], [self], [])
        except OSError as error:
            self.lost = self.lost or error
            return memoryview(data).nbytes
        return written


def _text(raw: io.RawIOBase, like: io.TextIOBase | None) -> io.TextIOWrapper:
    """A text stream with the encoding of another; a character that it lacks is written out."""
    encoding = getattr(like, "encoding", None) or "utf-8"
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding=encoding, errors="backslashreplace", line_buffering=raw.isatty()
    )


def _open_standard_descriptors() -> None:
    """What is closed (`>&-`) is opened to nowhere: a store that got number 1 would be written to by what prints."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest that is free: this one
