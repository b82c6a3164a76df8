"""D1 sets `num_workers` and `prefetch_factor` on a DataLoader that exists already: what does torch do with it?"""

from __future__ import annotations

import multiprocessing
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.environment import Environment
from harness.trial.batching import LoaderSettings
from harness.trial.corpus import prepare
from harness.trial.data import make_loader, worker_processes
from harness.trial.model import make_config
from harness.trial.outcome import Outcome
from harness.trial.ranks import Ranks
from harness.trial.spec import TrialResult, TrialSpec

WORKERS, PREFETCH = 16, 2


def run(spec: TrialSpec, ranks: Ranks, environment: Environment) -> TrialResult:
    """Make a loader without workers, set both attributes as printed, then draw `steps` batches."""
    config = make_config(spec.model, int(spec.settings["sequence_length"]))
    folder = prepare(spec.data, int(config.vocab_size), Path(spec.data_directory))
    settings = replace(LoaderSettings.of(spec.settings), workers=0)
    loader: Any = make_loader(folder, settings, seed=spec.seed, rank=0, batches=max(spec.steps, 1))
    wanted = min(multiprocessing.cpu_count(), int(spec.options.get("workers", WORKERS)))
    error, alive = "", 0
    begun = time.monotonic()
    try:
        loader.num_workers = wanted
        loader.prefetch_factor = int(spec.options.get("prefetch", PREFETCH))
        iterator: Any = iter(loader)
        for _ in iterator:
            alive = max(alive, len(worker_processes(iterator)))
    except (ValueError, AttributeError, TypeError, RuntimeError) as problem:
        error = f"{type(problem).__name__}: {problem}"
    result = TrialResult(outcome=Outcome.OK, window=(begun, time.monotonic()))
    result.measured["figures"] = {
        "took_effect": not error and alive == wanted, "workers_alive": alive, "workers_wanted": wanted, "error": error,
    }  # fmt: skip
    return result
