"""Claims about several cells: orders, products, limits for many devices; and statements."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from harness.judgement.claims import Claim
from harness.judgement.judged import Verdict, Word
from harness.results.record import Record
from harness.trial.outcome import Outcome
from tests.judgement.claiming import CELL, made, make_claim, study, verdict_on
from tests.records import A100, PARAMETERS, CellShape, StudyShape, make_records


def order(*entries: dict[str, Any], **fields: Any) -> Claim:
    return make_claim(form="order", range=None, cell=None, order=list(entries), **fields)


def ranked(first: float, second: float, third: float) -> list[Record]:
    """One block with three cells of known speed: compile, attention, checkpointing."""
    cells = (("compile", "default", first), ("attention", "flash2", second), ("optimizer", "fused", third))
    return make_records([study(*(CellShape(settings={axis: to}, ratio=ratio) for axis, to, ratio in cells))])


COMPILE, FLASH, FUSED = {"compile": "default"}, {"attention": "flash2"}, {"optimizer": "fused"}


# -- orders ------------------------------------------------------------------------------------------------------------


def test_an_order_holds_where_each_gains_more_than_the_next() -> None:
    found = verdict_on(order(COMPILE, FLASH, FUSED), ranked(1.6, 1.3, 1.1))
    assert found.word is Word.CONFIRMED
    assert found.claimed == "compile=default > attention=flash2 > optimizer=fused"
    assert found.measured.startswith("compile=default 1.58x > attention=flash2 1.30x")
    assert found.value == 1.0


def test_one_reversed_pair_refutes_an_order_and_is_named() -> None:
    found = verdict_on(order(COMPILE, FLASH, FUSED), ranked(1.3, 1.6, 1.1))
    assert found.word is Word.REFUTED_BELOW
    assert found.reason.startswith("attention=flash2 (1.59x) gains more than ")
    assert "gains more than compile=default (1.29x" in found.reason
    assert found.details["pairs_in_order"] == 2
    assert found.measured.startswith("attention=flash2")


def test_entries_too_close_to_tell_apart_leave_an_order_open() -> None:
    found = verdict_on(order(COMPILE, FLASH, FUSED), ranked(1.3, 1.301, 1.1))
    assert found.word is Word.INCONCLUSIVE
    assert found.reason == "not told apart at the rounds run: compile=default and attention=flash2"


def test_an_entry_that_was_not_measured_leaves_an_order_open_and_is_named() -> None:
    it = order(COMPILE, {"name": "LoRA", "cell": {"lora": 8}}, FUSED)
    found = verdict_on(it, ranked(1.6, 1.3, 1.1))
    assert found.word is Word.INCONCLUSIVE
    assert found.reason == "the order is not complete: LoRA (study 'precision' has no trial of it)"


def test_a_reversed_pair_refutes_even_where_an_entry_is_missing() -> None:
    found = verdict_on(order(COMPILE, {"lora": 8}, FUSED), ranked(1.1, 1.3, 1.6))
    assert found.word is Word.REFUTED_BELOW


def test_an_entry_may_be_the_best_of_several_cells_and_live_in_another_study() -> None:
    other = StudyShape(name="batch", cells=tuple(
        CellShape(settings={"batch_size": size}, ratio=ratio) for size, ratio in ((16, 1.4), (64, 2.0))))  # fmt: skip
    best = {"name": "batch size", "best_of": [{"batch_size": 16}, {"batch_size": 64}], "study": "batch"}
    found = verdict_on(order(best, COMPILE), ranked(1.6, 1.3, 1.1) + make_records([other]))
    assert found.word is Word.CONFIRMED
    assert found.measured.startswith("batch size 1.99x")


@pytest.mark.parametrize(
    "metric", ["speedup", "step_time_ratio", "figure_inverse:step_seconds", "figure_saved:step_seconds"]
)
def test_the_largest_gain_is_first_whichever_way_a_metric_points(metric: str) -> None:
    shape = study(CellShape(settings=COMPILE, ratio=1.6), CellShape(settings=FLASH, ratio=1.3))
    records = [replace(each, figures={"step_seconds": each.step_seconds[0]})
               for each in make_records([shape], step_spread=0.0)]  # fmt: skip
    assert verdict_on(order(COMPILE, FLASH, metric=metric), records).word is Word.CONFIRMED
    assert verdict_on(order(FLASH, COMPILE, metric=metric), records).word is Word.REFUTED_BELOW


def test_an_entry_of_another_study_is_looked_for_at_its_points_and_not_at_the_claim_s() -> None:
    here = study(CellShape(settings=COMPILE, ratio=1.6), sweep=("sequence_length", (512, 1024)))
    other = StudyShape(name="other", cells=(CellShape(settings=FUSED, ratio=1.1),))
    it = order(COMPILE, {"cell": FUSED, "study": "other"}, at={"sequence_length": 512})
    assert verdict_on(it, make_records([here, other])).word is Word.CONFIRMED


def test_entries_are_ranked_on_the_machine_that_counts() -> None:
    """A cell gained more on another one, where it ran in fewer rounds."""
    there = make_records(
        [study(CellShape(settings=FLASH, ratio=3.0))], rounds=3, environment=A100, fingerprint="a" * 16
    )
    found = verdict_on(order(COMPILE, FLASH), [*ranked(1.6, 1.3, 1.1), *there])
    assert found.word is Word.CONFIRMED
    assert "attention=flash2 1.30x" in found.measured


def test_an_entry_that_was_measured_again_is_judged_on_what_counts_now() -> None:
    newer = made(ranked(1.2, 1.5, 1.1), "2" * 16, version=2)
    records = [*made(ranked(3.0, 1.5, 1.1), "1" * 16), *newer]
    found = verdict_on(order(COMPILE, FLASH, FUSED), records)
    assert found.word is Word.REFUTED_BELOW
    assert "compile=default (1.19x" in found.reason
    newest_failed = [replace(each, outcome=Outcome.CRASH) for each in newer]
    older = made(ranked(3.0, 1.5, 1.1), "1" * 16)
    assert verdict_on(order(COMPILE, FLASH, FUSED), [*older, *newest_failed]).word is Word.CONFIRMED
    no_baseline = [replace(each, outcome=Outcome.CRASH) if each.baseline else each
                   for each in newer]  # fmt: skip
    assert verdict_on(order(COMPILE, FLASH, FUSED), [*older, *no_baseline]).word is Word.CONFIRMED
    no_cell = [replace(each, outcome=Outcome.CRASH) if each.arm == "compile=default" else each
               for each in newer]  # fmt: skip
    few = [each for each in older if each.round < 3]
    found = verdict_on(order(COMPILE, FLASH, FUSED), [*few, *no_cell])
    assert "compile=default 3." in found.measured or "compile=default 2.9" in found.measured


def test_memory_is_ranked_by_its_maxima() -> None:
    shape = study(CellShape(settings=COMPILE, memory=0.5), CellShape(settings=FLASH, memory=0.8))
    it = order(COMPILE, FLASH, metric="peak_saved")
    assert verdict_on(it, make_records([shape])).word is Word.CONFIRMED
    assert verdict_on(order(FLASH, COMPILE, metric="peak_saved"), make_records([shape])).word is Word.REFUTED_BELOW


def test_peaks_that_touch_are_not_told_apart() -> None:
    shape = study(CellShape(settings=COMPILE), CellShape(settings=FLASH))

    def found(least: float) -> Word:
        peaks = {"compile=default": (6.0, 5.0, 5.0), "attention=flash2": (7.0, least, least)}
        records = [replace(each, peak_reserved_bytes=int(1e9 * peaks[each.arm][each.round - 1])) if each.arm in peaks
                   else each for each in make_records([shape], rounds=3)]  # fmt: skip
        return verdict_on(order(COMPILE, FLASH, metric="peak_saved"), records).word

    assert (found(6.0), found(6.1)) == (Word.INCONCLUSIVE, Word.CONFIRMED)


def test_pairs_of_an_order_are_corrected_by_holm() -> None:
    """Differences of mean 0.02332 and deviation 0.01 · √2.5 in five rounds: t = 3.298 at four degrees of freedom,
    p = 0.03. Enough for one pair; of three, of which one is beyond doubt, it is doubled."""
    logs = [0.02332 + 0.01 * place for place in (-2, -1, 0, 1, 2)]
    ratios = {"compile=default": [math.exp(log) for log in logs], "attention=flash2": [1.0] * 5,
              "optimizer=fused": [math.exp(log - 2 * 0.02332) for log in logs]}  # fmt: skip
    records = paced(ranked(1.0, 1.0, 1.0), ratios)  # type: ignore[arg-type]
    assert verdict_on(order(COMPILE, FLASH), records).word is Word.CONFIRMED
    found = verdict_on(order(COMPILE, FLASH, FUSED), records)
    assert (found.word, found.details["pairs_in_order"]) == (Word.INCONCLUSIVE, 1)


def paced(records: list[Record], ratios: dict[str, list[float | None]]) -> list[Record]:
    """Arms with ratios of their own, round by round; None crashed."""
    found = []
    for record in records:
        ratio = ratios.get(record.arm, [1.0] * record.round)[record.round - 1]
        if ratio is None:
            found.append(replace(record, outcome=Outcome.CRASH, reason="it crashed", tokens_per_second=None))
        else:
            found.append(replace(record, tokens_per_second=1e5 * ratio))
    return found


def two_cells(rounds: int) -> list[Record]:
    cells = CellShape(settings=COMPILE, ratio=1.2), CellShape(settings=FLASH, ratio=1.2)
    return make_records([study(*cells)], rounds=rounds)


def test_entries_of_one_block_are_told_apart_by_the_rounds_that_ran_both() -> None:
    """The sign came from all rounds and p from the common ones: what was slower by a lone round refuted the order."""
    ratios = {"compile=default": [1.30, 1.305, 1.295, 1.0, 1.0], "attention=flash2": [1.20, 1.20, 1.20, None, None]}
    records = paced(two_cells(5), ratios)
    assert verdict_on(order(COMPILE, FLASH), records).word is Word.CONFIRMED
    found = verdict_on(order(FLASH, COMPILE), records)
    assert found.word is Word.REFUTED_BELOW
    assert found.reason.startswith(
        "compile=default gains more than attention=flash2, named before it, in the 3 rounds that ran both"
    )


def test_an_order_is_told_by_its_neighbours_where_its_ends_share_too_few_rounds() -> None:
    ratios = {"compile=default": [1.30, 1.305, 1.295, None, None], "attention=flash2": [1.2, 1.2, 1.2, 1.2, 1.2],
              "optimizer=fused": [None, None, 1.10, 1.105, 1.095]}  # fmt: skip
    found = verdict_on(order(COMPILE, FLASH, FUSED), paced(ranked(1.0, 1.0, 1.0), ratios))
    assert (found.word, found.details["pairs_in_order"], found.details["pairs"]) == (Word.CONFIRMED, 2, 3)


def test_two_rounds_tell_no_order() -> None:
    records = paced(two_cells(2), {"compile=default": [1.2, 1.2001], "attention=flash2": [1.1, 1.1002]})
    for entries in ((COMPILE, FLASH), (FLASH, COMPILE)):
        found = verdict_on(order(*entries), records)
        assert found.word is Word.INCONCLUSIVE
        assert "(2 rounds to compare, and 3 at least are needed)" in found.reason


def test_two_rounds_of_another_study_tell_no_order() -> None:
    other = StudyShape(name="other", cells=(CellShape(settings=FUSED, ratio=3.0),))
    records = make_records([study(CellShape(settings=COMPILE, ratio=1.2))]) + make_records([other], rounds=2)
    found = verdict_on(order({"name": "fused", "cell": FUSED, "study": "other"}, COMPILE), records)
    assert found.word is Word.INCONCLUSIVE
    assert "(2 rounds to compare, and 3 at least are needed)" in found.reason


def test_a_peak_that_was_not_reached_in_every_round_has_no_rank() -> None:
    cells = CellShape(settings=COMPILE, memory=0.5), CellShape(settings=FLASH, memory=0.8)
    whole = make_records([study(*cells)], rounds=5)
    assert verdict_on(order(COMPILE, FLASH, metric="peak_saved"), whole).word is Word.CONFIRMED
    records = [
        replace(each, outcome=Outcome.OOM, reason="out of memory", peak_reserved_bytes=None, peak_allocated_bytes=None)
        if each.arm == "compile=default" and each.round > 1 else each for each in whole
    ]  # fmt: skip
    for entries in ((COMPILE, FLASH), (FLASH, COMPILE)):
        found = verdict_on(order(*entries, metric="peak_saved"), records)
        assert found.word is Word.INCONCLUSIVE
        assert "(compile=default ran out of memory in 4 of 5 rounds)" in found.reason


def test_an_order_of_cells_that_trained_something_else_is_not_confirmed() -> None:
    shape = study(CellShape(settings=COMPILE, ratio=1.6, loss_shift=1.0), CellShape(settings=FLASH, ratio=1.3))
    found = verdict_on(order(COMPILE, FLASH), make_records([shape]))
    assert found.word is Word.FAST_BUT_DIFFERENT
    assert found.reason == "parity fails for compile=default, so that no two entries are left to compare"
    assert [row["parity"] for row in found.details["order"]] == ["fails", "holds"]


def test_a_cell_that_trained_something_else_refutes_no_order_and_is_no_best_one() -> None:
    shape = study(CellShape(settings=COMPILE, ratio=1.6), CellShape(settings=FLASH, ratio=1.3),
                  CellShape(settings=FUSED, ratio=2.0, loss_shift=1.0))  # fmt: skip
    records = make_records([shape])
    for entries in ((COMPILE, FLASH, FUSED), (COMPILE, FUSED, FLASH)):
        found = verdict_on(order(*entries), records)
        assert found.word is Word.FAST_BUT_DIFFERENT
        assert found.reason.startswith("parity fails for optimizer=fused; of the others: each gains more than the next")
    assert verdict_on(order(FLASH, COMPILE, FUSED), records).word is Word.REFUTED_BELOW
    best = verdict_on(order(COMPILE, {"name": "kernels", "best_of": [FLASH, FUSED]}), records)
    assert (best.word, best.details["order"][1]["arm"]) == (Word.CONFIRMED, "attention=flash2")


# -- products ----------------------------------------------------------------------------------------------------------


def product(records: list[Record], **fields: Any) -> Verdict:
    stack = {"compile": "default", "attention": "flash2"}
    return verdict_on(make_claim(form="product", cell=stack, order=[COMPILE, FLASH], **fields), records)


def stacked(stack: float, *, rounds: int = 5, **of_the_stack: float) -> list[Record]:
    both = {"compile": "default", "attention": "flash2"}
    parts = CellShape(settings=COMPILE, ratio=1.5), CellShape(settings=FLASH, ratio=1.2)
    shape = study(*parts, CellShape(settings=both, ratio=stack, **of_the_stack))  # type: ignore[arg-type]
    return make_records([shape], spread=0.002, rounds=rounds)


def test_a_stack_is_judged_and_set_against_the_product_of_its_parts() -> None:
    found = product(stacked(1.6), range=[1.4, 2.2])  # parts: 1.5 · 1.2 = 1.8
    assert found.word is Word.CONFIRMED
    assert "its parts multiply to 1.79x: stack ÷ product is 0.89" in found.reason
    assert found.details["product"] == pytest.approx(1.8, rel=0.01)
    assert found.details["over_product"]["value"] == pytest.approx(1.6 / 1.8, rel=0.01)
    assert found.details["over_product"]["high"] < 1


def test_a_stack_against_its_other_baseline_is_told_and_not_judged() -> None:
    found = product(stacked(1.6), range=[1.4, 2.2], other_baseline=COMPILE)
    assert found.other_baseline.startswith("1.068x [")  # 1.6 / 1.5 is 1.067
    assert found.other_baseline.endswith("against compile=default"), "the range is that of the stack"


def test_a_stack_without_a_range_is_reported() -> None:
    found = product(stacked(1.8), range=None)
    assert found.word is Word.REPORTED
    assert found.details["over_product"]["low"] < 1 < found.details["over_product"]["high"]


def test_a_stack_that_trained_something_else_confirms_no_product() -> None:
    found = product(stacked(1.6, loss_shift=1.0), range=[1.4, 2.2])
    assert found.word is Word.FAST_BUT_DIFFERENT
    assert "no answer, whichever way it points; parity fails: " in found.reason
    assert found.details["product"] == pytest.approx(1.8, rel=0.01)


def test_a_part_that_trained_something_else_is_named_beside_the_product() -> None:
    both = {"compile": "default", "attention": "flash2"}
    cells = CellShape(settings=COMPILE, ratio=1.5, loss_shift=1.0), CellShape(settings=FLASH, ratio=1.2)
    found = product(make_records([study(*cells, CellShape(settings=both, ratio=1.8))], spread=0.002), range=[1.4, 2.2])
    assert found.word is Word.CONFIRMED
    assert "parity fails for compile=default, so that the product is none of like parts" in found.reason


def test_two_rounds_of_a_stack_without_a_range_give_no_verdict_by_parity_either() -> None:
    """It was *fast but different*, which is a verdict."""
    found = product(stacked(1.6, rounds=2, loss_shift=1.0), range=None)
    assert found.word is Word.REPORTED
    assert "; so far parity fails: " in found.reason


def test_a_missing_part_is_named() -> None:
    found = verdict_on(
        make_claim(form="product", range=None, cell=COMPILE, order=[COMPILE, {"lora": 8}]), ranked(1.6, 1.3, 1.1)
    )
    assert (found.word, found.reason) == (Word.NOT_RUN, "part lora=8: study 'precision' has no trial of it")


def test_parts_of_another_study_are_combined_without_pairs() -> None:
    other = make_records([StudyShape(name="kernels", cells=(CellShape(settings=FLASH, ratio=1.2),))], spread=0.002)
    parts = [COMPILE, {"cell": FLASH, "study": "kernels"}]
    stack = {"compile": "default", "attention": "flash2"}
    found = verdict_on(make_claim(form="product", range=None, cell=stack, order=parts), stacked(1.8) + other)
    over = found.details["over_product"]
    assert over["value"] == pytest.approx(1.0, abs=0.01)
    assert over["low"] < 1 < over["high"]


def test_the_parts_of_a_stack_share_their_baselines_trials() -> None:
    """Three parts of one block stand on one baseline: its noise is in each of them, thrice, and not once."""
    cells = [COMPILE, FLASH, FUSED]
    together = {name: value for cell in cells for name, value in cell.items()}
    shapes = [
        StudyShape(name="stack", cells=(CellShape(settings=together, ratio=1.98),)),
        StudyShape(name="parts", cells=tuple(CellShape(settings=c, ratio=r) for c, r in zip(cells, (1.5, 1.2, 1.1),
                                                                                           strict=True))),
    ]  # fmt: skip
    claim = make_claim(form="product", range=None, study="stack", cell=together,
                       order=[{"cell": cell, "study": "parts"} for cell in cells])  # fmt: skip
    runs = 300
    covered = 0
    for seed in range(runs):
        records = make_records(shapes, rounds=5, seed=seed, steps=9, warmup_steps=1, spread=0.02, step_spread=0.0)
        over = verdict_on(claim, records).details["over_product"]
        covered += over["low"] <= 1 <= over["high"]
    assert 0.92 <= covered / runs <= 0.99


@pytest.mark.parametrize(
    ("metric", "measured", "product_of_parts", "over"),
    [
        ("peak_saved", "40.0%", "44.0%", "0.933x"),  # 1 - 0.6; 1 - 0.8 · 0.7; (1 / 0.6) / (1 / 0.56)
        ("peak_ratio", "1.67x", "1.79x", "0.933x"),  # the same as times smaller
        ("step_time_ratio", "0.63x", "0.56x", "0.891x"),  # 1 / 1.6; 1 / (1.5 · 1.2); 1.6 / 1.8
    ],
)
def test_parts_multiply_on_the_metrics_own_scale(metric: str, measured: str, product_of_parts: str, over: str) -> None:
    """Less memory or time is a gain too: its product was shown as 178.6% saved."""
    both = {"compile": "default", "attention": "flash2"}
    parts = CellShape(settings=COMPILE, ratio=1.5, memory=0.8), CellShape(settings=FLASH, ratio=1.2, memory=0.7)
    records = make_records([study(*parts, CellShape(settings=both, ratio=1.6, memory=0.6))], spread=0.002)
    found = product(records, metric=metric, range=None)
    assert found.measured.startswith(measured)
    assert found.measured.endswith(f"; product of its parts {product_of_parts}")
    assert f"multiply to {product_of_parts}: the stack's gain ÷ that of all parts is {over}" in found.reason
    lacking = [replace(each, step_seconds=[], tokens_per_second=None, peak_reserved_bytes=None)
               if len(each.arm.split()) == 2 else each for each in records]  # fmt: skip
    without = product(lacking, metric=metric, range=None)
    assert (without.word, without.reason) == (Word.NOT_TESTABLE, f"the records of the stack lack {metric}")


def test_gains_of_two_rounds_in_common_are_paired_and_without_noise_have_no_width() -> None:
    records = stacked(1.8)
    (both,) = {each.arm for each in records if len(each.arm.split()) == 2}
    ratios = {both: [1.8, 3.6, None, None, None], "compile=default": [1.5, 3.0, None, None, None],
              "attention=flash2": [1.2] * 5}  # fmt: skip
    over = product(paced(records, ratios), range=None).details["over_product"]  # type: ignore[arg-type]
    assert (over["value"], over["low"], over["high"], over["rounds"]) == (*[pytest.approx(1.0)] * 3, 2)


def test_gains_with_one_round_in_common_stand_by_themselves() -> None:
    """Logarithms of -0.01, 0, 0.01 of the stack and a part, in three rounds each that share the third: each has the
    variance 0.0001 / 3 of its mean, at two degrees of freedom; together 0.008165 at four, t = 2.776."""
    records = stacked(1.8)
    (both,) = {each.arm for each in records if len(each.arm.split()) == 2}
    up, same, down = math.exp(0.01), 1.0, math.exp(-0.01)
    ratios = {both: [1.8 * up, 1.8 * same, 1.8 * down, None, None], "compile=default": [1.5] * 5,
              "attention=flash2": [None, None, 1.2 * down, 1.2 * same, 1.2 * up]}  # fmt: skip
    over = product(paced(records, ratios), range=None).details["over_product"]  # type: ignore[arg-type]
    half = math.exp(2.7764 * 0.0081650)
    assert (over["value"], over["low"], over["high"]) == pytest.approx((1.0, 1 / half, half), rel=1e-5)
    assert over["rounds"] == 3


def test_a_stack_with_more_rounds_than_its_parts_says_which_it_is_set_against_them_in() -> None:
    """2.0x in three rounds with the parts, 1.7x in two without: 1.87x, and its five and their three do not divide."""
    records = stacked(1.8)
    (both,) = {each.arm for each in records if len(each.arm.split()) == 2}
    ratios = {both: [2.0, 2.0, 2.0, 1.7, 1.7], "compile=default": [1.5] * 3 + [None] * 2,
              "attention=flash2": [1.2] * 3 + [None] * 2}  # fmt: skip
    found = product(paced(records, ratios), range=None)  # type: ignore[arg-type]
    assert found.measured.startswith("1.87x [")
    assert found.measured.endswith("product of its parts 1.80x")
    assert "multiply to 1.80x: stack ÷ product, over 3 rounds, is 1.11x" in found.reason


def test_a_part_against_a_baseline_of_its_own_is_paired_by_round_too() -> None:
    both = {"compile": "default", "attention": "flash2"}
    parts = [COMPILE, {"name": "flash", "cell": both, "baseline": COMPILE}]
    found = verdict_on(make_claim(form="product", range=None, cell=both, order=parts), stacked(1.8))
    over = found.details["over_product"]
    # the stack is the product of these two parts by definition, in every round
    assert (over["value"], over["low"], over["high"]) == pytest.approx((1.0, 1.0, 1.0), abs=1e-9)


# -- limits ------------------------------------------------------------------------------------------------------------


def sharded(form: tuple[float, float], devices: tuple[int, ...], **how: Any) -> list[Record]:
    """The study `zero`: ddp against zero 1 at several device counts, with state as the form has it."""
    shapes = [
        StudyShape(name="zero", cells=(CellShape(settings={"zero": 1}, ratio=1.02),),
                   baseline={"parallel": "ddp"}, sweep=("devices", (count,)))
        for count in devices
    ]  # fmt: skip
    found = []
    for record in make_records(shapes, **how):
        if record.cell["zero"] == 1:
            state = (form[0] + form[1] / int(record.cell["devices"])) * PARAMETERS
            record = replace(record, model_state_bytes={"before_step": state})  # noqa: PLW2901
        found.append(record)
    return found


def limit(**fields: Any) -> Claim:
    given = {"at": {"devices": 2}, **fields}
    return make_claim(form="limit", range=None, limit=4, metric="model_state_ratio", study="zero", cell={"zero": 1},
                      **given)  # fmt: skip


def test_a_limit_is_extrapolated_from_the_device_counts_that_were_run() -> None:
    found = verdict_on(limit(), sharded((4, 12), (1, 2, 4)))
    assert found.word is Word.EXTRAPOLATED
    assert found.measured == "2.29x at 4 devices, limit 4.00x"  # 16 / (4 + 12/4)
    assert (found.low, found.high) == (4, 4), "what is claimed"
    assert "4 + 12/N fits best (error 0.0%" in found.reason
    assert "the claimed 4x is its limit for many devices" in found.reason
    assert found.details["predictions"]["8"] == pytest.approx({"bytes_per_parameter": 5.5, "ratio": 16 / 5.5})
    assert found.details["state"] == pytest.approx({"1": 16.0, "2": 10.0, "4": 7.0})
    best, *_, fitted = found.details["fits"]
    assert best == {"bytes per parameter and rank": "4 + 12/N", "off by": "0.0%", "limit": "4.00x"}
    assert fitted == {"bytes per parameter and rank": "4.00 + 12.00/N (fitted)", "off by": "0.0%", "limit": "4.00x"}
    assert found.helped == "yes"


def test_gradients_sharded_in_stage_one_too_show_as_the_other_form() -> None:
    found = verdict_on(limit(), sharded((2, 14), (1, 2)))
    assert "2 + 14/N fits best" in found.reason
    assert "its limit for many devices is 8x, not the claimed 4x" in found.reason


def test_the_newest_trials_of_a_device_count_give_its_state() -> None:
    """As on two H200s, where stage 0 was measured again after a mend: the older block's state was fitted."""
    older = made(sharded((4, 12), (1, 2)))
    newer = made(sharded((2, 14), (2,)), "2" * 16, version=2)
    for records in ([*older, *newer], [*newer, *older]):
        assert verdict_on(limit(), records).details["state"] == pytest.approx({"1": 16.0, "2": 9.0})
    oom = [replace(each, outcome=Outcome.OOM) if each.cell["zero"] == 1 and each.round > 1 else each for each in newer]
    assert verdict_on(limit(), [*oom, *older]).details["state"] == pytest.approx({"1": 16.0, "2": 10.0})
    crashed = [replace(each, outcome=Outcome.CRASH) if each.baseline else each for each in newer]
    unsaid = [replace(each, model_state_bytes={}) for each in newer]
    for without in (crashed, unsaid):
        assert verdict_on(limit(), [*without, *older]).details["state"] == pytest.approx({"1": 16.0, "2": 10.0})


