"""Reading a claims file: what it may say, and the error that each mistake gets, with its place and a suggestion."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest

from harness.errors import ClaimsError
from harness.experiment.cell import Cell, Workload
from harness.experiment.study import Arm, Block, Role
from harness.judgement.claims_file import read_claims
from tests.records import DEFAULTS

GOOD = """\
    schema: 1
    documents:
      D1: {title: A text}
    claims:
      faster:
        statement: It is faster.
        sources:
          - {document: D1, section: §1, quote: faster}
        form: range
        metric: speedup
        range: [1.5, 2]
        study: precision
        cell: {precision: bf16}
        at: {sequence_length: 1024}
    """


def blocks() -> list[Block]:
    """The study `precision` with the cells bf16 and tf32, at two lengths."""
    found = []
    for length in (512, 1024):
        settings = {**DEFAULTS, "sequence_length": length}
        plain = Cell(workload=Workload(name="w", model="tiny"), settings=settings, defaults=DEFAULTS)
        cells = [plain.but(precision=precision) for precision in ("bf16", "tf32")]
        arms = (
            Arm(name="baseline", role=Role.BASELINE, cell=plain), Arm(name="control", role=Role.CONTROL, cell=plain),
            *(Arm(name=cell.label(plain), role=Role.CELL, cell=cell) for cell in cells),
        )  # fmt: skip
        found.append(Block(study="precision", kind="training", sweep={"sequence_length": length}, arms=arms,
                           rounds=3, warmup_steps=8, steps=20))  # fmt: skip
    return found


def write(folder: Path, text: str) -> Path:
    path = folder / "claims.yaml"
    path.write_text(dedent(text), encoding="utf-8")
    return path


def test_a_claims_file_is_read_whole(tmp_path: Path) -> None:
    claims = read_claims(write(tmp_path, GOOD), blocks=blocks())
    claim = claims.claims["faster"]
    assert claim.id == "faster"
    assert claim.bounds == (1.5, 2)
    assert claim.documents == "D1 §1"
    assert (claim.view, claim.device, claim.baseline) == ("reserved", "gpu", {})


@pytest.mark.parametrize(
    ("wrong", "right", "place", "words"),
    [
        ("metric: speedup", "metric: speedupp", "10:13", "unknown metric 'speedupp'; did you mean 'speedup'?"),
        ("form: range", "form: rang", "9:11", "form: 'rang' is not one of range, at-least"),
        ("study: precision", "study: precison", "12:12", "unknown study 'precison'; did you mean 'precision'?"),
        ("{precision: bf16}", "{precison: bf16}", "13:12", "unknown axis 'precison'; did you mean 'precision'?"),
        (
            "{precision: bf16}",
            "{precision: bf61}",
            "13:11",
            "has no cell 'precision=bf61'; did you mean",
        ),
        (
            "{sequence_length: 1024}",
            "{sequence_length: 99}",
            "14:9",
            "has no point sequence_length=99",
        ),
        ("{sequence_length: 1024}", "{batch_size: 8}", "14:10", "study 'precision' does not sweep 'batch_size'"),
        ("{sequence_length: 1024}", "{}", "14:9", "study 'precision' sweeps sequence_length; name the primary point"),
        ("{document: D1,", "{document: D2,", "8:20", "unknown document 'D2'; known: D1"),
        ("statement: It", "statment: It", "6:5", "unknown key 'statment'; did you mean 'statement'?"),
        ("range: [1.5, 2]", "range: [2, 1.5]", "6:5", "range [2.0, 1.5] is empty"),
        ("range: [1.5, 2]", "bound: 2", "6:5", "a claim of form 'range' needs 'range'"),
        (
            "cell: {",
            "changed: [{when: soon, what: x}]\n        cell: {",
            "13:22",
            "when: must be a date such as 2026-11-28, not 'soon'",
        ),
        ("cell: {", "changed: [{when: 2026-11-28}]\n        cell: {", "13:15", "'what' is missing; add it"),
        ("schema: 1", "schema: 2", "1:9", "the file must say `schema: 1`"),
        ("documents:", "document:", "1:1", "unknown key 'document'; did you mean 'documents'?"),
    ],
)
def test_each_mistake_has_its_place_and_a_suggestion(
    tmp_path: Path, wrong: str, right: str, place: str, words: str
) -> None:
    assert wrong in GOOD
    path = write(tmp_path, GOOD.replace(wrong, right))
    with pytest.raises(ClaimsError) as error:
        read_claims(path, blocks=blocks())
    lines = str(error.value).splitlines()
    assert any(words in line for line in lines), lines
    line = next(line for line in lines if words in line)
    assert line.startswith(f"{path}:")
    if right.startswith("document:"):
        return
    assert line.startswith(f"{path}:{place}:"), line


def test_several_mistakes_are_said_at_once(tmp_path: Path) -> None:
    text = GOOD.replace("speedup", "speedupp").replace("precision: bf16", "precision: bf61")
    with pytest.raises(ClaimsError) as error:
        read_claims(write(tmp_path, text), blocks=blocks())
    assert len(str(error.value).splitlines()) == 2


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("form: at-least", "a claim of form 'at-least' needs 'bound'"),
        ("form: exact", "a claim of form 'exact' needs 'value'"),
        ("form: limit", "a claim of form 'limit' needs 'limit'"),
        ("form: order", "a claim of form 'order' needs 'order'"),
    ],
)
def test_a_form_without_what_it_needs(tmp_path: Path, line: str, words: str) -> None:
    with pytest.raises(ClaimsError, match=words):
        read_claims(write(tmp_path, GOOD.replace("form: range", line)))


def test_a_claim_that_contradicts_nobody(tmp_path: Path) -> None:
    with pytest.raises(ClaimsError, match="unknown claim 'fasterr'; did you mean 'faster'"):
        read_claims(write(tmp_path, dedent(GOOD) + "    contradicts: [fasterr]\n"))


STATEMENT = GOOD.replace("form: range", "form: statement").replace("range: [1.5, 2]", "expect: true")
FIGURE = GOOD.replace("metric: speedup", "metric: figure_ratio:useful_share")


@pytest.mark.parametrize(
    ("text", "wrong", "place", "words"),
    [
        (FIGURE, "useful_shre", "10:13",
         "no trial of kind training has a figure 'useful_shre'; did you mean 'useful_share'?"),
        (FIGURE, "turned_on", "10:13", "no trial of kind training has a figure 'turned_on'"),
        (FIGURE, "host_seconds", "10:13", "no trial of kind training has a figure 'host_seconds'"),
        (FIGURE.replace("at:", "shows: [speedup, 'figure:useful_shre']\n        at:"), "useful_share", "14:22",
         "no trial of kind training has a figure 'useful_shre'"),
    ],
)  # fmt: skip
def test_a_figure_is_one_of_the_kind_of_the_study(
    tmp_path: Path, text: str, wrong: str, place: str, words: str
) -> None:
    path = write(tmp_path, text.replace("useful_share", wrong, 1))
    with pytest.raises(ClaimsError) as error:
        read_claims(path, blocks=blocks())
    assert str(error.value).startswith(f"{path}:{place}: {words}")


@pytest.mark.parametrize("figure", ["useful_share", "host.thread_seconds", "peak_loader_bytes"])
def test_figures_that_a_kind_leaves_are_known_with_their_parts(tmp_path: Path, figure: str) -> None:
    path = write(tmp_path, FIGURE.replace("useful_share", figure))
    assert read_claims(path, blocks=blocks()).claims["faster"].metric == f"figure_ratio:{figure}"


def test_without_a_matrix_a_figure_is_one_of_any_kind(tmp_path: Path) -> None:
    read_claims(write(tmp_path, FIGURE.replace("useful_share", "busy_seconds")))
    with pytest.raises(
        ClaimsError, match="no trial of any kind has a figure 'busy_second'; did you mean 'busy_seconds'"
    ):
        read_claims(write(tmp_path, FIGURE.replace("useful_share", "busy_second")))


def test_a_figure_of_an_order_is_one_of_the_kinds_of_its_entries(tmp_path: Path) -> None:
    order = "order: [{cell: {precision: bf16}, study: loading}, {cell: {precision: tf32}, study: loading}]"
    text = GOOD.replace("form: range", "form: order").replace("range: [1.5, 2]", order)
    loading = [replace(block, study="loading", kind="loader-only") for block in blocks()[:1]]
    path = write(tmp_path, text.replace("metric: speedup", "metric: 'figure_inverse:first_batch_seconds'"))
    assert read_claims(path, blocks=[*blocks(), *loading])
    path = write(tmp_path, text.replace("metric: speedup", "metric: 'figure_inverse:warmup_seconds'"))
    with pytest.raises(ClaimsError, match="no trial of kind loader-only has a figure 'warmup_seconds'"):
        read_claims(path, blocks=[*blocks(), *loading])


def test_a_kind_that_is_not_known_here_may_leave_any_figure(tmp_path: Path) -> None:
    own = [replace(block, kind="mine") for block in blocks()]
    assert read_claims(write(tmp_path, FIGURE.replace("useful_share", "own_share")), blocks=own)


@pytest.mark.parametrize("metric", ["speedup", "figure_ratio:useful_share"])
def test_an_expected_value_is_one_of_a_figure(tmp_path: Path, metric: str) -> None:
    path = write(tmp_path, STATEMENT.replace("speedup", metric))
    with pytest.raises(ClaimsError) as error:
        read_claims(path, blocks=blocks())
    assert str(error.value) == f"{path}:10:13: an expected value is one of a kind's own figures: give 'figure:NAME'"
    assert read_claims(write(tmp_path, STATEMENT.replace("speedup", "figure:useful_share")), blocks=blocks())


def test_a_claim_that_contradicts_itself(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD.replace("at:", "contradicts: [faster]\n        at:"))
    with pytest.raises(ClaimsError) as error:
        read_claims(path)
    assert str(error.value) == f"{path}:14:19: a claim cannot contradict itself; name another, or remove it"


def test_order_entries_may_be_written_short(tmp_path: Path) -> None:
    text = dedent(GOOD).replace("form: range", "form: order").replace(
        "range: [1.5, 2]", "order: [{precision: bf16}, {name: TF32, cell: {precision: tf32}}]"
    )  # fmt: skip
    claim = read_claims(write(tmp_path, text), blocks=blocks()).claims["faster"]
    assert [entry.title for entry in claim.order] == ["precision=bf16", "TF32"]


def test_an_order_entry_must_exist_too(tmp_path: Path) -> None:
    text = dedent(GOOD).replace("form: range", "form: order").replace(
        "range: [1.5, 2]", "order: [{precision: bf16}, {precision: bf61}]"
    )  # fmt: skip
    with pytest.raises(ClaimsError, match="has no cell 'precision=bf61'"):
        read_claims(write(tmp_path, text), blocks=blocks())


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ClaimsError, match="there is no such file"):
        read_claims(tmp_path / "none.yaml")
