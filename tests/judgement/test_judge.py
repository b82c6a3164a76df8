"""From records to verdicts: what each thing that can happen to an experiment does to the answer."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from harness.judgement.blocks import compare
from harness.judgement.judge import judge
from harness.judgement.judged import Word
from harness.judgement.rows import claims_rows, verdict_objects
from harness.judgement.site import Absent, blocks_of, current
from harness.results.record import Record
from harness.trial.outcome import Outcome
from tests.judgement.claiming import CELL, made, make_claim, make_claims, study, verdict_on
from tests.records import A100, CPU, CellShape, make_records


def cell(**fields: Any) -> CellShape:
    return CellShape(**{"settings": CELL, "ratio": 1.75, **fields})


def changed(records: list[Record], arm: str, **fields: Any) -> list[Record]:
    return [replace(record, **fields) if record.arm == arm else record for record in records]


def test_a_ratio_well_inside_the_range_confirms() -> None:
    found = verdict_on(make_claim(), make_records([study()]))
    assert found.word is Word.CONFIRMED
    assert found.helped == "yes"
    assert found.rounds == 5
    assert found.interval is not None
    assert found.value is not None
    assert found.value == pytest.approx(1.75, rel=0.02)
    assert found.interval[0] < found.value < found.interval[1]
    assert found.claimed == "speedup 1.5x to 2x"
    assert found.measured.startswith("1.7")
    assert "lies within 1.5x to 2x" in found.reason
    assert (found.arm, found.study, found.low, found.high) == ("precision=bf16", "precision", 1.5, 2.0)
    assert found.scope == "", "there is one point only"


def test_a_true_ratio_outside_refutes_and_may_still_have_helped() -> None:
    found = verdict_on(make_claim(), make_records([study(cell(ratio=1.2))]))
    assert (found.word, found.helped) == (Word.REFUTED_BELOW, "yes")


def test_slower_than_the_baseline_did_not_help() -> None:
    found = verdict_on(make_claim(range=[0.7, 0.9]), make_records([study(cell(ratio=0.8))]))
    assert (found.word, found.helped) == (Word.CONFIRMED, "no")


@pytest.mark.parametrize("metric", ["utilisation", "data_wait_share", "gradient_error_ratio", "tokens_per_second"])
def test_a_level_has_no_help_however_much_faster_its_cell_is(metric: str) -> None:
    # the cell is 1.75 times as fast; its share of waiting is the baseline's own
    it = make_claim(metric=metric, form="at-least", bound=0, range=None)
    assert verdict_on(it, make_records([study()])).helped == ""


def test_a_statement_of_several_metrics_says_which_of_them_it_helped() -> None:
    offload = study(cell(ratio=0.28, memory=0.9))
    it = make_claim(form="statement", range=None, metric="peak_saved", shows=["speedup", "utilisation"])
    found = verdict_on(it, make_records([offload]))
    assert found.helped == "peak memory: yes; speed: no"
    assert found.measured.startswith("peak saved 10.0%; speedup 0.278x [0.276x, 0.279x]")
    assert "(baseline 93.0%)" in found.measured
    both = make_claim(form="statement", range=None, metric="peak_saved", shows=["speedup"])
    assert verdict_on(both, make_records([study(cell(memory=0.9))])).helped == "yes", "both of them"


def test_an_order_says_which_of_its_entries_helped() -> None:
    names = {"tf32": 1.5, "bf16": 2.0, "fp32": 0.8}
    cells = [cell(settings={"precision": name}, ratio=ratio) for name, ratio in names.items() if name != "fp32"]
    slower = cell(settings={"attention": "eager"}, ratio=0.8)
    entries = [{"name": "bf16", "cell": {"precision": "bf16"}}, {"name": "tf32", "cell": {"precision": "tf32"}},
               {"name": "eager", "cell": {"attention": "eager"}}]  # fmt: skip
    it = make_claim(form="order", range=None, cell={}, order=entries)
    found = verdict_on(it, make_records([study(*cells, slower, baseline={"attention": "sdpa"})]))
    assert found.word is Word.CONFIRMED
    assert found.helped == "bf16: yes; tf32: yes; eager: no"


def test_an_efficiency_helped_where_the_devices_together_are_faster_than_the_claims_own_baseline() -> None:
    two = {"devices": 2, "parallel": "ddp"}
    shape = study(CellShape(settings={"precision": "bf16"}, ratio=3.0), CellShape(settings=two, ratio=1.9))
    it = make_claim(metric="scaling_efficiency", form="at-least", bound=0.1, range=None, cell=two,
                    baseline={"precision": "bf16"})  # fmt: skip
    assert verdict_on(it, make_records([shape], spread=0.001)).helped == "no"  # 1.9 ÷ 3.0


def test_a_ratio_at_the_edge_is_inconclusive_and_says_what_would_settle_it() -> None:
    found = verdict_on(make_claim(), make_records([study(cell(ratio=1.51))], spread=0.02))
    assert found.word is Word.INCONCLUSIVE
    assert found.rounds_needed is None or found.rounds_needed > 5
    assert "crosses 1.50x" in found.reason


# -- not judged at all -------------------------------------------------------------------------------------------------


def test_a_study_without_a_trial_is_not_run_and_the_remedy_is_named() -> None:
    found = verdict_on(make_claim(study="compile"), make_records([study()]))
    assert found.word is Word.NOT_RUN
    assert found.reason == "no trial of study 'compile' is stored; `claimbench run --study compile` runs it"
    assert (found.measured, found.helped, found.interval) == ("", "", None)


def test_a_sentence_without_a_trial_names_the_command_that_checks_it() -> None:
    """`claimbench run --study check-…` ends with `unknown study`."""
    said = "precision=bf16 vs fp32 >= 2x faster"
    found = verdict_on(make_claim(study="check-precision-1a2b3c", check=said), make_records([study()]))
    assert found.word is Word.NOT_RUN
    assert found.reason.endswith(f"; `claimbench check '{said}' --workload FILE.py:build` measures it")


def test_only_the_arm_that_was_not_run_is_said_to_lack_trials() -> None:
    """A run that is stopped in its first round leaves some of its arms: `no trial of X or Y` named both."""
    whole = make_records([study()])
    for arm, lacking in (("precision=bf16", "'baseline'"), ("baseline", "'precision=bf16'")):
        found = verdict_on(make_claim(), [each for each in whole if each.arm == arm and not each.control])
        assert found.word is Word.NOT_RUN
        assert found.reason == f"study 'precision' has no trial of {lacking}"


def test_a_cell_without_a_trial_is_not_run() -> None:
    found = verdict_on(make_claim(cell={"precision": "tf32"}), make_records([study()]))
    assert found.word is Word.NOT_RUN
    assert "'precision=tf32'" in found.reason


def test_a_point_without_a_trial_is_not_run() -> None:
    records = make_records([study(sweep=("sequence_length", (512, 1024)))])
    found = verdict_on(make_claim(at={"sequence_length": 4096}), records)
    assert found.word is Word.NOT_RUN
    assert found.reason == (
        "study 'precision' was not run at sequence_length=4096; it ran at sequence_length=512 and at "
        "sequence_length=1024"
    )


SMOKE_SWEEP = {"environment": CPU, "scale": "smoke"}


@pytest.mark.parametrize("point", [256, 512])
def test_no_point_of_the_smoke_scale_stands_for_a_larger_one(point: int) -> None:
    records = make_records([study(sweep=("sequence_length", (32, 64)))], **SMOKE_SWEEP)
    found = verdict_on(make_claim(at={"sequence_length": point}, device="any"), records)
    assert (found.word, found.measured) == (Word.NOT_RUN, "")
    ran = "in the smoke scale (tiny shapes) it ran at sequence_length=32 and at sequence_length=64"
    assert found.reason == f"study 'precision' was not run at sequence_length={point}; {ran}"


def test_a_verdict_of_the_smoke_scale_says_so_with_the_point_that_ran() -> None:
    records = make_records([study(sweep=("sequence_length", (32, 64)))], **SMOKE_SWEEP)
    found = verdict_on(make_claim(at={"sequence_length": 64}, device="any"), records)
    assert (found.word, found.sweep) == (Word.CONFIRMED, {"sequence_length": 64})
    assert "judged in the smoke scale (tiny shapes) at sequence_length=64" in found.reason
    at_full_scale = verdict_on(make_claim(device="any"), make_records([study()], environment=CPU))
    assert "smoke" not in at_full_scale.reason


def test_an_entry_of_an_order_is_taken_from_no_other_point_of_the_smoke_scale() -> None:
    cells = (cell(ratio=1.75), CellShape(settings={"precision": "tf32"}, ratio=1.2))
    records = make_records([study(*cells, sweep=("sequence_length", (32, 64)))], **SMOKE_SWEEP)
    order = [{"cell": CELL}, {"cell": {"precision": "tf32"}}]
    it = make_claim(form="order", order=order, range=None, at={"sequence_length": 512}, device="any")
    found = verdict_on(it, records)
    assert found.word is Word.NOT_RUN
    assert "was not run at sequence_length=512" in found.reason


@pytest.mark.parametrize("fields", [{"scale": "smoke"}, {"environment": CPU}])
def test_a_claim_about_gpus_is_never_judged_on_a_cpu_or_in_tiny_shapes(fields: dict[str, Any]) -> None:
    found = verdict_on(make_claim(), make_records([study()], **fields))
    assert found.word is Word.NOT_COMPARABLE
    assert "the claim speaks of a GPU at full scale" in found.reason
    assert (found.measured, found.value, found.interval, found.helped) == ("", None, None, "")


def test_where_nothing_could_run_on_the_cpu_the_reason_is_the_answer() -> None:
    records = [replace(each, outcome=Outcome.UNSUPPORTED, reason="it needs a GPU; run it where there is one")
               for each in make_records([study()], scale="smoke", environment=CPU)]  # fmt: skip
    found = verdict_on(make_claim(), records)
    assert found.word is Word.NOT_TESTABLE
    assert "it needs a GPU; run it where there is one" in found.reason


def test_a_claim_about_any_machine_is_judged_on_a_cpu() -> None:
    found = verdict_on(make_claim(device="any"), make_records([study()], environment=CPU))
    assert found.word is Word.CONFIRMED


def test_a_gpu_is_preferred_to_a_cpu_and_the_other_machine_is_told() -> None:
    on_cpu = make_records([study(cell(ratio=1.1))], environment=CPU, fingerprint="c" * 16)
    found = verdict_on(make_claim(device="any"), on_cpu + make_records([study()]))
    assert found.word is Word.CONFIRMED
    elsewhere = found.details["elsewhere"]
    assert [(each["device"], each["verdict"]) for each in elsewhere] == [("Synthetic CPU", "refuted, below")]


@pytest.mark.parametrize(
    ("outcome", "word", "words"),
    [
        (Outcome.UNSUPPORTED, Word.NOT_TESTABLE, "flash-attn is not installed; pip install flash-attn"),
        (Outcome.OOM, Word.NOT_TESTABLE, "oom in 5 of 5 rounds: CUDA out of memory"),
        (Outcome.CRASH, Word.NOT_TESTABLE, "crash in 5 of 5 rounds"),
        (Outcome.TIMEOUT, Word.NOT_TESTABLE, "timeout in 5 of 5 rounds"),
        (Outcome.INERT, Word.INVALID, "could not be shown to be in effect"),
        (Outcome.INVALID, Word.INVALID, "cannot be trusted"),
    ],
)
def test_a_cell_of_which_no_trial_is_ok(outcome: Outcome, word: Word, words: str) -> None:
    records = make_records([study(cell(outcome=outcome))])
    records = [replace(each, reason="flash-attn is not installed; pip install flash-attn")
               if each.outcome is Outcome.UNSUPPORTED else each for each in records]  # fmt: skip
    found = verdict_on(make_claim(), records)
    assert found.word is word
    assert words in found.reason
    assert found.measured == ""


def test_a_baseline_that_never_ran_is_named() -> None:
    records = changed(make_records([study()]), "baseline", outcome=Outcome.OOM, reason="CUDA out of memory")
    found = verdict_on(make_claim(), records)
    assert found.word is Word.NOT_TESTABLE
    assert found.reason.startswith("the baseline: oom in 5 of 5 rounds")


# -- pairs, noise, drift -----------------------------------------------------------------------------------------------


def test_a_pair_with_a_failed_arm_is_dropped_and_said_so() -> None:
    found = verdict_on(make_claim(), make_records([study(cell(outcome=Outcome.OOM, failed_rounds=(2, 4)))]))
    assert found.word is Word.CONFIRMED
    assert found.rounds == 3
    assert "2 of 5 rounds were dropped because an arm failed" in found.reason
    assert "oom in 2 of 5 rounds" in found.reason


def test_a_round_whose_arms_are_ok_and_one_has_no_figure_is_dropped_for_that() -> None:
    """It was dropped `because an arm failed`, and none had."""
    records = [replace(each, phases={**each.phases, "copy": 0.0}) if each.round == 2 and not each.baseline else each
               for each in make_records([study()])]  # fmt: skip
    found = verdict_on(make_claim(metric="copy_speedup"), records)
    assert found.rounds == 4
    assert "1 of 5 rounds were dropped because an arm has no such figure in them" in found.reason


def test_a_round_without_the_cell_is_no_dropped_pair() -> None:
    """A cell that came to its study later: on two H200s two rounds had its baseline and not yet the cell."""
    records = [each for each in make_records([study()]) if each.baseline or each.round > 2]
    found = verdict_on(make_claim(), records)
    assert found.word is Word.CONFIRMED
    assert found.rounds == 3
    assert "dropped" not in found.reason


def test_rounds_whose_arms_ran_on_different_devices_are_said() -> None:
    def moved(record: Record) -> Record:
        devices = [{**each, "uuid": "GPU-other"} for each in record.environment["devices"]]
        return replace(record, environment={**record.environment, "devices": devices})

    records = [moved(each) if not each.baseline and each.round < 3 else each for each in make_records([study()])]
    found = verdict_on(make_claim(), records)
    assert (found.word, found.rounds) == (Word.CONFIRMED, 3)
    said = "2 of 5 trials of precision=bf16 without a pair: baseline did not run on the same device in the same round"
    assert said in found.reason
    crashed = [replace(each, outcome=Outcome.CRASH) if not each.baseline and each.round == 1 else each
               for each in records]  # fmt: skip
    assert "1 of 4 trials of precision=bf16 without a pair" in verdict_on(make_claim(), crashed).reason
    memory = verdict_on(make_claim(metric="peak_ratio", range=[0.5, 2.0]), records)
    assert (memory.rounds, "no pair" in memory.reason) == (5, False), "maxima need no pairs"


def test_an_axis_that_is_newer_than_the_baseline_is_no_change_of_it() -> None:
    """A cell added to a stored study is recorded with every axis, its baseline with those of its day."""

    def as_of(record: Record) -> Record:
        older = {axis: value for axis, value in record.cell.items() if axis != "micro_batches"}
        return replace(record, cell=older if record.baseline else {**older, "micro_batches": "auto"})

    shape = study(CellShape(settings={"checkpointing": "full"}, ratio=0.8))
    (plain,) = compare(make_records([shape])).blocks
    (mixed,) = compare([as_of(each) for each in make_records([shape])]).blocks
    before, after = (next(each for each in block.arms if each.role == "cell") for block in (plain, mixed))
    assert (after.parity.word, after.parity.margin) == (before.parity.word, before.parity.margin)
    assert after.evidence == before.evidence == "checkpointing seen"
    assert all(each.cell["micro_batches"] == "auto" for each in mixed.arms)
    it = make_claim(cell={"checkpointing": "full"}, range=[0.7, 0.9])
    renamed = [replace(each, arm="another name") if each.arm == "checkpointing=full" else each
               for each in map(as_of, make_records([shape]))]  # fmt: skip
    assert verdict_on(it, renamed).word is Word.CONFIRMED, "found by its cell"


def test_evidence_is_found_by_its_axis_and_by_the_first_axis_of_its_technique() -> None:
    """Kinds name the axis that they prove (`pin_memory`), techniques their first (`parallel` for `micro_batches`)."""
    proofs = {"parallel": {"word": "10 + 6 layers"}, "pin_memory": {"word": "pinned"}}
    for axis, usual, other, word in (
        ("micro_batches", "auto", 4, "10 + 6 layers"),
        ("pin_memory", False, True, "pinned"),
        ("non_blocking", False, True, "pinned"),
    ):
        records = [
            replace(each, evidence=proofs, cell={**each.cell, **CELL, axis: usual if each.baseline else other})
            for each in make_records([study()])
        ]
        (block,) = compare(records).blocks
        baseline, changed = (next(each for each in block.arms if each.role == role) for role in ("baseline", "cell"))
        assert changed.evidence == word
        assert baseline.evidence == "10 + 6 layers, pinned"


def test_a_cell_out_of_memory_takes_nothing_else_with_it() -> None:
    both = make_records([study(cell(), CellShape(settings={"precision": "tf32"}, outcome=Outcome.OOM))])
    assert verdict_on(make_claim(), both).rounds == 5


def test_a_superseded_round_is_not_judged_where_nothing_stands_in_its_place() -> None:
    """A run that was stopped right after it had superseded a round leaves no other trial of it."""
    records = [replace(each, superseded=each.round == 5) for each in make_records([study()])]
    found = judge(records, make_claims(make_claim()))
    assert (found.verdicts[0].word, found.verdicts[0].rounds) == (Word.CONFIRMED, 4)
    assert {each.round for each in found.excluded} == {5}


def test_interrupted_trials_are_neither_a_result_nor_a_dropped_pair() -> None:
    records = make_records([study()])
    stopped = [replace(each, outcome=Outcome.INTERRUPTED, round=6) for each in records if each.round == 1]
    found = judge([*records, *stopped], make_claims(make_claim()))
    assert (found.verdicts[0].word, found.verdicts[0].rounds) == (Word.CONFIRMED, 5)
    assert "dropped" not in found.verdicts[0].reason
    (block,) = found.blocks
    assert block.rounds == 5
    assert [arm.outcomes for arm in block.arms] == [{"ok": 5}] * 3
    assert [arm.speedup.dropped for arm in block.arms if arm.speedup] == [0, 0]
    assert {each.round for each in found.excluded} == {6}


def test_trials_of_two_devices_are_never_paired() -> None:
    """Rounds 1-3 on one GPU; in rounds 4 and 5 the cell ran on another than its baseline."""
    records = []
    for each in make_records([study()]):
        moved = each.round > 3 and each.arm == "precision=bf16"
        records.append(replace(each, environment={**each.environment, "device_uuid": "GPU-b" if moved else "GPU-a"}))
    found = verdict_on(make_claim(), records)
    assert found.rounds == 3


def test_rounds_of_a_block_from_several_runs_add_up() -> None:
    first = make_records([study()], rounds=3)
    later = [replace(each, round=each.round + 3) for each in make_records([study()], rounds=3, seed=1)]
    assert verdict_on(make_claim(), first + later).rounds == 6


def test_fingerprints_are_never_mixed_and_the_one_with_more_rounds_counts() -> None:
    records = make_records([study()]) + make_records([study(cell(ratio=5.0))], rounds=3, fingerprint="e" * 16)
    found = verdict_on(make_claim(), records)
    assert (found.word, found.rounds) == (Word.CONFIRMED, 5)


def test_of_two_fingerprints_that_with_more_rounds_of_both_arms_counts() -> None:
    fewer = make_records([study()], rounds=3, fingerprint="e" * 16)
    lone = [replace(each, outcome=Outcome.CRASH) if each.arm == "baseline" and each.round > 1 else each
            for each in make_records([study(cell(ratio=5.0))])]  # fmt: skip
    found = verdict_on(make_claim(), [*fewer, *lone])
    assert (found.word, found.rounds) == (Word.CONFIRMED, 3)


def test_trials_that_are_made_otherwise_now_count_before_more_rounds_of_older_ones() -> None:
    pipeline = {"parallel": "pipeline", "devices": 2}
    it = make_claim(cell=pipeline, range=[0.9, 1.1])
    older = made(make_records([study(CellShape(settings=pipeline, ratio=0.5))], rounds=5))
    again = make_records([study(CellShape(settings=pipeline, ratio=1.0))], rounds=3)
    newer = made(again, "0" * 16, revisions={"parallel": 2})
    found = verdict_on(it, [*older, *newer])
    assert (found.word, found.rounds) == (Word.CONFIRMED, 3)
    assert "measured before" not in found.reason
    alone = verdict_on(it, older)
    assert alone.word is Word.REFUTED_BELOW
    assert ("was measured before stages were cut by their work, and no longer by their number of blocks; "
            "`claimbench run --study precision` measures it anew") in alone.reason  # fmt: skip
    odd: list[Any] = [{}, {"revisions": [1]}, {"version": "x", "revisions": {"parallel": "y"}}, "x", [1], None]
    unsaid = [replace(each, measuring=how) for each, how in zip(older, odd * 9, strict=False)]
    assert verdict_on(it, unsaid).word is Word.REFUTED_BELOW, "a record of any version can be judged"


@pytest.mark.parametrize("newer", [{"rounds": 2}, {"rounds": 3, "outcome": Outcome.CRASH}])
def test_what_cannot_settle_it_yet_does_not_displace_older_rounds_that_did(newer: dict[str, Any]) -> None:
    """Trials of the newer way: too few of them, or all crashed."""
    pipeline = {"parallel": "pipeline", "devices": 2}
    outcome = newer.pop("outcome", Outcome.OK)
    older = made(make_records([study(CellShape(settings=pipeline, ratio=0.5))], rounds=5))
    again = make_records([study(CellShape(settings=pipeline, ratio=1.0, outcome=outcome))], **newer)
    rest = made(again, "0" * 16, revisions={"parallel": 2})
    found = verdict_on(make_claim(cell=pipeline, range=[0.9, 1.1]), [*older, *rest])
    assert (found.word, found.rounds) == (Word.REFUTED_BELOW, 5)
    assert "measured before" in found.reason


def test_noise_is_labelled_beside_the_verdict() -> None:
    found = verdict_on(make_claim(), make_records([study()], spread=0.10))
    assert "is unstable: its speed spreads by " in found.reason


def test_noise_is_that_of_what_is_judged() -> None:
    """Busy time may be steady where tokens/s, with the host in them, spread by 10%."""
    steady = [replace(each, figures={"busy_seconds": 1.0 if each.baseline else 0.5})
              for each in make_records([study()], spread=0.10)]  # fmt: skip
    busy = make_claim(metric="figure_inverse:busy_seconds")
    assert "spreads" not in verdict_on(busy, steady).reason
    assert "spreads" in verdict_on(make_claim(), steady).reason
    rough = [replace(each, figures={"busy_seconds": each.figures["busy_seconds"] * (1 + 0.1 * each.round)})
             for each in steady]  # fmt: skip
    assert "precision=bf16 is unstable: its busy time spreads by 12.3% between trials" in verdict_on(busy, rough).reason


def test_a_step_that_was_held_up_is_said_beside_the_verdict() -> None:
    """As with padded batches on an H200: one step of 2 s makes the interval wide and the device's idle share large."""
    waits = {"breakdown": {"measured_on": "gpu", "seconds": {"idle": 0.05}, "step_seconds": 0.1}}
    records = [
        replace(each, step_seconds=[0.05] * 39 + [2.0], figures=waits) if each.baseline and each.round != 2 else each
        for each in make_records([study()], rounds=5)
    ]
    reason = verdict_on(make_claim(), records).reason
    held_up = "baseline: single steps of over five times the median cost 49% of the window (4 of 5 rounds)"
    assert f"; {held_up}; baseline: the device idled for 50% of a step" in reason
    assert reason.count("single steps") == 1, "of no other arm"
    memory = make_claim(metric="peak_saved", range=[0, 1])
    assert "single steps" not in verdict_on(memory, records).reason


