"""D3's `measure_throughput` beside real training: the same model, the same batches.

The recipe puts the model into train mode and times forward passes under `no_grad`, between two synchronises.
"""

from __future__ import annotations

import itertools
import time

import torch

from harness.environment import Environment
from harness.techniques.registry import techniques
from harness.trial import ranks as group
from harness.trial.batching import Batch
from harness.trial.kinds.training import fill_result, prove
from harness.trial.measure import measure
from harness.trial.outcome import Outcome
from harness.trial.ranks import Ranks
from harness.trial.spec import TrialResult, TrialSpec
from harness.trial.training import TrainingRun, build


def run(spec: TrialSpec, ranks: Ranks, environment: Environment) -> TrialResult:
    """The recipe over `steps` batches, then training on them."""
    trial = TrainingRun(spec, ranks, environment)
    with trial.held:
        build(trial, techniques())
        warming = list(itertools.islice(trial.batches, spec.warmup_steps * trial.accumulation))
        timed = list(itertools.islice(trial.batches, spec.steps * trial.accumulation))
        # the recipe has no warm-up of its own; without one it would be charged for the first call of every kernel
        printed_throughput(trial, warming)
        recipe = printed_throughput(trial, timed)
        trial.batches = itertools.chain(warming, timed, trial.batches)
        measured = measure(trial)
        result = TrialResult(outcome=Outcome.OK, window=measured.window)
        fill_result(trial, measured, result)
        training = float(result.measured["samples_per_second"])
        result.measured["figures"].update(
            recipe_samples_per_second=recipe, training_samples_per_second=training,
            recipe_over_training=recipe / training,
        )  # fmt: skip
        prove(trial, techniques(), result)
    return result


def printed_throughput(trial: TrainingRun, batches: list[Batch]) -> float:
    """Samples a second as the recipe counts them; the batches lie on the device already, as it takes for granted.

    On several ranks those of all over the time of the slowest, as training counts them too.
    """
    ready = [trial.prepare_batch(trial.copy(batch)) for batch in batches]
    trial.model.train()
    trial.timeline.clock.settle()
    start = time.time()
    samples = 0
    for batch in ready:
        samples += batch["input_ids"].size(0)
        with torch.no_grad():
            trial.forward(batch)
    trial.timeline.clock.settle()
    everyone = group.gather((samples, time.time() - start), trial.ranks)
    elapsed = max(seconds for _, seconds in everyone)
    return sum(count for count, _ in everyone) / elapsed if elapsed > 0 else 0.0
