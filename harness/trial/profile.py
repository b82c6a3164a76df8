"""One step under torch's profiler, outside the window: which kernels and operators ran, and how often."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

#: Names on the host's side that say something: operators, the flash-attn package's, and launches of CUDA graphs.
_OPERATORS = ("aten::", "flash_attn", "_flash", "cudaGraphLaunch")

#: Around the step that is read, where another one comes before it.
_STEP = "claimbench: the profiled step"


@dataclass(frozen=True, slots=True)
class Span:
    """A kernel or copy on the device, or an operator on the host, nested as it was called."""

    name: str
    start: int
    """Nanoseconds, as `end`."""
    end: int
    on_device: bool
    lane: int
    """Stream of the device, or thread of the host."""
    operator: str = ""
    """Of a kernel: the operator that launched it, where the profiler knows."""
    note: bool = False
    """A stretch that somebody named (`Optimizer.step#AdamW.step`), on the host or mirrored on the device."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What one step did."""

    kernels: Counter[str] = field(default_factory=Counter)
    """GPU kernels by name → launches. Empty on a CPU."""
    operators: Counter[str] = field(default_factory=Counter)
    """ATen operators by name → calls; a compiled graph shows only what it did not fuse."""
    kernel_streams: dict[str, set[int]] = field(default_factory=dict)
    """GPU kernels and copies by name → numbers of the streams they ran on."""
    wall_seconds: float = 0.0
    spans: tuple[Span, ...] = ()
    """Everything that ran, in the order of its start (`trial.breakdown` adds it up)."""

    def matching(self, *parts: str) -> dict[str, int]:
        """Kernels and operators whose name contains one of `parts` (case ignored), with their counts.

        A part that begins with a namespace is of that one alone: `flash::f` is no part of `pytorch_flash::f`.
        """
        sign = re.compile("|".join(map(_within, parts)), re.IGNORECASE)
        return {name: count for name, count in {**self.operators, **self.kernels}.items() if sign.search(name)}


def _within(part: str) -> str:
    """A pattern for a part of a name."""
    return (r"(?<!\w)" if "::" in part else "") + re.escape(part)


def profile_step(step: Callable[[], Any], device: torch.device, *, ranks: int = 1) -> Profile:
    """Run `step` once under the profiler; of several ranks twice, and what the second did.

    The profilers of ranks start one after the other, and the first collective of the first step waits for the last of
    them: that step is none of the window's. Every rank must call this.
    """
    import time

    from torch.profiler import ProfilerActivity, profile, record_function

    on_gpu = device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=activities) as profiler:
        if ranks > 1:
            step()
            if on_gpu:
                torch.cuda.synchronize(device)
        with record_function(_STEP) if ranks > 1 else nullcontext():
            start = time.perf_counter()
            step()
            if on_gpu:
                torch.cuda.synchronize(device)
            wall = time.perf_counter() - start
    # kineto's own events: building the tree of events() costs seconds for a step of ten thousand operators
    events = profiler.profiler.kineto_results.events()
    return _read(_of_the_marked_step(events) if ranks > 1 else events, wall)


def _of_the_marked_step(events: Iterable[Any]) -> list[Any]:
    """What began in the marked step, without the mark itself."""
    marks = [event for event in events if event.name() == _STEP]
    start, end = next(
        (mark.start_ns(), mark.end_ns()) for mark in marks if mark.device_type() == torch.autograd.DeviceType.CPU
    )
    return [event for event in events if start <= event.start_ns() <= end and event.name() != _STEP]


def _read(events: Iterable[Any], wall: float) -> Profile:
    kernels: Counter[str] = Counter()
    operators: Counter[str] = Counter()
    streams: dict[str, set[int]] = {}
    spans: list[Span] = []
    launchers: dict[int, str] = {}
    for event in events:
        on_host = event.device_type() == torch.autograd.DeviceType.CPU
        # calls of the driver are numbered apart from operators, and would take their places
        if on_host and event.linked_correlation_id() == 0 and not event.name().startswith("cu"):
            launchers[event.correlation_id()] = event.name()
    for event in events:
        name = event.name()
        on_device = event.device_type() == torch.autograd.DeviceType.CUDA
        spans.append(Span(
            name, event.start_ns(), event.end_ns(), on_device,
            event.device_resource_id() if on_device else event.start_thread_id(),
            launchers.get(event.linked_correlation_id(), "") if on_device else "", event.is_user_annotation(),
        ))  # fmt: skip
        if event.is_user_annotation():
            continue
        if on_device:
            kernels[name] += 1
            streams.setdefault(name, set()).add(event.device_resource_id())
        elif name.startswith(_OPERATORS):
            operators[name] += 1
    return Profile(
        kernels=kernels, operators=operators, kernel_streams=streams, wall_seconds=wall,
        spans=tuple(sorted(spans, key=lambda span: (span.start, -span.end))),
    )  # fmt: skip