def test_memory_does_not_care_how_the_time_passed() -> None:
    waits = {"breakdown": {"measured_on": "gpu", "seconds": {"idle": 0.05}, "step_seconds": 0.1}}
    records = [replace(each, figures=waits) for each in make_records([study()], spread=0.10, drift=-0.2)]
    assert "the device idled for 50%" in verdict_on(make_claim(), records).reason
    memory = make_claim(metric="peak_saved", range=[0, 1])
    assert not {"spreads", "idled", "drifted"} & set(verdict_on(memory, records).reason.split())
    shown = make_claim(form="statement", metric="peak_saved", range=None, shows=["speedup"])
    assert "its speed spreads by" in verdict_on(shown, records).reason, "the speed stands beside the memory"


def test_one_round_is_one_round() -> None:
    records = [replace(each, figures={"found": False}) for each in make_records([study()], rounds=1)]
    it = make_claim(form="statement", metric="figure:found", range=None, expect=True)
    assert verdict_on(it, records).reason.startswith("found was false in 1 round; claimed is true")


def test_a_drifting_baseline_is_named_and_pairs_take_the_drift_out() -> None:
    found = verdict_on(make_claim(), make_records([study()], drift=-0.20, spread=0.001))
    assert found.word is Word.CONFIRMED
    assert "the baseline drifted by -1" in found.reason


