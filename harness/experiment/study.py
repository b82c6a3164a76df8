"""Studies, blocks and arms: the shape of an experiment once the matrix is read (`docs/concepts.md` fixes the words)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from harness.experiment.axes import Setting
from harness.experiment.cell import Cell, Workload

#: A sweep point: the swept axes with their settings, for example {"sequence_length": 2048}. Empty without a sweep.
SweepPoint = Mapping[str, Setting]
#: What a sweep may name besides axes: models, in place of the workload's.
MODEL = "model"

#: For an interval and a verdict: two trials that happen to agree give a narrow interval.
FEWEST_ROUNDS = 3


class Design(StrEnum):
    """Which cells a study compares with its baseline."""

    ONE_AT_A_TIME = "one-at-a-time"
    FACTORIAL = "factorial"
    CUMULATIVE = "cumulative"
    LEAVE_ONE_OUT = "leave-one-out"


class Role(StrEnum):
    """What a cell is in its block."""

    BASELINE = "baseline"
    CONTROL = "control"
    """The baseline under a second name: the A/A control."""
    CELL = "cell"


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One cell of a block with its part in it. `name` is unique in the block: `baseline`, `control`, or its label."""

    name: str
    role: Role
    cell: Cell


@dataclass(frozen=True, kw_only=True)
class Block:
    """A study at one sweep point: its baseline, the A/A control and its cells. The unit of scheduling."""

    study: str
    kind: str
    """What its trials do: `training` (the default) or a named kind such as `loader-only`."""
    sweep: SweepPoint
    arms: tuple[Arm, ...]
    """Baseline first, control second. The baseline alone where the study compares nothing."""
    rounds: int
    warmup_steps: int
    steps: int
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the kind, as they stand in the study."""

    @property
    def baseline(self) -> Arm:
        return self.arms[0]

    @property
    def key(self) -> str:
        """16 hexadecimal digits over everything that makes two trials comparable: a changed block is another block."""
        content = [
            self.study, self.kind, sorted(self.sweep.items()), self.baseline.cell.key,
            self.warmup_steps, self.steps, json.dumps(self.options, sort_keys=True, default=str),
            *filter(None, [self.baseline.cell.workload.contents]),
        ]  # fmt: skip
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class Study:
    """One question as the matrix asks it, read and checked. `designs.blocks_of` makes its blocks."""

    name: str
    baseline: Cell
    """Every axis set: defaults, then the matrix' baseline, the workload, and the study's own baseline."""
    kind: str = "training"
    design: Design = Design.ONE_AT_A_TIME
    axes: Mapping[str, tuple[Setting, ...]] = field(default_factory=dict)
    """The settings to compare with the baseline, in the order of the file."""
    points: tuple[SweepPoint, ...] = ({},)
    """Every combination of the swept axes; one empty point without a sweep."""
    models: Mapping[str, Workload] = field(default_factory=dict)
    """Model that the points name → the workload with it."""
    combinations: tuple[Mapping[str, Setting], ...] = ()
    """Further cells, for what a design alone does not make (two axes at once)."""
    rounds: int = 5
    warmup_steps: int = 8
    steps: int = 30
    options: Mapping[str, Any] = field(default_factory=dict)
    smoke: bool = True
    """Whether the smoke scale runs it."""
    question: str = ""


@dataclass(frozen=True, kw_only=True)
class PlannedTrial:
    """One cell in one round of a block."""

    block: Block
    arm: Arm
    round: int
    """Counts from 1."""
    position: int
    """Place in the shuffled order of its round, from 0."""
    seed: int
    """A function of study and round alone: all arms of a round start from the same weights and see the same batches."""
    refusal: str | None = None
    """Why it cannot run here, with the remedy (outcome `unsupported`), or None."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All trials of a run in the order in which they will run: study by study, block by block, whole rounds."""

    trials: tuple[PlannedTrial, ...]
    scale: str
    """`full`, or `smoke` (tiny shapes: no figure of it says anything about a GPU)."""
    matrix_file: str
    matrix_hash: str
    retries: int = 0
    """Tries again, at once, after a crash or a timeout, as the matrix states it."""
    left_out: str = ""
    """What of the matrix the scale leaves out, in words; empty where that is nothing."""
