"""Recomputation is counted where it happens: a block's first layer runs forward twice a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harness.techniques.checkpointing import Checkpointing
from harness.trial import training
from harness.trial.outcome import Outcome
from harness.trial.spec import TrialResult

Run = Callable[..., TrialResult]


@pytest.mark.parametrize("setting", ["full", "reentrant"])
@pytest.mark.parametrize("model", ["tiny", "tiny-gpt2"])
def test_blocks_run_forward_twice(run_trial: Run, setting: str, model: str) -> None:
    result = run_trial(checkpointing=setting, model=model)
    assert result.outcome is Outcome.OK
    assert result.evidence["checkpointing"]["facts"]["forwards_of_first_layer"] == 2


def test_with_accumulation_twice_in_every_micro_batch(run_trial: Run) -> None:
    facts = run_trial(checkpointing="full", accumulation=2).evidence["checkpointing"]["facts"]
    assert facts == {"forwards_of_first_layer": 4, "micro_batches": 2}


def test_losses_do_not_change(run_trial: Run) -> None:
    off, full = (run_trial(checkpointing=each).measured["losses"] for each in ("off", "full"))
    assert full == pytest.approx(off, abs=1e-5)


def test_fewer_activations_are_kept(run_trial: Run) -> None:
    off, full = (run_trial(checkpointing=each).measured["model_state_bytes"]["activations"] for each in ("off", "full"))
    assert full < off / 2


def test_recomputation_counts_in_hardware_flops_alone(run_trial: Run) -> None:
    """Counted as model FLOPs it would pass for speed."""
    off, full = (run_trial(checkpointing=each).measured for each in ("off", "full"))
    assert full["model_flops_per_token"] == off["model_flops_per_token"]
    assert full["hardware_flops_per_token"] > off["hardware_flops_per_token"]


def test_a_flag_alone_is_inert(run_trial: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Checkpointing, "apply", lambda *_: None)
    result = run_trial(checkpointing="full")
    assert result.outcome is Outcome.INERT
    assert result.reason == "a block's first layer ran 1 times a step, not 2: nothing was recomputed"


def test_a_model_in_eval_mode_checkpoints_nothing(run_trial: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    make = training.make_model

    def in_eval_mode(*arguments: Any, **named: Any) -> Any:
        return make(*arguments, **named).eval()

    monkeypatch.setattr(training, "make_model", in_eval_mode)
    result = run_trial(checkpointing="full")
    assert result.outcome is Outcome.INERT
    assert "eval mode" in result.reason
