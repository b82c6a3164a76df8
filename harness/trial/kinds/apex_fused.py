"""apex's FusedAdam beside torch's fused AdamW, on the same parameters and gradients.

The parent runs it only where apex is installed and there is a GPU.
"""

from __future__ import annotations

from typing import Any

from harness.environment import Environment
from harness.techniques.precision import Precision
from harness.trial.kinds.optimizer_only import draw_gradients
from harness.trial.kinds.repeat import repeat
from harness.trial.outcome import Outcome
from harness.trial.ranks import Ranks
from harness.trial.spec import TrialResult, TrialSpec
from harness.trial.training import LEARNING_RATE, WEIGHT_DECAY, TrainingRun, build


def run(spec: TrialSpec, ranks: Ranks, environment: Environment) -> TrialResult:
    """Time `step()` of one after the other."""
    import torch
    from apex.optimizers import FusedAdam

    trial = TrainingRun(spec, ranks, environment)
    with trial.held:
        build(trial, (Precision(),))
        draw_gradients(trial)
        options: dict[str, Any] = {"lr": LEARNING_RATE, "weight_decay": WEIGHT_DECAY}
        apex, theirs = _seconds(trial, FusedAdam(trial.trainable(), adam_w_mode=True, **options))
        fused, _ = _seconds(trial, torch.optim.AdamW(trial.trainable(), fused=True, **options))
    result = TrialResult(outcome=Outcome.OK, window=theirs)
    result.measured["figures"] = {
        "apex_seconds": apex, "torch_fused_seconds": fused, "apex_speedup": fused / apex,
    }  # fmt: skip
    return result


def _seconds(trial: TrainingRun, optimizer: Any) -> tuple[float, tuple[float, float]]:
    steps = trial.spec.steps
    measured = repeat(lambda _: optimizer.step(), trial.device, warmup=trial.spec.warmup_steps, steps=steps)
    return measured.seconds, measured.window
