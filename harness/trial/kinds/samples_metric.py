"""Training, and D3's `samples_per_second = step / elapsed_time` counted beside it."""

from __future__ import annotations

import time

from harness.environment import Environment
from harness.techniques.registry import techniques
from harness.trial.kinds.training import fill_result, prove
from harness.trial.measure import measure
from harness.trial.outcome import Outcome
from harness.trial.ranks import Ranks
from harness.trial.spec import TrialResult, TrialSpec
from harness.trial.training import TrainingRun, build


class PrintedMonitor:
    """D3's TrainingMonitor as far as it counts: steps over the seconds since it began."""

    def begin(self) -> None:
        self._start = time.time()
        self.steps = 0

    def log(self) -> None:
        self.steps += 1

    def samples_per_second(self) -> float:
        elapsed = time.time() - self._start
        return self.steps / elapsed if elapsed > 0 else 0.0


def run(spec: TrialSpec, ranks: Ranks, environment: Environment) -> TrialResult:
    """Train; the monitor begins with the window and is read at its end."""
    trial = TrainingRun(spec, ranks, environment)
    monitor = PrintedMonitor()

    def after(step: int) -> None:
        if step < spec.warmup_steps:
            trial.timeline.clock.settle()
            monitor.begin()
        else:
            monitor.log()

    with trial.held:
        build(trial, techniques())
        trial.after_step.append(after)
        monitor.begin()
        measured = measure(trial)
        reported = monitor.samples_per_second()
        trial.after_step.remove(after)
        result = TrialResult(outcome=Outcome.OK, window=measured.window)
        fill_result(trial, measured, result)
        true = float(result.measured["samples_per_second"])
        result.measured["figures"].update(
            reported_samples_per_second=reported, true_samples_per_second=true, reported_over_true=reported / true
        )
        prove(trial, techniques(), result)
    return result
