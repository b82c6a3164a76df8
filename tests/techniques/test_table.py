"""docs/techniques.md is what the registry says today."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.experiment.axes import Axis
from harness.techniques.base import Technique
from harness.techniques.registry import axis_table, techniques
from harness.techniques.table import clauses, rows, table

ROOT = Path(__file__).parents[2]


def test_the_committed_page_is_the_generated_one() -> None:
    """python -m harness.techniques.table > docs/techniques.md"""
    assert (ROOT / "docs" / "techniques.md").read_text(encoding="utf-8") == table()


def test_every_setting_of_every_axis_has_a_row() -> None:
    page = table()
    for axis in axis_table().values():
        for setting in axis.settings:
            word = str(setting).lower() if isinstance(setting, bool) else str(setting)
            assert f"| {axis.name} | {word} |" in page or f"| {axis.name} | **{word}** |" in page


@pytest.mark.parametrize("technique", techniques(), ids=lambda each: type(each).__name__)
def test_every_technique_says_what_it_needs_and_what_proves_it(technique: Technique) -> None:
    assert technique.requirement
    assert technique.proof
    assert type(technique).evidence is not Technique.evidence
    assert all(axis.meaning for axis in technique.axes)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("dp", "GPUs as devices; two devices; GPUs"),
        ("pipeline", "GPUs as devices; two devices"),
        ("ddp", "GPUs as devices"),
    ],
)
def test_a_clause_is_said_of_the_settings_it_names(setting: str, said: str) -> None:
    text = "GPUs as devices; dp, pipeline: two devices; dp: GPUs"
    assert clauses(text, {"dp", "ddp", "pipeline"}, "parallel", setting) == said


def test_a_colon_after_other_words_is_a_colon() -> None:
    assert clauses("whole gradients: not pipeline", {"pipeline"}, "clip", "a number") == "whole gradients: not pipeline"


def test_a_bar_in_a_text_does_not_break_the_table() -> None:
    class Odd(Technique):
        axes = (Axis(name="odd", default="off", settings={"off": "a | b"}, meaning="x"),)
        requirement = proof = "nothing"

    assert list(rows(Odd())) == ["| odd | **off** | a / b | nothing | nothing | none |"]
