"""One step under torch's profiler, outside the window: which kernels and operators ran, and how often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

#: Names on the host's side that say something: operators, the flash-attn package's, and launches of CUDA graphs.
_OPERATORS = ("aten::", "flash_attn", "_flash", "cudaGraphLaunch")


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What one step did."""

    kernels: Counter[str] = field(default_factory=Counter)
    """GPU kernels by name → launches. Empty on a CPU."""
    operators: Counter[str] = field(default_factory=Counter)
    """ATen operators by name → calls; a compiled graph shows only what it did not fuse."""
    kernel_seconds: dict[str, float] = field(default_factory=dict)
    """GPU kernels by name → seconds in all."""
    kernel_streams: dict[str, set[int]] = field(default_factory=dict)
    """GPU kernels and copies by name → numbers of the streams they ran on."""
    wall_seconds: float = 0.0

    def matching(self, *parts: str) -> dict[str, int]:
        """Kernels and operators whose name contains one of `parts` (case ignored), with their counts."""
        found = {**self.operators, **self.kernels}
        return {name: count for name, count in found.items() if any(part.lower() in name.lower() for part in parts)}


def profile_step(step: Callable[[], Any], device: torch.device) -> Profile:
    """Run `step` once under the profiler."""
    import time

    from torch.profiler import ProfilerActivity, profile

    on_gpu = device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=activities) as profiler:
        start = time.perf_counter()
        step()
        if on_gpu:
            torch.cuda.synchronize(device)
        wall = time.perf_counter() - start
    return _read(profiler, wall)


def _read(profiler: Any, wall: float) -> Profile:
    kernels: Counter[str] = Counter()
    operators: Counter[str] = Counter()
    seconds: dict[str, float] = {}
    streams: dict[str, set[int]] = {}
    # kineto's own events: building the tree of events() costs seconds for a step of ten thousand operators
    for event in profiler.profiler.kineto_results.events():
        name = event.name()
        if event.device_type() == torch.autograd.DeviceType.CUDA:
            kernels[name] += 1
            seconds[name] = seconds.get(name, 0.0) + event.duration_ns() / 1e9
            streams.setdefault(name, set()).add(event.device_resource_id())
        elif name.startswith(_OPERATORS):
            operators[name] += 1
    return Profile(
        kernels=kernels, operators=operators, kernel_seconds=seconds, kernel_streams=streams, wall_seconds=wall
    )
