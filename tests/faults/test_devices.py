"""A device that is not the trial's own, or not itself: what NVML tells of it goes through a whole run to the verdict.

NVML is replaced at its boundary (`trial.nvml.Meter`); trials, store and judgement are real. docs/statistics.md has the
rules.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.environment import Device, Environment, detect
from harness.experiment.study import Plan
from harness.judgement.blocks import compare
from harness.judgement.claims import Claims
from harness.judgement.judge import judge
from harness.judgement.judged import ArmResult, Verdict
from harness.results.collect import Options, fill
from harness.results.events import Event, TrialStarted
from harness.results.record import Record
from harness.results.store import Store
from harness.trial.launch import LocalLauncher
from harness.trial.nvml import Reading, meters
from harness.trial.outcome import Outcome
from tests.faults.runs import CHILD
from tests.results.plans import a_block, a_plan

H100 = Device(index=0, name="NVIDIA H100", uuid="GPU-1", memory_bytes=80 << 30, power_limit_watts=700.0)
MACHINE = Environment(cores=2, devices=(H100,), driver="580.1")
CELL = "batch_size=2"
GIB = 1 << 30

CLAIM = {
    "statement": "It is faster.", "sources": [{"document": "D1", "quote": "faster"}], "form": "range",
    "metric": "speedup", "range": [0.5, 2], "study": "study", "cell": {"batch_size": 2},
}  # fmt: skip
CLAIMS = Claims.model_validate({
    "schema": 1, "documents": {"D1": {"title": "A text"}}, "claims": {"faster": {"id": "faster", **CLAIM}},
})  # fmt: skip


class FakeMeter:
    """An H100 at rest in every respect but one, and in that one only while the named arm runs."""

    power_limit_watts = 700.0

    def __init__(self, arm: str, **strange: Any) -> None:
        self.arm, self.strange = arm, strange
        self.running = ""

    def __call__(self, event: Event) -> None:
        """Listens to the run."""
        if isinstance(event, TrialStarted):
            self.running = event.trial.arm.name

    def read(self) -> Reading:
        now = time.monotonic()
        usual = Reading(
            at=now, utilisation=0.9, sm_mhz=1980.0, power_watts=650.0, temperature=55.0, energy_joules=650.0 * now,
            used_bytes=4 << 20,
        )  # fmt: skip
        return replace(usual, **self.strange) if self.running == self.arm else usual


def full_scale() -> Plan:
    """Three rounds of a baseline, its control and one cell, as on a GPU. A trial is a sleep of `tests.trial.child`."""
    return replace(a_plan(a_block(rounds=3, options={"seconds": 0.15})), scale="full")


def run(folder: Path, meter: FakeMeter) -> list[Record]:
    with (
        Store.open(folder / "results.sqlite", writable=True) as store,
        LocalLauncher(gpu=False, modules=("json",), entry=CHILD) as launcher,
    ):
        fill(store, full_scale(), launcher, MACHINE, options=Options(meters=(meter,)), on_event=meter)
        return list(store.records())


def judged(records: list[Record]) -> tuple[Verdict, dict[str, ArmResult]]:
    (block,) = compare(records).blocks
    (verdict,) = judge(records, CLAIMS).verdicts
    return verdict, {arm.name: arm for arm in block.arms}


def of_cell(records: list[Record]) -> list[Record]:
    return [record for record in records if record.arm == CELL]


def test_a_device_of_ones_own_spoils_nothing(tmp_path: Path) -> None:
    records = run(tmp_path, FakeMeter(CELL))
    assert {record.outcome for record in records} == {Outcome.OK}
    assert {tuple(record.clocks["foreign"]) for record in records} == {()}
    verdict, arms = judged(records)
    assert (verdict.word, verdict.value) == ("confirmed", 1.0), verdict.reason
    assert arms[CELL].flags == arms["control"].flags == arms["baseline"].flags


SPOILT = {
    "a foreign process": (
        {"processes": {4711: 3 * GIB}}, {"foreign": [{"pid": 4711, "bytes": 3 * GIB}]},
        "1 foreign process(es) ran on the device: pid 4711 with 3.0 GiB",
    ),
    "memory of nobody that is seen": (
        {"used_bytes": 20 * GIB}, {"foreign": [{"pid": None, "bytes": 20 * GIB}]},
        "1 foreign process(es) ran on the device: one that the driver does not name with 20.0 GiB",
    ),
    "heat": (
        {"throttle_reasons": frozenset({"hw_thermal_slowdown", "sw_power_cap"}), "sm_mhz": 1095.0, "temperature": 88.0},
        {"throttle_reasons": ["hw_thermal_slowdown", "sw_power_cap"], "sm_mhz_min": 1095.0, "temperature": 88.0},
        "the device was throttled: hw_thermal_slowdown (down to 1095 MHz, at 88 °C)",
    ),
    "the power brake": (
        {"throttle_reasons": frozenset({"hw_power_brake_slowdown"}), "sm_mhz": 600.0},
        {"throttle_reasons": ["hw_power_brake_slowdown"], "sm_mhz_min": 600.0},
        "the device was throttled: hw_power_brake_slowdown (down to 600 MHz, at 55 °C)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SPOILT)
def test_what_spoils_a_trial_is_in_its_record_and_makes_its_verdict_invalid(tmp_path: Path, name: str) -> None:
    strange, recorded, sentence = SPOILT[name]
    records = run(tmp_path, FakeMeter(CELL, **strange))
    for record in of_cell(records):
        assert {key: record.clocks[key] for key in recorded} == recorded
        assert record.outcome is Outcome.OK, "the record says what was seen; what it means is for the judgement"
    verdict, _ = judged(records)
    assert verdict.word == "invalid"
    assert sentence in verdict.reason
    assert {record.arm for record in records if record.clocks["foreign"] or record.clocks["throttle_reasons"]} == {CELL}


def test_the_power_cap_is_said_and_spoils_nothing(tmp_path: Path) -> None:
    records = run(tmp_path, FakeMeter(CELL, throttle_reasons=frozenset({"sw_power_cap"})))
    verdict, arms = judged(records)
    assert verdict.word == "confirmed"
    assert "at its power cap of 700 W (3 of 3 rounds)" in arms[CELL].flags


def test_clocks_apart_between_the_arms_are_said_with_both(tmp_path: Path) -> None:
    records = run(tmp_path, FakeMeter(CELL, sm_mhz=1700.0))
    assert {record.clocks["sm_mhz"] for record in of_cell(records)} == {1700.0}
    _, arms = judged(records)
    assert "SM clock 1700 MHz against 1980 MHz for the baseline (-14.1%)" in arms[CELL].flags
    assert [flag for flag in arms["control"].flags if "clock" in flag] == []


HOLD = "import torch; held = torch.zeros(1 << 30, dtype=torch.uint8, device='cuda'); print('held', flush=True); input()"


@pytest.fixture
def neighbour() -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Starts another process that holds a gigabyte of the first GPU."""
    started: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", HOLD]
        started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        assert started[-1].stdout is not None
        assert started[-1].stdout.readline() == "held\n"
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.gpu
def test_a_real_neighbour_on_the_gpu_is_seen_with_its_memory(
    tmp_path: Path, neighbour: Callable[[], subprocess.Popen[str]]
) -> None:
    machine = detect()
    machine = replace(machine, devices=machine.devices[:1])
    options = Options(meters=meters(device.uuid for device in machine.devices))
    neighbour()
    with (
        Store.open(tmp_path / "results.sqlite", writable=True) as store,
        LocalLauncher(gpu=True, modules=("json",), entry=CHILD) as launcher,
    ):
        fill(store, full_scale(), launcher, machine, options=options)
        records = list(store.records())
    # a test before this one may have left a context of this process on the device: a neighbour too, but a small one
    for record in records:
        (other,) = (each for each in record.clocks["foreign"] if each["bytes"] > GIB)
    verdict, _ = judged(records)
    assert verdict.word == "invalid"
    assert "foreign process(es) ran on the device: " in verdict.reason
    assert f"with {other['bytes'] / GIB:.1f} GiB" in verdict.reason
