"""Synthetic records that look like those of a real run: whole blocks on an H100, with known true ratios.

    records = make_records()                                            # the default studies, 5 rounds
    records = make_records(ratio=1.10, spread=0.02, rounds=7, seed=3)   # every cell truly 1.10 times as fast
    records = make_records([StudyShape(name="attention", baseline={"attention": "eager"}, cells=(
        CellShape(settings={"attention": "flash2"}, ratio=2.4, memory=0.8),
        CellShape(settings={"attention": "sdpa-math"}, outcome=Outcome.OOM, failed_rounds=(2, 3)),
    ), sweep=("sequence_length", (512, 1024)))])

Noise is lognormal: `spread` between trials (what statistics must live with), `step_spread` between steps of one trial.
Every draw depends on `seed` and the place of the trial alone, so that one more study changes nothing in the others.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from zlib import crc32

import numpy as np

from harness.environment import Environment
from harness.experiment.axes import Setting
from harness.experiment.cell import Cell, Workload
from harness.experiment.study import Arm, Block, Role
from harness.results.first_step import FIRST_STEP
from harness.results.record import Record
from harness.trial.device import LOOKS_BACK_SECONDS
from harness.trial.outcome import Outcome
from tests.shapes import (
    A100,
    CPU,
    DEFAULT_STUDIES,
    DEFAULTS,
    FINGERPRINT,
    H100,
    H100_BF16_FLOPS,
    MEASURED,
    MODEL_FLOPS_PER_TOKEN,
    PARAMETERS,
    PHASE_SHARES,
    REASONS,
    STARTED,
    CellShape,
    Noise,
    StudyShape,
)  # fmt: skip

__all__ = [
    "A100", "CPU", "DEFAULTS", "DEFAULT_STUDIES", "FINGERPRINT", "H100", "PARAMETERS", "STARTED", "CellShape",
    "StudyShape", "make_records", "many_records",
]  # fmt: skip


def make_records(
    studies: Iterable[StudyShape] = DEFAULT_STUDIES,
    *,
    rounds: int = 5,
    seed: int = 0,
    ratio: float | None = None,
    spread: float = 0.01,
    step_spread: float = 0.03,
    drift: float = 0.0,
    control_ratio: float = 1.0,
    steps: int = 20,
    warmup_steps: int = 8,
    environment: Environment = H100,
    fingerprint: str = FINGERPRINT,
    scale: str = "full",
    started: datetime = STARTED,
) -> list[Record]:
    """Whole blocks in the order in which they would have run.

    `ratio` replaces the true speed-up of every cell; `control_ratio` other than 1 makes a suspect study.
    """
    noise = Noise(spread=spread, step_spread=step_spread, drift=drift)
    run = _Run(
        noise=noise, seed=seed, rounds=rounds, ratio=ratio, control_ratio=control_ratio, steps=steps,
        warmup_steps=warmup_steps, environment=environment, fingerprint=fingerprint, scale=scale, started=started,
        environment_json=json.loads(json.dumps(asdict(environment))),
    )  # fmt: skip
    return [record for study in studies for point in _points(study) for record in _block(run, study, point)]


def many_records(count: int, *, seed: int = 0) -> list[Record]:
    """Exactly `count` records in blocks of 8 arms and 5 rounds, for tests of speed."""
    cells = tuple(CellShape(settings={"batch_size": 2**power}, ratio=1 + power / 10) for power in range(4, 10))
    studies = (StudyShape(name=f"study-{number:04d}", cells=cells) for number in range(math.ceil(count / 40)))
    return make_records(studies, seed=seed)[:count]


@dataclass(frozen=True, kw_only=True)
class _Run:
    noise: Noise
    seed: int
    rounds: int
    ratio: float | None
    control_ratio: float
    steps: int
    warmup_steps: int
    environment: Environment
    environment_json: dict[str, Any]
    fingerprint: str
    scale: str
    started: datetime


@dataclass(frozen=True, kw_only=True)
class _Trial:
    """One trial before it has figures."""

    study: StudyShape
    block: Block
    key: str
    """Of the block; worked out once."""
    arm: Arm
    shape: CellShape
    sweep: dict[str, Setting] | None
    round: int
    position: int
    order: int
    """Place among all trials of the block, from 0."""


def _points(study: StudyShape) -> list[dict[str, Setting] | None]:
    return [None] if study.sweep is None else [{study.sweep[0]: value} for value in study.sweep[1]]


def _block(run: _Run, study: StudyShape, point: dict[str, Setting] | None) -> Iterator[Record]:
    workload = Workload(name=study.workload, model=study.model)
    settings = {**DEFAULTS, **study.baseline, **(point or {})}
    baseline = Cell(workload=workload, settings=settings, defaults=DEFAULTS)
    same = CellShape(settings={}, ratio=1.0)
    shapes = [("baseline", Role.BASELINE, same), ("control", Role.CONTROL, replace(same, ratio=run.control_ratio))]
    for shape in study.cells:
        shapes.append((baseline.but(**shape.settings).label(baseline), Role.CELL, shape))
    arms = tuple(Arm(name=name, role=role, cell=baseline.but(**shape.settings)) for name, role, shape in shapes)
    block = Block(
        study=study.name, kind=study.kind, sweep=point or {}, arms=arms, rounds=run.rounds,
        warmup_steps=run.warmup_steps, steps=run.steps,
    )  # fmt: skip
    key = block.key
    order = np.random.default_rng([run.seed, crc32(key.encode())])
    for round_number in range(1, run.rounds + 1):
        for position, index in enumerate(order.permutation(len(arms))):
            yield _record(
                run,
                _Trial(
                    study=study, block=block, key=key, arm=arms[index], shape=shapes[index][2], sweep=point,
                    round=round_number, position=position, order=(round_number - 1) * len(arms) + position,
                ),
            )  # fmt: skip


def _record(run: _Run, trial: _Trial) -> Record:
    shape, cell = trial.shape, trial.arm.cell
    failed = shape.failed_rounds is None or trial.round in shape.failed_rounds
    outcome = shape.outcome if failed else Outcome.OK
    random = np.random.default_rng([run.seed, crc32(f"{trial.key}/{trial.arm.name}/{trial.round}".encode())])
    figures: dict[str, Any] = {"missing": {"tokens_per_second": f"the trial ended as {outcome}"}}
    if outcome in MEASURED:
        figures = {**_speed(run, trial, random), **_memory(run, trial, random), **_training(run, trial, random)}
        if run.environment.devices:
            figures["figures"] = {FIRST_STEP: 1.2 * figures["step_seconds"][0]}
    start = run.started + timedelta(seconds=10 * trial.order + crc32(trial.key.encode()) % 100_000)
    return Record(
        study=trial.study.name, workload=cell.workload.name, model=cell.workload.model, data=cell.workload.data,
        kind=trial.study.kind, cell=dict(cell.settings), cell_key=cell.key, arm=trial.arm.name,
        baseline=trial.arm.role is not Role.CELL, control=trial.arm.role is Role.CONTROL, sweep=trial.sweep,
        block=trial.key, round=trial.round, position=trial.position, seed=1000 + trial.round,
        warmup_steps=run.warmup_steps, steps=run.steps, scale=run.scale, fingerprint=run.fingerprint, outcome=outcome,
        reason=REASONS.get(outcome, ""), started_at=start.isoformat(timespec="milliseconds"),
        wall_seconds=None if outcome is Outcome.UNSUPPORTED else 8.0 + float(random.random()),
        evidence=_evidence(trial, outcome) if outcome in MEASURED else {}, environment=run.environment_json,
        claimbench_version="0.1.0", **figures,
    )  # fmt: skip


def _speed(run: _Run, trial: _Trial, random: np.random.Generator) -> dict[str, Any]:
    noise, cell = run.noise, trial.arm.cell
    ratio = run.ratio if run.ratio is not None and trial.arm.role is Role.CELL else trial.shape.ratio
    progress = trial.order / max(1, run.rounds * len(trial.block.arms) - 1)
    true = trial.study.tokens_per_second * ratio * math.exp(noise.drift * progress)
    tokens = cell.number("batch_size") * cell.number("sequence_length") * cell.number("accumulation")
    step_noise = np.exp(random.normal(0.0, noise.step_spread, run.steps))
    seconds = (tokens / (true * math.exp(random.normal(0.0, noise.spread))) * step_noise / step_noise.mean()).tolist()
    mean, per_second = sum(seconds) / run.steps, tokens * run.steps / sum(seconds)
    recompute = 4 / 3 if cell["checkpointing"] != "off" else 1.0
    gpu = bool(run.environment.devices)
    metered = gpu and math.fsum(seconds) >= LOOKS_BACK_SECONDS
    return {
        "tokens_per_second": per_second,
        "samples_per_second": per_second / cell.number("sequence_length"),
        "step_seconds": seconds,
        "phases": {phase: mean * share for phase, share in PHASE_SHARES.items()},
        "startup_seconds": 2.5 + float(random.random()),
        "compile_seconds": 7.0 if cell["compile"] != "off" else None,
        "model_flops_per_token": MODEL_FLOPS_PER_TOKEN,
        "hardware_flops_per_token": MODEL_FLOPS_PER_TOKEN * recompute,
        "mfu": per_second * MODEL_FLOPS_PER_TOKEN / H100_BF16_FLOPS if gpu else None,
        "hfu": per_second * MODEL_FLOPS_PER_TOKEN * recompute / H100_BF16_FLOPS if gpu else None,
        "peak_flops": {"value": H100_BF16_FLOPS, "dtype": "bfloat16", "source": "synthetic"} if gpu else {},
        "utilisation": 0.93 if metered else None,
        "energy_joules_per_token": 600 / per_second if metered else None,
        "clocks": {"sm_mhz": 1750.0, "sm_mhz_min": 1740.0, "throttle_reasons": [], "temperature": 62, "foreign": [],
                   "power_watts": 600.0 if metered else None, "power_limit_watts": 700.0} if gpu else {},
        "missing": {} if gpu else {"mfu": "no peak is known for this processor"},
    }  # fmt: skip


def _memory(run: _Run, trial: _Trial, random: np.random.Generator) -> dict[str, Any]:
    allocated = int(trial.study.peak_bytes * trial.shape.memory * (1 + 0.001 * random.random()))
    trainable = int(PARAMETERS * trial.shape.trainable_share)
    gpu = bool(run.environment.devices)
    return {
        "peak_allocated_bytes": allocated if gpu else None,
        "peak_reserved_bytes": int(allocated * 1.08) if gpu else None,
        "peak_device_bytes": int(allocated * 1.08) + 600_000_000 if gpu else None,
        "peak_host_bytes": 3_200_000_000,
        "model_state_bytes": {"parameters": 4.0 * PARAMETERS, "gradients": 4.0 * trainable,
                              "optimizer": 8.0 * trainable, "before_step": 16.0 * trainable},
        "parameters": {"total": PARAMETERS, "trainable": trainable},
    }  # fmt: skip


def _training(run: _Run, trial: _Trial, random: np.random.Generator) -> dict[str, Any]:
    seeded = np.random.default_rng([run.seed, crc32(trial.study.name.encode()), trial.round])
    count = run.warmup_steps + run.steps
    curve = 5.0 + 5.8 * np.exp(-np.arange(count) / 10) + seeded.normal(0.0, run.noise.seed_spread, count)
    curve = curve + random.normal(0.0, 1.0, count) * trial.shape.loss_noise
    curve[run.warmup_steps :] += trial.shape.loss_shift
    checked = trial.round == 1
    return {
        "losses": curve.tolist(),
        "gradient_norms": [2.0, 1.5],
        "gradient_check": {"error": 0.004 + trial.shape.loss_noise, "eager_error": 0.005} if checked else {},
    }  # fmt: skip


def _evidence(trial: _Trial, outcome: Outcome) -> dict[str, Any]:
    """One entry for each setting away from its default, as a real trial has."""
    holds = outcome is not Outcome.INERT
    return {
        axis: {"holds": holds, "word": f"{axis} seen" if holds else "not seen", "facts": {"setting": value},
               "reason": "" if holds else REASONS[Outcome.INERT]}
        for axis, value in trial.arm.cell.settings.items()
        if value != DEFAULTS[axis]
    }  # fmt: skip
