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
from harness.techniques.base import Technique
from tests.training import run_trial
on = run_trial(gradient_noise=0.01)
GradientNoise.apply = lambda *_: None
sabotaged = run_trial(gradient_noise=0.01)
GradientNoise.evidence = Technique.evidence
silent = run_trial(gradient_noise=0.01)
off = run_trial()
seen = {name: [str(each.outcome), each.reason, each.evidence.get("gradient_noise")]
        for name, each in (("on", on), ("sabotaged", sabotaged), ("silent", silent), ("off", off))}
print(json.dumps(seen))
"""

#: What is known of the package: by the machine, a job's node and a trial; the fingerprint of cells with and without it.
KNOWN = """
import json
import harness
from harness.results import rounds
from harness.results.slurm import node
from harness.techniques import registry
here = harness.machine("cpu")
node.describe("node.json")
node = node.environment_from(json.load(open("node.json")))
plan = harness.plan("matrix.yaml", environment=here, scale="full")
print(json.dumps({
    "versions": [each.packages.get("gradient-noise") for each in (here, node, registry.this_machine())],
    "has": here.has("Gradient.Noise"), "also": [here.has("pytest"), here.has("not-installed-anywhere")],
    "fingerprints": {each.block.study: each.circumstances.fingerprint for each in rounds.rounds_of(plan, here)},
    "refused": sorted({trial.refusal for trial in plan.trials if trial.refusal}),
}))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed the package."""
    return _install(tmp_path_factory.mktemp("outside"), {})


def _install(folder: Path, changes: dict[str, str]) -> Path:
    """Where pip has installed the package, with `changes` of its text made before."""
    shutil.copytree(PACKAGE, folder / "source")  # pip leaves files where it builds
    for file in (folder / "source").glob("*.*"):
        text = file.read_text(encoding="utf-8")
        for old, new in changes.items():
            text = text.replace(old, new)
        file.write_text(text, encoding="utf-8")
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
    outcome, reason, _ = seen["silent"]
    assert outcome == "inert", "it did nothing, showed nothing, and was ok"
    assert reason.startswith("gradient_noise=0.01 was set, but the technique GradientNoise gave no evidence of it; ")
    assert seen["off"] == ["ok", "", None]


WITHOUT_IT = """\
  size:
    workload: small
    axes: {batch_size: [2]}
"""


def _known(installed: Path, folder: Path) -> dict[str, Any]:
    (folder / "matrix.yaml").write_text(MATRIX + WITHOUT_IT, encoding="utf-8")
    said = _python(installed, "-c", KNOWN, cwd=folder)
    assert said.returncode == 0, said.stderr
    known: dict[str, Any] = json.loads(said.stdout.splitlines()[-1])
    return known


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("        ),\n    )  #", "        )\n    )  #",
         "its `axes` must be a tuple of harness.experiment.axes.Axis; of a single one write axes = (Axis(…),)"),
        ('default="off"', 'default="none"',
         "the default of an axis must be one of its settings: gradient_noise: 'none' is not a setting"),
        ('name="gradient_noise"', 'name="clip"', "axis 'clip' is defined twice; rename one of the two, or uninstall it "
         "(outside techniques here: gradient_noise.GradientNoise)"),
    ],
)  # fmt: skip
def test_axes_that_are_none_are_one_sentence(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in (PACKAGE / "gradient_noise.py").read_text(encoding="utf-8")
    doctor = _python(_install(tmp_path, {old: new}), "-m", "harness.cli", "doctor", "--device", "cpu")
    assert doctor.returncode == 2
    assert said in doctor.stderr
    assert len(doctor.stderr.splitlines()) == 1


def test_another_version_of_it_makes_other_trials(installed: Path, tmp_path: Path) -> None:
    """Without naming itself: the package that brings the class counts wherever the technique is active."""
    newer = _install(tmp_path, {'version = "1.0"': 'version = "2.0"'})
    first, second = _known(installed, tmp_path), _known(newer, tmp_path)
    assert (first["versions"], second["versions"]) == (["1.0"] * 3, ["2.0"] * 3)
    assert first["fingerprints"]["noise"] != second["fingerprints"]["noise"]
    assert first["fingerprints"]["size"] == second["fingerprints"]["size"]


def test_what_it_requires_can_be_a_package_that_it_names(tmp_path: Path) -> None:
    """`has` knows its own package and those in `packages`, installed or not; pytest is in no list of claimbench's."""
    stage = "    stage = Stage.STEP\n"
    requires = "        return None\n\n    def apply"
    installed = _install(tmp_path, {
        stage: f'{stage}    packages = ("pytest", "not-installed-anywhere")\n',
        requires: "        wanted = ('gradient-noise', 'pytest', 'not-installed-anywhere')\n"
        "        lacks = [name for name in wanted if not environment.has(name)]\n"
        "        return f'{lacks} is not installed' if lacks else None\n\n    def apply",
    })  # fmt: skip
    known = _known(installed, tmp_path)
    assert known["has"]
    assert known["also"] == [True, False]
    assert known["refused"] == ["['not-installed-anywhere'] is not installed"]


def test_a_trial_knows_it_too(installed: Path, tmp_path: Path) -> None:
    """What a trial's process is told of the machine is what `requires` decided on."""
    script = """
import sys
from pathlib import Path
from harness.trial import worker
from harness.trial.outcome import Outcome
from harness.trial.spec import TrialResult, TrialSpec
def outcome_of(spec, ranks, environment):
    print("seen", environment.packages.get("gradient-noise"))
    return TrialResult(outcome=Outcome.OK)
worker.outcome_of = outcome_of
from tests.training import spec_of
spec_of().write(Path(sys.argv[1]) / "spec.json")
worker.main(Path(sys.argv[1]) / "spec.json")
"""
    said = _python(installed, "-c", script, str(tmp_path))
    assert said.stdout.splitlines()[-1:] == ["seen 1.0"], said.stderr


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