def test_a_suspect_study_says_so() -> None:
    found = verdict_on(make_claim(), make_records([study()], control_ratio=1.08))
    assert found.details["suspect"] is True
    assert "the study is suspect: its A/A control, the baseline under a second name, came out at 1.0" in found.reason


def test_one_odd_control_among_many_is_not_enough_after_the_correction() -> None:
    """p of about 0.01 alone is an alarm; among 40 controls it is what chance gives."""
    shapes = [study(name=f"study-{number}") for number in range(39)]
    odd = make_records([study()], control_ratio=1.025, seed=5)
    alone = judge(odd, make_claims(make_claim())).blocks
    among = judge(odd + make_records(shapes), make_claims(make_claim())).blocks
    assert [block.suspect for block in alone] == [True]
    assert [block.study for block in among if block.suspect] == []


def test_an_invalid_trial_leaves_its_pair() -> None:
    records = [replace(each, mfu=1.3) if each.round == 1 and each.arm == "precision=bf16" else each
               for each in make_records([study()])]  # fmt: skip
    found = judge(records, make_claims(make_claim()))
    assert found.verdicts[0].rounds == 4
    assert "MFU is 1.30, above 1" in found.verdicts[0].reason
    assert [each.outcome for each in found.excluded] == [Outcome.INVALID]


