"""Did the cell train the same thing? What each change of a setting owes its baseline, and the two looks."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from harness.checking.words import parity_object
from harness.judgement.blocks import compare
from harness.judgement.judged import Parity, Word
from harness.judgement.parity import (
    DEMANDS,
    Demand,
    LossPairs,
    demand_of,
    effective_batch,
    judge_parity,
    loss_gap,
    seed_gap,
)
from harness.results.record import Record
from harness.techniques.registry import axis_table
from harness.trial.outcome import Outcome
from tests.judgement.claiming import make_claim, study, verdict_on
from tests.records import DEFAULTS, CellShape, make_records

CELL = "precision=bf16"
EXACT, ROUNDING, SPREAD, UNEQUAL = Demand.EXACT, Demand.ROUNDING, Demand.SPREAD, Demand.UNEQUAL


@pytest.mark.parametrize(
    ("changes", "demand"),
    [
        ({}, EXACT),
        ({"checkpointing": "full"}, EXACT),
        ({"workers": 4, "pin_memory": True}, EXACT),
        ({"monitor": "item"}, EXACT),
        ({"batch_size": 4, "accumulation": 2}, SPREAD),  # the same effective batch of other samples
        ({"precision": "bf16"}, ROUNDING),
        ({"attention": "flash2"}, ROUNDING),
        ({"compile": "default", "checkpointing": "full"}, ROUNDING),
        ({"zero": 2}, ROUNDING),
        ({"batch_size": 4, "devices": 2, "parallel": "ddp"}, SPREAD),  # strong scaling: other samples
        ({"batch_size": 4, "devices": 2, "zero": 1, "precision": "ds-bf16"}, SPREAD),
        ({"devices": 2, "parallel": "pipeline"}, ROUNDING),
        ({"devices": 2, "parallel": "ddp"}, UNEQUAL),  # weak scaling
        ({"batch_size": 64}, UNEQUAL),
        ({"accumulation": 2}, UNEQUAL),
        ({"lora": 8}, UNEQUAL),
        ({"quantization": "nf4", "precision": "bf16"}, UNEQUAL),
        ({"sequence_length": 2048}, UNEQUAL),
        ({"an_axis_of_a_plugin": "on"}, SPREAD),
    ],
)  # fmt: skip
def test_what_a_change_owes_the_baseline(changes: dict[str, object], demand: Demand) -> None:
    assert demand_of({**DEFAULTS, **changes}, DEFAULTS)[0] == demand  # type: ignore[dict-item]


def test_a_pipeline_over_more_devices_trains_the_same_batch() -> None:
    two = {**DEFAULTS, "parallel": "pipeline", "devices": 2}
    assert demand_of({**two, "devices": 4}, two) == (EXACT, "devices: same effective batch")  # type: ignore[dict-item]


OF_AXES = {
    EXACT: """checkpointing workers prefetch pin_memory persistent start non_blocking copy stream cost_per_sample_ms
              empty_cache input_gradients overlap_comm monitor""",
    ROUNDING: "precision attention compile optimizer autocast_outside zero parallel micro_batches",
    UNEQUAL: """lora lora_targets quantization sequence_length batching deepspeed_config clip schedule pruning
                distillation""",
}


def test_every_axis_has_its_duty() -> None:
    """One that is missing is judged as statistics, which a loader that changes samples would pass."""
    wanted = {axis: demand for demand, axes in OF_AXES.items() for axis in axes.split()}
    assert {axis: demand for axis, (demand, _) in DEMANDS.items()} == wanted
    judged_by_their_product = {"batch_size", "accumulation", "devices"}
    assert wanted.keys() | judged_by_their_product == set(axis_table())


@pytest.mark.parametrize(
    ("baseline", "cell", "demand"),
    [
        ({"parallel": "ddp", "devices": 2}, {"parallel": "fsdp", "devices": 2}, ROUNDING),
        ({"parallel": "pipeline", "devices": 2}, {"parallel": "ddp", "devices": 2}, UNEQUAL),
        ({"parallel": "ddp", "devices": 2, "batch_size": 8},
         {"parallel": "pipeline", "devices": 2, "batch_size": 16}, SPREAD),
        ({"parallel": "ddp", "devices": 2, "batch_size": 8},
         {"parallel": "ddp", "devices": 2, "batch_size": 4, "accumulation": 2}, SPREAD),
    ],
)  # fmt: skip
def test_what_counts_is_who_draws_samples(baseline: dict[str, object], cell: dict[str, object], demand: Demand) -> None:
    assert demand_of({**DEFAULTS, **cell}, {**DEFAULTS, **baseline})[0] == demand  # type: ignore[dict-item]


def test_the_effective_batch_counts_devices_only_where_they_add_samples() -> None:
    assert effective_batch({"batch_size": 8, "accumulation": 2, "devices": 2, "parallel": "ddp"}) == 32
    assert effective_batch({"batch_size": 8, "accumulation": 2, "devices": 2, "parallel": "pipeline"}) == 16
    assert effective_batch({"batch_size": 8, "accumulation": 1, "devices": 2, "zero": 1}) == 16
    assert effective_batch({"batch_size": 8, "devices": 2, "precision": "ds-bf16", "zero": "off"}) == 16, "an engine"


def test_the_gap_is_the_mean_distance_of_the_curves() -> None:
    assert loss_gap([3.0, 2.0, 1.0], [3.1, 1.8, 1.0]) == pytest.approx(0.1)
    assert loss_gap([3.0, math.nan], [3.0, 2.0]) == math.inf
    assert loss_gap([], [1.0]) == math.inf


def trial(**fields: object) -> Record:
    return replace(make_records(rounds=1)[0], **fields)  # type: ignore[arg-type]


BASE = ([3.0, 2.0, 1.0], [3.2, 2.2, 1.2], [2.8, 1.8, 0.8])
"""Three seeds. Mean distances: 0.2, 0.2, 0.4; their mean, the margin, is 0.2667."""


def losses(shift: float, control_shift: float = 0.0) -> LossPairs:
    return LossPairs(
        pairs=tuple(([loss + shift for loss in curve], curve) for curve in BASE),
        control=tuple(([loss + control_shift for loss in curve], curve) for curve in BASE), seed_gap=seed_gap(BASE),
    )  # fmt: skip


def parity_of(changes: dict[str, object], pairs: LossPairs, check: dict[str, float] | None = None) -> Parity:
    cell = {**DEFAULTS, **changes}
    return judge_parity(cell, DEFAULTS, [trial(gradient_check=check or {})], pairs)  # type: ignore[arg-type]


def test_a_change_of_rounding_may_stray_by_a_quarter_of_what_two_seeds_do() -> None:
    near = parity_of({"precision": "bf16"}, losses(0.066))
    assert (near.word, near.holds) == ("holds", True)
    assert near.margin == pytest.approx(0.8 / 3 / 4)
    far = parity_of({"precision": "bf16"}, losses(0.067))
    assert (far.word, far.holds) == ("fails", False)
    assert far.reason == (
        "the losses lie 0.067 nats apart in the median round, two seeds of the baseline 0.267, "
        "of which rounding may take 0.0667"
    )


def test_other_samples_or_an_unknown_axis_may_stray_as_far_as_two_seeds() -> None:
    for changes in ({"batch_size": 4, "devices": 2, "parallel": "ddp"}, {"an_axis_of_a_plugin": "on"}):
        assert parity_of(changes, losses(0.26)).holds is True
        far = parity_of(changes, losses(0.28))
        assert far.holds is False
        assert far.reason == "the losses lie 0.28 nats apart in the median round, two seeds of the baseline 0.267"


def shifted(*shifts: float) -> LossPairs:
    """One shift a round."""
    return LossPairs(
        pairs=tuple(([loss + shift for loss in curve], curve) for curve, shift in zip(BASE, shifts, strict=True)),
        control=(), seed_gap=seed_gap(BASE),
    )  # fmt: skip


def test_one_round_that_spikes_is_told_and_fails_nothing() -> None:
    """Measured on H200s: four rounds of DeepSpeed's bf16 within 0.011 nats of fp32, the fifth 0.345 off."""
    found = parity_of({"precision": "ds-bf16"}, shifted(0.007, 0.345, 0.011))
    assert (found.word, found.strayed, found.rounds) == ("holds", 1, 3)
    assert found.loss_gap == pytest.approx(0.011)
    assert found.worst_gap == pytest.approx(0.345)
    assert found.reason == (
        "the losses lie 0.011 nats apart in the median round, in 1 of 3 by up to 0.345, "
        "two seeds of the baseline 0.267, of which rounding may take 0.0667"
    )


