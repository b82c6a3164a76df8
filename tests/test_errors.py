"""What an error offers in place of a word that is not known."""

from __future__ import annotations

import doctest

import pytest

from harness import errors
from harness.errors import InputError, MatrixError, Place, joined, suggestion
from harness.experiment.axes import AxisError
from harness.techniques.registry import axis_table
from tests.commands import ROOT


def test_the_examples_in_the_module() -> None:
    assert doctest.testmod(errors).failed == 0


def test_a_list_that_is_cut_says_so() -> None:
    """The 31st of 34 studies looked as if it did not exist."""
    words = [f"study{number}" for number in range(40)]
    assert suggestion("x", words[:30]) == f"; known: {', '.join(words[:30])}"
    assert suggestion("x", words) == f"; known: {', '.join(words[:30])}, and 10 more"
    assert suggestion("x", words, "`claimbench plan`").endswith(", study29, and 10 more: `claimbench plan` lists them")


def test_words_that_begin_alike_are_near() -> None:
    known = ["loader", "flash-by-import", "flash-in-a-step"]
    assert suggestion("flash", known) == "; did you mean 'flash-by-import' or 'flash-in-a-step'?"
    assert suggestion("flat", known).startswith("; known: loader")
    many = [f"flash-{number}" for number in range(5)]
    assert suggestion("flash-in-some-other-way", many) == "; did you mean 'flash-0' or 'flash-1' or 'flash-2'?"


def test_errors_of_one_file_stand_in_its_order() -> None:
    found = [InputError(word, place=Place(file="m.yaml", line=line, column=column))
             for word, line, column in (("third", 9, 1), ("second", 2, 9), ("first", 2, 4))]  # fmt: skip
    assert str(joined(found)) == "m.yaml:2:4: first\nm.yaml:2:9: second\nm.yaml:9:1: third"


@pytest.mark.parametrize("name", ["offloading", "pipelines", "scalling"])
def test_studies_at_the_end_of_the_matrix_are_found(name: str) -> None:
    import harness

    with pytest.raises(MatrixError, match="did you mean"):
        harness.read_matrix(ROOT / "matrix.yaml").only([name])


def test_what_lists_all_studies_and_all_axes_is_named() -> None:
    import harness

    with pytest.raises(MatrixError, match=r"and \d+ more: `claimbench plan` lists them"):
        harness.read_matrix(ROOT / "matrix.yaml").only(["zzz"])
    with pytest.raises(AxisError, match=r"and \d+ more: `claimbench doctor` lists them"):
        axis_table().parse("zzz", 1)
