"""Training at each of apex's levels of mixed precision. The parent runs it only where apex is installed."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from harness.environment import Environment
from harness.techniques.registry import techniques
from harness.trial.kinds.training import fill_result, free
from harness.trial.measure import measure
from harness.trial.outcome import Outcome
from harness.trial.ranks import Ranks
from harness.trial.spec import TrialResult, TrialSpec
from harness.trial.training import TrainingRun, build

LEVELS = ("O0", "O1", "O2", "O3")


def run(spec: TrialSpec, ranks: Ranks, environment: Environment) -> TrialResult:
    """A window at each level; one that fails is left out, with its reason among the warnings."""
    result = TrialResult(outcome=Outcome.OK)
    speeds: dict[str, float] = {}
    for level in spec.options.get("levels", LEVELS):
        trial = TrainingRun(spec, ranks, environment)
        try:
            with trial.held:
                speeds[level] = _speed(trial, str(level), result)
        except (RuntimeError, ValueError, AttributeError, ImportError) as error:
            result.warnings.append(f"{level}: {type(error).__name__}: {error}")
        finally:
            with suppress(RuntimeError):
                free(trial)
    result.measured["figures"] = {
        "levels_available": len(speeds),
        "fastest_level": max(speeds, key=lambda level: speeds[level]) if speeds else "none",
        **{f"{level}_tokens_per_second": speed for level, speed in speeds.items()},
    }
    return result


def _speed(trial: TrainingRun, level: str, result: TrialResult) -> float:
    from apex import amp

    build(trial, techniques())
    trial.model, trial.optimizer = amp.initialize(trial.model, trial.optimizer, opt_level=level, verbosity=0)
    trial.call = trial.model

    def backward(loss: Any) -> None:
        with amp.scale_loss(loss, trial.optimizer) as scaled:
            scaled.backward()

    trial.backward = backward
    measured = measure(trial)
    mine = TrialResult(outcome=Outcome.OK)
    fill_result(trial, measured, mine)
    result.window = measured.window
    return float(mine.measured["tokens_per_second"])
