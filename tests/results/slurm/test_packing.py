"""Rounds into jobs: whole, a block's together, within the time limit; and what that comes to on paper."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import pytest

from harness.environment import Device, Environment
from harness.experiment.cell import Cell, Workload
from harness.experiment.study import Arm, Block, Plan, PlannedTrial, Role
from harness.results.budget import Estimates
from harness.results.rounds import Round, rounds_of
from harness.results.slurm.cluster import Cluster
from harness.results.slurm.packing import STARTUP_SECONDS, nodes_of, on_paper, pack
from harness.techniques.registry import axis_table
from harness.trial.torchrun import nodes_for
from tests.records import make_records
from tests.results.plans import a_block, a_plan

HERE = Environment(cores=2)
CLUSTER = Cluster(nodes=2, minutes=120)


def rounds(*blocks: Block) -> Sequence[Round]:
    return list(rounds_of(a_plan(*blocks), HERE))


def names(load: Sequence[Round]) -> list[str]:
    return [f"{each.block.study}{each.number}" for each in load]


def test_every_round_travels_once_and_each_node_gets_an_equal_share() -> None:
    loads = pack(rounds(a_block("a", rounds=3), a_block("b", rounds=3)), lambda each: 100.0, CLUSTER)
    assert [names(load.rounds) for load in loads] == [["a1", "a2", "a3"], ["b1", "b2", "b3"]]
    assert [load.seconds for load in loads] == [STARTUP_SECONDS + 300] * 2


def test_as_many_jobs_come_out_as_there_are_nodes_where_shares_cut_a_round() -> None:
    loads = pack(rounds(a_block("a", rounds=3)), lambda each: 100.0, CLUSTER)
    assert [names(load.rounds) for load in loads] == [["a1", "a2"], ["a3"]]


def test_no_job_is_planned_to_the_end_of_its_time() -> None:
    """An hour may take 0.7 of it, 2520 s, less 60 s to start: two rounds of 1000 s, and not a third."""
    cluster = Cluster(nodes=1, minutes=60)
    loads = pack(rounds(a_block("a", rounds=5)), lambda each: 1000.0, cluster)
    assert [names(load.rounds) for load in loads] == [["a1", "a2"], ["a3", "a4"], ["a5"]]


def test_a_node_with_four_gpus_takes_four_times_as_much_in_the_same_time() -> None:
    one = pack(rounds(a_block("a", rounds=8)), lambda each: 1000.0, Cluster(nodes=1, minutes=60, gpus_per_node=1))
    four = pack(rounds(a_block("a", rounds=8)), lambda each: 1000.0, Cluster(nodes=1, minutes=60, gpus_per_node=4))
    assert (len(one), len(four)) == (4, 1)
    assert four[0].seconds == STARTUP_SECONDS + 2000


@pytest.mark.parametrize(
    ("ranks", "per_node", "nodes"),
    [(1, 8, 1), (8, 8, 1), (9, 8, 3), (16, 8, 2), (6, 4, 2), (5, 4, 5), (2, 1, 2)],
)
def test_a_trial_spreads_over_as_few_nodes_as_hold_it_evenly(ranks: int, per_node: int, nodes: int) -> None:
    assert nodes_for(ranks, per_node) == nodes


def test_a_round_needs_the_nodes_of_its_largest_cell() -> None:
    (each,) = rounds(a_block(rounds=1, sizes=(), settings={"devices": 2, "parallel": "ddp"}))
    assert nodes_of(each, Cluster(per_node=1)) == 2
    assert nodes_of(each, Cluster(per_node=2)) == 1
    assert nodes_of(each, Cluster()) == 1, "nothing said: a node takes any number of ranks on its CPU"


def test_a_small_cell_in_a_round_and_one_that_cannot_run_ask_for_no_nodes() -> None:
    settings = {"devices": 2, "parallel": "ddp"}
    wide = a_block(rounds=1, sizes=(), settings=settings)
    small = replace(wide.arms[0], name="small", role=Role.CELL, cell=wide.arms[0].cell.but(devices=1, parallel="none"))
    large = replace(small, name="large", cell=wide.arms[0].cell.but(devices=8))
    plan = a_plan(replace(wide, arms=(*wide.arms, small, large)), refusals={"large": "there are 4 GPUs"})
    (each,) = rounds_of(plan, HERE)
    assert nodes_of(each, Cluster(per_node=1)) == 2


def test_a_round_wider_than_the_cluster_is_a_job_of_its_own_on_paper() -> None:
    """Until a node is known every cell is taken to run there."""
    wide = a_block("wide", rounds=2, sizes=(), settings={"devices": 4, "parallel": "ddp"})
    (load,) = pack(rounds(wide), lambda each: 10.0, Cluster(nodes=1, per_node=1))
    assert (load.nodes, load.seconds) == (4, STARTUP_SECONDS + 20)


def test_wide_rounds_go_first_and_never_share_a_job_with_narrow_ones() -> None:
    wide = a_block("wide", rounds=1, sizes=(), settings={"devices": 2, "parallel": "ddp"})
    loads = pack(rounds(a_block("a", rounds=1), wide), lambda each: 10.0, Cluster(nodes=2, per_node=1))
    assert [(load.nodes, names(load.rounds)) for load in loads] == [(2, ["wide1"]), (1, ["a1"])]


def test_jobs_over_several_nodes_are_as_many_as_run_at_once_and_run_one_round_at_a_time() -> None:
    wide = a_block("wide", rounds=4, sizes=(), settings={"devices": 4, "parallel": "ddp"})
    loads = pack(rounds(wide), lambda each: 100.0, Cluster(nodes=4, gpus_per_node=2))
    assert [(load.nodes, names(load.rounds)) for load in loads] == [(2, ["wide1", "wide2"]), (2, ["wide3", "wide4"])]
    assert [load.seconds for load in loads] == [STARTUP_SECONDS + 200] * 2


def test_a_round_is_not_shared_out_among_gpus() -> None:
    (load,) = pack(rounds(a_block("a", rounds=1)), lambda each: 1000.0, Cluster(nodes=1, gpus_per_node=4))
    assert load.seconds == STARTUP_SECONDS + 1000


def test_a_job_begins_when_the_last_of_its_nodes_is_free() -> None:
    """Two jobs of 2 of 3 nodes, 2000 s and a start each: the second waits for the first."""
    wide = a_block("wide", rounds=2, sizes=(), settings={"devices": 2, "parallel": "ddp"})
    guessed = Estimates(gpu=False, first_guess_seconds=1000.0)
    paper = on_paper(rounds(wide), guessed, Cluster(nodes=3, per_node=1, minutes=60))
    assert (paper.jobs, paper.longest_job_seconds) == (2, STARTUP_SECONDS + 2000)
    assert paper.wall_seconds == 2 * (STARTUP_SECONDS + 2000)


def test_on_paper_trials_that_cannot_run_do_not_count_and_those_that_were_timed_do() -> None:
    """Baseline and control are one cell, which took 4 s; one cell of two is guessed at 1.5 s, the other refused."""
    plan = a_plan(a_block(rounds=2, sizes=(2, 4)), refusals={"batch_size=4": "no GPU"})
    first = plan.trials[0].block.baseline.cell
    timed = replace(
        make_records()[0], study="study", cell_key=first.key, steps=4, wall_seconds=4.0, compile_seconds=None
    )
    paper = on_paper(list(rounds_of(plan, HERE)), Estimates(gpu=False, seen=[timed]), CLUSTER)
    assert (paper.trials, paper.measured) == (6, pytest.approx(2 / 3))
    assert paper.trial_hours == pytest.approx(2 * (4 + 4 + 1.5) / 3600)


def test_a_job_is_as_long_as_the_longest_on_paper() -> None:
    guessed = Estimates(gpu=False, first_guess_seconds=100.0)
    blocks = a_block("a", rounds=1, sizes=()), a_block("b", rounds=1, sizes=(2, 4, 8))
    for order in (blocks, blocks[::-1]):
        paper = on_paper(rounds(*order), guessed, Cluster(nodes=2, minutes=120))
        assert (paper.jobs, paper.longest_job_seconds) == (2, STARTUP_SECONDS + 500)
        assert paper.wall_seconds == STARTUP_SECONDS + 500


def test_on_paper_times_measured_before_count_and_the_rest_is_guessed() -> None:
    """Two rounds of three trials; a guess on a CPU is 1.5 s a trial."""
    paper = on_paper(rounds(a_block(rounds=2)), Estimates(gpu=False), CLUSTER)
    assert (paper.blocks, paper.rounds, paper.trials, paper.jobs) == (1, 2, 6, 2)
    assert paper.trial_hours == pytest.approx(9 / 3600)
    assert paper.wall_seconds == STARTUP_SECONDS + 4.5
    assert (paper.measured, paper.too_long) == (0.0, 0)


def test_a_round_that_fits_into_no_job_is_counted() -> None:
    paper = on_paper(rounds(a_block(rounds=2)), Estimates(gpu=False), Cluster(minutes=1))
    assert paper.too_long == 2
    # 75 s and a start of 60 s are more than two minutes
    late = on_paper(rounds(a_block(rounds=2)), Estimates(gpu=False, first_guess_seconds=25.0), Cluster(minutes=2))
    assert late.too_long == 2


def test_a_hundred_thousand_trials_for_64_nodes_are_packed_within_seconds() -> None:
    """The rest of `claimbench plan` reads the matrix; benchmarks/ has the whole command."""
    defaults = axis_table().defaults()
    gpu = Device(index=0, name="NVIDIA H100", uuid="GPU-0", memory_bytes=80 << 30)
    blocks = [_block(number, defaults) for number in range(1000)]
    trials = tuple(
        PlannedTrial(block=block, arm=arm, round=number, position=position, seed=number)
        for block in blocks
        for number in range(1, 6)
        for position, arm in enumerate(block.arms)
    )
    plan = Plan(trials=trials, scale="full", matrix_file="matrix.yaml", matrix_hash="0" * 16)
    began = time.process_time()
    found = list(rounds_of(plan, Environment(devices=(gpu,))))
    paper = on_paper(found, Estimates(gpu=True), Cluster(nodes=64, gpus_per_node=8, minutes=120))
    assert time.process_time() - began < 4.0
    assert (paper.blocks, paper.rounds, paper.trials) == (1000, 5000, 100_000)
    # 100,000 trials of 6.5 s on 512 GPUs: 21 min and a start
    assert paper.jobs == pytest.approx(64, abs=2)
    assert paper.longest_job_seconds == pytest.approx(100_000 * 6.5 / 512 + STARTUP_SECONDS, rel=0.05)


def _block(number: int, defaults: dict[str, object]) -> Block:
    workload = Workload(name="w", model="gpt2-124m", data="synthetic")
    base = Cell(workload=workload, settings={**defaults, "batch_size": number + 1}, defaults=defaults)  # type: ignore[arg-type]
    cells = [Arm(name=f"clip={size}", role=Role.CELL, cell=base.but(clip=float(size))) for size in range(1, 19)]
    arms = (Arm(name="baseline", role=Role.BASELINE, cell=base), Arm(name="control", role=Role.CONTROL, cell=base))
    return Block(
        study=f"s{number}", kind="training", sweep={}, arms=(*arms, *cells), rounds=5, warmup_steps=8, steps=30
    )