def test_a_limit_is_fitted_to_the_device_counts_of_one_machine() -> None:
    here = sharded((4, 12), (1, 2))
    there = sharded((2, 14), (4, 8), environment=A100, fingerprint="a" * 16)
    found = verdict_on(limit(), [*here, *there])
    assert found.details["state"] == pytest.approx({"1": 16.0, "2": 10.0})
    assert "4 + 12/N fits best (error 0.0%" in found.reason


@pytest.mark.parametrize("devices", [1, 2])
def test_one_device_count_cannot_be_extrapolated_and_it_says_so(devices: int) -> None:
    """On one device ZeRO shards nothing and needs more memory than without it (DeepSpeed#6936)."""
    found = verdict_on(limit(at={"devices": devices}), sharded((4, 12), (devices,)))
    assert found.word is Word.NOT_TESTABLE
    assert found.reason == (
        f"a limit for many devices cannot be extrapolated: state was measured at {devices} device(s) only; "
        "run it at two device counts at least"
    )


def test_the_fullest_rank_counts() -> None:
    ranks = [
        {"model_state_bytes": {"before_step": 12.0 * PARAMETERS}},
        {"model_state_bytes": {"before_step": 8.0 * PARAMETERS}},
    ]
    records = [replace(each, ranks=ranks) if each.cell["zero"] == 1 and each.cell["devices"] == 2 else each
               for each in sharded((4, 12), (1, 2))]  # fmt: skip
    assert verdict_on(limit(), records).details["state"]["2"] == pytest.approx(12.0)
    fuller = [replace(each, ranks=[{"model_state_bytes": {"before_step": 13.0 * PARAMETERS}}]) if each.ranks
              and each.round == 2 else each for each in records]  # fmt: skip
    assert verdict_on(limit(), fuller).details["state"]["2"] == pytest.approx(13.0), "and the fullest of the rounds"


