"""A plan in plain rows, for `claimbench plan`: what will run, and why what will not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from harness.experiment.axes import Setting
from harness.experiment.study import Plan, SweepPoint


@dataclass(frozen=True, kw_only=True)
class PlanRow:
    """One arm of a block."""

    study: str
    kind: str
    workload: str
    model: str
    sweep: SweepPoint
    arm: str
    settings: Mapping[str, Setting]
    """What the cell sets away from the defaults."""
    trials: int
    refusal: str | None
    """Why it is skipped, with the remedy, or None."""


@dataclass(frozen=True, kw_only=True)
class PlanSummary:
    """A plan in numbers."""

    studies: int
    blocks: int
    cells: int
    """Arms of all blocks, baselines and controls included."""
    trials: int
    """All of them."""
    to_run: int
    """Those that can run here."""
    refused: Mapping[str, int]
    """Reason → number of cells skipped for it, the most frequent first."""


def plan_rows(plan: Plan) -> Iterator[PlanRow]:
    """A row an arm, in the order of the matrix: block by block, baseline first."""
    for _, group in groupby(plan.trials, key=lambda trial: id(trial.block)):
        trials = list(group)
        block = trials[0].block
        refusals = {trial.arm.name: trial.refusal for trial in trials[: len(block.arms)]}
        for arm in block.arms:
            cell = arm.cell
            yield PlanRow(
                study=block.study,
                kind=block.kind,
                workload=cell.workload.name,
                model=cell.workload.model,
                sweep=block.sweep,
                arm=arm.name,
                settings={axis: value for axis, value in cell.settings.items() if cell.defaults.get(axis) != value},
                trials=block.rounds,
                refusal=refusals[arm.name],
            )


def summarise(plan: Plan) -> PlanSummary:
    """Count what a plan holds."""
    cells = [trial for trial in plan.trials if trial.round == 1]
    refused = Counter(trial.refusal for trial in cells if trial.refusal is not None)
    return PlanSummary(
        studies=len({trial.block.study for trial in cells}),
        blocks=len({id(trial.block) for trial in cells}),
        cells=len(cells),
        trials=len(plan.trials),
        to_run=sum(trial.refusal is None for trial in plan.trials),
        refused=dict(refused.most_common()),
    )
