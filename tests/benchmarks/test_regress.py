"""Two runs compared: when a cell is called slower, and when it is not."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ttest_ind

from harness.errors import InputError
from harness.judgement.power import power_between, smallest_slowdown
from harness.judgement.regress import CellChange, Comparison, Word, compare_sides
from harness.judgement.sides import CellKey, CellSpeeds, Side
from harness.report.regressions import lines_above, markdown, summary
from harness.trial.outcome import Outcome
from tests.benchmarks.runs import BASELINE, CONTROL, FUSED, optimizer_study, side, without
from tests.commands import ROOT
from tests.records import CPU
from tests.shapes import H100

H200 = replace(H100, devices=(replace(H100.devices[0], name="NVIDIA H200"),))


def compared(before: Side | None = None, after: Side | None = None, **options: float) -> Comparison:
    return compare_sides(before or side(optimizer_study()), after or side(optimizer_study(), "b.jsonl"), **options)  # type: ignore[arg-type]


def cell(comparison: Comparison, name: str) -> CellChange:
    return next(each for each in comparison.cells if each.key.cell == name)


def test_the_ratio_has_welchs_interval_over_the_logarithms() -> None:
    """ln(0.8) between means of three with deviation 0.02 each: error 0.02·√(2/3) = 0.01633, 4 degrees of freedom,
    t = 2.776: half width 0.04534."""
    found = cell(compared(after=side(optimizer_study(scale={FUSED: 0.8}))), FUSED)
    assert found.ratio == pytest.approx(0.8)
    assert found.low == pytest.approx(0.8 * math.exp(-0.04534), rel=1e-4)
    assert found.high == pytest.approx(0.8 * math.exp(0.04534), rel=1e-4)
    assert [found.before, found.after] == pytest.approx([1200, 960])
    assert found.unit == "tokens/s"
    assert found.trials == (3, 3)


def test_a_slower_cell_is_a_regression_and_the_others_are_not() -> None:
    found = compared(after=side(optimizer_study(scale={FUSED: 0.8})))
    assert [each.key.cell for each in found.regressions] == [FUSED]
    assert cell(found, FUSED).word is Word.SLOWER
    assert cell(found, BASELINE).word is Word.SAME


def test_a_faster_cell_is_said_and_is_no_regression() -> None:
    found = compared(after=side(optimizer_study(scale={FUSED: 1.2})))
    assert cell(found, FUSED).word is Word.FASTER
    assert found.regressions == ()


@pytest.mark.parametrize(("scale", "word"), [(1 / 1.051, Word.SLOWER), (1 / 1.049, Word.SAME)])
def test_the_threshold_is_the_time_that_a_step_may_take_longer(scale: float, word: Word) -> None:
    quiet = (-1e-4, 0.0, 1e-4)
    before, after = (side(optimizer_study(logs=quiet, scale=each)) for each in ({}, {FUSED: scale}))
    assert cell(compare_sides(before, after, threshold=0.05), FUSED).word is word


def test_a_difference_that_may_be_noise_is_no_regression() -> None:
    """ln(0.93) = -0.0726 with error 0.0816 (deviation 0.1): t = 0.89, p = 0.42."""
    noisy = (-0.1, 0.0, 0.1)
    found = cell(
        compare_sides(side(optimizer_study(logs=noisy)), side(optimizer_study(logs=noisy, scale={FUSED: 0.93}))), FUSED
    )
    assert found.word is Word.SAME
    assert "noise" in found.reason


def test_several_cells_are_corrected_by_holm() -> None:
    """t = 3.5 of 4 degrees of freedom is p = 0.025: enough for one cell, doubled too much for the first of two."""
    apart = math.exp(-3.5 * 0.02 * math.sqrt(2 / 3))
    both = compared(after=side(optimizer_study(scale={FUSED: apart, BASELINE: apart, CONTROL: apart})))
    assert cell(both, FUSED).p == pytest.approx(2 * 0.0249, rel=1e-2)
    assert both.regressions
    three = math.exp(-3.4 * 0.02 * math.sqrt(2 / 3))
    assert not compared(after=side(optimizer_study(scale={FUSED: three}))).regressions


def test_what_lies_within_the_noise_floor_is_no_regression() -> None:
    """The control differs from the baseline by -20% to +20% from round to round: so may any cell."""
    after = side(optimizer_study(scale={FUSED: 0.85}, control=(-0.4, 0.0, 0.4)))
    found = cell(compared(side(optimizer_study(control=(-0.4, 0.0, 0.4))), after), FUSED)
    assert found.word is Word.SAME
    assert "noise floor" in found.reason


def test_the_noise_floor_stands_on_the_rounds_of_both_sides() -> None:
    """Six ratios with logarithms -0.02, 0, 0.02 twice: deviation 0.01789, t(5) = 2.571, half width 0.01878."""
    found = cell(
        compared(side(optimizer_study(control=(-0.02, 0.0, 0.02))), side(optimizer_study(control=(-0.02, 0.0, 0.02)))),
        FUSED,
    )
    assert found.floor == pytest.approx((math.exp(-0.01878), math.exp(0.01878)), rel=1e-4)


def test_a_control_that_is_always_faster_widens_the_noise_floor_from_1_on() -> None:
    """Baseline and control are one cell: whatever lies between them may be chance."""
    apart = (0.199, 0.2, 0.201)
    after = side(optimizer_study(scale={FUSED: 1.15}, control=apart))
    found = cell(compared(side(optimizer_study(control=apart)), after), FUSED)
    assert found.floor is not None
    assert found.floor[0] == 1.0
    assert (found.word, found.reason) == (Word.SAME, "within the A/A noise floor of its block")


def test_what_can_be_found_is_that_of_the_spread_the_trials_and_the_cells() -> None:
    """Of three and five trials of deviation 0.02: 2 / (1/3 + 1/5) = 3.75 a side; two cells: 0.025 each."""
    five = (-0.02, -0.02, 0.0, 0.02, 0.02)
    for logs, trials in (((-0.02, 0.0, 0.02), 3), (five, 3.75)):
        found = cell(compared(after=side(optimizer_study(logs=logs))), FUSED)
        assert found.finds == pytest.approx(smallest_slowdown(0.02, trials, threshold=0.05, level=0.025))


def test_the_speed_of_a_cell_is_the_first_that_every_trial_of_it_has() -> None:
    mixed = [replace(each, tokens_per_second=None if each.round == 2 else 1e9) for each in optimizer_study()]
    found = side(mixed).cells[CellKey(study="optimizer", point="", cell=FUSED)]
    assert (found.unit, len(found.speeds)) == ("samples/s", 3)


def test_speeds_in_two_units_are_not_compared() -> None:
    """As of a version whose trials of this kind counted no tokens."""
    after = [replace(each, tokens_per_second=None) for each in optimizer_study()]
    found = cell(compared(after=side(after)), FUSED)
    assert (found.word, found.reason) == (Word.NOT_COMPARED, "tokens/s before, samples/s after")


@pytest.mark.parametrize(("cells", "said"), [(3, True), (2, False)])
def test_where_all_of_three_cells_or_more_are_slower_the_machine_is_looked_at_first(cells: int, said: bool) -> None:
    def one(path: str, speed: float, slower: int) -> Side:
        found = [
            CellSpeeds(key=CellKey(study="s", point="", cell=str(number)), unit="tokens/s",
                       speeds=tuple((speed if number < slower else 1.0) * (1 + each / 1000) for each in range(3)))
            for number in range(cells)
        ]  # fmt: skip
        return Side(path=path, cells={each.key: each for each in found}, devices=("GPU",), environments=())

    note = "every cell became slower: look at the machine (load, clocks, power cap) before looking at the code"
    assert (note in compare_sides(one("a", 1.0, cells), one("b", 0.8, cells)).notes) is said
    assert note not in compare_sides(one("a", 1.0, cells), one("b", 0.8, cells - 1)).notes


def test_the_control_is_not_compared_itself() -> None:
    assert {each.key.cell for each in compared().cells} == {BASELINE, FUSED}


def test_a_cell_that_fails_now_is_a_regression_with_its_reason() -> None:
    after = without(optimizer_study(), FUSED, Outcome.OOM, "CUDA out of memory")
    found = compared(after=side(after))
    assert [each.word for each in found.regressions] == [Word.FAILS]
    assert "CUDA out of memory" in cell(found, FUSED).reason


def test_a_cell_that_failed_on_both_sides_is_no_regression() -> None:
    both = [side(without(optimizer_study(), FUSED, Outcome.OOM, "CUDA out of memory"), path) for path in "ab"]
    found = compared(*both)
    assert found.regressions == ()
    assert cell(found, FUSED).reason == "no figure before: oom in 3 of 3 rounds: CUDA out of memory"


def test_a_cell_that_cannot_run_on_the_second_machine_is_no_regression() -> None:
    after = without(optimizer_study(), FUSED, Outcome.UNSUPPORTED, "needs a compiler")
    found = compared(after=side(after))
    assert found.regressions == ()
    assert cell(found, FUSED).word is Word.NOT_COMPARED
    assert "needs a compiler" in cell(found, FUSED).reason


def test_a_single_trial_tells_nothing() -> None:
    found = cell(
        compare_sides(side(optimizer_study(logs=(0.0,))), side(optimizer_study(logs=(0.0,), scale={FUSED: 0.5}))), FUSED
    )
    assert found.word is Word.SAME
    assert found.ratio == pytest.approx(0.5)
    assert (found.low, found.p) == (None, 1.0)
    assert "single trial" in found.reason


def test_a_changed_cell_is_not_compared() -> None:
    longer = [replace(record, steps=40) for record in optimizer_study()]
    found = compared(after=side(longer))
    assert {each.word for each in found.cells} == {Word.NOT_COMPARED}
    assert "number of steps" in cell(found, FUSED).reason


def test_what_is_not_compared_does_not_weaken_the_correction() -> None:
    """p = 0.025 of the one cell that has a ratio stays that, whatever stands beside it."""
    apart = math.exp(-3.5 * 0.02 * math.sqrt(2 / 3))
    other = [replace(each, steps=40) if each.arm != FUSED else each for each in optimizer_study(scale={FUSED: apart})]
    found = compared(after=side(other))
    assert [each.word for each in found.cells if each.key.cell != FUSED] == [Word.NOT_COMPARED]
    assert cell(found, FUSED).p == pytest.approx(0.0249, rel=1e-2)
    assert [each.key.cell for each in found.regressions] == [FUSED]


def test_cells_of_one_side_alone_are_named() -> None:
    fewer = [record for record in optimizer_study() if record.arm != FUSED]
    assert cell(compared(after=side(fewer)), FUSED).reason == "only before"
    assert cell(compared(before=side(fewer)), FUSED).reason == "only after"


def test_the_count_is_of_the_cells_that_were_compared() -> None:
    words = (Word.SLOWER, Word.FAILS, Word.FASTER, Word.SAME, Word.NOT_COMPARED, Word.NOT_COMPARED)
    cells = [CellChange(key=CellKey(study="s", point="", cell=word), word=word) for word in words]
    found = replace(compared(), cells=tuple(cells))
    assert summary(found) == "2 of 4 cells slower or failing, 1 faster, 2 not compared (threshold 5%)"


@pytest.mark.parametrize(
    ("finds", "shown"), [(0.034, "3.4%"), (1.5, "150.0%"), (9.0, "900.0%"), (9.01, "over 900%"), (None, "")]
)
def test_a_slowdown_that_can_be_found_is_told_up_to_a_tenfold_step(finds: float | None, shown: str) -> None:
    found = compared()
    found = replace(found, cells=(replace(found.cells[0], finds=finds),))
    (row,) = [line for line in markdown(found).splitlines() if line.startswith("| optimizer")]
    assert row.split("|")[6].strip() == shown


def test_the_page_of_two_devices_names_those_of_the_run_in_question() -> None:
    found = compared(after=side(optimizer_study(environment=H200), "b.jsonl"), across_devices=True)
    assert "`a.jsonl` → `b.jsonl`, NVIDIA H200" in markdown(found).splitlines()
    assert list(lines_above(found))[1:] == ["before: a.jsonl (NVIDIA H100 80GB HBM3)", "after: b.jsonl (NVIDIA H200)"]


def test_runs_without_a_common_cell_are_an_error() -> None:
    other = [replace(record, study="another", block="another") for record in optimizer_study()]
    with pytest.raises(InputError, match="no cell in common"):
        compared(after=side(other))


@pytest.mark.parametrize("environment", [H200, CPU])
def test_another_device_is_refused_and_with_leave_it_is_the_first_thing_said(environment: object) -> None:
    after = side(optimizer_study(environment=environment), "b.jsonl")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="--across-devices"):
        compared(after=after)
    found = compare_sides(side(optimizer_study()), after, across_devices=True)
    assert found.warning.startswith("Different devices: a.jsonl was measured on NVIDIA H100 80GB HBM3, b.jsonl on ")


def test_what_changed_around_the_code_is_listed() -> None:
    newer = replace(H100, packages={**H100.packages, "transformers": "5.25.0", "liger-kernel": "1.0"}, driver="590.1")
    found = compared(after=side(optimizer_study(environment=newer)))
    assert [str(change) for change in found.changes] == [
        "package liger-kernel: absent → 1.0",
        "package transformers: 5.24.0 → 5.25.0",
        "driver: 580.95.05 → 590.1",
    ]
    assert compared().changes == ()
    unnamed = side(optimizer_study(environment=replace(H100, driver="", cores=0)))
    listed = [str(change) for change in compared(before=unnamed).changes]
    assert listed == [f"cores: absent → {H100.cores}", f"driver: absent → {H100.driver}"], "nothing is no value"


def test_of_a_block_in_two_environments_the_latest_is_compared() -> None:
    old = optimizer_study(scale={FUSED: 0.5}, fingerprint="old")
    new = [replace(each, started_at="2027" + each.started_at[4:]) for each in optimizer_study(fingerprint="new")]
    for records in ([*old, *new], [*new, *old]):
        found = side(records)
        assert found.cells[CellKey(study="optimizer", point="", cell=FUSED)].speeds == pytest.approx(
            [1200 * math.exp(log) for log in (-0.02, 0.0, 0.02)]
        )
        assert "several environments" in found.notes[0]
    longer = [replace(each, steps=40, block="another", fingerprint="old") for each in new]
    assert side([*old, *longer]).notes == (), "another block, in one environment"


def test_superseded_trials_do_not_count() -> None:
    replaced = [replace(each, superseded=True, started_at="2020" + each.started_at[4:]) for each in optimizer_study()]
    assert compared(after=side([*replaced, *optimizer_study()])).regressions == ()


def test_memory_stands_beside_the_speed() -> None:
    larger = [replace(each, peak_reserved_bytes=2 * (each.peak_reserved_bytes or 0)) for each in optimizer_study()]
    assert cell(compared(after=side(larger)), FUSED).memory_ratio == pytest.approx(2.0)


def speeds(random: np.random.Generator, name: str, scale: float, spread: float) -> CellSpeeds:
    """A cell with five trials."""
    logs = random.normal(math.log(scale), spread, 5)
    return CellSpeeds(key=CellKey(study="s", point="", cell=name), unit="tokens/s", speeds=tuple(np.exp(logs).tolist()))


def simulated(seed: int, *, scale: float, spread: float, cells: int = 4) -> Comparison:
    random = np.random.default_rng(seed)
    sides = []
    for path, its_scale in (("a", 1.0), ("b", scale)):
        found = [speeds(random, f"cell {number}", its_scale if number == 0 else 1.0, spread) for number in range(cells)]
        sides.append(Side(path=path, cells={each.key: each for each in found}, devices=("GPU",), environments=()))
    return compare_sides(*sides, threshold=0.0)


def test_of_1000_pairs_of_equal_runs_one_in_forty_is_flagged() -> None:
    """At threshold 0, so that the test alone decides: 5% of pairs have a false alarm, half of these call it slower."""
    flagged = sum(bool(simulated(seed, scale=1.0, spread=0.02).regressions) for seed in range(1000))
    assert 10 <= flagged <= 42


def test_what_it_says_it_finds_it_finds_four_times_of_five() -> None:
    least = smallest_slowdown(0.02, 5, threshold=0.0, level=0.05 / 4)
    assert least is not None
    found = sum(bool(simulated(seed, scale=1 / (1 + least), spread=0.02).regressions) for seed in range(500))
    assert 0.75 <= found / 500 <= 0.88


@pytest.mark.parametrize(
    ("trials", "spread", "ratio"), [(2, 0.01, 1.2), (3, 0.03, 1.1), (5, 0.03, 1.05), (8, 0.05, 1.07)]
)
def test_power_is_what_welchs_test_finds_in_a_simulation(trials: int, spread: float, ratio: float) -> None:
    drawn = np.random.default_rng(1).normal(0, spread, (2, 40_000, trials))
    found = ttest_ind(drawn[0], drawn[1] + math.log(ratio), axis=1, equal_var=False).pvalue < 0.025
    assert power_between(ratio, spread, trials, level=0.025) == pytest.approx(found.mean(), abs=0.008)


def test_power_at_its_ends() -> None:
    assert power_between(1.5, 0.001, 5) == pytest.approx(1.0, abs=1e-12)
    assert power_between(1.5, 0.1, 1) == 0.0
    assert (power_between(1.5, 0.0, 5), power_between(1.0, 0.0, 5)) == (1.0, 0.0)


def test_the_page_has_the_powers_of_the_test() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([\d.]+)% \|((?: [\d.]+% \|){6})$", page, re.MULTILINE)
    assert len(rows) == 8
    for spread, cells in rows:
        shown, deviation = cells.split(" |")[:6], float(spread) / 100
        chances = [power_between(1 + slower, deviation, 5, level=0.025) for slower in (0.03, 0.05, 0.1, 0.15)]
        least = [smallest_slowdown(deviation, 5, threshold=each, level=0.025) or 0.0 for each in (0.05, 0.015)]
        assert [each.strip() for each in shown] == [
            *(f"{100 * each:.0f}%" for each in chances), *(f"{100 * each:.1f}%" for each in least)
        ]  # fmt: skip


def test_what_can_be_found_is_never_less_than_the_threshold() -> None:
    assert smallest_slowdown(1e-6, 5, threshold=0.05) == pytest.approx(0.05, abs=1e-4)
    assert smallest_slowdown(math.inf, 5, threshold=0.05) is None
    assert smallest_slowdown(0.1, 1, threshold=0.05) is None