def test_of_two_points_with_one_device_count_that_of_more_rounds_gives_its_state() -> None:
    def at_length(length: int, records: list[Record]) -> list[Record]:
        return [replace(each, sweep={"devices": 2, "sequence_length": length}, block=str(length)) for each in records]

    fewer, more = at_length(512, sharded((2, 14), (2,), rounds=3)), at_length(1024, sharded((4, 12), (2,), rounds=5))
    for records in ([*fewer, *more], [*more, *fewer]):
        found = verdict_on(limit(), [*sharded((4, 12), (1,)), *records])
        assert found.details["state"] == pytest.approx({"1": 16.0, "2": 10.0})


# -- statements --------------------------------------------------------------------------------------------------------


def probed(*figures: dict[str, Any]) -> list[Record]:
    """A study of another kind: one trial of the baseline a round, with these figures."""
    shape = StudyShape(name="probe", kind="import-switch", cells=())
    plain = [each for each in make_records([shape], rounds=len(figures)) if not each.control]
    return [replace(each, figures=found) for each, found in zip(plain, figures, strict=True)]


def statement(**fields: Any) -> Claim:
    return make_claim(**{"form": "statement", "range": None, "metric": None, "study": "probe", "cell": None, **fields})


def test_an_expected_value_confirms_where_every_round_shows_it() -> None:
    it = statement(metric="figure:turned_on", expect=True)
    assert verdict_on(it, probed({"turned_on": True}, {"turned_on": True}, {"turned_on": True})).word is Word.CONFIRMED


