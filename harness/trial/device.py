"""What a trial's window was like on its devices, worked out from readings."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.trial.nvml import Reading

#: A device in use before the trial by more than this, with nobody to be seen, has a user that NVML does not show us.
_UNEXPLAINED_BYTES = 512 << 20

#: Figures of a window that the device itself tells.
METERED = ("utilisation", "energy_joules_per_token")

LOOKS_BACK_SECONDS = 1.0
"""What NVML tells at one look may be of the whole second before it: utilisation (nvmlUtilization_t: a sample period of
up to 1 s) and power (nvmlDeviceGetPowerUsage: a mean over 1 s). The counter of energy tells little of less either: the
power of an H100 is seen in a quarter of the time, once in 100 ms (arXiv 2312.02741)."""


def too_short(seconds: float) -> str:
    """Why a window of this length has neither utilisation nor energy."""
    return (
        f"the window lasted {seconds:.2f} s, and no look at the device tells of it alone: each may be of the whole"
        " second before it; take more steps"
    )


@dataclass(frozen=True, kw_only=True)
class DeviceFigures:
    """What a trial's window was like on its devices. None: not to be had, and `missing` says why."""

    utilisation: float | None = None
    """Mean over window and devices, 0..1."""
    energy_joules: float | None = None
    """Of all devices, in the window."""
    power_watts: float | None = None
    """Mean over the window, all devices together."""
    peak_device_bytes: int | None = None
    """Of the device that held most, over the window; over the whole trial where there was none."""
    clocks: dict[str, Any] = field(default_factory=dict)
    """As in the record."""
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class DeviceSamples:
    """All readings of one device during one trial."""

    before: Reading | None
    """The last look before the trial's processes existed."""
    readings: tuple[Reading, ...]
    ours: frozenset[int]
    """Ids of processes that belong to the trial, as far as they could be matched."""
    power_limit_watts: float | None = None

    def within(self, window: tuple[float, float]) -> list[Reading]:
        """Readings inside the window; the nearest one where it is shorter than the interval between two."""
        inside = [reading for reading in self.readings if window[0] <= reading.at <= window[1]]
        middle = sum(window) / 2
        return inside or sorted(self.readings, key=lambda reading: abs(reading.at - middle))[:1]

    def within_alone(self, window: tuple[float, float]) -> list[Reading]:
        """Readings that tell of nothing before the window: those of its first second do."""
        return [reading for reading in self.readings if window[0] + LOOKS_BACK_SECONDS <= reading.at <= window[1]]

    def energy_joules(self, window: tuple[float, float]) -> float | None:
        """Energy between two moments: the device's own counter, read between its samples by straight lines."""
        points = [(reading.at, reading.energy_joules) for reading in self.readings if reading.energy_joules is not None]
        if len(points) < 2 or not points[0][0] <= window[0] < window[1] <= points[-1][0]:
            return None
        return _interpolate(points, window[1]) - _interpolate(points, window[0])

    def peak_bytes(self, window: tuple[float, float] | None = None) -> int | None:
        """The trial's own memory at its highest; where its processes cannot be matched, what the device gained.

        With a window, what comes after it does not count: the gradient check builds models of its own there.
        """
        readings = self.readings if window is None else self.within(window)
        own = [
            sum(used for pid, used in reading.processes.items() if pid in self.ours and used is not None)
            for reading in readings
            if any(pid in self.ours and used is not None for pid, used in reading.processes.items())
        ]
        if own:
            return max(own)
        used = [reading.used_bytes for reading in readings if reading.used_bytes is not None]
        if not used or self.before is None or self.before.used_bytes is None:
            return None
        # less than before: the driver was still taking back the memory of the trial before
        idle = min(each.used_bytes for each in (self.before, *self.readings) if each.used_bytes is not None)
        return max(used) - idle

    def foreign(self, window: tuple[float, float] | None = None) -> list[dict[str, Any]]:
        """Processes of others on the device: `pid` and `bytes` each.

        With a window, those that were there during it: a process of the trial before, which the driver still lists
        while it gives its memory back, disturbs no step.

        Where none of the trial's own ids is ever seen (another namespace of process ids), only what was there before it
        is known to be foreign. Use without a process to be seen counts as one with pid None, if it lasts: for a moment
        the driver still counts the memory of a trial before whose process is gone.
        """
        matched = any(pid in self.ours for reading in self.readings for pid in reading.processes)
        own_time = self.readings if window is None else self.within(window)
        looked_at = own_time if matched else () if self.before is None else (self.before,)
        found: dict[int | None, int | None] = {}
        for reading in looked_at:
            for pid, used in reading.processes.items():
                if pid not in self.ours:
                    found[pid] = max(found.get(pid) or 0, used or 0) or None
        unseen = _least_unexplained((self.before, *(own_time if matched else self.readings)))
        if not found and unseen > _UNEXPLAINED_BYTES:
            found[None] = unseen
        return [{"pid": pid, "bytes": used} for pid, used in found.items()]