# -- parity ------------------------------------------------------------------------------------------------------------


def test_fast_but_different_confirms_nothing() -> None:
    found = verdict_on(make_claim(), make_records([study(cell(loss_shift=1.0))]))
    assert found.word is Word.FAST_BUT_DIFFERENT
    assert found.reason.startswith("the cell did not train what it is compared with, so that 1.7")
    assert (
        "no answer, whichever way it points; parity fails: the losses lie 0.714 nats" in found.reason
    )  # 20 of 28 steps


def test_fewer_than_three_rounds_give_no_verdict_by_parity_either() -> None:
    """It was *fast but different*, which is a verdict."""
    records = make_records([study(cell(loss_shift=1.0), sweep=("batch_size", (8, 16)))], rounds=2)
    found = verdict_on(make_claim(at={"batch_size": 8}), records)
    assert found.word is Word.INCONCLUSIVE
    assert "2 rounds are too few to judge" in found.reason
    assert "; so far parity fails: " in found.reason
    assert [point["word"] for point in found.details["points"]] == [Word.INCONCLUSIVE] * 2


def test_a_cell_must_train_the_same_as_the_baseline_that_its_claim_names() -> None:
    """Against the block's baseline LoRA is unequal work, and nothing is asked of it."""
    lora, both = {"lora": 8}, {"lora": 8, "checkpointing": "full"}

    def found(shift: float) -> Any:
        cells = CellShape(settings=lora, ratio=1.0), CellShape(settings=both, ratio=1.7, loss_shift=shift)
        return verdict_on(make_claim(cell=both, baseline=lora), make_records([study(*cells)]))

    assert found(0.0).word is Word.CONFIRMED
    different = found(1.0)
    assert different.word is Word.FAST_BUT_DIFFERENT
    assert "0.002 are allowed where the arithmetic must not change" in different.reason


