"""The optimizer's `step()` on the model's parameters, with gradients drawn from the seed."""

from __future__ import annotations

import torch

from harness.environment import Environment
from harness.techniques.optimizer import Optimizer
from harness.techniques.precision import Precision
from harness.trial.kinds.repeat import repeat
from harness.trial.kinds.training import gather_evidence
from harness.trial.outcome import Outcome
from harness.trial.profile import profile_step
from harness.trial.ranks import Ranks
from harness.trial.spec import TrialResult, TrialSpec
from harness.trial.training import TrainingRun, build

#: About what gradients of a fresh model of this size are.
_GRADIENT_SCALE = 1e-3


def run(spec: TrialSpec, ranks: Ranks, environment: Environment) -> TrialResult:
    """Time `step()`; the gradients stay as they are."""
    trial = TrainingRun(spec, ranks, environment)
    with trial.held:
        build(trial, (Precision(), Optimizer()))
        draw_gradients(trial)
        measured = repeat(lambda _: trial.optimizer.step(), trial.device, warmup=spec.warmup_steps, steps=spec.steps)
        result = TrialResult(outcome=Outcome.OK, window=measured.window, missing=dict(measured.missing))
        result.measured.update(
            step_seconds=measured.times.step_seconds,
            parameters=trial.parameter_counts,
            figures={
                "optimizer_seconds": measured.seconds,
                "parameters_per_second": trial.parameter_counts["trainable"] / measured.seconds,
            },
            **measured.peaks,
        )
        trial.profile = profile_step(trial.optimizer.step, trial.device)
        gather_evidence(trial, (Precision(), Optimizer()), result)
    return result


def draw_gradients(trial: TrainingRun) -> None:
    """Give every trained parameter a gradient."""
    generator = torch.Generator(device=trial.device).manual_seed(trial.spec.seed)
    for parameter in trial.trainable():
        drawn = torch.randn(parameter.shape, generator=generator, device=trial.device) * _GRADIENT_SCALE
        parameter.grad = drawn.to(parameter.dtype)
