"""A technique of somebody else's: a package with one file and an entry point, installed beside claimbench."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "tests" / "outside_technique"

MATRIX = """\
schema: 1
rounds: 3
workloads:
  small: {model: tiny, sequence_length: 32, batch_size: 1}
studies:
  noise:
    workload: small
    axes: {gradient_noise: [0.001, 0.01]}
"""

#: Two trials where the package is installed: as it is, and with an `apply` that does nothing.
TRIALS = """
import json, sys
from gradient_noise import GradientNoise
from tests.training import run_trial
on = run_trial(gradient_noise=0.01)
GradientNoise.apply = lambda *_: None
sabotaged = run_trial(gradient_noise=0.01)
seen = {name: [str(each.outcome), each.reason, each.evidence["gradient_noise"]]
        for name, each in (("on", on), ("sabotaged", sabotaged))}
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed the package."""
    folder = tmp_path_factory.mktemp("outside")
    shutil.copytree(PACKAGE, folder / "source")  # pip leaves files where it builds
    target = folder / "target"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(target), str(folder / "source")], check=True)
    return target


def _python(installed: Path, *arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{installed}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


def test_its_axis_can_be_planned(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "matrix.yaml").write_text(MATRIX, encoding="utf-8")
    plan = _python(installed, "-m", "harness.cli", "plan", "--device", "cpu", "--scale", "full", cwd=tmp_path)
    assert plan.returncode == 0, plan.stderr
    assert "gradient_noise=0.01" in plan.stdout
    assert "0 of them cannot run" in plan.stdout or "cannot run here" not in plan.stdout


def test_a_misspelt_axis_of_it_is_suggested(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "matrix.yaml").write_text(MATRIX.replace("gradient_noise", "gradient_noize"), encoding="utf-8")
    plan = _python(installed, "-m", "harness.cli", "plan", "--device", "cpu", cwd=tmp_path)
    assert plan.returncode == 2
    assert "did you mean 'gradient_noise'?" in plan.stderr


def test_without_the_package_the_word_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "matrix.yaml").write_text(MATRIX, encoding="utf-8")
    plan = _python(tmp_path, "-m", "harness.cli", "plan", "--device", "cpu", cwd=tmp_path)
    assert plan.returncode == 2
    assert "unknown axis 'gradient_noise'" in plan.stderr


def test_its_evidence_holds_and_sabotage_is_inert(installed: Path) -> None:
    ran = _python(installed, "-c", TRIALS)
    assert ran.returncode == 0, ran.stderr
    seen: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    outcome, _, evidence = seen["on"]
    assert outcome == "ok"
    assert evidence["facts"]["standard_deviation"] == pytest.approx(0.01, rel=0.1)
    outcome, reason, _ = seen["sabotaged"]
    assert outcome == "inert"
    assert reason == "gradient_noise=0.01 was set, but gradients changed by 0.0e+00"


def test_the_documentation_shows_these_very_files() -> None:
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    for name in ("pyproject.toml", "gradient_noise.py"):
        assert (PACKAGE / name).read_text(encoding="utf-8").rstrip() in page


def test_a_technique_that_cannot_be_loaded_is_one_sentence(tmp_path: Path) -> None:
    """A package whose module is gone: its name, and what to do."""
    about = tmp_path / "broken-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n", encoding="utf-8")
    (about / "entry_points.txt").write_text("[claimbench.techniques]\nbroken = gone:Technique\n", encoding="utf-8")
    doctor = _python(tmp_path, "-m", "harness.cli", "doctor", "--device", "cpu")
    assert doctor.returncode == 2
    assert "technique 'broken' of gone:Technique cannot be loaded (No module named 'gone')" in doctor.stderr
    assert len(doctor.stderr.splitlines()) == 1


RAISES = """
from harness.experiment.axes import Axis
from harness.techniques.base import Stage, Technique


class Raises(Technique):
    axes = (Axis(name="noise", default="off", settings={"off": "none", "on": "some"}),)
    stage = Stage.STEP

    def requires(self, environment, cell):
        return environment.no_such_thing

    def apply(self, cell, run): ...

    def evidence(self, cell, run): ...
"""


@pytest.mark.parametrize("command", [["doctor"], ["plan"], ["run", "--no-report"]])
def test_a_technique_whose_requires_raises_is_one_sentence(tmp_path: Path, command: list[str]) -> None:
    about = tmp_path / "raising-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: raising\nVersion: 1.0\n", encoding="utf-8")
    (about / "entry_points.txt").write_text("[claimbench.techniques]\nnoise = raising:Raises\n", encoding="utf-8")
    (tmp_path / "raising.py").write_text(RAISES, encoding="utf-8")
    (tmp_path / "matrix.yaml").write_text(MATRIX.replace("gradient_noise: [0.001, 0.01]", "noise: ['on']"))
    said = _python(tmp_path, "-m", "harness.cli", *command, "--device", "cpu", cwd=tmp_path)
    assert said.returncode == 2
    assert said.stderr == (
        "error: technique Raises of the package raising raised in requires (AttributeError: 'Environment' object has "
        "no attribute 'no_such_thing'); mend or uninstall it\n"
    )
