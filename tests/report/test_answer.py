"""The table of the README: each claim with the verdict of the report that decides it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.errors import InputError
from harness.judgement.claims import Claims
from harness.judgement.judge import judge
from harness.judgement.judged import Judgement
from harness.report.answer import (
    BEGIN,
    END,
    answer,
    best_cells,
    of_folders,
    replaced,
    where_each_holds,
    where_else_each_holds,
)
from harness.results.record import Record
from tests.commands import ROOT
from tests.judgement.claiming import make_claim, make_claims, study
from tests.records import CellShape, make_records


def trials(ratio: float, *, rounds: int = 3, spread: float = 0.001) -> list[Record]:
    cell = CellShape(settings={"precision": "bf16"}, ratio=ratio)
    return make_records([study(cell)], rounds=rounds, spread=spread, step_spread=0.0)


@pytest.fixture(scope="module")
def claims() -> Claims:
    """One that 1.75 confirms and 1.3 refutes, and one of a study that nobody runs."""
    return make_claims(make_claim(range=[1.5, 2.0]), make_claim(id="elsewhere", study="elsewhere"))


def verdicts(table: str) -> list[str]:
    """What stands in the fourth column, without its link."""
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    return [row.split("|")[4].strip().partition("]")[0].lstrip("[") for row in rows]


def table(claims: Claims, **runs: list[Record]) -> str:
    reports: dict[str, Judgement] = {name: judge(records, claims) for name, records in runs.items()}
    return answer(claims, reports)


def test_of_two_with_equal_rounds_the_first_counts(claims: Claims) -> None:
    assert verdicts(table(claims, one=trials(1.75), two=trials(1.3))) == ["confirmed"]
    assert verdicts(table(claims, two=trials(1.3), one=trials(1.75))) == ["refuted, below"]


def test_more_rounds_count_whatever_they_say(claims: Claims) -> None:
    """The first that decided counted, and an inconclusive one with more rounds was passed over in silence."""
    assert verdicts(table(claims, open=trials(1.75, rounds=1), two=trials(1.3))) == ["refuted, below"]
    shown = table(claims, open=trials(1.527, rounds=5, spread=0.02), two=trials(1.75))
    assert verdicts(shown) == ["inconclusive"]
    assert ", [confirmed](reports/two/report.md#it-confirmed) on H100 |" in shown
    shown = table(claims, one=trials(1.75, rounds=5), two=trials(1.527, rounds=4, spread=0.02))
    assert verdicts(shown) == ["confirmed"]
    assert ", [inconclusive](reports/two/report.md#it-inconclusive) on H100 |" in shown


def test_what_the_other_baseline_says_stands_beside_it_where_it_is_something_else() -> None:
    cells = CellShape(settings={"precision": "bf16"}, ratio=1.75), CellShape(settings={"precision": "tf32"}, ratio=1.4)
    records = make_records([study(*cells)], rounds=3, spread=0.001, step_spread=0.0)

    def row(low: float) -> str:
        claim = make_claim(range=[low, 2.0], other_baseline={"precision": "tf32"})
        return table(make_claims(claim), one=records).splitlines()[2].split("|")[4]

    assert row(1.5).endswith("), 1.250x \\[1.246x, 1.254x\\] against precision=tf32: refuted, below ")
    assert "tf32" not in row(1.1), "confirmed against both"


def test_what_nobody_ran_is_counted_and_not_shown(claims: Claims) -> None:
    shown = table(claims, one=trials(1.75))
    assert shown.endswith("The other claims: 1 not run.")
    assert "(reports/one/report.md#" in shown
    assert shown.splitlines()[2].endswith("| H100 |")


def test_another_report_that_decides_otherwise_is_not_passed_over(claims: Claims) -> None:
    (row,) = table(claims, one=trials(1.75), two=trials(1.3)).splitlines()[2:3]
    assert "[confirmed](reports/one/" in row
    assert row.split("|")[4].endswith("), [refuted, below](reports/two/report.md#it-refuted-below) on H100 ")
    assert "reports/two" not in table(claims, one=trials(1.75), two=trials(1.76))
    assert "reports/two" not in table(claims, one=trials(1.75), two=trials(1.75, rounds=1)), "undecided"


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ({"ratio": 1.75, "rounds": 1}, "3 rounds at least"),
        ({"ratio": 1.75, "rounds": 2}, "3 rounds at least"),
        ({"ratio": 1.5, "rounds": 3, "spread": 0.02}, "about 6 rounds would settle it"),
        ({"ratio": 1.527, "rounds": 3, "spread": 0.02}, "not even 500 rounds would settle it"),
    ],
)
def test_an_open_verdict_says_how_many_rounds_would_settle_it(claims: Claims, shape: dict[str, Any], said: str) -> None:
    (row,) = table(claims, one=trials(**shape)).splitlines()[2:3]
    assert "[inconclusive]" in row
    assert f"), {said} |" in row


def test_where_else_it_holds_stands_beside_it_if_it_is_not_the_same() -> None:
    cells = CellShape(settings={"precision": "bf16"}, ratio=1.75), CellShape(settings={"precision": "tf32"}, ratio=1.3)
    records = make_records([study(*cells)], rounds=3, spread=0.001, step_spread=0.0)

    def row(first: str, second: str, high: float) -> str:
        claim = make_claim(range=[1.5, high], cell={"precision": first}, also=[{"precision": second}])
        return table(make_claims(claim), one=records).splitlines()[2].split("|")[4]

    assert row("bf16", "tf32", 2).endswith("), holds at 1, fails at 1 of 2 points ")
    assert row("tf32", "bf16", 2).endswith("), holds at 1, fails at 1 of 2 points ")
    assert "points" not in row("bf16", "tf32", 1.6), "refuted above, and refuted below: it holds nowhere"


def test_a_question_that_was_changed_after_a_result_says_so() -> None:
    change = {"when": "2026-11-28", "what": "Was judged at batch 2, where it gave 1.3x: refuted, below."}
    claims = make_claims(make_claim(range=[1.5, 2.0], changed=[change]))
    (row,) = table(claims, one=trials(1.75)).splitlines()[2:3]
    assert row.split("|")[4].endswith("), question changed after a first result ")


def test_what_the_planned_rounds_say_alone_stands_beside_it_where_it_is_something_else(claims: Claims) -> None:
    judgement = judge(trials(1.75, rounds=5), claims)
    first, *others = judgement.verdicts

    def row(word: str) -> str:
        told = replace(first, details={**first.details, "word_asked_for": word})
        return answer(claims, {"one": replace(judgement, verdicts=(told, *others))}).splitlines()[2].split("|")[4]

    assert row("inconclusive").endswith("), by the rounds that were planned: inconclusive ")
    assert row("confirmed").endswith(") ")


def test_more_rounds_do_not_settle_a_statement_on_which_rounds_disagree() -> None:
    claims = make_claims(make_claim(form="statement", range=None, metric="figure:okay", expect=True, cell=None))
    records = [replace(each, figures={"okay": each.round > 1}) for each in make_records([study()])]
    for most in (5, 2):
        found = judge([each for each in records if each.round <= most], claims)
        (row,) = answer(claims, {"one": found}).splitlines()[2:3]
        assert "[inconclusive](" in row
        assert "rounds" not in row


def test_each_gpu_has_its_fastest_cell(claims: Claims) -> None:
    other = [replace(each, environment=_on("NVIDIA H200", each.environment)) for each in trials(1.3)]
    reports = {"one": judge(trials(1.75), claims), "two": judge(other, claims)}
    lines = best_cells(reports)
    assert ["H200" in line for line in lines] == [False, True], "most of the peak first"
    assert best_cells(dict(reversed(reports.items()))) == lines
    assert not any("only" in line for line in lines)
    (line,) = best_cells({"one": judge(trials(1.75, rounds=1), claims)})
    assert "(1 round only)" in line


def test_a_cpu_has_no_place_among_gpus(claims: Claims) -> None:
    here = [replace(each, environment={**each.environment, "devices": []}) for each in trials(1.75)]
    assert best_cells({"here": judge(here, claims)}) == []


def _on(name: str, environment: dict[str, Any]) -> dict[str, Any]:
    return {**environment, "devices": [{**each, "name": name} for each in environment["devices"]]}


def test_the_fastest_cell_is_taken_from_whichever_report_has_it(claims: Claims) -> None:
    reports = {name: judge(trials(ratio), claims) for name, ratio in (("one", 1.3), ("two", 1.75))}
    (line,) = best_cells(reports)
    assert "tokens/s" in line
    assert "(reports/two/report.md#the-fastest-cell-of-each-model)" in line


def test_claims_that_contradict_each_other_stand_beside_their_curve() -> None:
    cell = CellShape(settings={"precision": "bf16"}, ratio=1.75)
    low, high = (make_claim(id=name, statement=f"It is {name}.", range=span, at=at, contradicts=[other])
                 for name, span, at, other in (("low", [1.1, 1.2], {"batch_size": 8}, "high"),
                                               ("high", [1.5, 2.0], {"batch_size": 8}, "low")))  # fmt: skip
    claims = make_claims(low, high)
    shape = study(cell, sweep=("batch_size", (2, 8)))
    swept = judge(make_records([shape], rounds=3, spread=0.001, step_spread=0.0), claims)
    (point,) = where_each_holds(claims, {"plain": judge(trials(1.75), claims), "swept": swept})
    assert "*It is low.* Holds at no batch size measured" in point
    assert "*It is high.* Holds at every batch size measured" in point
    assert point.endswith(" on H100: [curve](reports/swept/report.md#low-against-high))")
    assert where_each_holds(claims, {"plain": judge(trials(1.75), claims)}) == [], "one point is no curve"


def test_where_else_a_claim_holds_is_said_from_the_report_of_its_row() -> None:
    cell = CellShape(settings={"precision": "bf16"}, ratio=1.75)
    claims = make_claims(make_claim(statement="It is fast.", range=[1.5, 2.0], see=["longer", "not-run"]))
    longer = replace(study(cell, sweep=("sequence_length", (512, 2048))), name="longer")
    few, many = ([*trials(1.75, rounds=rounds), *make_records([longer], rounds=3, spread=0.001, step_spread=0.0)]
                 for rounds in (3, 5))  # fmt: skip
    reports = {"few": judge(few, claims), "many": judge(many, claims), "plain": judge(trials(1.75), claims)}
    assert where_else_each_holds(claims, reports) == [
        "- *It is fast.* In study longer: holds at every sequence length measured (512 to 2048). "
        "(H100: [curves](reports/many/report.md#it-confirmed))"
    ]
    assert where_else_each_holds(claims, {"plain": reports["plain"]}) == [], "no further study was run"
    alone = make_claims(make_claim(statement="It is fast.", range=[1.5, 2.0], study="not-run", see=["longer"]))
    (point,) = where_else_each_holds(alone, {"many": judge(many, alone)})
    assert point.endswith(" (many: [curves](reports/many/report.md#it-not-run))"), "its verdict is of no device"


def test_it_goes_between_the_marks_and_nowhere_else() -> None:
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert replaced(page, "new") == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    with pytest.raises(InputError, match="between which"):
        replaced("before\nafter\n", "new")


def test_the_readme_says_what_the_evidence_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    page = Path("README.md").read_text(encoding="utf-8")
    assert replaced(page, of_folders([Path("reports/evidence/h100"), Path("reports/evidence/h200")])) == page
