"""What a record must be beyond the types of its fields, so that nothing that reads it trips: one look at the door.

Files of records come from elsewhere, and techniques from outside say what they like.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from harness.results.record import Record

#: Figures that nothing real makes negative.
_NOT_NEGATIVE = (
    "tokens_per_second", "samples_per_second", "wall_seconds", "startup_seconds", "compile_seconds", "utilisation",
    "peak_allocated_bytes", "peak_reserved_bytes", "peak_device_bytes", "peak_host_bytes",
)  # fmt: skip
#: Whole numbers by which a store finds a record again; SQLite has 64 bits.
_COUNTS = ("round", "position", "attempt")
_LARGEST = (1 << 63) - 1


def fault_in(record: Record) -> str:
    """The first thing in a record that cannot be meant, with its place, or nothing."""
    return next(_faults(record), "")


def _faults(record: Record) -> Iterator[str]:
    for name in _COUNTS:
        if not 0 <= getattr(record, name) <= _LARGEST:
            yield f"{name}: Input should be from 0 to {_LARGEST}, found {getattr(record, name):.3g}"
    for name in _NOT_NEGATIVE:
        value = getattr(record, name)
        if value is not None and value < 0:
            yield f"{name}: Input should not be negative, found {value:g}"
    if any(seconds < 0 for seconds in record.step_seconds):
        yield f"step_seconds: Input should not be negative, found {min(record.step_seconds):g}"
    yield from _environment_faults(record.environment)
    yield from _parts(record.clocks.get("foreign"), "clocks.foreign")
    for axis, proof in record.evidence.items():
        if not isinstance(proof.get("facts") or {}, Mapping):
            yield f"evidence.{axis}.facts: Input should be an object"


def _environment_faults(environment: Mapping[str, Any]) -> Iterator[str]:
    for name in ("packages", "tools"):
        if not isinstance(environment.get(name) or {}, Mapping):
            yield f"environment.{name}: Input should be an object"
    cores = environment.get("cores") or 0
    if not isinstance(cores, int):
        yield "environment.cores: Input should be a whole number"
    devices = environment.get("devices")
    yield from _parts(devices, "environment.devices")
    for index, device in enumerate(devices if isinstance(devices, list | tuple) else ()):
        sound = isinstance(device, Mapping) and isinstance(device.get("name"), str)
        if not sound or not isinstance(device.get("memory_bytes"), int):
            yield f"environment.devices.{index}: Input should have a name and its memory_bytes"


def _parts(value: object, name: str) -> Iterator[str]:
    """A list of objects, or nothing at all."""
    if value and not (isinstance(value, list | tuple) and all(isinstance(each, Mapping) for each in value)):
        yield f"{name}: Input should be a list of objects"
