"""What the documents say is so: commands, options, sessions and links exist, every word and field is explained."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from harness.cli import app
from harness.environment import Environment
from harness.experiment.axes import AxisTable
from harness.experiment.cell import Cell, Workload
from harness.experiment.study import Design
from harness.judgement.judged import Word
from harness.report.formats import slug
from harness.results.record import Record
from harness.techniques.base import Technique
from harness.trial.outcome import Outcome
from tests.commands import ROOT, claimbench

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
EVERY_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@EVERY_PAGE
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        path, _, anchor = target.partition("#")
        if "://" in target:
            continue
        file = page.parent / path if path else page
        if not file.exists() or (anchor and anchor not in _anchors(file)):
            broken.append(target)
    assert broken == []


@pytest.fixture(scope="module")
def sessions() -> set[str]:
    """Names of the sessions of noxfile.py, as nox lists them."""
    listing = [sys.executable, "-m", "nox", "--list"]
    shown = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"^[*-] (\S+)", shown, flags=re.MULTILINE))


@EVERY_PAGE
def test_nox_sessions_that_are_named_exist(page: Path, sessions: set[str]) -> None:
    named = re.findall(r"nox (?:--no-venv )?-s ((?:[a-z][\w.-]*)(?: [a-z][\w.-]*)*)", _code(page))
    assert {session for names in named for session in names.split()} - sessions == set()


@EVERY_PAGE
def test_commands_and_options_that_are_named_exist(page: Path) -> None:
    known: Any = typer.main.get_command(app)
    wrong = []
    for line in re.findall(r"claimbench ((?:[a-z]+)(?: [^`\n#]*)?)", _code(page)):
        command, *rest = line.split()
        options = {name for each in known.commands[command].params for name in (*each.opts, *each.secondary_opts)} \
            if command in known.commands else set()  # fmt: skip
        wrong += [line for word in rest if word.startswith("--") and word not in options]
        wrong += [line] if command not in known.commands else []
    assert wrong == []


def test_every_field_of_a_record_is_explained() -> None:
    text = (ROOT / "docs/concepts.md").read_text(encoding="utf-8")
    fields = re.findall(r"^\| `(\w+)` \|", text.partition("## Fields of a record")[2], flags=re.MULTILINE)
    assert set(fields) == {each.name for each in dataclasses.fields(Record)}
    assert len(fields) == len(set(fields)), "a field is explained twice"


@pytest.mark.parametrize("word", [*Outcome, *Design], ids=str)
def test_every_outcome_and_design_is_explained(word: str) -> None:
    assert f"| `{word}` |" in (ROOT / "docs/concepts.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("word", [*Word], ids=str)
def test_the_readme_has_a_line_for_every_verdict(word: str) -> None:
    table = (ROOT / "README.md").read_text(encoding="utf-8").partition("| verdict | meaning |")[2].partition("\n\n")[0]
    heads = ", ".join(row.split("|")[1].strip() for row in table.splitlines() if row.count("|") > 2)
    assert word in heads


def _commands_of_examples() -> list[str]:
    texts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "examples").glob("*.yaml"))]
    return [line.strip("# ").partition("   ")[0] for text in texts for line in text.splitlines()
            if re.match(r"# +claimbench ", line)]  # fmt: skip


def test_there_are_commands_in_the_examples() -> None:
    assert len(_commands_of_examples()) >= 3


@pytest.mark.parametrize("command", _commands_of_examples())
def test_what_an_example_says_to_run_can_be_planned(command: str) -> None:
    words = [word for word in command.split()[1:] if word != "--store" and not word.endswith(".sqlite")]
    said = claimbench("plan", *words[1:], cwd=ROOT)
    assert said.code == 0, said.err


def example_technique() -> Technique:
    """An instance of the class that CONTRIBUTING shows."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    content: dict[str, Any] = {}
    exec(text.partition("```python\n")[2].partition("```")[0], content)
    technique: Technique = content["GradientNoise"]()
    return technique


def test_the_example_technique_can_be_planned_with() -> None:
    technique = example_technique()
    workload = Workload(name="w", model="tiny")
    one, two = (Cell(workload=workload, settings={"gradient_noise": 0.05, "devices": n}) for n in (1, 2))

    assert AxisTable(technique.axes).parse("gradient_noise", 0.05) == 0.05
    assert technique.active(one)
    assert technique.requires(Environment(), one) is None
    assert technique.requires(Environment(), two) == "gradient_noise runs on one device; set devices: 1"


def test_the_example_technique_does_what_it_says_and_shows_it() -> None:
    import torch

    gradient = torch.zeros(8)
    run: Any = SimpleNamespace(facts={}, before_optimizer=[], gradient_tensors=lambda: [gradient])
    technique = example_technique()
    cell = Cell(workload=Workload(name="w", model="tiny"), settings={"gradient_noise": 0.05, "devices": 1})

    technique.apply(cell, run)
    run.before_optimizer[0]()
    evidence = technique.evidence(cell, run)

    nothing_done = technique.evidence(cell, run)

    assert gradient.abs().max() > 0
    assert nothing_done is not None
    assert (nothing_done.holds, nothing_done.reason) == (False, "no noise reached the gradients")
    assert evidence is not None
    assert evidence.holds
    assert evidence.facts["largest"] == pytest.approx(float(gradient.abs().max()))


def _code(page: Path) -> str:
    """The parts of a page that are code: fenced, indented, or in backticks."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^ {4}.*$|```.*?```", text, flags=re.MULTILINE | re.DOTALL)
    return "\n".join([*blocks, *re.findall(r"`([^`\n]+)`", text)])


def _anchors(page: Path) -> set[str]:
    return {slug(head) for head in re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)}
