"""Batches from the cell's DataLoader, and nothing done with them: how fast the loader is by itself."""

from __future__ import annotations

import time
from pathlib import Path

from harness.environment import Environment
from harness.techniques.batching import Batching
from harness.techniques.loading import Loading
from harness.trial.clock import STEP, HostClock, Timeline
from harness.trial.corpus import prepare
from harness.trial.data import make_loader
from harness.trial.kinds.training import gather_evidence
from harness.trial.model import make_config
from harness.trial.outcome import Outcome
from harness.trial.ranks import Ranks
from harness.trial.spec import TrialResult, TrialSpec
from harness.trial.training import TrainingRun

#: More batches than any window draws.
_ENDLESS = 1 << 30
#: A fast loader gives ten thousand batches a second: of their times the first of a window are kept in the record.
_TIMES_KEPT = 1000


def run(spec: TrialSpec, ranks: Ranks, environment: Environment) -> TrialResult:
    """Draw `warmup_steps` batches, then at least `steps`, for `options["seconds"]` at least."""
    trial = TrainingRun(spec, ranks, environment)
    first_batch_seconds = open_loader(trial)
    for _ in range(max(0, spec.warmup_steps - 1)):
        next(trial.batches)
    timeline = Timeline(HostClock())
    start = time.monotonic()
    until = start + float(spec.options.get("seconds", 0.0))
    drawn = tokens = 0
    while drawn < spec.steps or time.monotonic() < until:
        timeline(STEP)
        batch = next(trial.batches)
        tokens += batch["input_ids"].numel()
        trial.samples += len(batch["input_ids"])
        drawn += 1
    timeline.end()
    times = timeline.times()
    result = TrialResult(outcome=Outcome.OK, window=(start, time.monotonic()))
    result.measured.update(
        tokens_per_second=tokens / times.window_seconds,
        samples_per_second=trial.samples / times.window_seconds,
        step_seconds=times.step_seconds[:_TIMES_KEPT],
        figures={"first_batch_seconds": first_batch_seconds, "batches": drawn},
    )
    # what packing keeps apart is a matter of the model; here there is none
    about_data = [Loading()] if spec.settings["batching"] == "packed" else [Loading(), Batching()]
    gather_evidence(trial, about_data, result)
    return result


def open_loader(trial: TrainingRun) -> float:
    """Make the loader and draw its first batch; seconds from making the iterator to that batch."""
    spec = trial.spec
    trial.config = make_config(spec.model, int(spec.settings["sequence_length"]))
    folder = prepare(spec.data, int(trial.config.vocab_size), Path(spec.data_directory))
    trial.loader = make_loader(folder, trial.loader_settings(), seed=spec.seed, rank=trial.data_rank, batches=_ENDLESS)
    start = time.perf_counter()
    trial.loader_iterator = trial.batches = iter(trial.loader)
    first = next(trial.batches)
    seconds = time.perf_counter() - start
    if trial.cell["pin_memory"] is True:
        trial.facts["pinned"] = all(bool(part.is_pinned()) for part in first.values())
    return seconds
