"""Small plans for tests: blocks of a few arms that differ in batch size, run by `tests.trial.child`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.experiment.cell import Cell, Workload
from harness.experiment.order import trial_seed
from harness.experiment.study import Arm, Block, Plan, PlannedTrial, Role
from harness.techniques.registry import axis_table

#: A training step of the user's: the run prepares no data for it.
OWN_STEP = Workload(name="own", model="step.py:build", data="synthetic")


def a_block(
    name: str = "study", *, deeds: Mapping[int, str] | None = None, sizes: tuple[int, ...] = (2,), rounds: int = 2,
    workload: Workload = OWN_STEP, steps: int = 4, options: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Block:  # fmt: skip
    """A baseline and control of batch size 1, and a cell for each of `sizes`. `deeds`: batch size → what it does."""
    defaults = axis_table().defaults()
    base = Cell(workload=workload, settings={**defaults, "batch_size": 1, **(settings or {})}, defaults=defaults)
    cells = [Arm(name=f"batch_size={size}", role=Role.CELL, cell=base.but(batch_size=size)) for size in sizes]
    arms = (Arm(name="baseline", role=Role.BASELINE, cell=base), Arm(name="control", role=Role.CONTROL, cell=base))
    done = {str(size): (deeds or {}).get(size, "train") for size in (1, *sizes)}
    return Block(
        study=name, kind="training", sweep={}, arms=(*arms, *cells), rounds=rounds, warmup_steps=2, steps=steps,
        options={"deeds": done, **(options or {})},
    )  # fmt: skip


def a_plan(*blocks: Block, refusals: Mapping[str, str] | None = None) -> Plan:
    """Every arm in every round, each round's order turned by one. `refusals`: arm → why it cannot run."""
    trials = []
    for block in blocks:
        for number in range(1, block.rounds + 1):
            turn = number % len(block.arms)
            for position, arm in enumerate((*block.arms[turn:], *block.arms[:turn])):
                trials.append(
                    PlannedTrial(
                        block=block,
                        arm=arm,
                        round=number,
                        position=position,
                        seed=trial_seed(block.study, number),
                        refusal=(refusals or {}).get(arm.name),
                    )
                )
    return Plan(trials=tuple(trials), scale="smoke", matrix_file="matrix.yaml", matrix_hash="0" * 16)
