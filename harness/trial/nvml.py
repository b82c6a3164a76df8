"""The one place that talks to NVML: what a device says of itself at one moment."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from harness.errors import EnvironmentProblem

#: Bits of nvmlClocksEventReasons (nvml.h). Idle is left out: between two kernels every clock rests.
THROTTLE_REASONS = {
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One look at one device. What the device or its driver does not tell is None."""

    at: float
    """`time.monotonic()`."""
    utilisation: float | None = None
    """Share of the driver's last sample period in which a kernel ran, 0..1."""
    sm_mhz: float | None = None
    power_watts: float | None = None
    temperature: float | None = None
    """Degrees Celsius."""
    throttle_reasons: frozenset[str] = frozenset()
    energy_joules: float | None = None
    """Since the driver was loaded."""
    used_bytes: int | None = None
    """Of the whole device, what the driver reserves for itself left out."""
    processes: Mapping[int, int | None] = field(default_factory=dict)
    """Process id → its bytes on the device, of processes with a compute context."""


class Meter(Protocol):
    """What the sampler reads."""

    @property
    def power_limit_watts(self) -> float | None: ...

    def read(self) -> Reading: ...


def meters(uuids: Iterable[str]) -> tuple[Meter, ...]:
    """A meter a device; none at all where NVML cannot be had, and the records will say so."""
    try:
        return tuple(NvmlMeter(uuid) for uuid in uuids)
    except EnvironmentProblem:
        return ()


class NvmlMeter:
    """One GPU, by its UUID: unlike an index it means the same to NVML and to CUDA."""

    def __init__(self, uuid: str) -> None:
        """Raises EnvironmentProblem when NVML or the device cannot be had."""
        try:
            import pynvml

            pynvml.nvmlInit()
            self._device = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        except Exception as error:  # NVML's errors share no base that can be imported before it is
            raise EnvironmentProblem(f"NVML does not tell about device {uuid} ({error}); check the driver.") from error
        self._nvml: Any = pynvml
        limit = self._ask("nvmlDeviceGetEnforcedPowerLimit")
        self.power_limit_watts: float | None = None if limit is None else limit / 1000

    def read(self) -> Reading:
        """Look once. A question that the device does not answer leaves None."""
        at = time.monotonic()
        utilisation, memory = self._ask("nvmlDeviceGetUtilizationRates"), self._memory()
        power, energy = self._ask("nvmlDeviceGetPowerUsage"), self._ask("nvmlDeviceGetTotalEnergyConsumption")
        mask = self._ask("nvmlDeviceGetCurrentClocksEventReasons") or 0
        return Reading(
            at=at,
            utilisation=None if utilisation is None else utilisation.gpu / 100,
            sm_mhz=self._ask("nvmlDeviceGetClockInfo", self._nvml.NVML_CLOCK_SM),
            power_watts=None if power is None else power / 1000,
            temperature=self._ask("nvmlDeviceGetTemperature", self._nvml.NVML_TEMPERATURE_GPU),
            throttle_reasons=frozenset(name for bit, name in THROTTLE_REASONS.items() if mask & bit),
            energy_joules=None if energy is None else energy / 1000,
            used_bytes=None if memory is None else int(memory.used),
            processes={
                each.pid: each.usedGpuMemory for each in self._ask("nvmlDeviceGetComputeRunningProcesses") or ()
            },
        )

    def _memory(self) -> Any:
        # version 2 tells what the driver reserves apart from what is used
        version = getattr(self._nvml, "nvmlMemory_v2", None)
        found = self._ask("nvmlDeviceGetMemoryInfo", version) if version is not None else None
        return found if found is not None else self._ask("nvmlDeviceGetMemoryInfo")

    def _ask(self, question: str, *arguments: Any) -> Any:
        try:
            return getattr(self._nvml, question)(self._device, *arguments)
        except self._nvml.NVMLError:
            return None
