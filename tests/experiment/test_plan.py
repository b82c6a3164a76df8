"""The plan: every trial in the order in which it will run, and why what is skipped is skipped."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

from harness.experiment.cell import Cell
from harness.experiment.describe import PlanRow, plan_rows, summarise
from harness.experiment.order import trial_seed
from harness.experiment.plan import make_plan
from harness.experiment.scale import SMOKE
from harness.experiment.study import Plan
from tests.experiment.conftest import HEAD, Read

STUDIES = """\
studies:
  kernel: {workload: small, axes: {attention: [eager, flash2]}, sweep: {sequence_length: [32, 64]}}
  ranks: {workload: small, axes: {devices: [2, 4]}}
  sizes: {workload: small, kind: estimator}
"""


def refuse(cell: Cell, kind: str) -> str | None:
    """A machine with one device and without flash-attn."""
    if cell["attention"] == "flash2":
        return "flash2 needs flash-attn; pip install flash-attn"
    return f"{cell['devices']} devices are needed, 1 is here" if cell.number("devices") > 1 else None


def planned(read: Read, refusing: Callable[[Cell, str], str | None] = refuse) -> Plan:
    return make_plan(read(HEAD + STUDIES), refusing)


def test_trials_stand_study_by_study_block_by_block_in_whole_rounds(read: Read) -> None:
    plan = planned(read)
    rounds = [
        (study, dict(sweep), number, len(list(trials)))
        for (study, sweep, number), trials in groupby(
            plan.trials, key=lambda trial: (trial.block.study, tuple(trial.block.sweep.items()), trial.round)
        )
    ]
    assert rounds == [
        *(("kernel", {"sequence_length": 32}, number, 4) for number in (1, 2, 3)),
        *(("kernel", {"sequence_length": 64}, number, 4) for number in (1, 2, 3)),
        *(("ranks", {}, number, 4) for number in (1, 2, 3)),
        *(("sizes", {}, number, 1) for number in (1, 2, 3)),
    ]


def test_every_arm_is_in_every_round_once_at_its_position(read: Read) -> None:
    for _, group in groupby(planned(read).trials, key=lambda trial: (id(trial.block), trial.round)):
        trials = list(group)
        assert sorted(trial.arm.name for trial in trials) == sorted(arm.name for arm in trials[0].block.arms)
        assert [trial.position for trial in trials] == list(range(len(trials)))


def test_those_that_cannot_run_stand_behind_the_others_with_the_reason(read: Read) -> None:
    trials = [trial for trial in planned(read).trials if trial.block.study == "kernel"]
    assert {trial.position for trial in trials if trial.arm.name == "attention=flash2"} == {3}
    assert {trial.refusal for trial in trials if trial.arm.name == "attention=flash2"} == {
        "flash2 needs flash-attn; pip install flash-attn"
    }
    # the others change places: over three rounds of three arms each is first once
    first = [trial.arm.name for trial in trials if trial.position == 0 and trial.block.sweep["sequence_length"] == 32]
    assert sorted(first) == ["attention=eager", "baseline", "control"]


def test_a_baseline_without_anything_to_compare_is_not_run(read: Read) -> None:
    trials = [trial for trial in planned(read).trials if trial.block.study == "ranks"]
    assert {trial.arm.name: trial.refusal for trial in trials} == {
        "baseline": "nothing to compare it with: no cell of this block can run here (2 devices are needed, 1 is here)",
        "control": "nothing to compare it with: no cell of this block can run here (2 devices are needed, 1 is here)",
        "devices=2": "2 devices are needed, 1 is here",
        "devices=4": "4 devices are needed, 1 is here",
    }


def test_a_study_that_compares_nothing_runs_its_baseline(read: Read) -> None:
    assert [trial.refusal for trial in planned(read).trials if trial.block.study == "sizes"] == [None] * 3


def test_arms_of_a_round_share_the_seed_and_rounds_do_not(read: Read) -> None:
    plan = planned(read)
    assert all(trial.seed == trial_seed(trial.block.study, trial.round) for trial in plan.trials)
    assert len({trial.seed for trial in plan.trials}) == 3 * 3


def test_a_plan_is_the_same_each_time(read: Read) -> None:
    assert planned(read) == planned(read)


def test_refusals_are_asked_for_the_kind_too(read: Read) -> None:
    plan = planned(read, lambda cell, kind: "no loaders here" if kind == "estimator" else None)
    assert {trial.block.study for trial in plan.trials if trial.refusal} == {"sizes"}


def test_the_smoke_scale_is_named_in_the_plan(read: Read) -> None:
    plan = make_plan(read(HEAD + STUDIES), refuse, SMOKE)
    assert plan.scale == "smoke"
    assert {trial.arm.cell.workload.model for trial in plan.trials} == {"tiny"}
    assert plan.matrix_file.endswith("matrix.yaml")


def test_the_smoke_scale_adds_no_round(read: Read) -> None:
    for rounds, planned_rounds in ((1, 1), (7, 3)):
        text = f"{HEAD}studies:\n  a: {{workload: small, kind: estimator, rounds: {rounds}}}\n"
        plan = make_plan(read(text), refuse, SMOKE)
        assert [trial.round for trial in plan.trials] == [*range(1, planned_rounds + 1)]


def test_rows_say_what_runs_and_why_not(read: Read) -> None:
    rows = list(plan_rows(planned(read)))
    assert [(row.study, row.arm) for row in rows][:5] == [
        ("kernel", "baseline"),
        ("kernel", "control"),
        ("kernel", "attention=eager"),
        ("kernel", "attention=flash2"),
        ("kernel", "baseline"),
    ]
    assert rows[3] == PlanRow(
        study="kernel",
        kind="training",
        workload="small",
        model="tiny",
        sweep={"sequence_length": 32},
        arm="attention=flash2",
        settings={"attention": "flash2", "batch_size": 4, "sequence_length": 32},
        trials=3,
        refusal="flash2 needs flash-attn; pip install flash-attn",
    )


def test_the_summary_counts(read: Read) -> None:
    summary = summarise(planned(read))
    # blocks: kernel at two points, ranks, sizes; arms 4 + 4 + 4 + 1
    assert (summary.studies, summary.blocks, summary.cells, summary.trials) == (3, 4, 13, 39)
    # kernel runs 3 arms at each of 2 points, sizes one: 7 arms in 3 rounds
    assert summary.to_run == 21
    assert summary.refused == {
        "flash2 needs flash-attn; pip install flash-attn": 2,
        "nothing to compare it with: no cell of this block can run here (2 devices are needed, 1 is here)": 2,
        "2 devices are needed, 1 is here": 1,
        "4 devices are needed, 1 is here": 1,
    }
