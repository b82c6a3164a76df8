"""The DataLoader of a trial.

No tensor of a dataset is ever on the GPU: a worker process that touches CUDA after a fork dies (pytorch#40403).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from harness.trial.batching import BATCHINGS, Batch, LoaderSettings
from harness.trial.corpus import read_about, require_length
from harness.trial.processes import die_with_parent
from harness.trial.streams import STREAMS


class Samples(Dataset[Any]):
    """One item is one batch, so that batching rules that look at several documents fit the same loader.

    Item `i` of rank `r` depends on seed, `i` and `r` alone: it is the same whatever the stream or number of workers.
    """

    def __init__(self, folder: Path, settings: LoaderSettings, *, seed: int, rank: int, batches: int) -> None:
        self.folder = folder
        self.settings = settings
        self.seed = seed
        self.rank = rank
        self.batches = batches
        self._stream: Any = None

    def __len__(self) -> int:
        return self.batches

    def __getitem__(self, index: int) -> Batch:
        random = np.random.default_rng([self.seed, self.rank, index])
        batch = BATCHINGS[self.settings.batching](self.stream(), self.settings, random)
        self._spend(len(batch["input_ids"]))
        return batch

    def stream(self) -> Any:
        """The open stream of this process: opened where it is used, once."""
        if self._stream is None:
            self._stream = STREAMS[self.settings.stream](self.folder)
        return self._stream

    def _spend(self, samples: int) -> None:
        """Work on the CPU for as long as the study asks a sample to cost (a sleep would leave the core to others)."""
        until = time.perf_counter() + samples * self.settings.cost_per_sample_seconds
        while time.perf_counter() < until:
            pass


def make_loader(folder: Path, settings: LoaderSettings, *, seed: int, rank: int, batches: int) -> DataLoader[Batch]:
    """The DataLoader of a trial. Iterating it gives `batches` batches.

    Raises:
        DataTooShortError: no sample can be drawn.
    """
    require_length(read_about(folder), batching=settings.batching, sequence_length=settings.sequence_length)
    many = settings.workers > 0
    return DataLoader(
        Samples(folder, settings, seed=seed, rank=rank, batches=batches),
        batch_size=None,
        num_workers=settings.workers,
        prefetch_factor=settings.prefetch if many else None,
        persistent_workers=settings.persistent and many,
        pin_memory=settings.pin_memory,
        multiprocessing_context=settings.start if many else None,
        worker_init_fn=partial(_start_worker, os.getpid()) if many else None,
        generator=torch.Generator().manual_seed(seed),
    )


def _start_worker(trial: int, _: int) -> None:
    # a loader worker otherwise notices only after seconds that its trial is gone
    die_with_parent(trial)


def worker_processes(iterator: Iterator[Batch]) -> Sequence[Any]:
    """The live worker processes behind a DataLoader's iterator."""
    return [worker for worker in getattr(iterator, "_workers", []) if worker.is_alive()]