def test_a_cell_may_stray_from_the_baseline_that_its_claim_names_as_the_block_s_control_does() -> None:
    """One cell run twice is 1 nat apart: kernels there are not deterministic, whichever arm is compared with."""
    lora, both = {"lora": 8}, {"lora": 8, "checkpointing": "full"}
    cells = CellShape(settings=lora, ratio=1.0), CellShape(settings=both, ratio=1.7, loss_shift=2.0)  # 1.43 on the mean
    records = [replace(each, losses=[loss + 1.0 for loss in each.losses]) if each.control else each
               for each in make_records([study(*cells)])]  # fmt: skip
    assert verdict_on(make_claim(cell=both, baseline=lora), records).word is Word.CONFIRMED


def test_a_baseline_that_a_claim_names_must_have_trained_the_same_itself() -> None:
    plain = CellShape(settings={"attention": "sdpa-math"}, ratio=1.0, loss_shift=1.0)
    shape = study(plain, CellShape(settings={"attention": "flash2"}, ratio=1.7, loss_shift=1.0))
    claim = make_claim(cell={"attention": "flash2"}, baseline={"attention": "sdpa-math"})
    found = verdict_on(claim, make_records([shape]))
    assert found.word is Word.FAST_BUT_DIFFERENT
    assert "parity fails: of attention=sdpa-math, which it is compared with: the losses lie" in found.reason


@pytest.mark.parametrize(("rounds", "word"), [(3, "fast but different"), (2, "inconclusive")])
def test_what_trained_something_else_is_confirmed_on_no_other_machine(rounds: int, word: str) -> None:
    card = {**make_records([study()])[0].environment, "devices": [{"name": "NVIDIA H200", "uuid": "GPU-2"}]}
    other = [replace(each, environment=card, fingerprint="2" * 16)
             for each in make_records([study(cell(loss_shift=1.0))], rounds=rounds)]  # fmt: skip
    found = verdict_on(make_claim(), [*make_records([study()], rounds=5), *other])
    assert found.word is Word.CONFIRMED
    assert [(each["device"], each["verdict"]) for each in found.details["elsewhere"]] == [("NVIDIA H200", word)]


def test_a_cell_whose_first_gradient_was_never_compared_says_so() -> None:
    def reason(**fields: Any) -> str:
        return verdict_on(make_claim(**fields), changed(records, "precision=bf16", gradient_check={})).reason

    records, words = make_records([study()]), "the first gradient of precision=bf16 was compared in no round"
    assert words not in verdict_on(make_claim(), records).reason
    assert words in reason()
    assert words not in reason(metric="utilisation", range=[0.5, None]), "parity says nothing about it"
    skipped = changed(records, "precision=bf16", gradient_check={"skipped": "an engine keeps it"})
    assert words not in verdict_on(make_claim(), skipped).reason
    lora = changed(make_records([study(cell(settings={"lora": 8}))]), "lora=8", gradient_check={})
    assert "the first gradient" not in verdict_on(make_claim(cell={"lora": 8}), lora).reason, "unequal work owes none"


def test_parity_does_not_gate_what_it_says_nothing_about() -> None:
    records = make_records([study(cell(loss_shift=1.0, ratio=1.0))])
    found = verdict_on(make_claim(metric="utilisation", range=[0.85, None]), records)
    assert found.word is Word.CONFIRMED


def test_unequal_work_is_no_failure() -> None:
    shape = study(CellShape(settings={"batch_size": 64}, ratio=1.75, loss_shift=1.0))
    found = judge(make_records([shape]), make_claims(make_claim(cell={"batch_size": 64})))
    assert found.verdicts[0].word is Word.CONFIRMED
    assert found.blocks[0].arms[2].parity.word == "not applicable: unequal work"


# -- metrics other than speed ------------------------------------------------------------------------------------------


def test_memory_is_judged_on_the_maximum_without_an_interval() -> None:
    found = verdict_on(make_claim(metric="peak_saved", range=[0.3, 0.5]), make_records([study(cell(memory=0.6))]))
    assert (found.word, found.interval, found.measured) == (Word.CONFIRMED, None, "40.0%")
    assert found.value == pytest.approx(0.4, abs=0.002)


def layers(*peaks: float | None) -> list[Record]:
    """Peaks of a layer by round, where the baseline's is 4; None ran out of memory."""
    records = make_records([study()], rounds=len(peaks))
    here = {"baseline": (4.0,) * len(peaks), "precision=bf16": peaks}
    found = []
    for each in records:
        peak = here.get(each.arm, here["baseline"])[each.round - 1]
        figures = {} if peak is None else {"layer_peak_bytes": peak * 2**20}
        found.append(replace(each, figures=figures, outcome=Outcome.OOM if peak is None else each.outcome))
    return found


def test_the_peak_of_a_layer_is_judged_as_all_peaks_are() -> None:
    """It was a ratio of times: `[3.96x, 3.96x] lies below 7.22x`, and of two rounds `too few`."""
    fewer = make_claim(metric="figure_inverse:layer_peak_bytes", range=[3, 5])
    found = verdict_on(fewer, layers(1.0, 1.0))
    assert (found.word, found.measured, found.interval) == (Word.CONFIRMED, "4.00x", None)
    assert verdict_on(fewer, layers(1.0, 0.8, 1.0)).measured == "4.00x (4.00x to 5.00x by trial)"
    spilled = verdict_on(fewer, layers(1.0, 1.0, None))
    assert spilled.word is Word.INCONCLUSIVE
    assert spilled.reason.startswith("precision=bf16 ran out of memory in 1 of 3 rounds")
    largest = verdict_on(make_claim(metric="figure:layer_peak_bytes", range=None, form="statement"), layers(1.0, 0.5))
    assert largest.measured == "layer peak bytes 1.00 MiB (baseline 4.00 MiB)"


