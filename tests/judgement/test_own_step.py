"""When trials of a user's own step may not be compared: hashes and losses tell."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from harness.judgement.judged import Verdict, Word
from harness.results.record import Record
from tests.judgement.claiming import make_claim, study, verdict_on
from tests.records import CellShape, make_records

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


def test_arms_that_differ_in_one_round_alone_are_a_comparison() -> None:
    records = [
        each if each.baseline or each.round > 1 else replace(each, losses=[*each.losses[:-1], each.losses[-1] + 1e-6])
        for each in alike(losses_too=True)
    ]
    assert judged(records).word is Word.CONFIRMED


def test_the_same_operators_with_other_losses_are_one() -> None:
    assert judged(alike(losses_too=False)).word is Word.CONFIRMED


def test_trials_of_built_in_workloads_are_none_of_its_business() -> None:
    records = make_records([study()])
    plain = {each.round: each.losses for each in records if each.arm == "baseline"}
    assert judged([replace(each, losses=plain[each.round]) for each in records]).word is Word.CONFIRMED


def diverging(records: list[Record], *, rounds: set[int]) -> list[Record]:
    """The same with losses that are no number from the third step on, in every arm."""
    return [
        replace(marked(each), losses=[*each.losses[:2], *[math.nan] * (len(each.losses) - 2)])
        if each.round in rounds else marked(each)
        for each in records
    ]  # fmt: skip


def test_a_baseline_that_diverges_in_every_round_confirms_nothing() -> None:
    """It was confirmed, without a word: parity left all rounds out."""
    records = make_records([study()])
    verdict = judged(diverging(records, rounds={each.round for each in records}))
    assert verdict.word is Word.INVALID
    assert "becomes infinite or no number in every round (from step 3 on in round 1)" in verdict.reason


def test_what_does_not_hang_on_training_is_judged_with_a_warning() -> None:
    records = make_records([study()])
    rounds = {each.round for each in records}
    claim = make_claim(device="any", metric="trainable_share_saved", range=[0, 0.5])
    verdict = verdict_on(claim, diverging(records, rounds=rounds))
    assert verdict.word is Word.CONFIRMED
    whole = len(rounds)
    assert f"in {whole} of {whole} rounds the loss of baseline becomes infinite or no number" in verdict.reason


def test_a_baseline_that_diverges_in_one_round_is_said_beside_the_verdict() -> None:
    records = make_records([study()])
    verdict = judged(diverging(records, rounds={2}))
    assert verdict.word is Word.CONFIRMED
    whole = len({each.round for each in records})
    assert f"in 1 of {whole} rounds the loss of baseline becomes infinite or no number (from step 3 on in round 2)" in (
        verdict.reason
    )


def test_batches_of_the_warm_up_are_held_together_too() -> None:
    """The first batch alone was looked at."""
    records = [
        marked(each, warmup_batches_sha256="another" if each.control else "b") for each in make_records([study()])
    ]
    verdict = judged(records)
    assert verdict.word is Word.INVALID
    assert "build gives other data at each call" in verdict.reason


def by_chance(
    cell: dict[str, Any], apart: float, *, draws: tuple[bool, bool] = (False, False), **figures: Any
) -> Verdict:
    """Of a cell whose losses lie `apart` nats from the baseline's, where two seeds of that lie 0.1 apart.

    `draws`: whether the loss of the baseline does, and that of the cell.
    """
    records = []
    for each in make_records([study(CellShape(settings=cell, ratio=1.75))]):
        losses = [5 + 0.1 * each.round + (0.0 if each.baseline or each.control else apart)] * 4
        mine = {"draws": draws[0]} if each.baseline or each.control else {"draws": draws[1], **figures}
        always = {"warmup_batches_sha256": "b"}
        records.append(replace(marked(each, **{**always, **mine}), losses=losses, gradient_check={}))
    assert {each.round for each in records} == {1, 2, 3, 4, 5}
    return verdict_on(make_claim(device="any", cell=cell), records)


#: Rounds 1 to 5 lie 0.1 to 0.4 from each other, 0.2 on the mean of all ten pairs.
TWO_SEEDS = 0.2


@pytest.mark.parametrize(("apart", "word"), [(0.29, Word.CONFIRMED), (0.31, Word.FAST_BUT_DIFFERENT)])
def test_arms_with_other_batches_are_judged_as_other_samples(apart: float, word: Word) -> None:
    """Workers that augment at random have seeds of their own. One and a half times what two seeds differ by: 0.3."""
    verdict = by_chance({"workers": 2}, apart, warmup_batches_sha256="others")
    assert verdict.word is word
    assert apart < 1.5 * TWO_SEEDS or "torch gives each loader worker random numbers of its own" in verdict.reason


@pytest.mark.parametrize("apart", [0.003, 0.29])
def test_workers_that_give_the_same_batches_owe_the_same_losses(apart: float) -> None:
    assert by_chance({"workers": 2}, apart).word is Word.FAST_BUT_DIFFERENT


@pytest.mark.parametrize(
    ("cell", "draws", "word"),
    [
        ({"compile": "default"}, (True, True), Word.CONFIRMED),
        ({"compile": "default"}, (False, False), Word.FAST_BUT_DIFFERENT),
        ({"compile": "default"}, (False, True), Word.FAST_BUT_DIFFERENT),  # dropout in one arm is no rounding
        ({"compile": "default"}, (True, False), Word.FAST_BUT_DIFFERENT),
        ({"checkpointing": "full"}, (True, True), Word.FAST_BUT_DIFFERENT),  # computed again on the same draws
    ],
)
def test_a_loss_that_draws_owes_other_kernels_no_more_than_two_seeds(
    cell: Any, draws: tuple[bool, bool], word: Word
) -> None:
    """A quarter of what two seeds differ by was asked of a compiled step with dropout: 0.05 here."""
    assert by_chance(cell, 0.1, draws=draws).word is word


def test_trials_from_before_the_warm_up_was_hashed_are_judged_with_those_from_after() -> None:
    hashed = {"warmup_batches_sha256": "b"}
    records = [marked(each, **(hashed if each.control else {})) for each in make_records([study()])]
    assert judged(records).word is Word.CONFIRMED
