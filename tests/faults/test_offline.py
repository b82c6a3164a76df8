"""Nothing of a run needs a network, or looks for one: a study of the small example, with every way out cut off.

Where the kernel lets us, the run has a network of its own with nothing on it; in any case each Python process notes and
refuses what would leave the machine.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.results.store import Store
from harness.trial.outcome import Outcome
from tests.commands import ROOT

pytestmark = pytest.mark.train

HERE = Path(__file__).parent / "offline"


def cut_off() -> list[str]:
    """The words that give a command a network with nothing on it, or none where the kernel does not let us."""
    for words in (["unshare", "--net"], ["unshare", "--net", "--map-root-user"]):
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            subprocess.run([*words, "true"], capture_output=True, check=True)
            return words
    return []


def started(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(HERE), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "CLAIMBENCH_OFFLINE_NOTES": str(folder / "notes")}
    command = [*cut_off(), sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def notes(folder: Path) -> list[str]:
    return [line for file in folder.glob("notes.*") for line in file.read_text(encoding="utf-8").splitlines()]


def test_the_guard_notes_and_refuses_a_look_outside(tmp_path: Path) -> None:
    code = "import socket; socket.create_connection(('192.0.2.1', 80), timeout=5)"
    done = started(["-c", code], tmp_path)
    assert "the network is cut off in this test" in done.stderr
    assert [line for line in notes(tmp_path) if not line.startswith("started")] == ["socket.getaddrinfo 192.0.2.1"]


def test_a_study_runs_and_is_reported_without_a_network(tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "small.yaml", tmp_path / "matrix.yaml")
    arguments = ["-m", "harness.cli", "run", "--study", "precision", "--device", "cpu"]
    done = started(arguments, tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "reports" / "results" / "report.html").is_file()
    with Store.open(tmp_path / "results.sqlite") as store:
        assert {record.outcome for record in store.records()} == {Outcome.OK}
    seen = notes(tmp_path)
    assert [line for line in seen if not line.startswith("started")] == []
    assert any("harness.cli" in line for line in seen), "the command was watched"
    assert any("harness.trial.zygote" in line for line in seen), "and what its trials are forked from"
