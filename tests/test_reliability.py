"""docs/reliability.md names a test for each fault: each of them exists, and no fault of the tests is left out."""

from __future__ import annotations

import ast
import re

import pytest

from tests.commands import ROOT

PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if line.startswith("|") and not line.startswith(("|---", "| fault |"))]
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", PAGE)


def defined_in(file: str) -> dict[str, str]:
    """Name of each test → its decorators, as they are written."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    return {each.name: " ".join(map(ast.unparse, each.decorator_list)) for each in functions}


def test_each_row_is_a_fault_with_what_is_seen_what_is_kept_and_its_test() -> None:
    assert len(ROWS) > 40
    for row in ROWS:
        fault, seen, kept, test = (cell.strip() for cell in row.strip("|").split("|"))
        assert all((fault, seen, kept)), row
        assert re.fullmatch(r"`tests/[\w/]+\.py::test_\w+`( \(GPU\))?", test), row


@pytest.mark.parametrize(("file", "name"), sorted(set(NAMED)))
def test_the_test_of_a_fault_exists(file: str, name: str) -> None:
    assert name in defined_in(file)


def test_rows_say_which_tests_need_a_gpu() -> None:
    for file, name, mark in re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`( \(GPU\))?", PAGE):
        assert ("mark.gpu" in defined_in(file)[name]) == bool(mark), name


@pytest.mark.parametrize("file", ["test_disk.py", "test_faults.py", "test_kills.py"])
def test_no_fault_that_is_tested_is_left_out(file: str) -> None:
    named = {name for _, name in NAMED}
    missing = {name for name in defined_in(f"tests/faults/{file}") if name not in named}
    assert missing <= {"test_a_kill_before_the_first_trial_leaves_nothing_either"}