def test_a_peak_of_nothing_is_no_multiple() -> None:
    it = make_claim(metric="figure_inverse:layer_peak_bytes", range=[3, 5])
    empty = verdict_on(it, layers(0.0, 1.0, 1.0))
    assert (empty.word, empty.measured) == (Word.CONFIRMED, "4.00x")
    assert "by itself" not in empty.reason
    found = verdict_on(make_claim(metric="peak_ratio"), changed(make_records([study()]), "precision=bf16",
                                                                 peak_reserved_bytes=0))  # fmt: skip
    assert (found.word, found.reason) == (Word.NOT_TESTABLE, "the records have no figure for peak_ratio")


@pytest.mark.parametrize(("arm", "bounds"), [("precision=bf16", [0.3, 0.5]), ("baseline", [0.3, None])])
def test_a_peak_of_rounds_that_fitted_is_no_peak(arm: str, bounds: list[float | None]) -> None:
    """One round of five ran out of memory: the arm needs more than the others showed."""
    records = [
        replace(each, outcome=Outcome.OOM, peak_reserved_bytes=None) if each.arm == arm and each.round == 2 else each
        for each in make_records([study(cell(memory=0.6))])
    ]
    for metric in ("peak_saved", "peak_ratio"):
        wanted = bounds if metric == "peak_saved" else [1.1, None]
        found = verdict_on(make_claim(metric=metric, range=wanted), records)
        assert (found.word, found.helped, found.rounds_needed) == (Word.INCONCLUSIVE, "not shown", None)
        assert found.reason.startswith(f"{arm} ran out of memory in 1 of 5 rounds: ")
        assert "1 of 5 rounds were dropped because an arm failed" in found.reason
    assert verdict_on(make_claim(), records).word is Word.CONFIRMED, "speed is paired, and four pairs are left"


def test_memory_helps_only_beyond_what_the_baseline_varies_by() -> None:
    def found(cell: tuple[int, int, int]) -> str:
        peaks = {"baseline": (20, 18, 18), "precision=bf16": cell}
        records = [replace(each, peak_reserved_bytes=peaks[each.arm][each.round - 1] * 10**9) if each.arm in peaks
                   else each for each in make_records([study()], rounds=3)]  # fmt: skip
        return verdict_on(make_claim(metric="peak_saved", range=[-1, 1]), records).helped

    assert found((19, 19, 19)) == "not shown"
    assert found((17, 17, 18)) == "not shown"
    assert found((17, 17, 17)) == "yes"
    assert found((21, 21, 21)) == "no"


def test_what_a_claim_shows_stands_beside_its_verdict() -> None:
    claim = make_claim(metric="peak_saved", range=[0.3, 0.5], shows=["speedup", "activation_saved"])
    found = verdict_on(claim, make_records([study(cell(memory=0.6))]))
    assert (found.word, found.measured) == (Word.CONFIRMED, "40.0%")
    assert found.details["beside"].startswith("speedup 1.7")
    statement = make_claim(form="statement", range=None, metric=None, shows=["speedup"])
    assert verdict_on(statement, make_records([study()])).details["beside"] == "", "it is what was measured"


def test_memory_is_judged_on_the_view_that_the_claim_names() -> None:
    records = changed(make_records([study(cell(memory=0.6))]), "precision=bf16", peak_device_bytes=21_000_000_000)
    reserved = verdict_on(make_claim(metric="peak_saved", range=[0.3, 0.5]), records)
    device = verdict_on(make_claim(metric="peak_saved", range=[0.3, 0.5], view="device"), records)
    assert (reserved.word, device.word) == (Word.CONFIRMED, Word.REFUTED_BELOW)


@pytest.mark.parametrize(
    ("metric", "recorded"),
    [
        ("activation_saved", "activations"),
        ("energy_ratio", "energy_joules_per_token"),
        ("speedup", "tokens_per_second"),
        ("step_time_per_token_ratio", "tokens_per_second"),
        ("scaling_efficiency", "tokens_per_second"),
        ("samples_ratio", "samples_per_second"),
        ("figure:largest_batch_emptying", "largest_batch_emptying"),  # it was "run it again", on a CPU for ever
        ("figure_inverse:copy_seconds", "copy_seconds"),
    ],
)
def test_a_figure_that_is_missing_is_not_testable_for_the_records_own_reason(metric: str, recorded: str) -> None:
    missing = {"mfu": "no peak", recorded: "nobody could see it"}
    whole = make_records([study()])
    states = {**whole[0].model_state_bytes, "activations": 0.0}
    records = changed(whole, "precision=bf16", model_state_bytes=states, energy_joules_per_token=None,
                      tokens_per_second=None, samples_per_second=None, missing=missing)  # fmt: skip
    found = verdict_on(make_claim(metric=metric, range=[0.3, 1.0]), records)
    assert found.word is Word.NOT_TESTABLE
    assert found.reason == f"the records have no figure for {metric}: nobody could see it"


def test_a_share_of_the_cell_alone_needs_no_baseline() -> None:
    found = verdict_on(
        make_claim(metric="data_wait_share", form="at-most", bound=0.1, range=None), make_records([study()])
    )
    assert found.word is Word.CONFIRMED
    assert found.measured == "0.991% [0.988%, 0.993%] (baseline 1.0%)"


def test_a_share_of_the_cell_alone_is_judged_where_no_baseline_ran() -> None:
    records = changed(make_records([study()]), "baseline", outcome=Outcome.OOM, reason="CUDA out of memory")
    it = make_claim(metric="data_wait_share", form="at-most", bound=0.1, range=None)
    assert verdict_on(it, records).word is Word.CONFIRMED


def test_trainable_parameters_are_counted_without_an_interval() -> None:
    shape = study(CellShape(settings={"lora": 8}, trainable_share=0.01))
    it = make_claim(metric="trainable_share_saved", form="at-least", bound=0.9, range=None, cell={"lora": 8})
    found = verdict_on(it, make_records([shape]))
    assert (found.word, found.measured) == (Word.CONFIRMED, "99.0%")


def test_scaling_efficiency_divides_by_the_devices() -> None:
    shape = study(CellShape(settings={"devices": 2, "parallel": "ddp"}, ratio=1.9))
    it = make_claim(metric="scaling_efficiency", range=[0.94, 0.96], cell={"devices": 2, "parallel": "ddp"})
    found = verdict_on(it, make_records([shape], spread=0.001, step_spread=0.0))
    assert found.value == pytest.approx(0.95, abs=0.002)
    assert found.word is Word.CONFIRMED
    assert found.helped == "yes", "two devices are faster than one, short of twice as fast"


