"""Claims are about the studies of one matrix: trials of another matrix' study of the same name say nothing of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness import read_matrix
from harness.errors import ClaimsError, MatrixError
from harness.experiment.matrix import Matrix
from harness.judgement.claims import Claims
from harness.judgement.claims_file import read_claims
from harness.judgement.judge import judge
from harness.judgement.judged import Verdict, Word
from harness.trial.outcome import Outcome
from tests.judgement.claiming import ONE_CLAIM, study, trials_of
from tests.records import make_records

ROOT = Path(__file__).parents[2]
MATRIX = """\
schema: 1
rounds: 3
workloads:
  here: {model: gpt2-124m, data: stdlib, sequence_length: 1024, batch_size: 8}
studies:
  precision: {workload: here, axes: {precision: [bf16]}}
  attention:
    workload: here
    baseline: {precision: bf16, attention: eager}
    axes: {attention: [sdpa]}
    sweep: {sequence_length: [1024, 2048]}
"""
CLAIMS = (
    ONE_CLAIM.replace("matrix: matrix.yaml", "matrix: mine.yaml")
    + """\
  sdpa:
    statement: SDPA is faster.
    sources: [{document: N, quote: faster}]
    form: at-least
    metric: speedup
    bound: 1.5
    study: attention
    cell: {attention: sdpa}
    at: {sequence_length: 2048}
