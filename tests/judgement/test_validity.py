"""Before any statistics: what spoils a trial, and what only shades it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness.judgement.quantities import step_seconds
from harness.judgement.validity import checked, clock_gap, warnings
from harness.results.record import Record
from harness.trial.nvml import THROTTLE_REASONS
from harness.trial.outcome import Outcome
from tests.records import CPU, make_records


def trial(**fields: Any) -> Record:
    steady = make_records(rounds=1, step_spread=0.0)[0]
    return replace(steady, **fields)


def clocks(**fields: Any) -> dict[str, Any]:
    return {**trial().clocks, **fields}


def test_a_clean_trial_passes_untouched() -> None:
    record = trial()
    assert checked(record) is record
    assert warnings(record) == []


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"mfu": 1.2}, "MFU is 1.20, above 1"),
        ({"hfu": 1.01}, "HFU is 1.01, above 1"),
        ({"clocks": clocks(foreign=[{"pid": 1}])}, "1 foreign process(es) ran on the device: pid 1"),
        (
            {"clocks": clocks(foreign=[{"pid": 17, "bytes": 3 << 30}, {"pid": None, "bytes": 1 << 30}])},
            "2 foreign process(es) ran on the device: pid 17 with 3.0 GiB, "
            "one that the driver does not name with 1.0 GiB",
        ),
        (
            {"clocks": clocks(throttle_reasons=["hw_thermal_slowdown"], sm_mhz_min=1095.0, temperature=88)},
            "throttled: hw_thermal_slowdown (down to 1095 MHz, at 88 °C)",
        ),
        (
            {"clocks": clocks(throttle_reasons=["sw_thermal_slowdown", "sw_power_cap"])},
            "throttled: sw_thermal_slowdown",
        ),
    ],
)
def test_what_spoils_a_trial(fields: dict[str, Any], reason: str) -> None:
    record = checked(trial(**fields))
    assert record.outcome is Outcome.INVALID
    assert reason in record.reason


def test_a_window_whose_halves_differ_by_more_than_two_percent_is_warned_of() -> None:
    steps = [0.100] * 10 + [0.1021] * 10
    assert warnings(trial(step_seconds=steps)) == ["median step time changed by +2.1% between the halves of the window"]
    assert warnings(trial(step_seconds=[0.100] * 10 + [0.1019] * 10)) == []
    faster = trial(step_seconds=[0.1021] * 10 + [0.100] * 10)
    assert warnings(faster) == ["median step time changed by -2.1% between the halves of the window"]
    # four steps are a half, three are none; of an odd number the one in the middle is in neither
    assert len(warnings(trial(step_seconds=[0.1] * 4 + [0.2] * 4))) == 1
    assert warnings(trial(step_seconds=[0.1] * 3 + [0.2] * 4)) == []
    assert warnings(trial(step_seconds=[0.1] * 4 + [0.103] + [0.1] * 2 + [0.103] * 2)) == []


def test_steps_that_were_held_up_are_said_and_stay_in_the_mean() -> None:
    """One step of 2.2 s among steps of 49 to 57 ms, as an H200 had: the trial's mean doubled, its median did not."""
    steps = [0.049] * 24 + [0.0495] * 23 + [2.206]
    held_up = trial(step_seconds=steps)
    assert warnings(held_up) == ["single steps of over five times the median cost 48% of the window"]
    assert checked(held_up).outcome is Outcome.OK
    assert step_seconds(held_up) == pytest.approx(0.0942, abs=1e-4)
    assert warnings(trial(step_seconds=[0.1] * 19 + [0.49])) == []
    assert warnings(trial(step_seconds=[0.1] * 299 + [0.51])) == [], "under 2% of the window"
    assert warnings(trial(kind="loader-only", step_seconds=steps)) == [], "batches of a loader come in bursts"
    assert warnings(trial(kind="attention-only", step_seconds=steps)) == warnings(held_up)
    assert warnings(trial(step_seconds=[0.1] * 6 + [2.0])) == [], "too few steps to call one of them usual"


def test_the_power_cap_is_a_normal_working_point_and_is_said() -> None:
    record = trial(clocks=clocks(throttle_reasons=["sw_power_cap"]))
    assert checked(record).outcome is Outcome.OK
    assert warnings(record) == ["at its power cap of 700 W"]


@pytest.mark.parametrize(
    ("seconds", "on", "expected"),
    [
        (0.023, "gpu", ["the device idled for 46% of a step: host or data set the pace"]),
        (0.0099, "gpu", []),
        (0.023, "cpu", []),
        (None, "gpu", []),
    ],
    ids=["DeepSpeed on gpt2-124m", "under a fifth", "a processor", "not measured"],
)
def test_a_device_that_waits_is_said(seconds: float | None, on: str, expected: list[str]) -> None:
    spent = {"measured_on": on, "step_seconds": 0.05, "seconds": {"idle": seconds, "matrix_products": 0.02}}
    record = trial(figures={"breakdown": spent})
    assert checked(record).outcome is Outcome.OK
    assert warnings(record) == expected


def test_clocks_that_differ_between_arms() -> None:
    slow = [trial(clocks=clocks(sm_mhz=1700.0))]
    fast = [trial(clocks=clocks(sm_mhz=1750.0))]
    assert clock_gap(slow, fast) == "SM clock 1700 MHz against 1750 MHz for the baseline (-2.9%)"
    assert clock_gap([trial(clocks=clocks(sm_mhz=1720.0))], fast) == ""
    assert clock_gap([trial(clocks={})], fast) == ""


@pytest.mark.parametrize(
    "place", [{"scale": "smoke"}, {"environment": make_records(rounds=1, environment=CPU)[0].environment}]
)
def test_on_a_cpu_and_in_the_smoke_scale_only_noise_is_labelled(place: dict[str, Any]) -> None:
    found = clocks(foreign=[{"pid": 1}], sm_mhz=1000.0)
    record = trial(mfu=1.2, step_seconds=[0.1] * 10 + [0.2] * 10, clocks=found, **place)
    assert checked(record).outcome is Outcome.OK
    assert warnings(record) == []
    assert clock_gap([record], [trial(**place)]) == ""


def test_a_trial_that_failed_is_left_as_it_is() -> None:
    record = trial(outcome=Outcome.OOM, mfu=1.2)
    assert checked(record) is record


def test_warnings_of_the_trial_itself_come_first() -> None:
    record = trial(warnings=["3 allocator retries"], clocks=clocks(throttle_reasons=["sw_power_cap"]))
    assert warnings(record) == ["3 allocator retries", "at its power cap of 700 W"]


def test_every_reason_that_nvml_gives_is_a_fault_the_power_cap_or_known_to_be_none() -> None:
    faults = {"hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"}
    harmless = {"applications_clocks_setting", "sync_boost", "display_clock_setting"}
    assert faults | harmless | {"sw_power_cap"} == set(THROTTLE_REASONS.values())
    for reason in THROTTLE_REASONS.values():
        record = trial(clocks=clocks(throttle_reasons=[reason]))
        assert (checked(record).outcome is Outcome.INVALID) == (reason in faults), reason
        assert warnings(record) == (["at its power cap of 700 W"] if reason == "sw_power_cap" else []), reason
