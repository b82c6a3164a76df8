"""Trials for the dashboards people have already: TensorBoard, Weights & Biases, MLflow. No network: offline modes.

The names are those of the first document (`perf/epoch_…`). What it calls an epoch is the measured window of a trial:

    perf/epoch_forward_time         seconds of the window spent in the forward pass
    perf/epoch_backward_time        in the backward pass
    perf/epoch_optimizer_time       in the optimizer's step
    perf/epoch_data_loading_time    waiting for data
    perf/epoch_copy_time            in host-to-device copies
    perf/epoch_total_time           seconds of the whole window
    perf/epoch_tokens_per_second    tokens of the window over its seconds
    perf/epoch_peak_memory_bytes    peak reserved memory

A run is one cell of one block; its steps are the rounds. Figures that a trial lacks are left out, never zero.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from harness.errors import EnvironmentProblem, InputError, suggestion
from harness.report import formats
from harness.results.record import Record
from harness.trial.outcome import Outcome

#: Phase of a record → name of the document.
PHASES: Mapping[str, str] = {
    "forward": "perf/epoch_forward_time",
    "backward": "perf/epoch_backward_time",
    "optimizer": "perf/epoch_optimizer_time",
    "data_wait": "perf/epoch_data_loading_time",
    "copy": "perf/epoch_copy_time",
}


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """One cell of one block: what a dashboard shows as a run."""

    name: str
    config: Mapping[str, Any]
    points: tuple[tuple[int, float, Mapping[str, float]], ...]
    """Round, time of the trial (seconds since 1970), scalars by name."""


def scalars(record: Record) -> dict[str, float]:
    """The figures of a trial under the names of the dashboards."""
    steps = len(record.step_seconds)
    found: dict[str, float | None] = {
        name: record.phases[phase] * steps for phase, name in PHASES.items() if phase in record.phases
    }
    found["perf/epoch_total_time"] = math.fsum(record.step_seconds) if steps else None
    found["perf/epoch_tokens_per_second"] = record.tokens_per_second
    found["perf/epoch_peak_memory_bytes"] = record.peak_reserved_bytes
    return {name: float(value) for name, value in found.items() if value is not None}


def runs(records: Iterable[Record]) -> tuple[TrackedRun, ...]:
    """Trials that ended ok, by cell and block; the same trials give the same names."""
    groups: dict[tuple[str, str, str, str], list[Record]] = {}
    for record in records:
        if record.outcome is Outcome.OK and not record.superseded:
            groups.setdefault((record.study, record.block, record.fingerprint, record.arm), []).append(record)
    return tuple(_run(trials) for trials in groups.values())


def export(records: Iterable[Record], to: str, folder: Path | str) -> int:
    """Write every run for the dashboard `to` (`tensorboard`, `wandb` or `mlflow`) under a folder; the number of runs.

    Raises:
        InputError: no such dashboard.
        EnvironmentProblem: its package is not installed.
    """
    if to not in WRITERS:
        raise InputError(f"there is no dashboard {to!r}{suggestion(to, WRITERS)}")
    found = runs(records)
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    try:
        WRITERS[to](found, target)
    except ModuleNotFoundError as error:
        package = (error.name or to).partition(".")[0]
        raise EnvironmentProblem(f"{to} is not installed ({package} is missing); pip install {to}") from error
    return len(found)


def _run(trials: list[Record]) -> TrackedRun:
    first = trials[0]
    point = formats.slug(formats.settings(first.sweep)) if first.sweep else ""
    parts = (formats.slug(first.study), point, formats.slug(first.arm), formats.slug(first.fingerprint[:6]))
    points = [(trial.round, _seconds(trial.started_at), scalars(trial)) for trial in trials]
    return TrackedRun(
        name="/".join(part for part in parts if part),
        config={"study": first.study, "workload": first.workload, "arm": first.arm, **first.cell},
        points=tuple(sorted(points, key=lambda point: point[:2])),
    )


def _seconds(started_at: str) -> float:
    return datetime.fromisoformat(started_at).timestamp()


def _write_tensorboard(found: tuple[TrackedRun, ...], folder: Path) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    for run in found:
        writer = EventFileWriter(str(folder / run.name))
        for step, when, values in run.points:
            summary = Summary(value=[Summary.Value(tag=name, simple_value=value) for name, value in values.items()])
            writer.add_event(Event(wall_time=when, step=step, summary=summary))
        writer.close()


def _write_wandb(found: tuple[TrackedRun, ...], folder: Path) -> None:
    os.environ.setdefault("WANDB_SILENT", "true")
    wandb: Any = import_module("wandb")

    for run in found:
        tracked = wandb.init(
            mode="offline", dir=str(folder), project="claimbench", name=run.name, group=run.config["study"],
            config=dict(run.config), reinit="finish_previous",
        )  # fmt: skip
        for step, _, values in run.points:
            tracked.log(dict(values), step=step)
        tracked.finish()


def _write_mlflow(found: tuple[TrackedRun, ...], folder: Path) -> None:
    client = import_module("mlflow").MlflowClient(tracking_uri=f"sqlite:///{(folder / 'mlflow.db').resolve()}")
    known = client.get_experiment_by_name("claimbench")
    location = (folder / "artifacts").resolve().as_uri()
    experiment = known.experiment_id if known else client.create_experiment("claimbench", artifact_location=location)
    for run in found:
        tracked = client.create_run(experiment, run_name=run.name)
        for name, value in run.config.items():
            client.log_param(tracked.info.run_id, name, value)
        for step, when, values in run.points:
            for name, value in values.items():
                client.log_metric(tracked.info.run_id, name, value, timestamp=round(1000 * when), step=step)
        client.set_terminated(tracked.info.run_id)


WRITERS: Mapping[str, Callable[[tuple[TrackedRun, ...], Path], None]] = {
    "tensorboard": _write_tensorboard,
    "wandb": _write_wandb,
    "mlflow": _write_mlflow,
}