"""
)


@pytest.fixture
def claims(tmp_path: Path) -> Path:
    """A claims file about `mine.yaml`, beside it."""
    (tmp_path / "mine.yaml").write_text(MATRIX, encoding="utf-8")
    (tmp_path / "claims.yaml").write_text(CLAIMS, encoding="utf-8")
    return tmp_path / "claims.yaml"


def other(folder: Path, *edits: tuple[str, str]) -> Matrix:
    """A matrix with the same studies by name, after `edits`."""
    text = MATRIX
    for before, after in edits:
        assert before in text
        text = text.replace(before, after)
    (folder / "other.yaml").write_text(text, encoding="utf-8")
    return read_matrix(folder / "other.yaml")


def verdicts(file: Path | Claims, matrix: Matrix, scale: str = "full") -> dict[str, Verdict]:
    known = file if isinstance(file, Claims) else read_claims(file)
    return {each.claim: each for each in judge(trials_of(matrix, scale), known).verdicts}


@pytest.mark.parametrize(
    ("edits", "why"),
    [
        ([("gpt2-124m", "tiny")], "model tiny instead of gpt2-124m"),
        ([("data: stdlib", "data: synthetic")], "data synthetic instead of stdlib"),
        ([("batch_size: 8", "batch_size: 4")], "batch_size 4 instead of 8"),
        ([("schema: 1\n", "schema: 1\nbaseline: {stream: cached}\n")], "stream cached instead of parse"),
        (
            [("gpt2-124m", "tiny"), ("data: stdlib", "data: synthetic"), ("batch_size: 8", "batch_size: 4")],
            "model tiny instead of gpt2-124m, data synthetic instead of stdlib, batch_size 4 instead of 8",
        ),
        (
            [("gpt2-124m", "tiny"), ("data: stdlib", "data: synthetic"), ("batch_size: 8", "batch_size: 4"),
             ("sequence_length: 1024", "sequence_length: 512")],
            "model tiny instead of gpt2-124m, data synthetic instead of stdlib, sequence_length 512 instead of 1024, "
            "and 1 more",
        ),
    ],
)  # fmt: skip
def test_another_study_of_the_same_name_is_not_what_the_claim_is_about(
    claims: Path, edits: list[tuple[str, str]], why: str
) -> None:
    found = verdicts(claims, other(claims.parent, *edits))["faster"]

    assert found.word is Word.NOT_RUN
    assert found.reason.startswith("study 'precision' of these trials is another one than that of ")
    assert f"mine.yaml ({why}); `claimbench run --matrix " in found.reason
    assert found.reason.endswith("mine.yaml --study precision` runs it")
    assert (found.measured, found.value, found.block) == ("", None, "")


def test_other_rounds_steps_and_cells_are_the_same_study(claims: Path) -> None:
    more = "precision: {workload: here, steps: 12, warmup_steps: 3, axes: {precision: [bf16, amp-bf16]}}"
    before = "precision: {workload: here, axes: {precision: [bf16]}}"
    grown = other(claims.parent, ("rounds: 3", "rounds: 5"), (before, more))
    found = verdicts(claims, grown)

    assert {name: each.word for name, each in found.items()} == {"faster": Word.CONFIRMED, "sdpa": Word.CONFIRMED}


def test_rounds_beyond_those_that_are_asked_for_are_told_apart(claims: Path) -> None:
    """Who adds rounds while a verdict is open gives a claim at its edge more than one chance."""
    matrix = other(claims.parent, ("rounds: 3", "rounds: 5"))
    known = read_claims(claims)

    def found(slower: float) -> Verdict:
        """Where the cell is twice as fast in rounds 4 and 5, and `slower` than that in those that are asked for."""
        records = [
            replace(each, tokens_per_second=(each.tokens_per_second or 0.0) * slower)
            if each.round <= 3 and not each.baseline and each.arm != "control"
            else each
            for each in trials_of(matrix)
        ]
        return next(each for each in judge(records, known).verdicts if each.claim == "faster")

    alike, apart = found(0.99), found(0.7)
    assert (alike.word, alike.rounds) == (Word.CONFIRMED, 5)
    assert alike.details["rounds_asked_for"].startswith("3 of 5; those alone give 1.98x")
    assert alike.details["word_asked_for"] == "confirmed"
    assert (apart.word, apart.rounds) == (Word.INCONCLUSIVE, 5)
    assert apart.details["rounds_asked_for"] == "3 of 5; those alone give 1.40x: refuted, below"
    asked = next(each for each in judge(trials_of(read_matrix(claims.parent / "mine.yaml")), known).verdicts)
    assert asked.rounds == 3
    assert "rounds_asked_for" not in asked.details
    failed = [
        replace(each, outcome=Outcome.CRASH) if each.round > 3 and not each.baseline else each
        for each in trials_of(matrix)
    ]
    alone = next(each for each in judge(failed, known).verdicts if each.claim == "faster")
    assert alone.rounds == 3
    assert "rounds_asked_for" not in alone.details, "no figure stands on the rounds beyond"


def test_a_sentence_is_judged_on_what_its_check_measured_which_is_in_no_matrix(claims: Path) -> None:
    said = '  said: {check: "precision=bf16 vs fp32 >= 1.5x"}\n'
    claims.write_text(CLAIMS + said, encoding="utf-8")
    known = read_claims(claims)
    records = make_records([study(name=known.claims["said"].study)])

    found = {each.claim: each for each in judge(records, known).verdicts}
    assert (found["said"].word, found["said"].rounds) == (Word.CONFIRMED, 5)
    assert found["faster"].word is Word.NOT_RUN


def test_a_point_that_the_study_does_not_sweep_is_none_of_it(claims: Path) -> None:
    found = verdicts(claims, other(claims.parent, ("[1024, 2048]", "[2048, 4096]")))["sdpa"]

    assert found.word is Word.CONFIRMED
    assert [point["name"] for point in found.details["points"]] == ["sequence_length=2048"], "4096 is not in mine.yaml"


def test_without_a_matrix_the_name_counts(claims: Path) -> None:
    claims.write_text(CLAIMS.replace("matrix: mine.yaml\n", ""), encoding="utf-8")

    assert verdicts(claims, other(claims.parent, ("gpt2-124m", "tiny")))["faster"].word is Word.CONFIRMED


def test_the_smoke_scale_of_the_matrix_is_still_that_of_the_claims(claims: Path) -> None:
    found = verdicts(claims, read_matrix(claims.parent / "mine.yaml"), "smoke")

    assert found["faster"].word is Word.NOT_COMPARABLE
    assert "in the smoke scale (tiny shapes); the claim speaks of a GPU at full scale" in found["faster"].reason


def test_a_study_that_has_grown_is_the_same_in_the_smoke_scale_whose_sizes_depend_on_it(claims: Path) -> None:
    grown = other(claims.parent, ("axes: {precision: [bf16]}", "axes: {precision: [bf16], batch_size: [16]}"))

    assert verdicts(claims, grown, "smoke")["faster"].word is Word.NOT_COMPARABLE


def test_a_smoke_run_of_another_matrix_measured_no_claim(claims: Path) -> None:
    found = verdicts(claims, other(claims.parent, ("schema: 1\n", "schema: 1\nbaseline: {stream: cached}\n")), "smoke")

    assert {each.word for each in found.values()} == {Word.NOT_RUN}


@pytest.mark.parametrize("scale", ["full", "smoke"])
def test_the_small_example_answers_no_claim_of_the_default_matrix(scale: str) -> None:
    found = verdicts(ROOT / "claims.yaml", read_matrix(ROOT / "examples" / "small.yaml"), scale)

    assert {each.word for each in found.values()} == {Word.NOT_RUN}
    model = "model tiny instead of gpt2-124m" if scale == "full" else "attention eager instead of sdpa"
    assert model in found["amp-speed"].reason


def test_orders_are_judged_on_the_matrix_of_the_claims_too(claims: Path) -> None:
    order = (
        "  ranked:\n    statement: One before the other.\n    sources: [{document: N, quote: faster}]\n"
        "    form: order\n    metric: speedup\n    study: precision\n"
        "    order: [{precision: bf16}, {cell: {attention: sdpa}, study: attention, at: {sequence_length: 2048}}]\n"
    )
    claims.write_text(CLAIMS + order, encoding="utf-8")

    assert verdicts(claims, other(claims.parent, ("gpt2-124m", "tiny")))["ranked"].word is Word.NOT_RUN


def test_a_matrix_that_is_not_there_is_one_error_with_its_place(claims: Path) -> None:
    (claims.parent / "mine.yaml").unlink()

    with pytest.raises(ClaimsError) as error:
        read_claims(claims)
    assert str(error.value) == (
        f"{claims}:2:9: there is no matrix 'mine.yaml' beside this file; put it there, or take `matrix` out, and "
        "trials are told by the names of their studies alone"
    )


def test_a_wrong_matrix_says_whose_it_is(claims: Path) -> None:
    (claims.parent / "mine.yaml").write_text(MATRIX.replace("attention: eager", "atention: eager"), encoding="utf-8")

    with pytest.raises(MatrixError) as error:
        read_claims(claims)
    first, *_, last = str(error.value).splitlines()
    assert "mine.yaml:9:33: unknown axis 'atention'" in first
    assert last.startswith(f"{claims}:2:9: the claims are about the studies of this matrix; mend it, or take")


def test_claims_are_checked_against_the_matrix_that_they_name(claims: Path) -> None:
    claims.write_text(CLAIMS.replace("study: precision", "study: precisoin"), encoding="utf-8")

    with pytest.raises(ClaimsError, match="unknown study 'precisoin'; did you mean 'precision'"):
        read_claims(claims, own_first=True)
