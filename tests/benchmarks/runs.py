"""Runs with known speeds, for comparing: every figure of a test can be worked out by hand from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from harness.environment import Environment
from harness.judgement.sides import Side, side_of
from harness.results.record import Record
from harness.trial.outcome import Outcome
from tests.records import CellShape, StudyShape, make_records
from tests.shapes import H100

#: Logarithms around a cell's speed, one a trial: mean 0, standard deviation 0.02.
THREE = (-0.02, 0.0, 0.02)
BASELINE, CONTROL, FUSED = "baseline", "control", "optimizer=fused"
#: Speeds of the arms of the study, tokens/s.
SPEEDS = {BASELINE: 1000.0, CONTROL: 1000.0, FUSED: 1200.0}


def optimizer_study(
    *, scale: dict[str, float] | None = None, logs: Sequence[float] = THREE, control: Sequence[float] = (),
    environment: Environment = H100, fingerprint: str = "f0",
) -> list[Record]:  # fmt: skip
    """One study with a baseline, its control and one cell, a round for each of `logs`.

    Args:
        scale: arm → what its speed is multiplied with.
        logs: added to the logarithm of the speed, round by round.
        control: the A/A control ÷ baseline as a logarithm, round by round; empty: exactly 1.
        environment: of all trials.
        fingerprint: of all trials.
    """
    shape = StudyShape(name="optimizer", cells=(CellShape(settings={"optimizer": "fused"}),))
    records = make_records([shape], rounds=len(logs), environment=environment, fingerprint=fingerprint)
    apart = dict(enumerate(control, start=1))
    return [_at(record, _speed(record, logs, scale or {}, apart)) for record in records]


def without(records: Sequence[Record], arm: str, outcome: Outcome, reason: str = "") -> list[Record]:
    """The same, all trials of an arm ended otherwise."""
    failed: dict[str, Any] = {"tokens_per_second": None, "samples_per_second": None, "step_seconds": []}
    return [
        replace(record, outcome=outcome, reason=reason, **failed) if record.arm == arm else record for record in records
    ]


def side(records: Sequence[Record], path: str = "a.jsonl") -> Side:
    return side_of(records, path)


def _speed(record: Record, logs: Sequence[float], scale: dict[str, float], control: dict[int, float]) -> float:
    apart = control.get(record.round, 0.0) if record.control else 0.0
    return SPEEDS[record.arm] * scale.get(record.arm, 1.0) * math.exp(logs[record.round - 1] + apart)


def _at(record: Record, tokens_per_second: float) -> Record:
    """The record at another speed, its 20 steps of 8,192 tokens alike."""
    step = 8 * 1024 / tokens_per_second
    return replace(
        record,
        tokens_per_second=tokens_per_second,
        samples_per_second=tokens_per_second / 1024,
        step_seconds=[step] * 20,
    )
