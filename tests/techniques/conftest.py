"""Every test here trains, in the test's own process (`tests.training`) or in several (`tests.techniques.ranks`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.trial.launch import LocalLauncher
from harness.trial.spec import TrialResult
from tests.techniques.ranks import Ranks
from tests.training import run_trial as run_one

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies in this folder; the hook sees the items of all."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("train")


@pytest.fixture(scope="session")
def run_trial() -> Callable[..., TrialResult]:
    """`run_trial(precision="bf16")` trains here; `tests.training.run_trial` says what else it takes."""
    return run_one


@pytest.fixture(scope="session")
def run_ranks(tmp_path_factory: pytest.TempPathFactory, session_launcher: LocalLauncher) -> Iterator[Ranks]:
    """`run_ranks(parallel="ddp", devices=2)` trains on that many gloo ranks, each a process of its own."""
    ranks = Ranks(tmp_path_factory.mktemp("ranks"), session_launcher)
    yield ranks
    ranks.close()
