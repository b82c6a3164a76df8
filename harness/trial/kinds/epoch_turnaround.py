"""From the last batch of an epoch to the first of the next: what ending and starting loader workers costs."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.environment import Environment
from harness.techniques.base import Evidence
from harness.trial.batching import LoaderSettings
from harness.trial.corpus import prepare
from harness.trial.data import make_loader, worker_processes
from harness.trial.kinds.training import as_json
from harness.trial.model import make_config
from harness.trial.outcome import Outcome
from harness.trial.ranks import Ranks
from harness.trial.spec import TrialResult, TrialSpec

EPOCHS, BATCHES = 3, 16


@dataclass(kw_only=True)
class Epochs:
    """What was seen of each epoch."""

    first_epoch_seconds: float = 0.0
    turnarounds: list[float] = field(default_factory=list)
    workers: list[list[int]] = field(default_factory=list)
    """Process ids of the workers at each epoch's first batch."""
    starts: set[str] = field(default_factory=set)
    """How the workers' processes were started: `ForkProcess`, `SpawnProcess`."""
    samples: int = 0


def run(spec: TrialSpec, ranks: Ranks, environment: Environment) -> TrialResult:
    """Run through `options["epochs"]` epochs of `options["batches"]` batches."""
    config = make_config(spec.model, int(spec.settings["sequence_length"]))
    folder = prepare(spec.data, int(config.vocab_size), Path(spec.data_directory))
    begun = time.monotonic()
    seen = through(spec, folder)
    result = TrialResult(outcome=Outcome.OK, window=(begun, time.monotonic()))
    result.measured.update(
        samples_per_second=seen.samples / (time.monotonic() - begun),
        step_seconds=seen.turnarounds,
        figures={
            "turnaround_seconds": sum(seen.turnarounds) / len(seen.turnarounds),
            "first_epoch_seconds": seen.first_epoch_seconds,
        },
    )
    evidence = _evidence(spec, seen)
    result.evidence["workers"] = as_json(evidence)
    if not evidence.holds:
        result.outcome, result.reason = Outcome.INERT, evidence.reason
    return result


def through(spec: TrialSpec, folder: Path) -> Epochs:
    """The epochs, one after another; at least two, so that there is one turnaround."""
    seen = Epochs()
    start = time.perf_counter()
    batches = int(spec.options.get("batches", BATCHES))
    loader = make_loader(folder, LoaderSettings.of(spec.settings), seed=spec.seed, rank=0, batches=batches)
    last = 0.0
    for epoch in range(max(2, int(spec.options.get("epochs", EPOCHS)))):
        iterator: Any = iter(loader)
        for number, batch in enumerate(iterator):
            now = time.perf_counter()
            if number == 0:
                if epoch == 0:
                    seen.first_epoch_seconds = now - start
                else:
                    seen.turnarounds.append(now - last)
                alive = worker_processes(iterator)
                seen.workers.append([worker.pid for worker in alive])
                seen.starts |= {type(worker).__name__ for worker in alive}
            last = now
            seen.samples += len(batch["input_ids"])
    return seen


def _evidence(spec: TrialSpec, seen: Epochs) -> Evidence:
    workers, persistent, start = (spec.settings[name] for name in ("workers", "persistent", "start"))
    same = all(each == seen.workers[0] for each in seen.workers)
    counts = {len(each) for each in seen.workers}
    right_start = all(name.lower().startswith(str(start)) for name in seen.starts)
    stayed = same if persistent or not workers else not same
    return Evidence(
        holds=counts == {workers} and stayed and right_start,
        word=f"{max(counts)} workers, {'the same' if same else 'new ones'} each epoch",
        facts={"workers": sorted(counts), "same_processes": same, "started_as": sorted(seen.starts)},
        reason=(
            f"workers={workers} persistent={str(persistent).lower()} start={start} was set, but {sorted(counts)} ran, "
            f"{'the same' if same else 'new ones'} in each epoch, started as {', '.join(sorted(seen.starts)) or 'none'}"
        ),
    )
