"""The plan: every trial of a run, in the order in which it will run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from harness.experiment.cell import Cell
from harness.experiment.matrix import Matrix
from harness.experiment.order import balanced_orders, trial_seed
from harness.experiment.scale import FULL, SMOKE, blocks, left_out
from harness.experiment.study import Arm, Block, Plan, PlannedTrial, Role

#: Why a cell cannot run here as a trial of a kind, with the remedy; None when it can.
Refuse = Callable[[Cell, str], str | None]


def make_plan(matrix: Matrix, refuse: Refuse, scale: str = FULL, *, rounds: int | None = None) -> Plan:
    """Plan every trial of a matrix: study by study, block by block, whole rounds, each in its shuffled order.

    Args:
        matrix: as `read_matrix` gives it.
        refuse: asked once for every cell and kind.
        scale: `full` or `smoke`.
        rounds: of every block, at whatever scale; None: those of the matrix and the scale.
    """
    planned = [block if rounds is None else replace(block, rounds=rounds) for block in blocks(matrix, scale)]
    return Plan(
        trials=tuple(trial for block in planned for trial in _trials(block, refuse)), scale=scale,
        matrix_file=matrix.file, matrix_hash=matrix.hash, retries=matrix.retries,
        left_out=left_out(matrix, planned) if scale == SMOKE else "",
    )  # fmt: skip


def _trials(block: Block, refuse: Refuse) -> Iterator[PlannedTrial]:
    refusals = _refusals(block, refuse)
    # Those that cannot run stand behind the others: the balance is among those that run.
    running = [arm for arm in block.arms if refusals[arm.name] is None]
    refused = [arm for arm in block.arms if refusals[arm.name] is not None]
    orders = balanced_orders(len(running), block.rounds, seed=block.key) if running else iter([()] * block.rounds)
    for number, order in enumerate(orders, start=1):
        seed = trial_seed(block.study, number)
        for position, arm in enumerate([*(running[index] for index in order), *refused]):
            yield PlannedTrial(
                block=block, arm=arm, round=number, position=position, seed=seed, refusal=refusals[arm.name]
            )


def _refusals(block: Block, refuse: Refuse) -> dict[str, str | None]:
    """Arm → why it cannot run. Where no cell can, the baseline has nothing to be compared with and need not run."""
    baseline = refuse(block.baseline.cell, block.kind)
    cells: list[Arm] = [arm for arm in block.arms if arm.role is Role.CELL]
    refusals = {arm.name: refuse(arm.cell, block.kind) for arm in cells}
    reasons = list(refusals.values())
    if baseline is None and reasons and None not in reasons:
        baseline = f"nothing to compare it with: no cell of this block can run here ({reasons[0]})"
    return {**{arm.name: baseline for arm in block.arms if arm.role is not Role.CELL}, **refusals}
