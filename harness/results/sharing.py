"""What it costs that several rounds share a host: an A/A control across its GPUs, as a study of its own.

The same cell three times: `baseline` and `control` alone on one GPU while the others rest, then `side-by-side` on all
GPUs at once, of which the trial on that same GPU is kept. The ratio of the last to the first is the cost of sharing
(memory bandwidth, PCIe, power, cores); the rounds go from GPU to GPU, so the baselines also say how far these are
apart. The study stands in the store and in the report like any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from harness.experiment.order import balanced_orders, trial_seed
from harness.experiment.study import Arm, Block, Plan, PlannedTrial, Role
from harness.results.rounds import Round

STUDY = "side-by-side"
ARM = "side-by-side"
_ROUNDS = 3


def with_control(plan: Plan, lanes: int) -> Plan:
    """The plan with the sharing control before everything else; as it is where one round runs at a time."""
    trial = next((each for each in plan.trials if _suits(each)), None)
    if lanes < 2 or trial is None:
        return plan
    return replace(plan, trials=(*_trials(_block(trial.block, max(_ROUNDS, lanes))), *plan.trials))


def is_control(block: Block) -> bool:
    """Whether a block is the sharing control."""
    return block.study == STUDY and block.arms[-1].name == ARM


def split(each: Round) -> Iterator[Round]:
    """Its trials one by one: each is over on every GPU before the next begins."""
    for trial in each.trials:
        yield replace(each, trials=(trial,))


def elsewhere(part: Round, lane: int) -> Round:
    """The same trial as load on another lane: in a folder of its own, with a record that nobody keeps."""
    return replace(part, trials=tuple(replace(trial, position=1000 + lane) for trial in part.trials))


def _suits(trial: PlannedTrial) -> bool:
    """The first baseline that runs, trains, and needs one device."""
    plain = trial.arm.role is Role.BASELINE and trial.refusal is None and trial.block.kind == "training"
    return plain and trial.arm.cell.number("devices") == 1


def _block(like: Block, rounds: int) -> Block:
    cell = like.baseline.cell
    arms = (
        Arm(name="baseline", role=Role.BASELINE, cell=cell),
        Arm(name="control", role=Role.CONTROL, cell=cell),
        Arm(name=ARM, role=Role.CELL, cell=cell),
    )
    return replace(like, study=STUDY, sweep={}, arms=arms, rounds=rounds)


def _trials(block: Block) -> Iterator[PlannedTrial]:
    for number, order in enumerate(balanced_orders(len(block.arms), block.rounds, seed=block.key), start=1):
        seed = trial_seed(block.study, number)
        for position, index in enumerate(order):
            yield PlannedTrial(block=block, arm=block.arms[index], round=number, position=position, seed=seed)
