"""The matrix for pytest: its cells by name, and its blocks, run when the first of their cells is asked for.

Rounds are randomised blocks, so a cell cannot run alone: the whole block runs, round by round in its shuffled order,
through the same code as `claimbench run`. Each cell's test then reads its own trials from the store.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path

import harness
from harness.environment import Environment
from harness.experiment.study import Arm, Block, Plan, PlannedTrial
from harness.judgement.blocks import compare
from harness.judgement.judged import ArmResult, BlockResult
from harness.report import formats
from harness.results.collect import Options, fill, local_launcher
from harness.results.events import OnEvent
from harness.results.rounds import rounds_of
from harness.results.store import Store
from harness.trial.launch import Launcher
from harness.trial.nvml import meters


class Stopped(Exception):  # noqa: N818 - not an error: the user pressed Ctrl-C
    """A run ended before its block was whole."""


@dataclass(frozen=True, kw_only=True)
class CellName:
    """What finds a cell in a matrix, in words. `--benchmark-group-by=param:cell` groups by one of them."""

    study: str
    point: str
    """The sweep point, `sequence_length=64`; empty without a sweep."""
    cell: str
    """`baseline`, `control`, or the settings in which it differs."""

    @property
    def group(self) -> str:
        return " ".join(filter(None, (self.study, self.point)))

    @property
    def test_id(self) -> str:
        """Without spaces, so that it can be pasted into a shell."""
        return "/".join(filter(None, (self.study, self.point, self.cell))).replace(" ", ",")


def cells(plan: Plan) -> Iterator[tuple[CellName, str | None]]:
    """Every cell of a plan in its order, with the reason where it cannot run here."""
    for block, trials in _blocks(plan):
        refusals = {trial.arm.name: trial.refusal for trial in trials}
        for arm in block.arms:
            yield _name(block, arm), refusals[arm.name]


@dataclass(kw_only=True)
class Blocks:
    """The blocks of a plan in one store, under one launcher."""

    plan: Plan
    environment: Environment
    store: Store
    launcher: Launcher
    options: Options
    on_event: OnEvent
    _judged: dict[tuple[str, str], BlockResult] = field(default_factory=dict)

    def cell(self, name: CellName) -> tuple[BlockResult, ArmResult]:
        """The block of a cell and the cell in it, from every round that the plan has.

        Raises:
            Stopped: the user stopped the run.
            WorkloadError, LaunchError, StoreError: as for `harness.run`.
        """
        key = (name.study, name.point)
        if key not in self._judged:
            self._judged[key] = self._run(name)
        block = self._judged[key]
        return block, next(arm for arm in block.arms if arm.name == name.cell)

    def _run(self, name: CellName) -> BlockResult:
        trials = next(trials for block, trials in _blocks(self.plan) if _point(block) == (name.study, name.point))
        part = replace(self.plan, trials=tuple(trials))
        summary = fill(self.store, part, self.launcher, self.environment, options=self.options, on_event=self.on_event)
        if summary.interrupted:
            raise Stopped(f"stopped; what ran is kept in {self.store.path}")
        first = next(rounds_of(part, self.environment))
        records = [
            record
            for record in self.store.records(include_superseded=False)
            if (record.block, record.fingerprint) == (first.key, first.circumstances.fingerprint)
            and record.round <= first.block.rounds
        ]
        return compare(records).blocks[0]


@contextmanager
def opened(
    plan: Plan, environment: Environment, path: Path, *, arguments: Sequence[str], on_event: OnEvent
) -> Iterator[Blocks]:
    """The blocks of a plan, with the store open for writing and one zygote for all of them."""
    text = Path(plan.matrix_file).read_text(encoding="utf-8")
    options = Options(meters=meters(device.uuid for device in environment.devices))
    with Store.open(path, writable=True) as store, local_launcher(plan, environment) as launcher:
        number = store.begin_run(
            arguments=arguments, matrix_hash=plan.matrix_hash, matrix_text=text, version=harness.__version__
        )
        yield Blocks(
            plan=plan, environment=environment, store=store, launcher=launcher, options=options, on_event=on_event
        )
        store.finish_run(number)


def _blocks(plan: Plan) -> Iterator[tuple[Block, list[PlannedTrial]]]:
    for _, group in groupby(plan.trials, key=lambda trial: id(trial.block)):
        trials = list(group)
        yield trials[0].block, trials


def _point(block: Block) -> tuple[str, str]:
    return block.study, formats.settings(block.sweep)


def _name(block: Block, arm: Arm) -> CellName:
    study, point = _point(block)
    return CellName(study=study, point=point, cell=arm.name)
