"""One trial as it is stored: the record, its fields and their units (`docs/concepts.md` lists them for readers)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any

from harness.experiment.axes import Setting
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
    """Tokens of all ranks over the slowest rank's window: a ratio of totals."""
    samples_per_second: float | None = None
    step_seconds: list[float] = field(default_factory=list)
    phases: dict[str, float] = field(default_factory=dict)
    """Mean seconds a step: forward, backward, optimizer, data_wait, copy."""
    # memory, bytes
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    peak_device_bytes: int | None = None
    peak_host_bytes: int | None = None
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
    """`error` of this cell and `eager_error` at its precision, both relative L2 against fp32 eager; or `skipped`: why."""
    # device
    energy_joules_per_token: float | None = None
    utilisation: float | None = None
    """Mean over the window, 0..1."""
    clocks: dict[str, Any] = field(default_factory=dict)
    """`sm_mhz` (mean), `sm_mhz_min`, `throttle_reasons`, `power_watts`, `power_limit_watts`, `temperature`, `foreign`."""
    # anything a kind other than `training` measures
    figures: dict[str, Any] = field(default_factory=dict)
    evidence: dict[str, Any] = field(default_factory=dict)
    """Axis → {holds, word, facts, reason}."""
    warnings: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    ranks: list[dict[str, Any]] = field(default_factory=list)
    attempts: list[dict[str, Any]] = field(default_factory=list)
    """Earlier tries of the same trial: outcome and reason of each."""
    environment: dict[str, Any] = field(default_factory=dict)
    claimbench_version: str = ""

    def as_json(self) -> dict[str, Any]:
        """Plain values, in the order of the fields."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Record:
        """Read a line back; names of a newer version are ignored.

        Raises:
            TypeError, ValueError: a required name is missing or the outcome is no known word.
        """
        known = {each.name for each in fields(cls)}
        kept = {name: value for name, value in content.items() if name in known}
        return cls(**{**kept, "outcome": Outcome(kept["outcome"])})
