"""What the processes of a trial are told: their devices, their folders, what they are held against."""

from __future__ import annotations

from pathlib import Path

from harness.environment import Device
from harness.results.workplace import Workplace
from tests.results.plans import a_block, a_plan


def test_a_trial_is_told_its_own_cell_its_baseline_and_its_own_devices(tmp_path: Path) -> None:
    place = Workplace(folder=tmp_path)
    trial = next(each for each in a_plan(a_block(sizes=(8,))).trials if each.arm.name == "batch_size=8")
    spec = place.spec(trial, fingerprint="f", attempt=1, gpu=True, gradient_check=True)
    assert (spec.settings["batch_size"], spec.baseline_settings["batch_size"]) == (8, 1)
    assert spec.gradient_check
    devices = [Device(index=index, name="H100", uuid=f"GPU-{index}", memory_bytes=1) for index in (5, 3)]
    assert place.variables(spec, devices)["CUDA_VISIBLE_DEVICES"] == "5,3", "NVML's numbers, not places in a list"


def test_a_pilot_looks_at_no_gradient(tmp_path: Path) -> None:
    trial = a_plan(a_block(options={"pilot": True})).trials[0]
    spec = Workplace(folder=tmp_path).spec(trial, fingerprint="f", attempt=1, gpu=True, gradient_check=True)
    assert not spec.gradient_check