def test_an_expected_value_that_never_shows_refutes() -> None:
    found = verdict_on(statement(metric="figure:turned_on", expect=True), probed(*[{"turned_on": False}] * 3))
    assert found.word is Word.REFUTED_BELOW
    assert found.measured == "false"
    assert found.reason.startswith("turned on was false in 3 rounds; claimed is true")


def test_an_expected_value_that_shows_now_and_then_is_inconclusive() -> None:
    figures = [{"turned_on": True}, {"turned_on": False}, {"turned_on": True}]
    found = verdict_on(statement(metric="figure:turned_on", expect=True), probed(*figures))
    assert (found.word, found.measured) == (Word.INCONCLUSIVE, "true, false")


def test_an_expected_value_that_most_rounds_did_not_live_to_show_is_inconclusive() -> None:
    """One round of five that was ok confirmed it, and no word told of the others."""
    it = make_claim(form="statement", metric="figure:okay", range=None, expect=True)
    good = [replace(each, figures={"okay": True}) for each in make_records([study()], rounds=5)]

    def crashed(first: int) -> list[Record]:
        return [replace(each, outcome=Outcome.CRASH, reason="it crashed", figures={}) if each.round >= first else each
                for each in good]  # fmt: skip

    found = verdict_on(it, crashed(2))
    assert found.word is Word.INCONCLUSIVE
    assert "most rounds failed, 4 of 5" in found.reason
    found = verdict_on(it, crashed(5))
    assert found.word is Word.CONFIRMED
    assert "1 of 5 rounds were dropped because an arm failed" in found.reason
    half = verdict_on(it, [each for each in crashed(3) if each.round < 5])
    assert half.word is Word.CONFIRMED, "two of four are not most"


