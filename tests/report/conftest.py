"""One report, written once for all tests that only look at it."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.judgement.judged import Judgement
from tests.report import samples


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Judgement, Path]:
    """The sample report: its judgement and its folder."""
    return samples.render(samples.run(), samples.claims(), tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="session")
def judgement(written: tuple[Judgement, Path]) -> Judgement:
    return written[0]


@pytest.fixture(scope="session")
def folder(written: tuple[Judgement, Path]) -> Path:
    return written[1]


@pytest.fixture(scope="session")
def html(folder: Path) -> str:
    return (folder / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def markdown(folder: Path) -> str:
    return (folder / "report.md").read_text(encoding="utf-8")