def test_scaling_efficiency_divides_by_the_devices_beyond_those_of_the_baseline() -> None:
    two, four = ({"devices": count, "parallel": "ddp"} for count in (2, 4))
    shape = study(CellShape(settings=two, ratio=1.9), CellShape(settings=four, ratio=3.42))
    it = make_claim(metric="scaling_efficiency", range=[0.89, 0.91], cell=four, baseline=two)
    found = verdict_on(it, make_records([shape], spread=0.001, step_spread=0.0))
    assert found.value == pytest.approx(0.9, abs=0.002)  # 3.42 / 1.9 of twice the devices


def test_a_mean_of_shares_stays_between_none_and_all() -> None:
    # 0.97, 0.99, 0.98: mean 0.98, t(0.975, 2)·s/√3 = 4.303·0.01/1.732 = 0.0248, so up to 1.0048
    shares = iter([0.97, 0.99, 0.98])
    records = [replace(each, utilisation=next(shares)) if each.arm == "precision=bf16" else each
               for each in make_records([study()], rounds=3)]  # fmt: skip
    found = verdict_on(make_claim(metric="utilisation", form="at-least", bound=0.85, range=None), records)
    assert found.interval == (pytest.approx(0.9552, abs=1e-4), 1.0)
    assert found.measured == "98.0% [95.5%, 100.00%] (baseline 93.0%)"
    assert found.word is Word.CONFIRMED


def test_what_may_be_more_than_all_is_not_cut_off_there() -> None:
    # mean 1.08, half 0.0248 as above
    shares = iter([1.07, 1.09, 1.08])
    records = [replace(each, figures={"retried_share": next(shares)}) if each.arm == "precision=bf16" else each
               for each in make_records([study()], rounds=3)]  # fmt: skip
    found = verdict_on(make_claim(metric="figure:retried_share", form="at-least", bound=1, range=None), records)
    assert found.interval == pytest.approx((1.0552, 1.1048), abs=1e-4)


@pytest.mark.parametrize(
    ("metric", "bound", "word"),
    [("peak_bytes", 1e12, Word.INCONCLUSIVE), ("trainable_share_saved", 0.5, Word.CONFIRMED)],
)
def test_only_a_peak_is_left_open_by_a_round_that_ran_out_of_memory(metric: str, bound: float, word: Word) -> None:
    records = make_records([study(cell(outcome=Outcome.OOM, failed_rounds=(2,)))])
    found = verdict_on(make_claim(metric=metric, form="at-most", bound=bound, range=None), records)
    assert found.word is word
    assert found.reason.startswith("precision=bf16 ran out of memory in 1 of 5 rounds") == (metric == "peak_bytes")


def test_two_rounds_settle_nothing_however_well_they_agree() -> None:
    found = verdict_on(make_claim(), make_records([study()], rounds=2, spread=1e-4, step_spread=0.0))
    assert found.word is Word.INCONCLUSIVE
    assert "2 rounds are too few to judge" in found.reason
    assert "run three at least" in found.reason
    memory = make_claim(metric="trainable_share_saved", form="at-least", bound=0.9, range=None, cell={"lora": 8})
    shape = study(CellShape(settings={"lora": 8}, trainable_share=0.01))
    assert verdict_on(memory, make_records([shape], rounds=2)).word is Word.CONFIRMED, "it is counted, not timed"


def test_an_error_of_arithmetic_is_judged_by_the_worst_that_was_seen() -> None:
    """The first gradient is looked at in one round: it is computed, not timed, and needs no further ones."""
    records = [replace(each, gradient_check={"error": 0.006, "eager_error": 0.005} if each.round == 1 else {})
               for each in make_records([study()], rounds=3)]  # fmt: skip
    it = make_claim(metric="gradient_error_ratio", form="at-most", bound=2, range=None)
    found = verdict_on(it, records)
    assert (found.word, found.measured) == (Word.CONFIRMED, "1.20x (baseline 1.20x)")
    assert "dropped" not in found.reason
    disturbed = [replace(each, outcome=Outcome.INVALID) if each.round == 1 else each for each in records]
    spoiled = verdict_on(it, disturbed)
    assert spoiled.measured == "1.20x (baseline 1.20x)", "a neighbour on the GPU spoils its timing alone"
    no_number = [replace(each, gradient_check={"error": None, "eager_error": 0.005}) if each.round == 2 else each
                 for each in records]  # fmt: skip
    assert verdict_on(it, no_number).word is Word.REFUTED_ABOVE
    worse = [replace(each, gradient_check={"error": 0.012, "eager_error": 0.005}) if each.round == 3 else each
             for each in records]  # fmt: skip
    assert verdict_on(it, worse).word is Word.REFUTED_ABOVE


@pytest.mark.parametrize("view", ["reserved", "device"])
def test_a_figure_that_the_records_lack_is_not_testable_with_their_own_reason(view: str) -> None:
    absent, other = f"peak_{view}_bytes", f"peak_{'device' if view == 'reserved' else 'reserved'}_bytes"
    missing = {other: "it is there after all", absent: "only CUDA keeps it"}
    records = changed(make_records([study()]), "precision=bf16", **{absent: None}, missing=missing)
    found = verdict_on(make_claim(metric="peak_saved", view=view), records)
    assert found.word is Word.NOT_TESTABLE
    assert found.reason == "the records have no figure for peak_saved: only CUDA keeps it"


def test_a_figure_that_the_records_lack_is_not_testable_although_parity_fails_too() -> None:
    records = changed(make_records([study(cell(loss_shift=1.0))]), "precision=bf16", peak_reserved_bytes=None)
    found = verdict_on(make_claim(metric="peak_saved"), records)
    assert (found.word, found.reason) == (Word.NOT_TESTABLE, "the records have no figure for peak_saved")


def test_a_figure_that_an_older_version_did_not_measure_is_not_run_and_says_what_to_do() -> None:
    records = make_records([study(kind="attention-only")])
    found = verdict_on(make_claim(metric="figure_inverse:busy_seconds"), records)
    assert found.word is Word.NOT_RUN
    assert found.reason.startswith(
        "the trials in the store are of a version that did not measure 'busy_seconds'; run '"
    )
    assert found.reason.endswith("' again")


# -- baselines, scope --------------------------------------------------------------------------------------------------


def test_the_other_baseline_stands_beside() -> None:
    shape = study(cell(ratio=1.8), CellShape(settings={"precision": "tf32"}, ratio=1.5))
    found = verdict_on(make_claim(other_baseline={"precision": "tf32"}), make_records([shape]))
    assert found.other_baseline.startswith("1.19x [1.17x, 1.22x]")
    assert found.other_baseline.endswith("against precision=tf32: refuted, below")


