"""What tests share: one process that starts real trials, and the turns that tests take which need the machine alone."""

from __future__ import annotations

import fcntl
import signal
import sys
from collections.abc import Generator, Iterator
from contextlib import chdir, nullcontext
from pathlib import Path
from typing import Any

import pytest

from harness.checking import check as checking
from harness.results import collect
from harness.trial import preload
from harness.trial.launch import LocalLauncher

ROOT = Path(__file__).resolve().parents[1]
#: Files whose tests train or wait come first: workers of pytest-xdist that share files out then end together.
HEAVY = ("cluster", "train")


@pytest.fixture(scope="session")
def session_launcher() -> Iterator[LocalLauncher]:
    """Starts real trials on the CPU. Its zygote takes ten seconds to import what a trial needs, a trial then half a
    second: what is not about the start of a zygote borrows this one."""
    with LocalLauncher(gpu=False, modules=preload.modules_for([{"compile": "default"}])) as launcher:
        with chdir(ROOT):  # entries of the tests' own are imported from there, wherever a test has gone meanwhile
            launcher._ready_helper(None)
        yield launcher


@pytest.fixture
def one_zygote(session_launcher: LocalLauncher, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that run trials in the test's own process (`tests.commands.claimbench`) borrow the session's zygote."""

    def lent(*_: Any, **__: Any) -> nullcontext[LocalLauncher]:
        return nullcontext(session_launcher)

    monkeypatch.setattr(collect, "local_launcher", lent)
    monkeypatch.setattr(checking, "local_launcher", lent)


@pytest.fixture(autouse=True)
def own_path() -> Iterator[None]:
    """A step that a test loads leaves its folder on `sys.path`: a file `json.py` there became the `json` of loader
    workers that a later test spawned."""
    before = [*sys.path]
    yield
    sys.path[:] = before


def pytest_configure() -> None:
    """Tests send Ctrl-C to what they start; started by `pytest &` in a script, it would be ignored by all of it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Under pytest-xdist heavy files first, in the same order in every worker; without it as they stand."""
    if hasattr(config, "workerinput"):
        heavy = {item.path for item in items if any(item.get_closest_marker(name) for name in HEAVY)}
        items.sort(key=lambda item: item.path not in heavy)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A test marked `alone` waits until no other worker of pytest-xdist runs a test, and the others wait for it.

    Around everything else, so that waiting counts neither as the test's time nor against its time limit.
    """
    folder = _folder_of_all_workers(item.config)
    if folder is None:
        return (yield)
    with (folder / "door").open("w") as door, (folder / "room").open("w") as room:
        # whoever waits for the room stands in the door, so that a test that wants it alone is not overtaken for ever
        fcntl.flock(door, fcntl.LOCK_EX)
        fcntl.flock(room, fcntl.LOCK_EX if item.get_closest_marker("alone") else fcntl.LOCK_SH)
        fcntl.flock(door, fcntl.LOCK_UN)
        try:
            return (yield)
        finally:  # said aloud: a process that the test forked and left behind has the file open too
            fcntl.flock(room, fcntl.LOCK_UN)


def _folder_of_all_workers(config: pytest.Config) -> Path | None:
    """None without pytest-xdist."""
    return Path(config._tmp_path_factory.getbasetemp().parent) if hasattr(config, "workerinput") else None  # type: ignore[attr-defined]
