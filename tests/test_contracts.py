"""The layers of the package hold: what may import what (`pyproject.toml`, section importlinter)."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib

import pytest

import harness
from harness.version import VERSION
from tests.commands import ROOT

#: What trials need: the process that starts them has to answer at once, also on a machine that has none of it.
TRAINS = frozenset({"torch", "transformers", "peft", "bitsandbytes", "deepspeed", "flash_attn"})
HEAVY = TRAINS | {"pandas", "scipy", "seaborn"}
#: Where modules of processes that train lie.
TRAINING = ("harness/trial/", "harness/techniques/")

MODULES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "harness").rglob("*.py"))


def test_imports_point_up_the_list_of_rooms() -> None:
    code = "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("module", [each for each in MODULES if not each.startswith(TRAINING)])
def test_torch_is_imported_in_techniques_and_trials_alone(module: str) -> None:
    tree = ast.parse((ROOT / module).read_text(encoding="utf-8"))
    assert _imported(tree) & TRAINS == set()


@pytest.mark.parametrize("name", ["harness", "harness.cli", "harness.techniques.registry", "harness.results.collect"])
def test_what_the_parent_imports_is_light(name: str) -> None:
    code = f"import {name}, sys; print(*sorted({{each.partition('.')[0] for each in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert HEAVY & set(done.stdout.split()) == set()


def _imported(tree: ast.AST) -> set[str]:
    """Top-level names of every import in a module, wherever it stands."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def test_the_code_and_the_distribution_have_one_version() -> None:
    """Records name the code's, which is there in a checkout that was never installed too."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["version"] == harness.__version__ == VERSION