def test_a_claim_may_name_another_baseline_than_the_block_s() -> None:
    shape = study(cell(ratio=1.8), CellShape(settings={"precision": "tf32"}, ratio=1.5))
    found = verdict_on(make_claim(baseline={"precision": "tf32"}, range=[1.1, 1.3]), make_records([shape]))
    assert found.word is Word.CONFIRMED


def test_scope_counts_the_points_where_the_claim_holds() -> None:
    shapes = [study(cell(ratio=ratio), sweep=("sequence_length", (length,)))
              for length, ratio in ((512, 1.2), (1024, 1.75), (2048, 1.8))]  # fmt: skip
    found = verdict_on(make_claim(at={"sequence_length": 1024}), make_records(shapes))
    assert found.word is Word.CONFIRMED
    said = "holds at 2, fails at 1 of 3 points; it holds at sequence_length=1024, sequence_length=2048"
    assert found.scope == said
    assert [point["word"] for point in found.details["points"]] == ["refuted, below", "confirmed", "confirmed"]
    assert found.sweep == {"sequence_length": 1024}


def test_the_scope_of_a_claim_that_holds_everywhere_names_no_points() -> None:
    records = make_records([study(sweep=("sequence_length", (512, 1024)))])
    assert verdict_on(make_claim(at={"sequence_length": 512}), records).scope == "holds at 2 of 2 points"


def test_the_primary_point_alone_decides() -> None:
    shapes = [study(cell(ratio=ratio), sweep=("sequence_length", (length,)))
              for length, ratio in ((512, 1.2), (1024, 1.75), (2048, 1.8))]  # fmt: skip
    found = verdict_on(make_claim(at={"sequence_length": 512}), make_records(shapes))
    assert found.word is Word.REFUTED_BELOW


def test_further_cells_count_in_the_scope() -> None:
    shape = study(cell(), CellShape(settings={"precision": "tf32"}, ratio=1.2))
    found = verdict_on(make_claim(also=[{"precision": "tf32"}]), make_records([shape]))
    assert found.scope == "holds at 1, fails at 1 of 2 points; it holds at precision=bf16"


def test_a_point_that_trained_something_else_is_no_point_at_which_a_claim_holds() -> None:
    swept = {"sweep": ("sequence_length", (512, 1024))}
    same, other = (make_records([study(cell(loss_shift=shift), **swept)]) for shift in (0.0, 3.0))
    mixed = [each for each in same if each.sweep == {"sequence_length": 512}]
    mixed += [each for each in other if each.sweep == {"sequence_length": 1024}]
    found = verdict_on(make_claim(at={"sequence_length": 512}), mixed)
    assert found.scope == "holds at 1, fails at 1 of 2 points; it holds at sequence_length=512"
    assert [point["word"] for point in found.details["points"]] == ["confirmed", "fast but different"]


def test_points_of_another_gpu_say_nothing_of_where_a_claim_holds_on_this_one() -> None:
    here = make_records([study(sweep=("sequence_length", (512, 1024)))])
    there = make_records([study(sweep=("sequence_length", (2048,)))], environment=A100, fingerprint="a" * 16, rounds=3)
    found = verdict_on(make_claim(at={"sequence_length": 512}), [*here, *there])
    assert [point["sweep"]["sequence_length"] for point in found.details["points"]] == [512, 1024]


# -- rows --------------------------------------------------------------------------------------------------------------


def test_the_json_of_a_verdict() -> None:
    claims = make_claims(make_claim(), make_claim(id="other", study="compile"))
    rows = verdict_objects(judge(make_records([study()]), claims))
    first, second = json.loads(json.dumps(rows, allow_nan=False))
    assert first["verdict"] == "confirmed"
    assert first["document"] == "D1"
    assert first["interval"][0] < first["value"] < first["interval"][1]
    assert {"claim", "document", "verdict", "helped", "claimed", "measured", "interval", "rounds", "reason"} <= set(
        first
    )
    assert (second["claim"], second["verdict"], second["interval"]) == ("other", "not run", None)


def test_the_rows_of_the_claims() -> None:
    assert claims_rows(make_claims(make_claim())) == [
        {"claim": "it", "document": "D1", "statement": "It is faster.", "claimed": "speedup 1.5x to 2x",
         "metric": "speedup", "study": "precision"},
    ]  # fmt: skip


def test_no_records_at_all() -> None:
    found = judge([], make_claims(make_claim()))
    assert [verdict.word for verdict in found.verdicts] == [Word.NOT_RUN]
    assert (found.blocks, found.excluded) == ((), ())


# -- several generations of a study ------------------------------------------------------------------------------------


def test_a_block_is_current_unless_another_one_stands_for_all_of_it() -> None:
    older, newer = (made(make_records([study()]), str(version) * 16, version=version) for version in (1, 2))
    blocks = compare([*older, *newer]).blocks
    assert [block.fingerprint[0] for block in current(blocks)] == ["2"]
    crashed = [replace(each, outcome=Outcome.CRASH) if each.arm == "precision=bf16" else each for each in newer]
    blocks = compare([*older, *crashed]).blocks
    assert [block.fingerprint[0] for block in current(blocks)] == ["1", "2"], "its cell is measured in the older alone"
    other = make_records([study(baseline={"batch_size": 4})])
    blocks = compare([*older, *made(other, "2" * 16, version=2)]).blocks
    assert [block.fingerprint[0] for block in current(blocks)] == ["1", "2"], "another experiment of the same study"
    there = made(make_records([study()], environment=A100), "2" * 16, version=2)
    blocks = compare([*older, *there]).blocks
    assert [block.fingerprint[0] for block in current(blocks)] == ["1", "2"], "another machine"


def test_the_scope_is_that_of_the_block_that_was_judged() -> None:
    """A further cell is shown from the judged block, though another one has more rounds of it."""
    tf32 = CellShape(settings={"precision": "tf32"}, ratio=1.75)
    it = make_claim(also=[{"precision": "tf32"}])
    newer = made(make_records([study(cell(), replace(tf32, ratio=1.2))], rounds=3), "2" * 16, version=2)
    older = made(make_records([study(cell(ratio=1.6), tf32)], rounds=5), "1" * 16)
    few = [replace(each, outcome=Outcome.CRASH) if each.arm == "precision=tf32" and each.round > 2 else each
           for each in newer]  # fmt: skip
    points = {each["name"]: each["rounds"] for each in verdict_on(it, [*older, *few]).details["points"]}
    assert points == {"precision=bf16": 3, "precision=tf32": 2}


def test_what_was_measured_comes_before_what_failed_in_the_newest_way() -> None:
    older = made(make_records([study()], rounds=2), "1" * 16)
    crashed = [replace(each, outcome=Outcome.CRASH) for each in made(make_records([study()]), "2" * 16, version=2)]
    found = blocks_of("precision", "gpu", compare([*older, *crashed]).blocks)
    assert not isinstance(found, Absent)
    assert [block.fingerprint[0] for block in found] == ["1", "2"]
