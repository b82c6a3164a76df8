"""Weights and batches are functions of a trial's seed: arms of one round start alike, rounds do not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from harness.trial.batching import LoaderSettings
from harness.trial.corpus import prepare
from harness.trial.data import Samples
from harness.trial.model import make_config, make_model
from tests.training import settings, spec_of

pytestmark = pytest.mark.train


def test_weights_are_a_function_of_the_seed() -> None:
    config = make_config("tiny", 64)
    first, again, other = (
        make_model(config, attention="eager", dtype=torch.float32, device=torch.device("cpu"), seed=seed)
        for seed in (1, 1, 2)
    )
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    drawn = [(a, b) for a, b in zip(first.parameters(), other.parameters(), strict=True) if a.ndim > 1]
    assert not any(torch.equal(a, b) for a, b in drawn)


@pytest.mark.parametrize("batching", ["fixed", "padded", "packed", "token-budget"])
def test_batches_are_a_function_of_seed_rank_and_place(tmp_path: Path, batching: str) -> None:
    folder = prepare(spec_of().data, 512, tmp_path)

    def batch(seed: int, rank: int, index: int) -> bytes:
        samples = Samples(folder, LoaderSettings.of(settings(batching=batching)), seed=seed, rank=rank, batches=4)
        return bytes(samples[index]["input_ids"].numpy().tobytes())

    assert batch(1, 0, 0) == batch(1, 0, 0)
    assert len({batch(1, 0, 0), batch(2, 0, 0), batch(1, 1, 0), batch(1, 0, 1)}) == 4
