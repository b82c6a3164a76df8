"""Draws figures in processes of its own, which bring the drawing libraries while the trials are still being read.

    with Studio() as studio:        # forks; the child imports matplotlib and seaborn, 2 to 3 s of a core
        ...                         # read, judge
        studio.ask(job)             # the child forks a few more, which have the libraries already, and they draw
        ...                         # put the page together
        svgs = studio.finish()

The child is forked before there are trials, so it shares none of their memory.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Self

from harness.report.figures.drawing import Job, bring_libraries, write

#: More processes than this wait for each other.
MOST_PROCESSES = 8


class Studio:
    """A context: its processes are gone after it, however it ends. Outside it and not on Linux, `finish` draws here."""

    def __init__(self) -> None:
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None
        self._asked: list[Job] = []

    def __enter__(self) -> Self:
        if sys.platform == "linux":
            context = multiprocessing.get_context("fork")
            self._connection, theirs = context.Pipe()
            self._process = context.Process(target=_serve, args=(theirs, self._connection, os.getpid()), name="studio")
            self._process.start()
            theirs.close()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._connection is not None:
            self._connection.close()
            self._process.kill()
            self._process.join()
        self._process = self._connection = None

    def ask(self, job: Job) -> None:
        """Begin with a figure."""
        self._asked.append(job)
        if self._connection is not None:
            with suppress(BrokenPipeError, ConnectionResetError):  # it was killed: `finish` sees it too
                self._connection.send(job)

    def finish(self) -> list[str]:
        """Wait until both files of each figure that was asked for are written; their SVGs in the same order.

        Raises:
            OSError: a file cannot be written.
        """
        asked, self._asked = self._asked, []
        if self._connection is not None and asked:
            with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # it was killed: draw here
                self._connection.send(None)
                answer = self._connection.recv()
                if isinstance(answer, OSError):
                    raise answer
                return list(answer)
        return [write(job) for job in asked]


def _serve(connection: Connection, parents_end: Connection, parent: int) -> None:
    """The child: hands jobs on, and gives one answer to all that came before a None, until the parent ends it."""
    _tied_to(parent)
    parents_end.close()  # held open here, it would keep the parent waiting for a child that was killed
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    bring_libraries()
    processes, context = min(os.cpu_count() or 1, MOST_PROCESSES), multiprocessing.get_context("fork")
    with (
        suppress(EOFError, BrokenPipeError, ConnectionResetError),
        ProcessPoolExecutor(processes, context, initializer=_tied_to, initargs=(os.getpid(),)) as pool,
    ):
        while True:
            drawn = [pool.submit(write, job) for job in iter(connection.recv, None)]
            try:
                connection.send([each.result() for each in drawn])
            except OSError as error:
                connection.send(error)


def _tied_to(parent: int) -> None:
    from harness.trial.processes import die_with_parent

    die_with_parent(parent)