def test_a_change_of_the_arithmetic_shows_in_most_rounds_and_fails() -> None:
    """Measured on H200s: one more step of the optimizer before training: 0.122, 0.622, 0.186 of seeds 0.586 apart."""
    found = parity_of({"zero": 1}, shifted(0.0555, 0.283, 0.0846))
    assert (found.word, found.holds) == ("fails", False)
    assert found.reason.startswith("the losses lie 0.0846 nats apart in the median round, ")
    assert parity_of({"precision": "bf16"}, shifted(0.0555, 0.283, 0.0276)).holds is True, "a tenth, and a spike"


def test_of_an_even_number_of_rounds_the_worse_one_in_the_middle_is_judged() -> None:
    base = (*BASE, BASE[0])
    for shifts, holds in (((0.0, 0.0, 0.0, 9.0), True), ((0.0, 0.0, 0.13, 0.13), False), ((0.0, 0.13), False)):
        pairs = tuple(([loss + shift for loss in curve], curve) for curve, shift in zip(base, shifts, strict=False))
        found = parity_of({"precision": "bf16"}, LossPairs(pairs=pairs, control=(), seed_gap=seed_gap(BASE)))
        assert found.holds is holds
        assert found.loss_gap == pytest.approx(sorted(shifts)[len(shifts) // 2])


def test_one_spike_of_the_control_allows_no_cell_to_stray() -> None:
    """Measured on H200s: a control 0.0002, 0.003 and 0.21 from its baseline would have allowed 0.42 in each round."""
    control = tuple(
        ([loss + shift for loss in curve], curve) for curve, shift in zip(BASE, (0.0, 0.003, 0.21), strict=True)
    )
    found = parity_of(
        {"overlap_comm": False}, LossPairs(pairs=losses(0.1).pairs, control=control, seed_gap=seed_gap(BASE))
    )
    assert found.holds is False
    assert found.margin == pytest.approx(0.8 / 3 / 4)


@pytest.mark.parametrize(("shift", "strays"), [(0.00018, False), (0.00022, True)])
def test_a_control_strays_from_a_tenth_of_the_tolerance_on(shift: float, strays: bool) -> None:
    """0.002 nats are allowed in fp32."""
    found = parity_of({"workers": 4}, losses(0.001, control_shift=shift))
    assert ("but the baseline run twice differs too" in found.reason) is strays
    assert found.margin == pytest.approx(0.8 / 3 / 4 if strays else 0.002)


def test_of_a_single_round_no_median_is_spoken_of_and_of_none_no_divergence() -> None:
    one = LossPairs(pairs=losses(0.067).pairs[:1], control=(), seed_gap=seed_gap(BASE))
    assert parity_of({"precision": "bf16"}, one).reason.startswith("the losses lie 0.067 nats apart, two seeds")
    none = LossPairs(pairs=(), control=(), seed_gap=seed_gap(BASE))
    assert parity_of({"precision": "bf16"}, none).word == "not checked: no losses of both arms in one round"


def test_a_control_that_diverged_once_opens_nothing() -> None:
    control = (([3.0, math.nan, 1.0], BASE[0]), (BASE[1], BASE[1]), (BASE[2], BASE[2]))
    found = parity_of({"workers": 4}, LossPairs(pairs=losses(0.05).pairs, control=control, seed_gap=seed_gap(BASE)))
    assert (found.holds, found.margin) == (False, 0.002)


def test_a_round_in_which_the_baseline_diverged_blames_nobody_and_allows_nothing() -> None:
    broken = [3.0, math.inf, math.nan]
    seeds = seed_gap([*BASE, broken])
    assert seeds == seed_gap(BASE)
    pairs = (*losses(0.01).pairs, ([3.0, 2.0, 1.0], broken))
    found = parity_of({"precision": "bf16"}, LossPairs(pairs=pairs, control=(), seed_gap=seeds))
    assert (found.holds, found.rounds) == (True, 3)
    far = parity_of({"precision": "bf16"}, LossPairs(pairs=losses(4.0).pairs, control=(), seed_gap=seeds))
    assert far.holds is False
    alone = parity_of({"precision": "bf16"}, LossPairs(pairs=pairs[-1:], control=(), seed_gap=seeds))
    assert alone.word == "not checked: the baseline's own loss became infinite or no number"
    assert seed_gap([BASE[0], broken]) is None


def test_what_must_not_touch_the_arithmetic_fails_by_one_round() -> None:
    assert parity_of({"workers": 4}, shifted(0.0, 0.01, 0.0)).holds is False


def test_a_strayed_round_stands_beside_the_verdict() -> None:
    records = [replace(each, losses=[loss + 3.0 for loss in each.losses]) if each.round == 2 and each.arm == CELL
               else each for each in make_records([study()], rounds=5)]  # fmt: skip
    found = verdict_on(make_claim(), records)
    assert found.word is Word.CONFIRMED
    assert "in 1 of 5 rounds the losses of precision=bf16 lie up to 3 nats from the baseline's" in found.reason


def test_a_change_that_must_not_touch_the_arithmetic_has_float_tolerance_only() -> None:
    assert parity_of({"checkpointing": "full"}, losses(0.001)).holds is True
    assert parity_of({"checkpointing": "full"}, losses(0.01)).holds is False


def test_where_kernels_are_not_deterministic_the_control_sets_the_tolerance() -> None:
    assert parity_of({"checkpointing": "full"}, losses(0.07, control_shift=0.04)).holds is True
    far = parity_of({"checkpointing": "full"}, losses(0.09, control_shift=0.04))
    assert far.holds is False
    assert far.reason == (
        "the losses lie 0.09 nats apart in the median round, "
        "0.08 are allowed where the arithmetic must not change but the baseline run twice differs too"
    )


def test_where_kernels_are_not_deterministic_no_more_is_asked_than_of_rounding() -> None:
    """Measured on H200s: empty_cache, which holds no values, strayed by 0.03 nats where the control did by 0.004."""
    assert parity_of({"empty_cache": 1}, losses(0.03, control_shift=0.004)).holds is True
    assert parity_of({"empty_cache": 1}, losses(0.03, control_shift=0.0003)).holds is True, "beyond a tenth of 0.002"
    assert parity_of({"empty_cache": 1}, losses(0.03)).holds is False
    assert parity_of({"empty_cache": 1}, losses(0.03, control_shift=0.0001)).holds is False, "within a tenth"
    assert parity_of({"empty_cache": 1}, losses(0.2, control_shift=0.004)).holds is False


def of_rounds(gaps: list[float], control: float) -> LossPairs:
    """A round of each gap, beside a control whose rounds all have one."""
    pairs = tuple(([loss + gap for loss in BASE[0]], BASE[0]) for gap in gaps)
    again = tuple(([loss + control for loss in BASE[0]], BASE[0]) for _ in gaps)
    return LossPairs(pairs=pairs, control=again, seed_gap=seed_gap(BASE))


@pytest.mark.parametrize(
    ("rounds", "strayed", "control", "holds"),
    [
        (9, 1, 0.0001, False), (10, 1, 0.0001, True), (19, 2, 0.0001, False), (20, 2, 0.0001, True),
        (32, 3, 0.0001, True), (32, 4, 0.0001, False), (32, 1, 0.0, False),
    ],
)  # fmt: skip
def test_of_many_rounds_one_in_ten_may_stray_where_the_baseline_does_not_repeat_itself(
    rounds: int, strayed: int, control: float, holds: bool
) -> None:
    """Measured on H200s: a pipeline's baseline run twice lay 0.0004 nats from itself, in 1 of 32 rounds 0.0505."""
    found = parity_of({"workers": 4}, of_rounds([0.05] * strayed + [0.0001] * (rounds - strayed), control))
    assert found.holds is holds
    assert found.worst_gap == pytest.approx(0.05)
    assert found.rounds == rounds


def test_a_stray_among_many_rounds_is_told() -> None:
    found = parity_of({"workers": 4}, of_rounds([0.05] + [0.0011] * 11, 0.0001))
    assert (found.word, found.strayed, found.judged) == ("holds", 1, "in the others at most")
    assert found.reason == (
        "the losses lie 0.0011 nats apart in the others at most, in 1 of 12 by up to 0.05, "
        "0.002 are allowed where the arithmetic must not change"
    )
    far = parity_of({"workers": 4}, of_rounds([0.05, 0.04] + [0.0011] * 10, 0.0001))
    assert far.reason == (
        "the losses lie 0.04 nats apart or more in 2 of 12 rounds, "
        "0.002 are allowed where the arithmetic must not change"
    )


def test_what_is_said_of_the_rounds_that_agree_is_the_largest_of_them() -> None:
    """Of 62 rounds on H200s one lay 0.0432 nats off and another 0.0144; "in the others at most 0.00175" was said, since
    six might have strayed."""
    gaps = [0.0019] + [0.0002] * 29
    held = parity_of({"workers": 4}, of_rounds([0.05, *gaps], 0.0001))
    assert held.loss_gap == pytest.approx(0.0019)
    assert held.reason.startswith("the losses lie 0.0019 nats apart in the others at most, in 1 of 31 by up to 0.05, ")
    assert parity_of({"workers": 4}, of_rounds(gaps, 0.0001)).loss_gap == pytest.approx(0.0019), "none strayed"
    failed = parity_of({"workers": 4}, of_rounds([0.09, 0.08, 0.07, 0.06, 0.05, *gaps], 0.0001))
    assert failed.reason.startswith("the losses lie 0.05 nats apart or more in 5 of 35 rounds, ")


def test_a_stray_among_few_rounds_fails_and_is_told_how_many_would_tell() -> None:
    """Measured on H200s: of 62 rounds of a monitor one ended in a spike, 0.0432 nats apart, the next at 0.0144."""
    must = "0.002 are allowed where the arithmetic must not change"
    one = parity_of({"workers": 4}, of_rounds([0.0432] + [0.0011] * 4, 0.0001))
    assert (one.word, one.reason) == (
        "fails",
        f"the losses lie 0.0432 nats apart in 1 of 5 rounds, {must}; "
        "a spike of the loss can do that in one round, which one of 10 may: run 10 to tell",
    )
    two = parity_of({"workers": 4}, of_rounds([0.05, 0.04] + [0.0011] * 3, 0.0001))
    assert two.reason == f"the losses lie 0.05 nats apart in 2 of 5 rounds, {must}"
    all_of_them = parity_of({"workers": 4}, of_rounds([0.05] * 5, 0.0001))
    assert all_of_them.reason == f"the losses lie 0.05 nats apart, {must}"
    repeats_itself = parity_of({"workers": 4}, of_rounds([0.05] + [0.0] * 4, 0.0))
    assert repeats_itself.reason == f"the losses lie 0.05 nats apart in 1 of 5 rounds, {must}"
    alone = parity_of({"workers": 4}, of_rounds([0.05], 0.0001))
    assert alone.reason == f"the losses lie 0.05 nats apart, {must}"


def test_unequal_work_is_said_with_its_axis() -> None:
    found = parity_of({"lora": 8}, losses(1.0))
    assert found.word == "not applicable: unequal work"
    assert found.holds is None
    assert found.reason == "lora: other weights are trained"


def test_a_wrong_mask_shows_in_the_first_gradient_though_the_losses_agree() -> None:
    good = parity_of({"attention": "flash2"}, losses(0.0), {"error": 0.008, "eager_error": 0.005})
    assert good.holds is True
    wrong = parity_of({"attention": "flash2"}, losses(0.0), {"error": 0.5, "eager_error": 0.005})
    assert wrong.holds is False
    assert wrong.reason == "the first gradient is off by 0.5, eager attention at that precision by 0.005"


def test_in_fp32_eager_is_exact_and_rounding_is_still_allowed() -> None:
    assert parity_of({"attention": "sdpa-math"}, losses(0.0), {"error": 2e-6, "eager_error": 0.0}).holds is True


@pytest.mark.parametrize(
    ("error", "eager", "holds"),
    [(0.0100, 0.005, True), (0.0101, 0.005, False), (1.0e-5, 0.0, True), (1.1e-5, 0.0, False), (1.1e-5, None, False)],
)
def test_the_first_gradient_may_be_off_by_twice_what_eager_attention_is(
    error: float, eager: float | None, holds: bool
) -> None:
    check = {"error": error, "eager_error": eager}
    assert parity_of({"attention": "flash2"}, losses(0.0), check).holds is holds  # type: ignore[arg-type]


def test_of_several_looks_at_the_first_gradient_the_worst_counts() -> None:
    looks = [trial(gradient_check={"error": error, "eager_error": 0.005}) for error in (0.004, 0.5, 0.004)]
    found = judge_parity({**DEFAULTS, "attention": "flash2"}, DEFAULTS, looks, losses(0.0))
    assert (found.holds, found.gradient_error) == (False, 0.5)
    # three times eager's error beside one times a larger one, as in a round at another scale of the gradients
    looks = [
        trial(gradient_check={"error": error, "eager_error": eager}) for error, eager in ((0.02, 0.02), (0.015, 0.005))
    ]
    found = judge_parity({**DEFAULTS, "attention": "flash2"}, DEFAULTS, looks, losses(0.0))
    assert (found.holds, found.gradient_error) == (False, 0.015)


@pytest.mark.parametrize(("precision", "nats"), [("fp32", 2e-3), ("tf32", 1e-2), ("bf16", 2e-2), ("amp-bf16", 2e-2)])
def test_the_same_arithmetic_in_another_order_may_stray_as_the_precision_rounds(precision: str, nats: float) -> None:
    base = {**DEFAULTS, "precision": precision}
    for share, holds in ((0.99, True), (1.01, False)):
        found = judge_parity({**base, "checkpointing": "full"}, base, [trial()], losses(share * nats))
        assert (found.holds, found.margin) == (holds, nats)


def test_the_first_gradient_counts_where_only_the_timing_is_in_doubt() -> None:
    """A neighbour in round 1, in which alone the gradient is looked at: the losses by themselves would pass a mask."""
    wrong = {"error": 0.5, "eager_error": 0.005}
    records = [replace(each, outcome=Outcome.INVALID, gradient_check=wrong) if each.round == 1 and each.arm == CELL
               else each for each in make_records([study()], rounds=3)]  # fmt: skip
    (block,) = compare(records).blocks
    cell = next(arm for arm in block.arms if arm.role == "cell")
    assert cell.parity.holds is False
    assert "the first gradient is off by 0.5" in cell.parity.reason


@pytest.mark.parametrize(("precision", "holds"), [("bf16", False), ("amp-fp16", True)])
def test_a_first_gradient_that_is_no_number_fails_but_under_a_scaled_loss(precision: str, holds: bool) -> None:
    shape = study(CellShape(settings={"precision": precision}))
    records = [replace(each, gradient_check={"error": None, "eager_error": 0.005})
               if each.round == 1 and each.arm == f"precision={precision}" else each
               for each in make_records([shape], rounds=3)]  # fmt: skip
    (block,) = compare(records).blocks
    cell = next(arm for arm in block.arms if arm.role == "cell")
    assert cell.parity.holds is holds


def test_a_loss_that_is_not_a_number_fails() -> None:
    pairs = LossPairs(pairs=(([3.0, math.nan], [3.0, 2.0]),), control=(), seed_gap=seed_gap(BASE))
    found = parity_of({"precision": "amp-fp16"}, pairs)
    assert found.holds is False
    assert found.reason.startswith("a loss became infinite or no number")


def test_a_loss_that_is_not_a_number_fails_with_one_seed_too_and_in_one_round_of_three() -> None:
    one = LossPairs(pairs=(([3.0, None], [3.0, 2.0]),), control=(), seed_gap=None)  # type: ignore[list-item]
    assert parity_of({"precision": "amp-fp16"}, one).holds is False
    assert parity_of({"precision": "amp-fp16"}, shifted(0.0, math.nan, 0.0)).holds is False


def test_a_trial_of_the_baseline_that_does_not_count_moves_no_margin() -> None:
    """Losses of a trial that was inert or spoiled are in its record; they would have let cells stray further."""

    def margin(records: list[Record]) -> float | None:
        (block,) = compare(records).blocks
        return next(arm.parity.margin for arm in block.arms if arm.role == "cell")

    records = make_records([study()], rounds=4)
    spoiled = [
        replace(each, outcome=Outcome.INVALID, losses=[loss + 10.0 for loss in each.losses])
        if each.arm == "baseline" and each.round == 4 else each for each in records
    ]  # fmt: skip
    assert margin(spoiled) == margin([each for each in records if each.round < 4])


def test_one_seed_gives_no_margin() -> None:
    pairs = LossPairs(pairs=(([3.0], [3.0]),), control=(), seed_gap=seed_gap([[3.0]]))
    found = parity_of({"precision": "bf16"}, pairs)
    assert found.holds is None
    assert found.word == "not checked: one seed gives no spread between seeds"


def test_one_seed_gives_no_margin_to_arms_that_differ_by_chance() -> None:
    """Of what must not change the arithmetic 0.002 nats were asked, of other batches too."""
    one = LossPairs(pairs=(([3.1], [3.0]),), control=(), seed_gap=None)
    assert parity_of({"workers": 2}, one).holds is False
    assert parity_of({"workers": 2}, replace(one, chance="the arms had other batches")).holds is None


def test_a_loss_without_a_number_can_be_told_as_json() -> None:
    """`claimbench check --json` ended with an error after all was measured."""
    records = [replace(each, losses=[math.nan, *each.losses[1:]]) if each.round == 2 and each.arm == CELL else each
               for each in make_records([study()], rounds=3)]  # fmt: skip
    (block,) = compare(records).blocks
    cell = next(arm for arm in block.arms if arm.role == "cell")
    assert cell.parity.worst_gap == math.inf
    found = json.loads(json.dumps(parity_object(cell), allow_nan=False))
    assert (found["word"], found["loss_gap"], found["worst_gap"]) == ("fails", None, None)
