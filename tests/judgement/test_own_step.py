"""When trials of a user's own step may not be compared: hashes and losses tell."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from harness.judgement.judged import Verdict, Word
from harness.results.record import Record
from tests.judgement.claiming import make_claim, study, verdict_on
from tests.records import make_records

SAME = {"first_batch_sha256": "b", "first_weights_sha256": "w", "work_sha256": "k"}


def marked(record: Record, **figures: Any) -> Record:
    """As a trial of a user's step: what it began with, and what a step did (another kernel in the cell)."""
    work = {} if record.baseline else {"work_sha256": "other"}
    return replace(record, figures={**record.figures, **SAME, **work, **figures})


def judged(records: list[Record]) -> Verdict:
    return verdict_on(make_claim(device="any"), records)


def test_a_step_that_begins_alike_everywhere_is_judged() -> None:
    assert judged([marked(each) for each in make_records([study()])]).word is Word.CONFIRMED


@pytest.mark.parametrize(
    ("name", "words"), [("first_batch_sha256", "other data"), ("first_weights_sha256", "other first weights")]
)
def test_what_is_drawn_anew_at_each_call_makes_the_claim_invalid(name: str, words: str) -> None:
    """The A/A control has the seed and the settings of the baseline, so it must begin with the same."""
    records = [
        marked(each, **({name: "another"} if each.control and each.round == 2 else {}))
        for each in make_records([study()])
    ]
    verdict = judged(records)
    assert verdict.word is Word.INVALID
    assert f"build gives {words} at each call" in verdict.reason
    assert "(round 2, " in verdict.reason
    assert verdict.measured == ""


def test_a_loss_with_numbers_that_nothing_seeds() -> None:
    records = [
        replace(marked(each), losses=[each.losses[0] + (0.1 if each.control else 0.0), *each.losses[1:]])
        for each in make_records([study()])
    ]
    verdict = judged(records)
    assert verdict.word is Word.INVALID
    assert "something draws numbers that nothing seeds" in verdict.reason


@pytest.mark.parametrize("none", [math.nan, None, math.inf])
def test_a_loss_that_is_no_number_from_the_first_step_on_is_no_training(none: Any) -> None:
    """It was `first losses nan and nan: something draws numbers that nothing seeds`: they are the same."""
    records = [replace(marked(each), losses=[none] * len(each.losses)) for each in make_records([study()])]
    verdict = judged(records)
    assert verdict.word is Word.INVALID
    assert "from step 1 on (round 1, baseline)" in verdict.reason
    assert "nothing seeds" not in verdict.reason


def test_a_first_loss_that_is_a_number_in_one_trial_alone_is_not_seeded() -> None:
    records = [
        replace(marked(each), losses=[math.nan if each.control else each.losses[0], *each.losses[1:]])
        for each in make_records([study()])
    ]
    assert "and nan: something draws numbers that nothing seeds" in judged(records).reason


def test_a_cell_alone_whose_loss_is_no_number_trained_something_else() -> None:
    records = [
        marked(each) if each.baseline or each.control else replace(marked(each), losses=[math.nan] * len(each.losses))
        for each in make_records([study()])
    ]
    assert judged(records).word is Word.FAST_BUT_DIFFERENT


def alike(*, losses_too: bool) -> list[Record]:
    records = make_records([study()])
    plain = {each.round: each.losses for each in records if each.arm == "baseline"}
    found = [replace(marked(each, work_sha256="k"), losses=plain[each.round]) for each in records]
    last = 0.0 if losses_too else 1e-6
    moved = [replace(each, losses=[*each.losses[:-1], each.losses[-1] + last]) for each in found]
    return [old if old.baseline else new for old, new in zip(found, moved, strict=True)]


def test_arms_that_did_the_same_to_the_last_digit_are_no_comparison() -> None:
    verdict = judged(alike(losses_too=True))
    assert verdict.word is Word.INVALID
    assert "did exactly the same" in verdict.reason


def test_the_same_operators_with_other_losses_are_one() -> None:
    assert judged(alike(losses_too=False)).word is Word.CONFIRMED


def test_trials_of_built_in_workloads_are_none_of_its_business() -> None:
    records = make_records([study()])
    plain = {each.round: each.losses for each in records if each.arm == "baseline"}
    assert judged([replace(each, losses=plain[each.round]) for each in records]).word is Word.CONFIRMED
