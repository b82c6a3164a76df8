"""Pruning and distillation: in effect, and found out when they do nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.experiment.axes import Setting
from harness.techniques.distillation import _Distilled
from harness.techniques.pruning import Pruning
from harness.techniques.registry import techniques
from harness.trial.outcome import Outcome
from harness.trial.ranks import Ranks
from harness.trial.spec import TrialResult
from harness.trial.training import TrainingRun, build
from tests.training import cell, cpu, gpus, refused, spec_of

RunTrial = Callable[..., TrialResult]


def test_a_fifth_of_the_weights_is_zero_and_stays_zero(run_trial: RunTrial) -> None:
    result = run_trial(pruning=0.2)
    assert result.outcome is Outcome.OK, result.reason
    assert result.evidence["pruning"]["facts"]["share_of_zeros"] == pytest.approx(0.2, abs=0.005)


def test_pruning_needs_weights_that_are_trained_and_whole() -> None:
    """Under adapters it ended with a KeyError: peft's wrapper shows the weight of the layer that it holds."""
    assert "leave lora off" in str(refused(pruning=0.2, lora=8))
    assert "leave lora off" in str(refused(pruning=0.2, lora=8, lora_targets="qv"))
    assert "packed 4-bit weights" in str(refused(pruning=0.2, lora=8, quantization="nf4"))
    ways: tuple[dict[str, Setting], ...] = ({"parallel": "fsdp"}, {"parallel": "pipeline"}, {"zero": 1})
    for divided in ways:
        reason = str(refused(gpus(2), pruning=0.2, devices=2, batch_size=8, **divided))
        assert "pruning" in reason, divided
    assert refused(gpus(2), pruning=0.2, parallel="ddp", devices=2) is None


def test_pruning_that_prunes_nothing_is_found_out(run_trial: RunTrial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pruning, "apply", lambda self, cell, run: None)
    result = run_trial(pruning=0.2)
    assert result.outcome is Outcome.INERT
    assert "0.0% of the weights are zero" in result.reason


def test_another_share_than_the_one_asked_for_is_found_out(
    run_trial: RunTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    applied = Pruning.apply
    monkeypatch.setattr(Pruning, "apply", lambda self, _cell, run: applied(self, cell(pruning=0.1), run))
    result = run_trial(pruning=0.2)
    assert (result.outcome, result.reason) == (
        Outcome.INERT, "pruning=0.2 was set, but 10.0% of the weights are zero"
    )  # fmt: skip


def test_a_teacher_stands_beside_a_whole_student() -> None:
    """DataParallel divides the student's batch; the teacher's would all be the first device's."""
    for parallel in ("dp", "fsdp"):
        reason = str(refused(gpus(2), distillation="teacher", parallel=parallel, devices=2))
        assert "use one device or ddp" in reason, parallel
    assert refused(gpus(2), distillation="teacher", parallel="ddp", devices=2) is None


def test_the_teacher_runs_in_every_step(run_trial: RunTrial) -> None:
    result = run_trial(distillation="teacher")
    assert result.outcome is Outcome.OK, result.reason
    assert result.evidence["distillation"]["facts"]["divergence"] > 0


def test_the_loss_is_half_the_labels_and_half_the_teachers_at_temperature_two() -> None:
    """Over a temperature of 2 logits of 2 ln 3 and 0 are 3/4 and 1/4, against a student's 1/2 and 1/2; a token each."""
    seen = 2 * math.log(3)
    wanted = torch.tensor([[[seen, 0.0], [0.0, seen]]])
    got = SimpleNamespace(logits=torch.zeros(1, 2, 2), loss=torch.tensor(1.0))
    run: Any = SimpleNamespace(call=lambda **_: got)
    loss = _Distilled(run, lambda **_: SimpleNamespace(logits=wanted))
    divergence = 2**2 * (0.75 * math.log(1.5) + 0.25 * math.log(0.5))
    assert float(loss({"input_ids": torch.zeros(1, 2)})) == pytest.approx(0.5 * 1.0 + 0.5 * divergence)
    assert float(loss.divergence) == pytest.approx(divergence)


def test_the_teacher_has_weights_of_its_own_and_learns_nothing() -> None:
    run = TrainingRun(spec_of(distillation="teacher"), Ranks(), cpu())
    with run.held:
        build(run, techniques())
    (teacher,) = run.forward_only
    assert not teacher.training
    assert not any(each.requires_grad for each in teacher.parameters())
    assert not torch.equal(next(teacher.parameters()), next(run.model.parameters()))


def test_a_teacher_that_never_runs_is_found_out(run_trial: RunTrial, monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.techniques.distillation import Distillation

    monkeypatch.setattr(Distillation, "apply", lambda self, cell, run: None)
    result = run_trial(distillation="teacher")
    assert result.outcome is Outcome.INERT
    assert "no teacher ran" in result.reason
