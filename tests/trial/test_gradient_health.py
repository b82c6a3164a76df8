"""NaN, infinite and zero gradients are counted, on a step that is not timed."""

from __future__ import annotations

import pytest
import torch

from harness.trial.measure import gradient_health
from harness.trial.ranks import Ranks
from harness.trial.training import TrainingRun
from tests.training import cpu, run_trial, spec_of

pytestmark = pytest.mark.train


def _spoil(monkeypatch: pytest.MonkeyPatch, spoil: object) -> dict[str, int]:
    backward = TrainingRun._backward

    def spoilt(self: TrainingRun, loss: torch.Tensor) -> None:
        backward(self, loss)
        for number, parameter in enumerate(self.model.parameters()):
            spoil(number, parameter.grad)  # type: ignore[operator]

    monkeypatch.setattr(TrainingRun, "_backward", spoilt)
    # one step of warm-up: after an update with a NaN every gradient would be one
    figures = run_trial(warmup_steps=1).measured["figures"]
    return {name: figures[name] for name in ("bad_gradients", "zero_gradients")}


def test_a_healthy_model_has_neither() -> None:
    figures = run_trial().measured["figures"]
    assert (figures["bad_gradients"], figures["zero_gradients"]) == (0, 0)


def test_one_nan_and_one_infinity_spoil_two_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {0: float("nan"), 3: float("inf")}

    def spoil(number: int, gradient: torch.Tensor) -> None:
        if number in values:
            gradient.view(-1)[0] = values[number]

    assert _spoil(monkeypatch, spoil) == {"bad_gradients": 2, "zero_gradients": 0}


def test_what_is_small_is_small_without_the_loss_scale() -> None:
    """A GradScaler begins at 65536: as they stand the gradients are 6e-4 and 7e-4."""
    run = TrainingRun(spec_of(), Ranks(), cpu())
    run.scaler = torch.amp.GradScaler("cpu")
    run.scaler.scale(torch.ones(()))
    gradients = [torch.full((4,), size * 65536) for size in (0.9e-8, 1.1e-8)]
    run.gradient_tensors = lambda: gradients
    assert gradient_health(run) == {"bad_gradients": 0, "zero_gradients": 1}


def test_below_1e_8_throughout_counts_as_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(number: int, gradient: torch.Tensor) -> None:
        if number < 2:
            gradient.zero_().add_(0.9e-8 if number else 1.1e-8)

    assert _spoil(monkeypatch, spoil) == {"bad_gradients": 0, "zero_gradients": 1}