def _least_unexplained(readings: Sequence[Reading | None]) -> int:
    """Bytes in use, at every look at least, that belong to no process which the driver shows. 0 without a look before
    the trial, or where sizes are not told."""
    if readings[0] is None or readings[0].used_bytes is None:
        return 0
    looks = [(reading.used_bytes, reading.processes.values()) for reading in readings if reading is not None]
    return min(used - sum(size or 0 for size in sizes) for used, sizes in looks if used is not None)


def device_figures(
    samples: Sequence[DeviceSamples], window: tuple[float, float] | None, *, devices: int = 0
) -> DeviceFigures:
    """Put the devices of one trial together. `window` is None where the trial never got that far.

    `devices`: of the trial, where more than those that were read may have worked: a job over several nodes reads those
    of its first node. What all devices take together is then not known.
    """
    if not samples:
        reason = "no GPU that NVML can read was used"
        return DeviceFigures(missing=dict.fromkeys(("peak_device_bytes", *METERED), reason))
    peaks = [peak for each in samples if (peak := each.peak_bytes(window)) is not None]
    foreign = [process for each in samples for process in each.foreign(window)]
    peak_device_bytes = max(peaks) if peaks else None
    if window is None:
        reason = "the trial ended before its window did"
        missing = dict.fromkeys(METERED, reason)
        return DeviceFigures(peak_device_bytes=peak_device_bytes, clocks={"foreign": foreign}, missing=missing)
    figures = _window_figures(samples, window, peak_device_bytes, foreign)
    return figures if len(samples) >= devices else _without_sums(figures, f"{len(samples)} of its {devices} devices")


def _without_sums(figures: DeviceFigures, metered: str) -> DeviceFigures:
    reason = f"a trial over several nodes is metered on the first, and that is {metered}"
    return replace(
        figures, energy_joules=None, power_watts=None, clocks={**figures.clocks, "power_watts": None},
        missing={**figures.missing, "energy_joules_per_token": reason},
    )  # fmt: skip


def _window_figures(
    samples: Sequence[DeviceSamples], window: tuple[float, float], peak_device_bytes: int | None,
    foreign: list[dict[str, Any]],
) -> DeviceFigures:  # fmt: skip
    readings = [reading for each in samples for reading in each.within(window)]
    alone = [each.within_alone(window) for each in samples]
    short = "" if all(alone) else too_short(window[1] - window[0])
    energies = [] if short else [joules for each in samples if (joules := each.energy_joules(window)) is not None]
    energy = sum(energies) if len(energies) == len(samples) else None
    utilisation = None if short else _mean([reading.utilisation for looks in alone for reading in looks])
    powers = [_mean([reading.power_watts for reading in looks]) for looks in alone]
    known = [power for power in powers if power is not None]
    power = (
        energy / (window[1] - window[0]) if energy is not None else sum(known) if len(known) == len(powers) else None
    )
    clocks = [reading.sm_mhz for reading in readings if reading.sm_mhz is not None]
    reasons = sorted({reason for reading in readings for reason in reading.throttle_reasons})
    temperatures = [reading.temperature for reading in readings if reading.temperature is not None]
    answers = {"utilisation": utilisation, "energy_joules_per_token": power, "peak_device_bytes": peak_device_bytes}
    why = dict.fromkeys(METERED, short) if short else {}
    return DeviceFigures(
        utilisation=utilisation,
        energy_joules=energy,
        power_watts=power,
        peak_device_bytes=peak_device_bytes,
        clocks={
            "sm_mhz": _mean(clocks), "sm_mhz_min": min(clocks, default=None), "throttle_reasons": reasons,
            "power_watts": power, "power_limit_watts": samples[0].power_limit_watts,
            "temperature": max(temperatures, default=None), "foreign": foreign,
        },
        missing={name: why.get(name, "the device does not tell") for name, value in answers.items() if value is None},
    )  # fmt: skip


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _interpolate(points: Sequence[tuple[float, float]], at: float) -> float:
    for (left, low), (right, high) in itertools.pairwise(points):
        if left <= at <= right:
            return low if right == left else low + (high - low) * (at - left) / (right - left)
    raise ValueError(f"{at} lies outside the readings")
