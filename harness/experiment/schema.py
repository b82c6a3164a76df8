"""The shape of matrix.yaml: names and types. `settings` and `checks` hold the settings against the table of axes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from harness.experiment.study import FEWEST_ROUNDS, Design

SCHEMA = 1
MOST_ROUNDS = 1000

Rounds = Annotated[int, Field(ge=FEWEST_ROUNDS, le=MOST_ROUNDS)]
DesignWord = Literal["one-at-a-time", "factorial", "cumulative", "leave-one-out"]


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class MatrixShape(_Shape):
    """The top level."""

    schema_: Literal[1] = Field(alias="schema")
    rounds: Rounds = 5
    retries: Annotated[int, Field(ge=0, le=10)] = 0
    """How often a trial that crashed or ran out of time is tried again, at once."""
    workloads: dict[str, Any] = Field(min_length=1)
    baseline: dict[str, Any] = {}
    studies: dict[str, Any] = Field(min_length=1)


class WorkloadShape(_Shape):
    """A workload. What it names beyond these two must be an axis; `checks` sees to that."""

    model_config = ConfigDict(extra="allow")

    model: str = Field(min_length=1)
    data: str = Field(default="stdlib", min_length=1)


class StudyShape(_Shape):
    """A study. `baseline`, `axes`, `sweep` and `points` hold axes by name; `settings` checks them against the table."""

    workload: str
    kind: str = "training"
    design: DesignWord = Design.ONE_AT_A_TIME.value
    baseline: dict[str, Any] = {}
    axes: dict[str, Any] = {}
    sweep: dict[str, Any] = {}
    """Every combination of the listed settings is a sweep point."""
    points: list[dict[str, Any]] = []
    """Sweep points written out, where several axes move together (batch and length at a constant number of tokens)."""
    combinations: list[dict[str, Any]] = []
    rounds: int | None = None
    warmup_steps: Annotated[int, Field(ge=0, le=10_000)] = 8
    steps: Annotated[int, Field(ge=1, le=1_000_000)] = 30
    options: dict[str, Any] = {}
    smoke: bool = True
    question: str = ""
