"""Put a record together: what was planned, what the child measured, what the parent saw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.experiment.study import PlannedTrial, Role
from harness.results.first_step import without_first_step
from harness.results.lines import as_read_back
from harness.results.record import NAMES, Record
from harness.trial.device import DeviceFigures
from harness.trial.launch import Finished
from harness.trial.numbers import decode
from harness.trial.outcome import Outcome

#: Figures that every record has or says why it has not.
_OWED = (
    "tokens_per_second", "samples_per_second", "peak_allocated_bytes", "peak_reserved_bytes", "peak_device_bytes",
    "peak_host_bytes", "model_flops_per_token", "hardware_flops_per_token", "mfu", "hfu", "energy_joules_per_token",
    "utilisation", "startup_seconds", "compile_seconds",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Circumstances:
    """What the records of a round share."""

    scale: str
    fingerprint: str
    environment: Mapping[str, Any]
    version: str = ""
    measuring: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Try:
    """One try of a trial."""

    attempt: int
    started_at: str
    """ISO 8601, UTC."""
    earlier: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    """Tries before this one, in the record's words (`attempts`)."""


def record_of(
    trial: PlannedTrial, finished: Finished, device: DeviceFigures, *, at: Try, circumstances: Circumstances,
    seen: Mapping[str, Any] | None = None,
) -> Record:  # fmt: skip
    """The record of a trial that was launched; a crash where what it measured does not fit one.

    `seen`: further figures that were read from outside.
    """
    seen = seen or {}
    try:
        return as_read_back(_assembled(trial, finished, device, at=at, circumstances=circumstances, seen=seen))
    except ValueError as fault:
        reason = f"Its result does not fit a record: {fault}."
    lost = replace(finished, outcome=Outcome.CRASH, reason=reason, result=None)
    return _assembled(trial, lost, device, at=at, circumstances=circumstances, seen=seen)


def _assembled(
    trial: PlannedTrial, finished: Finished, device: DeviceFigures, *, at: Try, circumstances: Circumstances,
    seen: Mapping[str, Any],
) -> Record:  # fmt: skip
    result = finished.result
    measured: dict[str, Any] = decode(dict(result.measured)) if result is not None else {}
    planned = _planned_fields(trial, at, circumstances)
    # a name that the record uses for something else, or not at all, is a figure of this kind of trial
    known = {name: value for name, value in measured.items() if name in NAMES and name not in planned}
    others = {name: value for name, value in measured.items() if name not in known}
    fields = {
        **planned,
        **known,
        "outcome": finished.outcome,
        "reason": finished.reason,
        "wall_seconds": finished.wall_seconds,
        "figures": _with(known, "figures", {**others, **seen}),
        "evidence": result.evidence if result is not None else {},
        "warnings": [*(result.warnings if result is not None else ()), *finished.warnings],
        "ranks": result.ranks if result is not None else [],
        "clocks": _with(known, "clocks", device.clocks),
        "utilisation": device.utilisation,
        "peak_device_bytes": device.peak_device_bytes,
        "peak_host_bytes": known.get("peak_host_bytes") or finished.peak_host_bytes,
        "energy_joules_per_token": _energy_per_token(device, known),
        "attempts": [dict(each) for each in at.earlier],
    }
    fields["missing"] = _missing(fields, finished.outcome, {**device.missing, **(result.missing if result else {})})
    return without_first_step(Record(**fields))


def _with(measured: Mapping[str, Any], name: str, further: Mapping[str, Any]) -> dict[str, Any]:
    """What a child measured under `name`, and what its parent adds."""
    found = measured.get(name, {})
    if not isinstance(found, Mapping):
        raise ValueError(f"{name} must be a mapping, not {type(found).__name__}")
    return {**found, **further}


def unsupported(trial: PlannedTrial, *, at: Try, circumstances: Circumstances) -> Record:
    """The record of a trial that is known not to run here."""
    fields = {
        **_planned_fields(trial, at, circumstances), "outcome": Outcome.UNSUPPORTED, "reason": trial.refusal or "",
    }  # fmt: skip
    return Record(**fields, missing=_missing(fields, Outcome.UNSUPPORTED, {}))


def _planned_fields(trial: PlannedTrial, at: Try, circumstances: Circumstances) -> dict[str, Any]:
    block, arm = trial.block, trial.arm
    return {
        "study": block.study, "workload": arm.cell.workload.name, "model": arm.cell.workload.model,
        "data": arm.cell.workload.data, "kind": block.kind, "cell": dict(arm.cell.settings), "cell_key": arm.cell.key,
        "arm": arm.name, "baseline": arm.role is not Role.CELL, "control": arm.role is Role.CONTROL,
        "sweep": dict(block.sweep) or None, "block": block.key, "round": trial.round, "position": trial.position,
        "attempt": at.attempt, "seed": trial.seed, "warmup_steps": block.warmup_steps, "steps": block.steps,
        "scale": circumstances.scale, "fingerprint": circumstances.fingerprint, "started_at": at.started_at,
        "environment": dict(circumstances.environment), "claimbench_version": circumstances.version,
        "measuring": dict(circumstances.measuring),
    }  # fmt: skip


def _energy_per_token(device: DeviceFigures, measured: Mapping[str, Any]) -> float | None:
    """Mean power over the window, divided by the tokens that each of its seconds gave."""
    speed = measured.get("tokens_per_second")
    if device.power_watts is None or not isinstance(speed, int | float) or not speed > 0:
        return None
    return device.power_watts / speed


def _missing(fields: Mapping[str, Any], outcome: Outcome, reasons: Mapping[str, str]) -> dict[str, str]:
    """Every figure that is absent with its reason; reasons for figures that are there after all are dropped."""
    general = "this kind of trial does not measure it" if outcome is Outcome.OK else f"the trial ended as {outcome}"
    absent = {name: reasons.get(name, general) for name in _OWED if fields.get(name) is None}
    if not fields.get("gradient_check"):
        absent["gradient_check"] = reasons.get("gradient_check", general)
    others = {name: reason for name, reason in reasons.items() if name not in _OWED and not fields.get(name)}
    return {**absent, **others}
