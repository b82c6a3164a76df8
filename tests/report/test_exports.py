"""Dashboards: the names of the document, the numbers of the trials, and a sentence where a package is missing."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.errors import EnvironmentProblem, InputError
from harness.report.exports import export, runs, scalars
from harness.trial.outcome import Outcome
from tests.records import CellShape, StudyShape, make_records

SHAPE = StudyShape(name="precision", cells=(CellShape(settings={"precision": "bf16"}),))


def test_scalars_are_sums_over_the_window() -> None:
    """Two steps of 0.5 s and 0.7 s; a mean forward of 0.2 s is 0.4 s of the window."""
    record = replace(
        make_records([SHAPE], rounds=3)[0], step_seconds=[0.5, 0.7], tokens_per_second=100.0, peak_reserved_bytes=None,
        phases={"forward": 0.2, "backward": 0.3, "optimizer": 0.05, "data_wait": 0.01},
    )  # fmt: skip
    assert scalars(record) == pytest.approx(
        {
            "perf/epoch_forward_time": 0.4, "perf/epoch_backward_time": 0.6, "perf/epoch_optimizer_time": 0.1,
            "perf/epoch_data_loading_time": 0.02, "perf/epoch_total_time": 1.2, "perf/epoch_tokens_per_second": 100.0,
        }
    )  # fmt: skip


def test_a_run_is_a_cell_and_its_steps_are_rounds() -> None:
    records = make_records([SHAPE], rounds=3)
    records[0] = replace(records[0], outcome=Outcome.CRASH)
    found = runs(records)
    assert len(found) == 3
    assert len({run.name for run in found}) == 3
    assert sum(len(run.points) for run in found) == len(records) - 1, "a failed trial has no figures"
    assert all([point[0] for point in run.points] == sorted(point[0] for point in run.points) for run in found)


def test_a_run_has_the_trials_that_count_of_one_machine_in_the_order_of_its_rounds() -> None:
    records = make_records([SHAPE], rounds=3)
    there = [replace(each, fingerprint="2" * 16) for each in records]
    replaced = [replace(each, superseded=True) for each in records]
    found = runs(reversed([*records, *there, *replaced]))
    assert len(found) == 2 * len(runs(records)), "another machine is another run"
    assert {tuple(point[0] for point in run.points) for run in found} == {(1, 2, 3)}


def test_mlflow_is_told_the_round_and_the_time_in_milliseconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int]] = []

    class Client:
        """Takes what mlflow's would; `log_metric` counts in milliseconds (mlflow.client.MlflowClient.log_metric)."""

        def __init__(self, tracking_uri: str) -> None:
            assert tracking_uri == f"sqlite:///{tmp_path.resolve()}/mlflow.db"

        def get_experiment_by_name(self, name: str) -> SimpleNamespace:
            return SimpleNamespace(experiment_id=name)

        def create_run(self, experiment: str, run_name: str) -> SimpleNamespace:
            return SimpleNamespace(info=SimpleNamespace(run_id=run_name))

        def log_param(self, *_: object) -> None: ...

        def set_terminated(self, *_: object) -> None: ...

        def log_metric(self, _: str, name: str, value: float, *, timestamp: int, step: int) -> None:
            if name == "perf/epoch_tokens_per_second":
                told.append((step, timestamp))

    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(MlflowClient=Client))
    first, *_ = records = [each for each in make_records([SHAPE], rounds=3) if each.arm == "baseline"]
    assert export(records, "mlflow", tmp_path) == 1
    assert [step for step, _ in told] == [1, 2, 3]
    assert told[0][1] == round(1000 * datetime.fromisoformat(first.started_at).timestamp())


def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    records = make_records([SHAPE], rounds=3)
    assert export(records, "tensorboard", tmp_path) == 3
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    trial = next(record for record in records if record.arm == "precision=bf16" and record.round == 2)
    (folder,) = {path.parent for path in tmp_path.rglob("*tfevents*") if "precision-bf16" in str(path.parent)}
    events: Any = accumulator.EventAccumulator(str(folder))
    events.Reload()
    names = events.Tags()["scalars"]
    assert "perf/epoch_forward_time" in names
    assert "perf/epoch_data_loading_time" in names
    points = {event.step: event.value for event in events.Scalars("perf/epoch_tokens_per_second")}
    assert points[2] == pytest.approx(trial.tokens_per_second, rel=1e-6)
    assert sorted(points) == [1, 2, 3]


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_package_that_is_missing_is_one_sentence(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(EnvironmentProblem, match=f"{name} is not installed .*; pip install {name}"):
        export(make_records([SHAPE], rounds=3), name, tmp_path)


def test_an_unknown_dashboard_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no dashboard 'tensorbord'; did you mean 'tensorboard'"):
        export([], "tensorbord", tmp_path)
