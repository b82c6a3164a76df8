"""The machine: what is there, without importing torch and without touching the GPU's state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Device:
    """One GPU as NVML describes it."""

    index: int
    name: str
    uuid: str
    memory_bytes: int
    power_limit_watts: float | None = None
    compute_capability: tuple[int, int] | None = None


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Recorded with every trial, and what `requires` decides on."""

    devices: tuple[Device, ...] = ()
    driver: str | None = None
    cuda_driver: str | None = None
    packages: dict[str, str] = field(default_factory=dict)
    """Distribution name (normalised: lower case, dashes) → version."""
    python: str = ""
    system: str = ""
    processor: str = ""
    cores: int = 0
    memory_bytes: int = 0
    host: str = ""
    """A hash of the host's name: tells machines apart without naming them."""
    git_commit: str | None = None
    git_dirty: bool | None = None
    tools: dict[str, str] = field(default_factory=dict)
    """Programs some settings need: nvcc, nvidia-smi, a C++ compiler (name → path or version)."""

    @property
    def has_gpu(self) -> bool:
        return bool(self.devices)

    def has(self, package: str) -> bool:
        """Whether a distribution is installed, whatever its spelling."""
        return package.lower().replace("_", "-") in self.packages

    def as_json(self) -> dict[str, Any]:
        from dataclasses import asdict

        return asdict(self)


def detect() -> Environment:
    """Look at this machine. Never raises: what cannot be read stays empty."""
    raise NotImplementedError
