"""Files of a workload that are edited while a run goes on: no trial of another file stands under the old one's key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.environment import Environment
from harness.errors import LaunchError
from harness.experiment.cell import Workload
from harness.experiment.study import Plan
from harness.experiment.workloads import change_problem, contents_of
from harness.results.collect import fill
from harness.results.events import Event, TrialFinished, TrialStarted
from harness.results.store import Store
from harness.results.workplace import Workplace
from harness.trial.launch import LocalLauncher
from harness.trial.outcome import Outcome
from tests.results.plans import a_block, a_plan
from tests.training import run_spec, spec_of

CPU = Environment(cores=2)
SMALL_STEP = """
import torch

W = 8

def build(device, settings):
    model = torch.nn.Linear(W, 1)
    return model, [torch.ones(2, W)], lambda model, batch: model(batch).mean()
"""


@pytest.fixture
def launcher() -> Iterator[LocalLauncher]:
    with LocalLauncher(gpu=False, modules=("json",), entry="tests.trial.child:main") as launcher:
        yield launcher


def a_plan_of(folder: Path) -> Plan:
    """Six trials of a step that lies in `folder`."""
    contents = contents_of("step.py:build", "synthetic", folder)
    workload = Workload(
        name="own", model="step.py:build", data="synthetic", folder=str(folder), contents=contents
    )  # fmt: skip
    return a_plan(a_block(workload=workload, rounds=2))


@pytest.mark.parametrize("moment", [TrialStarted, TrialFinished], ids=["in a trial", "between two"])
def test_an_edit_ends_the_run_and_what_is_stored_is_of_one_file(
    tmp_path: Path, launcher: LocalLauncher, moment: type[Event]
) -> None:
    step = tmp_path / "step.py"
    step.write_text(SMALL_STEP, encoding="utf-8")
    plan, seen = a_plan_of(tmp_path), []

    def edit_at_the_second(event: Event) -> None:
        if isinstance(event, moment):
            seen.append(event)
            if len(seen) == 2:
                step.write_text(SMALL_STEP.replace("W = 8", "W = 512"), encoding="utf-8")

    with Store.open(tmp_path / "results.sqlite", writable=True) as store:
        with pytest.raises(LaunchError, match=r"step.py:build was changed while the run went on, .* start the command"):
            fill(store, plan, launcher, CPU, on_event=edit_at_the_second)
        assert store.count() == (1 if moment is TrialStarted else 2)
        assert a_plan_of(tmp_path).trials[0].block.key != plan.trials[0].block.key
        step.write_text(SMALL_STEP, encoding="utf-8")
        summary = fill(store, plan, launcher, CPU)
        assert (summary.stored_before, summary.left) == (0, 0), "the round that was cut short ran again whole"
        fresh = list(store.records(include_superseded=False))
        assert [record.outcome for record in fresh] == [Outcome.OK] * 6


def test_a_trial_is_told_what_the_plan_found(tmp_path: Path) -> None:
    (tmp_path / "step.py").write_text(SMALL_STEP, encoding="utf-8")
    trial = a_plan_of(tmp_path).trials[0]
    spec = Workplace(folder=tmp_path / "work").spec(trial, fingerprint="f", attempt=1, gpu=False)
    assert spec.contents == contents_of("step.py:build", "synthetic", tmp_path) != ""
    assert change_problem(spec.model, spec.data, Path(), spec.contents) is None, "the same from wherever it is read"


@pytest.mark.train
@pytest.mark.parametrize("edited", ["step.py", "text.jsonl", "config.json"])
def test_a_trial_does_not_load_what_the_plan_did_not_find(tmp_path: Path, edited: str) -> None:
    (tmp_path / "step.py").write_text(SMALL_STEP, encoding="utf-8")
    (tmp_path / "text.jsonl").write_text('{"text": "some words to learn"}\n' * 200, encoding="utf-8")
    (tmp_path / "config.json").write_text(
        '{"model_type": "gpt2", "n_layer": 1, "n_head": 1, "n_embd": 8, "vocab_size": 256}', encoding="utf-8"
    )
    model = "config.json" if edited == "config.json" else "step.py:build"
    contents = contents_of(model, "text.jsonl", tmp_path)
    spec = spec_of(model=str(tmp_path / model), sequence_length=1024, batch_size=8, stream="parse")
    spec = replace(spec, data=str(tmp_path / "text.jsonl"), baseline_settings=spec.settings, contents=contents)
    assert run_spec(spec).outcome is Outcome.OK
    with (tmp_path / edited).open("a", encoding="utf-8") as file:
        file.write("\n")
    result = run_spec(spec)
    assert result.outcome is Outcome.INTERRUPTED
    assert "was changed while the run went on" in result.reason
    (tmp_path / edited).unlink()
    assert run_spec(spec).outcome is Outcome.INTERRUPTED
