"""What NVML answers in its own units and bits, and what a reading makes of it."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from harness.trial.nvml import NvmlMeter, Reading


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Any:
    """NVML of one H100: milliwatts, millijoules, percent, bits (nvml.h)."""
    fake: Any = ModuleType("pynvml")
    fake.NVMLError = type("NVMLError", (Exception,), {})
    fake.NVML_CLOCK_GRAPHICS, fake.NVML_CLOCK_SM, fake.NVML_CLOCK_MEM = 0, 1, 2
    fake.NVML_TEMPERATURE_GPU, fake.nvmlMemory_v2 = 0, 0x2000028
    fake.nvmlInit = lambda: None
    fake.nvmlDeviceGetHandleByUUID = lambda uuid: uuid
    fake.nvmlDeviceGetEnforcedPowerLimit = lambda device: 700_000
    fake.nvmlDeviceGetUtilizationRates = lambda device: SimpleNamespace(gpu=93, memory=40)
    fake.nvmlDeviceGetPowerUsage = lambda device: 650_500
    fake.nvmlDeviceGetTotalEnergyConsumption = lambda device: 1_234_500
    fake.nvmlDeviceGetClockInfo = lambda device, clock: {0: 1965, 1: 1980, 2: 2619}[clock]
    fake.nvmlDeviceGetTemperature = lambda device, sensor: 55
    fake.nvmlDeviceGetCurrentClocksEventReasons = lambda device: 0
    used = {None: 5 << 30, fake.nvmlMemory_v2: 4 << 30}  # version 1 counts what the driver reserves for itself
    fake.nvmlDeviceGetMemoryInfo = lambda device, version=None: SimpleNamespace(used=used[version])
    fake.nvmlDeviceGetComputeRunningProcesses = lambda device: [SimpleNamespace(pid=17, usedGpuMemory=3 << 30)]
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def test_a_reading_is_in_base_units(nvml: Any) -> None:
    meter = NvmlMeter("GPU-1")
    reading = meter.read()
    assert meter.power_limit_watts == 700.0
    assert (reading.utilisation, reading.sm_mhz, reading.temperature) == (0.93, 1980, 55)
    assert (reading.power_watts, reading.energy_joules) == (650.5, 1234.5)
    assert (reading.used_bytes, dict(reading.processes)) == (4 << 30, {17: 3 << 30})
    assert reading.throttle_reasons == frozenset()


#: nvml.h, nvmlClocksEventReason*: GpuIdle 1, ApplicationsClocksSetting 2, SwPowerCap 4, HwSlowdown 8, SyncBoost 16,
#: SwThermalSlowdown 32, HwThermalSlowdown 64, HwPowerBrakeSlowdown 128, DisplayClockSetting 256.
@pytest.mark.parametrize(
    ("mask", "reasons"),
    [
        (0x1, set()),
        (0x2, {"applications_clocks_setting"}),
        (0x4, {"sw_power_cap"}),
        (0x8, {"hw_slowdown"}),
        (0x10, {"sync_boost"}),
        (0x20, {"sw_thermal_slowdown"}),
        (0x40, {"hw_thermal_slowdown"}),
        (0x80, {"hw_power_brake_slowdown"}),
        (0x100, {"display_clock_setting"}),
        (0x44, {"sw_power_cap", "hw_thermal_slowdown"}),
    ],
)
def test_bits_are_the_reasons_of_nvml_h(nvml: Any, mask: int, reasons: set[str]) -> None:
    nvml.nvmlDeviceGetCurrentClocksEventReasons = lambda device: mask
    assert NvmlMeter("GPU-1").read().throttle_reasons == reasons


def test_a_question_that_is_not_answered_leaves_none(nvml: Any) -> None:
    def refuse(*_: Any) -> None:
        raise nvml.NVMLError("not supported")

    for name in list(vars(nvml)):
        if name.startswith("nvmlDeviceGet") and name != "nvmlDeviceGetHandleByUUID":
            setattr(nvml, name, refuse)
    meter = NvmlMeter("GPU-1")
    assert meter.power_limit_watts is None
    reading = meter.read()
    assert reading == Reading(at=reading.at)
