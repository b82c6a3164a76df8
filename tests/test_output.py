"""What a command prints cannot be written: the command goes on, stores its trials and says so in one line at most."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.results.store import Store
from tests.commands import ROOT

#: No cell of it can run where there is no GPU: every trial is stored at once.
MATRIX = """\
schema: 1
rounds: 3
workloads:
  small: {model: tiny, data: synthetic, sequence_length: 32, batch_size: 2}
studies:
  attention:
    workload: small
    baseline: {attention: flash2}
    axes: {clip: [1]}
"""
LOST = "error: standard output could not be written (No space left on device); what was printed is lost, "


def shell(line: str, *arguments: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """`$claimbench` in a line of a shell is the command with these arguments."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, **variables}
    command = f"claimbench() {{ {sys.executable} -m harness.cli {' '.join(arguments)}; }}; {line}"
    return subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "matrix.yaml").write_text(MATRIX, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("line", "said", "code"),
    [
        ("claimbench > /dev/full", LOST + "what was done is kept\n", 2),
        ("claimbench > /dev/full 2> /dev/full", "", 2),
        ("claimbench >&-", "", 0),
        ("claimbench <&- >&- 2>&-", "", 0),
        ("claimbench | true; exit ${PIPESTATUS[0]}", "", 0),
        ("PYTHONIOENCODING=ascii claimbench > log", "", 0),
    ],
)
def test_a_run_whose_words_are_lost_goes_on(folder: Path, line: str, said: str, code: int) -> None:
    ended = shell(line, "run", "--device", "cpu", "--no-report", folder=folder)
    assert (ended.stderr, ended.returncode) == (said, code)
    with Store.open(folder / "results.sqlite") as store:
        assert store.count() == 9
        assert store.problems() == []


def test_a_character_that_the_stream_lacks_is_written_out(folder: Path) -> None:
    said = shell("claimbench", "plan", "--device", "cpu", folder=folder, PYTHONIOENCODING="ascii")
    assert said.returncode == 0
    assert "attention \\xb7 small" in said.stdout


def test_an_error_keeps_its_code_where_nothing_can_be_said(folder: Path) -> None:
    assert shell("claimbench >&- 2>&-", "plan", "--matrix", "none.yaml", folder=folder).returncode == 2
