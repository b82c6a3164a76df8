"""Data no longer than a sample: one sentence before anything is launched, and no crash where a trial meets it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness.errors import WorkloadError
from harness.experiment.cell import Workload
from harness.results.workplace import Workplace
from harness.trial.classify import classify
from harness.trial.outcome import Outcome
from harness.trial.spec import TrialResult
from harness.trial.supervision import Ending
from tests.results.plans import a_block, a_plan
from tests.training import run_spec, spec_of


def text_of(tokens: int, folder: Path) -> Path:
    """A file whose documents, of 16 bytes each, have so many tokens."""
    pieces = ["x" * min(16, tokens - start) for start in range(0, tokens, 16)]
    path = folder / f"{tokens}.jsonl"
    path.write_text("\n".join(json.dumps({"text": piece}) for piece in pieces), encoding="utf-8")
    return path


def trial(tokens: int, folder: Path, kind: str = "training", **settings: str | int) -> TrialResult:
    """Of length 64, on so many tokens."""
    spec = spec_of(kind, sequence_length=64, **settings)
    return run_spec(replace(spec, data=str(text_of(tokens, folder)), data_directory=str(folder / "data")))


@pytest.mark.train
@pytest.mark.parametrize("kind", ["training", "loader-only", "epoch-turnaround"])
@pytest.mark.parametrize("tokens", [60, 64])
def test_a_trial_on_data_no_longer_than_a_window_is_unsupported(tokens: int, kind: str, tmp_path: Path) -> None:
    result = trial(tokens, tmp_path, kind)
    assert result.outcome is Outcome.UNSUPPORTED
    assert (
        f"holds {tokens} tokens, and windows of sequence_length=64 can be cut from more than 64 only" in result.reason
    )
    assert "give more text or a shorter sequence_length" in result.reason


@pytest.mark.train
def test_one_token_more_is_enough(tmp_path: Path) -> None:
    assert trial(65, tmp_path).outcome is Outcome.OK


@pytest.mark.train
@pytest.mark.parametrize("batching", ["padded", "packed", "token-budget"])
def test_whole_documents_need_two_tokens(batching: str, tmp_path: Path) -> None:
    result = trial(1, tmp_path, batching=batching)
    assert result.outcome is Outcome.UNSUPPORTED
    assert "holds 1 tokens, and a sample of sequence_length=64 needs at least 2" in result.reason
    assert trial(2, tmp_path, batching=batching).outcome in (Outcome.OK, Outcome.INERT)


@pytest.mark.parametrize(("tokens", "fits"), [(64, False), (65, True)])
def test_it_is_said_before_the_launch_where_the_vocabulary_is_known(tokens: int, fits: bool, tmp_path: Path) -> None:
    workload = Workload(name="short", model="tiny", data=str(text_of(tokens, tmp_path)))
    plan = a_plan(a_block(workload=workload, settings={"sequence_length": 64}))
    place = Workplace.beside(tmp_path / "store.sqlite")
    if fits:
        place.prepare_data(plan.trials)
        return
    with pytest.raises(WorkloadError, match=r"holds 64 tokens, and windows of sequence_length=64"):
        place.prepare_data(plan.trials)
    longer = a_block(workload=workload, settings={"sequence_length": 32})
    place.prepare_data([*plan.trials, *a_plan(longer).trials])  # what can run does; the others say why not
    refused = [replace(each, refusal="needs a GPU") for each in plan.trials]
    place.prepare_data(refused)  # what does not run draws no samples


def test_a_rank_that_was_refused_speaks_for_its_trial(tmp_path: Path) -> None:
    TrialResult(outcome=Outcome.UNSUPPORTED, reason="too short").write(tmp_path / "result.json")
    ending = Ending(pids=(1, 2), statuses=(1, 1), first_dead=1)
    found = classify(ending, directory=tmp_path, record_path=tmp_path / "result.json", wall_limit_seconds=9,
                     killed_for_memory=False)  # fmt: skip
    assert (found.outcome, found.reason) == (Outcome.UNSUPPORTED, "too short")
