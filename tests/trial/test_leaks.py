"""What a step leaves allocated is found, to the byte: `figure:allocated_growth_bytes`, on which the claim on leaks is
judged."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.environment import detect
from harness.experiment.cell import Workload
from harness.results.collect import fill
from harness.results.record import Record
from harness.results.store import Store
from harness.trial import measure, memory
from harness.trial.launch import LocalLauncher
from harness.trial.outcome import Outcome
from harness.trial.ranks import Ranks
from harness.trial.training import TrainingRun, build
from tests.commands import ROOT
from tests.results.plans import a_block, a_plan
from tests.training import cpu, spec_of
from tests.trial import leaky

STEPS = 6
MODEL = f"{ROOT}/tests/trial/leaky.py:build"


def kept_bytes(device: torch.device) -> int:
    """What steps kept so far: a CPU has no allocator that counts, and the step's file is not loaded under our name."""
    tensors = (each for each in gc.get_objects() if type(each) is torch.Tensor and each.dtype == torch.uint8)
    return sum(each.nbytes for each in tensors if each.nbytes == leaky.KEPT_BYTES)


@pytest.mark.train
@pytest.mark.parametrize(("batch_size", "growth"), [(1, 0), (2, STEPS * leaky.KEPT_BYTES)])
def test_growth_is_what_was_allocated_between_the_ends_of_the_window(
    batch_size: int, growth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "allocated", kept_bytes)
    run = TrainingRun(spec_of(model=MODEL, warmup_steps=3, steps=STEPS, batch_size=batch_size), Ranks(), cpu())
    build(run, [])
    assert measure.measure(run).figures["allocated_growth_bytes"] == growth


@pytest.mark.gpu
@pytest.mark.train
def test_a_planted_leak_is_measured_on_a_gpu(tmp_path: Path) -> None:
    machine = detect()
    machine = replace(machine, devices=machine.devices[:1])
    block = a_block(rounds=1, workload=Workload(name="leaky", model=MODEL, data="synthetic"), steps=STEPS)
    with Store.open(tmp_path / "results.sqlite", writable=True) as store, LocalLauncher(gpu=True) as launcher:
        fill(store, a_plan(replace(block, options={})), launcher, machine)
        found: dict[str, Record] = {each.arm: each for each in store.records()}
    assert [each.outcome for each in found.values()] == [Outcome.OK] * 3, [each.reason for each in found.values()]
    grown: dict[str, Any] = {name: each.figures["allocated_growth_bytes"] for name, each in found.items()}
    own = grown["baseline"]  # the harness keeps each step's loss on the device
    assert 0 <= own <= STEPS << 10
    assert grown == {"baseline": own, "control": own, "batch_size=2": own + STEPS * leaky.KEPT_BYTES}
