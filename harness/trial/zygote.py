"""The helper that starts trials: imports what is slow to import once, then forks one child a rank.

    python -m harness.trial.zygote --socket 5 --parent 4711 --preload torch,transformers

It never touches CUDA and runs no tensor operation: a CUDA context does not survive a fork, and one OpenMP region in it
hangs its children. It is the parent of every trial process, adopts what they leave, and kills all of it when a trial
ends or when the run that started it is gone; should it be killed itself, its own parent does so, the `keeper`.
Without `--preload`, and asked for `fresh` processes, it is the same supervisor for trials in interpreters of their own
(`--isolation spawn`).

Messages, one JSON object a line:
    from the run   {"do": "launch", "entry", "argument", "fresh", "ranks": [{"environment", "stdout", "stderr"}, ...]}
                   {"do": "stop"}
    to the run     {"is": "ready", "pid", ...what importing did}
                   {"is": "forked", "pids": [...]}
                   {"is": "ended", "rank", "status", "peak_host_bytes"}     status < 0: the signal that killed it
                   {"is": "clean", "strays": n, "left": [...]}              all ranks ended, nothing of theirs lives
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import pkgutil
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from harness.trial import keeper, preload, processes
from harness.trial.channel import Channel, Message

#: Signals that a child must not inherit as the zygote has them.
_OWN_SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGPIPE)


class Zygote:
    """Serves one run until its end of the channel closes, or SIGTERM says that the run is gone."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._terminated = False
        self._ranks: dict[int, int] = {}
        """Process id → rank, of the trial that runs now."""
        self._waker, self._alarm = socket.socketpair()
        for end in (self._waker, self._alarm):
            end.setblocking(False)
        self._selector = selectors.DefaultSelector()
        signal.set_wakeup_fd(self._waker.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._terminate)

    def serve(self) -> None:
        """Wait for messages and for children's ends, in one place, without polling."""
        self._selector.register(self._channel, selectors.EVENT_READ)
        self._selector.register(self._alarm, selectors.EVENT_READ)
        while self._continue():
            pass
        keeper.kill_descendants()

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        self._terminated = True

    def _continue(self) -> bool:
        """Handle what has happened; False when the run is over or gone."""
        ready = {key.fileobj for key, _ in self._selector.select()}
        if self._alarm in ready:
            self._alarm.recv(4096)
            self._reap()
        if self._terminated:
            return False
        messages = self._channel.receive() if self._channel in ready else []
        if messages is None:
            return False
        for message in messages:
            if message["do"] == "stop":
                return False
            self._launch(message)
        return True

    def _launch(self, message: Message) -> None:
        for rank, part in enumerate(message["ranks"]):
            self._ranks[self._fork(message, part)] = rank
        self._channel.send({"is": "forked", "pids": list(self._ranks)})

    def _fork(self, message: Message, part: Mapping[str, Any]) -> int:
        sys.stdout.flush()
        sys.stderr.flush()
        zygote = os.getpid()
        child = os.fork()
        if child == 0:
            become_trial(zygote, self._descriptors(), message, part)
        return child

    def _descriptors(self) -> list[int]:
        """What a child must close. A trial that held the channel open would keep the run's end from being noticed."""
        ours = [self._channel.fileno(), self._waker.fileno(), self._alarm.fileno()]
        # Closed by number: unregistering would change the kernel's list that both processes share.
        selector = getattr(self._selector, "fileno", None)
        return [*ours, selector()] if selector else ours

    def _reap(self) -> None:
        """Collect every child that has ended. A rank's whole group is killed while its zombie still holds the id."""
        while (ended := keeper.peek()) is not None:
            rank = self._ranks.pop(ended, None)
            if rank is not None:
                processes.signal_group(ended, signal.SIGKILL)
            _, status, usage = os.wait4(ended, 0)
            if rank is None:
                continue
            self._channel.send({
                "is": "ended", "rank": rank, "status": os.waitstatus_to_exitcode(status),
                "peak_host_bytes": usage.ru_maxrss * 1024,
            })  # fmt: skip
            if not self._ranks:
                self._clean()

    def _clean(self) -> None:
        strays, left = keeper.kill_descendants()
        self._channel.send({"is": "clean", "strays": strays, "left": left})


def become_trial(zygote: int, descriptors: list[int], message: Message, part: Mapping[str, Any]) -> NoReturn:
    """In a forked child: shed what the zygote is, become one rank of a trial, run it, end. Never returns."""
    code = 70  # EX_SOFTWARE: only when even the traceback below could not be printed
    try:
        processes.die_with_parent(zygote)
        os.setsid()
        _plain_signals()
        for descriptor in descriptors:
            os.close(descriptor)
        _redirect(part["stdout"], part["stderr"])
        os.environ.update(part["environment"])
        if message["fresh"]:
            again = processes.interpreter("harness.trial.zygote")
            os.execv(again[0], [*again, "--run", message["entry"], message["argument"]])
        code = run_entry(message["entry"], message["argument"])
    except BaseException:  # noqa: BLE001 - a child must never go on as a second zygote
        traceback.print_exc()
    finally:
        processes.end(code)


def run_entry(entry: str, argument: str) -> int:
    """Call `module:function` with a path; its exit status, as the interpreter would give it."""
    faulthandler.enable(file=sys.__stderr__ or sys.stderr)
    try:
        return int(pkgutil.resolve_name(entry)(Path(argument)) or 0)
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - printed as the interpreter would, then the status says it
        traceback.print_exc()
        return 1


def _plain_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in _OWN_SIGNALS:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    # Python itself ignores SIGPIPE, so that a closed pipe raises BrokenPipeError.
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)


def _redirect(stdout: str, stderr: str) -> None:
    for descriptor, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, stdout, os.O_WRONLY | os.O_CREAT | os.O_APPEND),
        (2, stderr, os.O_WRONLY | os.O_CREAT | os.O_APPEND),
    ):
        opened = os.open(path, flags, 0o600)
        os.dup2(opened, descriptor)
        os.close(opened)


def main(arguments: Sequence[str]) -> int:
    """Entry of the process."""
    parser = argparse.ArgumentParser(prog="harness.trial.zygote", description=__doc__)
    parser.add_argument("--run", nargs=2, metavar=("ENTRY", "ARGUMENT"))
    parser.add_argument("--socket", type=int)
    parser.add_argument("--parent", type=int)
    parser.add_argument("--preload", default="")
    options = parser.parse_args(arguments)
    if options.run:
        processes.leave(run_entry(*options.run))
    os.set_inheritable(options.socket, False)
    return keeper.keep(options.parent, lambda parent: _serve(parent, options.socket, options.preload.split(",")))


def _serve(parent: int, descriptor: int, modules: Sequence[str]) -> int:
    # While importing there are no children to clean up after, and nobody listens: SIGKILL.
    processes.die_with_parent(parent, signal.SIGKILL)
    channel = Channel(socket.socket(fileno=descriptor))
    found = preload.preload(name for name in modules if name)
    channel.send({"is": "ready", "pid": os.getpid(), **found.as_json()})
    if found.problems:
        return 1
    processes.adopt_orphans()
    zygote = Zygote(channel)
    processes.die_with_parent(parent, signal.SIGTERM)
    zygote.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