def test_one_is_not_true() -> None:
    found = verdict_on(statement(metric="figure:turned_on", expect=True), probed(*[{"turned_on": 1}] * 3))
    assert found.word is Word.REFUTED_BELOW


def test_a_statement_with_a_range_is_judged_by_it() -> None:
    it = statement(metric="figure:reported_over_true", range=[0.95, 1.05])
    found = verdict_on(it, probed(*[{"reported_over_true": 0.125}] * 3))
    assert (found.word, found.measured) == (Word.REFUTED_BELOW, "0.125")


def test_a_statement_without_a_range_is_reported_with_its_figures() -> None:
    found = verdict_on(statement(), probed(*[{"kernel": "fmha", "largest_batch": 48}] * 3))
    assert found.word is Word.REPORTED
    assert found.measured == "kernel fmha; largest batch 48"
    assert found.details["figures"] == {"kernel": "fmha", "largest_batch": 48}


def test_a_statement_shows_the_metrics_it_names() -> None:
    it = make_claim(form="statement", range=None, metric=None, shows=["speedup", "peak_saved"])
    found = verdict_on(it, make_records([study(CellShape(settings=CELL, ratio=1.75, memory=0.6))]))
    assert found.word is Word.REPORTED
    assert found.measured.startswith("speedup 1.7")
    assert found.measured.endswith("peak saved 40.0%")
    assert found.helped == "yes"


def test_a_baseline_that_is_shown_by_itself_helps_nothing() -> None:
    it = make_claim(form="statement", range=None, metric=None, cell=None, shows=["speedup", "peak_saved"])
    found = verdict_on(it, make_records([study()]))
    assert (found.word, found.helped, found.arm) == (Word.REPORTED, "", "baseline")


def test_a_figure_in_a_mapping_is_reached_with_dots() -> None:
    it = statement(metric="figure:pinned.seconds", range=[None, 0.02])
    assert verdict_on(it, probed(*[{"pinned": {"seconds": 0.01}}] * 3)).word is Word.CONFIRMED


def test_a_statement_without_any_figure_says_so() -> None:
    found = verdict_on(statement(metric="figure:gone", expect=True), probed({}, {}, {}))
    assert (found.word, found.reason) == (Word.NOT_TESTABLE, "the records have no figure 'gone'")
