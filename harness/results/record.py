"""One trial as it is stored: the record, its fields and their units (`docs/concepts.md` lists them for readers).

In JSON a figure that could not be had is null, and one that is not finite is the string "nan", "inf" or "-inf": a loss
that overflowed comes back as the number it was (`harness.trial.numbers`).
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field, fields
from typing import Any

from pydantic_core import from_json

from harness.experiment.axes import Setting
from harness.trial.numbers import decode, encode
from harness.trial.outcome import Outcome

#: Version of the record's format.
RECORD_SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class Record:
    """All that is known of one trial. A figure that could not be had is None, and `missing` says why."""

    # what was run
    schema: int = RECORD_SCHEMA
    study: str
    workload: str
    model: str
    data: str
    kind: str = "training"
    cell: dict[str, Setting]
    """Setting by axis, every axis, `devices` included."""
    cell_key: str
    arm: str
    """Unique in its block: `baseline`, `control`, or the settings in which it differs (`attention=flash2`)."""
    baseline: bool = False
    """True for the baseline and for the A/A control."""
    control: bool = False
    """True for the A/A control alone."""
    sweep: dict[str, Setting] | None = None
    block: str
    """Key of the block: only trials of one block, round, device and fingerprint are ever paired."""
    round: int
    position: int
    attempt: int = 1
    """Counts from 1 within block, arm, round and fingerprint."""
    seed: int
    warmup_steps: int
    steps: int
    scale: str = "full"
    superseded: bool = False
    """True when the round was run again: kept, never judged."""
    fingerprint: str
    # how it ended
    outcome: Outcome
    reason: str = ""
    started_at: str
    """ISO 8601, UTC."""
    wall_seconds: float | None = None
    startup_seconds: float | None = None
    """From the request for a process to the first warm-up step."""
    compile_seconds: float | None = None
    # speed
    tokens_per_second: float | None = None
    """Tokens of all ranks over the slowest rank's window: a ratio of totals, on a GPU less the first step."""
    samples_per_second: float | None = None
    step_seconds: list[float] = field(default_factory=list)
    """Of every step of the window; on a GPU the first one stands under `figures`, see `harness.results.first_step`."""
    phases: dict[str, float] = field(default_factory=dict)
    """Mean seconds a step: forward, backward, optimizer, data_wait, copy."""
    # memory, bytes
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    peak_device_bytes: int | None = None
    peak_host_bytes: int | None = None
    """Resident, of the training process alone (of the largest rank): loader workers are `figures.peak_loader_bytes`."""
    model_state_bytes: dict[str, float] = field(default_factory=dict)
    """By kind (parameters, gradients, optimizer, buckets, activations) and by moment (before_step, after_step, …)."""
    parameters: dict[str, int] = field(default_factory=dict)
    """`total` and `trainable`, by logical size (packed 4-bit weights count as what they stand for)."""
    # arithmetic
    model_flops_per_token: float | None = None
    hardware_flops_per_token: float | None = None
    mfu: float | None = None
    hfu: float | None = None
    peak_flops: dict[str, Any] = field(default_factory=dict)
    """`value` (FLOP/s), `dtype`, `source`."""
    # training
    losses: list[float] = field(default_factory=list)
    """One a step, warm-up included, mean over micro-batches and ranks."""
    gradient_norms: list[float] = field(default_factory=list)
    gradient_check: dict[str, Any] = field(default_factory=dict)
    """`error` of this cell and `eager_error` at its precision (relative L2 against fp32 eager); or `skipped`: why."""
    # device
    energy_joules_per_token: float | None = None
    utilisation: float | None = None
    """Mean over the window, 0..1."""
    clocks: dict[str, Any] = field(default_factory=dict)
    """`sm_mhz` (mean), `sm_mhz_min`, `throttle_reasons`, `power_watts`, `power_limit_watts`, `temperature`,
    `foreign`."""
    # anything a kind other than `training` measures
    figures: dict[str, Any] = field(default_factory=dict)
    evidence: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Axis → {holds, word, facts, reason}."""
    warnings: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    ranks: list[dict[str, Any]] = field(default_factory=list)
    attempts: list[dict[str, Any]] = field(default_factory=list)
    """Earlier tries of the same trial: outcome and reason of each."""
    environment: dict[str, Any] = field(default_factory=dict)
    measuring: dict[str, Any] = field(default_factory=dict)
    """How the trial was made: `version` of the measuring code, `revisions` of techniques. Empty: an earlier version."""
    claimbench_version: str = ""

    @property
    def identity(self) -> tuple[str, str, str, int, int, str]:
        """What makes two records the same trial, wherever they were kept in between."""
        return (self.fingerprint, self.block, self.arm, self.round, self.attempt, self.started_at)

    def as_json(self) -> dict[str, Any]:
        """Plain values for strict JSON, in the order of the fields."""
        return {name: encode(getattr(self, name)) for name in NAMES}

    def as_text(self, *, without: Collection[str] = ()) -> str:
        """One line of JSON with sorted names, the same bytes for equal records; `without` leaves fields out."""
        content = {name: getattr(self, name) for name in NAMES if name not in without}
        try:
            return _dumps(content)
        except ValueError:  # a number that is not finite; seldom, so the common case is spared the walk
            return _dumps(encode(content))

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Record:
        """Read a line back; names of a newer version are ignored.

        Raises:
            TypeError, ValueError: a required name is missing or the outcome is no known word.
        """
        return cls._build({name: value if name in TEXTS else decode(value) for name, value in content.items()})

    @classmethod
    def from_text(cls, text: str, **elsewhere: Any) -> Record:
        """Read back what `as_text` wrote, as `from_json`; `elsewhere`: fields that were not kept in the text.

        Raises:
            TypeError, ValueError: it is no JSON, or as for `from_json`.
        """
        # three times as fast as the standard library's parser: a store of 10,000 trials is 30 MB of figures
        content: dict[str, Any] = from_json(text, cache_strings="all")
        content.update(elsewhere)
        return cls.from_json(content) if '"nan"' in text or 'inf"' in text else cls._build(content)

    @classmethod
    def _build(cls, content: dict[str, Any]) -> Record:
        if not content.keys() <= NAMES.keys():
            content = {name: value for name, value in content.items() if name in NAMES}
        if "outcome" not in content:
            raise TypeError("a record needs an 'outcome'")
        content = {**content, "outcome": Outcome(content["outcome"])}
        if content.keys() != NAMES.keys():
            return cls(**content)
        # every field is there, so there is nothing for the constructor to fill in: half the time of reading a store
        record = object.__new__(cls)
        record.__dict__.update(content)
        return record


#: Names of the fields, in their order.
NAMES: dict[str, None] = dict.fromkeys(each.name for each in fields(Record))
#: Fields that hold text: "nan" there is a word, not a number.
TEXTS = frozenset(each.name for each in fields(Record) if each.type == "str") | {"cell", "sweep", "warnings", "missing"}


def _dumps(content: dict[str, Any]) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
