"""Records become blocks: what the tables of the report stand on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness.judgement.blocks import compare, speed_over_product
from harness.judgement.judged import ArmResult, BlockResult, Parity
from harness.results.record import Record
from harness.trial.outcome import Outcome
from tests.judgement.claiming import CELL, study
from tests.records import A100, CellShape, make_records


def block_of(*args: object, **fields: object) -> BlockResult:
    (block,) = compare(make_records([study()], **fields)).blocks  # type: ignore[arg-type]
    return block


def arm(block: BlockResult, name: str) -> ArmResult:
    return next(each for each in block.arms if each.name == name)


def test_arms_stand_in_order_baseline_control_cells() -> None:
    assert [(each.name, each.role) for each in block_of().arms] == [
        ("baseline", "baseline"), ("control", "control"), ("precision=bf16", "cell"),
    ]  # fmt: skip


def test_a_block_knows_its_place_and_its_machine() -> None:
    block = block_of()
    assert (block.study, block.scale, block.device) == ("precision", "full", "NVIDIA H100 80GB HBM3")
    assert block.rounds == 5
    assert block.sweep == {}


def test_the_noise_floor_is_the_control_s_interval() -> None:
    block = block_of()
    assert block.noise_floor == arm(block, "control").speedup
    assert block.noise_floor is not None
    assert block.noise_floor.low is not None
    assert block.noise_floor.high is not None
    assert block.noise_floor.low < 1 < block.noise_floor.high


def test_ratios_pair_the_rounds_and_keep_one_value_each() -> None:
    records = make_records([study()])
    (block,) = compare(records).blocks
    speeds = {(each.arm, each.round): each.tokens_per_second or 0 for each in records}
    expected = [speeds["precision=bf16", n] / speeds["baseline", n] for n in range(1, 6)]
    found = arm(block, "precision=bf16").speedup
    assert found is not None
    assert list(found.observed) == pytest.approx(expected)


def test_a_combination_is_held_against_its_parts_in_the_rounds_that_ran_all_of_them() -> None:
    one, two = {"precision": "bf16"}, {"optimizer": "fused"}
    cells = (CellShape(settings=one, ratio=1.5), CellShape(settings={**one, **two}, ratio=1.44),
             CellShape(settings=two, ratio=1.2, outcome=Outcome.OOM, failed_rounds=(2,)))  # fmt: skip
    records = make_records([study(*cells)], spread=0.0, step_spread=0.0)
    (block,) = compare([each for each in records if each.round < 5 or each.arm != "precision=bf16"]).blocks
    both = next(each for each in block.arms if len(each.cell.items() - block.arms[0].cell.items()) == 2)
    parts = [arm(block, "precision=bf16"), arm(block, "optimizer=fused")]
    found = speed_over_product(both, parts, block.arms[0])
    assert found is not None
    assert found.value == pytest.approx(1.44 / (1.5 * 1.2))
    assert (found.rounds, found.dropped) == (3, 1), "the second failed; of the fifth a part was not run"


def test_memory_is_maximum_and_range_over_the_trials() -> None:
    records = make_records([study()])
    peaks = [each.peak_allocated_bytes or 0 for each in records if each.arm == "baseline"]
    (block,) = compare(records).blocks
    assert arm(block, "baseline").memory["allocated"] == (max(peaks), max(peaks) - min(peaks))


def test_views_are_compared_with_the_baseline_s() -> None:
    shape = study(CellShape(settings=CELL, memory=0.5))
    (block,) = compare(make_records([shape])).blocks
    assert arm(block, "precision=bf16").memory_ratio["allocated"] == pytest.approx(0.5, abs=0.001)


def test_only_the_last_try_of_a_trial_counts() -> None:
    records = make_records([study()])
    first = replace(records[0], attempt=1, outcome=Outcome.CRASH, reason="RuntimeError", tokens_per_second=None)
    again = [replace(records[0], attempt=2), first, *records[1:]]
    found = compare(again)
    assert len(found.excluded) == 1
    assert found.excluded[0].outcome is Outcome.CRASH
    assert sum(sum(each.outcomes.values()) for each in found.blocks[0].arms) == len(records)


def test_of_two_tries_the_later_number_counts_though_a_clock_was_put_back() -> None:
    records = make_records([study()])
    first = replace(records[0], attempt=1, started_at="2030-01-01T00:00:00.000+00:00")
    again = replace(records[0], attempt=2, started_at="2020-01-01T00:00:00.000+00:00", tokens_per_second=1.0)
    assert [each.attempt for each in compare([again, first, *records[1:]]).excluded] == [1]
    later = replace(first, started_at="2030-01-02T00:00:00.000+00:00")
    assert compare([later, first, *records[1:]]).excluded == (first,), "from two stores, each with a first try"


@pytest.mark.parametrize(
    "other",
    [
        {"environment": make_records([study()], environment=A100)[0].environment},
        {"scale": "smoke"},
        {"fingerprint": "2" * 16},
        {"block": "2" * 16},
        {"study": "another"},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_trials_of_another_machine_or_experiment_stand_in_a_block_of_their_own(other: dict[str, Any]) -> None:
    """Whatever else is alike: a fingerprint that was copied by hand, a study renamed."""
    records = make_records([study()])
    blocks = compare([*records, *(replace(each, round=each.round + 5, **other) for each in records)]).blocks
    assert [block.rounds for block in blocks] == [5, 5]


def test_rounds_of_one_number_on_two_devices_are_two_rounds() -> None:
    records = make_records([study()])
    devices = [{**each, "uuid": "GPU-other"} for each in records[0].environment["devices"]]
    twin = {**records[0].environment, "devices": devices}
    (block,) = compare([*records, *(replace(each, environment=twin) for each in records)]).blocks
    assert block.rounds == 10
    assert arm(block, "precision=bf16").speedup.rounds == 10  # type: ignore[union-attr]


def test_a_round_that_two_devices_ran_is_one_seed_for_parity_and_not_two_that_differ_by_nothing() -> None:
    """On H200s kernels 0.0001 nats apart failed parity: round 1 of two machines were two seeds, apart by nothing."""
    records = make_records([study(CellShape(settings={"attention": "flash2"}, loss_shift=0.001))], rounds=2)
    devices = [{**each, "uuid": "GPU-other"} for each in records[0].environment["devices"]]
    twins = [replace(each, environment={**each.environment, "devices": devices}) for each in records]

    def parity(trials: list[Record]) -> Parity:
        (block,) = compare(trials).blocks
        return arm(block, "attention=flash2").parity

    first = [each for each in (*records, *twins) if each.round == 1]
    assert parity(first).word == "not checked: one seed gives no spread between seeds"
    once, twice = parity(records), parity([*records, *twins])
    assert once.margin is not None
    assert once.margin > 0.001
    assert (twice.word, twice.margin, twice.rounds) == ("holds", once.margin, 4)


def test_failed_trials_are_counted_and_explained() -> None:
    shape = study(CellShape(settings=CELL, outcome=Outcome.OOM, failed_rounds=(1, 2)))
    (block,) = compare(make_records([shape])).blocks
    found = arm(block, "precision=bf16")
    assert found.outcomes == {"oom": 2, "ok": 3}
    assert found.reason.startswith("oom in 2 of 5 rounds: CUDA out of memory")


def test_the_evidence_is_that_of_what_differs_from_the_baseline() -> None:
    shape = study(CellShape(settings={"attention": "flash2"}), baseline={"precision": "bf16"})
    (block,) = compare(make_records([shape])).blocks
    assert arm(block, "attention=flash2").evidence == "attention seen"
    assert arm(block, "baseline").evidence == "precision seen"


def test_like_warnings_of_several_rounds_become_one() -> None:
    plain = make_records([study()], step_spread=0.0)
    records = [replace(each, warnings=[f"{each.round} allocator retries"]) for each in plain]
    (block,) = compare(records).blocks
    assert arm(block, "baseline").flags == ("1 to 5 allocator retries (5 of 5 rounds)",)
    changes = {1: "-2.8%", 2: "+10.1%", 3: "-2.8%", 4: "+3.0%", 5: "-12.0%"}
    records = [replace(each, warnings=[f"changed by {changes[each.round]} between the 2 halves"]) for each in plain]
    (block,) = compare(records).blocks
    assert arm(block, "baseline").flags == ("changed by -12.0% to +10.1% between the 2 halves (5 of 5 rounds)",)
    records = [replace(each, warnings=[f"{each.round} of {each.round + 8} blocks"]) for each in plain]
    (block,) = compare(records).blocks
    assert arm(block, "baseline").flags == ("1 to 5 of 9 to 13 blocks (5 of 5 rounds)",)
    records = [replace(each, warnings=[f"Rank {each.round % 2} died, # {each.round}"]) for each in plain]
    (block,) = compare(records).blocks
    assert arm(block, "baseline").flags == (
        "Rank 1 died, # 1 to 5 (3 of 5 rounds)", "Rank 0 died, # 2 to 4 (2 of 5 rounds)"
    ), "a rank is a name"  # fmt: skip
    records = [replace(each, warnings=["5 5" if each.round == 1 else "# 5"]) for each in plain]
    (block,) = compare(records).blocks
    assert arm(block, "baseline").flags == ("5 5 (1 of 5 rounds)", "# 5 (4 of 5 rounds)")
    records = [replace(each, warnings=["7 allocator retries"] if each.round == 2 else []) for each in plain]
    (block,) = compare(records).blocks
    assert arm(block, "baseline").flags == ("7 allocator retries (1 of 5 rounds)",)
    records = [replace(each, warnings=[f"driver 580.1.{each.round} on 10.0.0.{each.round}"]) for each in plain]
    (block,) = compare(records).blocks
    assert len(arm(block, "baseline").flags) == 5, "a version is no number"


def test_arms_whose_clocks_differ_are_flagged() -> None:
    records = [replace(each, clocks={**each.clocks, "sm_mhz": 1500.0}) if each.arm == "precision=bf16" else each
               for each in make_records([study()], step_spread=0.0)]  # fmt: skip
    (block,) = compare(records).blocks
    assert arm(block, "precision=bf16").flags == ("SM clock 1500 MHz against 1750 MHz for the baseline (-14.3%)",)


@pytest.mark.parametrize(
    ("speeds", "drift"),
    [((1.0, 1.1, 1.2), "+20.0%"), ((1.0, 0.9, 0.8), "-20.0%"), ((1.0, 1.2, 1.1), ""), ((1.0, 1.1), ""),
     ((1.0, 1.01, 1.019), "")],
)  # fmt: skip
def test_a_baseline_drifts_where_three_rounds_or_more_go_one_way(speeds: tuple[float, ...], drift: str) -> None:
    records = [replace(each, tokens_per_second=1e5 * speeds[each.round - 1]) if each.arm == "baseline" else each
               for each in make_records([study()], rounds=len(speeds))]  # fmt: skip
    (block,) = compare(records).blocks
    said = f"the baseline drifted by {drift} from its first round to its last; pairing within rounds takes most of it"
    assert [each.startswith(said) for each in block.warnings] == ([True] if drift else [])


def test_a_block_without_its_baseline_compares_nothing_and_says_so() -> None:
    records = [each for each in make_records([study()]) if not each.baseline]
    (block,) = compare(records).blocks
    assert block.arms[0].speedup is None
    assert block.warnings == ("study precision has no trial of its baseline here: nothing can be compared",)


def test_a_block_without_a_control_has_no_noise_floor_and_says_so() -> None:
    records = [each for each in make_records([study()]) if not each.control]
    (block,) = compare(records).blocks
    assert (block.noise_floor, block.suspect) == (None, False)
    assert block.warnings == ("no A/A control was run: the noise floor is unknown",)


def test_kinds_that_train_nothing_have_no_parity() -> None:
    (block,) = compare(make_records([study(kind="loader-only")])).blocks
    assert arm(block, "precision=bf16").parity.word == "not applicable: no training"


@pytest.mark.parametrize("outcome", [Outcome.INERT, Outcome.INVALID])
def test_figures_of_a_trial_that_does_not_count_are_in_no_column_of_its_arm(outcome: Outcome) -> None:
    """An inert or invalid trial has a speed and a peak in its record; no table may show them."""
    shape = study(CellShape(settings=CELL, ratio=1.75, outcome=outcome, failed_rounds=(2,)))
    records = make_records([shape])
    wild = [
        replace(each, tokens_per_second=1.0, peak_reserved_bytes=1 << 50, mfu=0.99, phases={"forward": 1e9})
        if each.outcome is outcome else each for each in records
    ]  # fmt: skip
    (one,), (other,) = compare(records).blocks, compare(wild).blocks
    for before, after in zip(one.arms, other.arms, strict=True):
        for name in ("tokens_per_second", "spread", "speedup", "memory", "memory_ratio", "mfu", "phases"):
            assert getattr(after, name) == getattr(before, name), name


def test_a_cell_that_was_inert_in_every_round_has_no_speed_no_ratio_and_no_peak() -> None:
    (block,) = compare(make_records([study(CellShape(settings=CELL, outcome=Outcome.INERT))])).blocks
    found = arm(block, "precision=bf16")
    assert (found.tokens_per_second, found.speedup, found.memory) == (None, None, {})
