"""Memory of a trial: the allocator's peaks, and the bytes of model state by kind. All figures in bytes."""

from __future__ import annotations

import resource
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from harness.techniques.kept import plain_parts, shard_of

if TYPE_CHECKING:
    from harness.trial.training import TrainingRun

NEEDS_CUDA = "only CUDA's caching allocator keeps this figure"


def reset_peaks(device: torch.device) -> None:
    """Forget what warm-up and compilation needed: the peaks after this are the window's."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def read_peaks(device: torch.device) -> tuple[dict[str, int], dict[str, str]]:
    """The peaks since `reset_peaks` and what could not be had."""
    figures = {"peak_host_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
    if device.type != "cuda":
        return figures, dict.fromkeys(("peak_allocated_bytes", "peak_reserved_bytes"), NEEDS_CUDA)
    figures["peak_allocated_bytes"] = torch.cuda.max_memory_allocated(device)
    figures["peak_reserved_bytes"] = torch.cuda.max_memory_reserved(device)
    return figures, {}


def allocated(device: torch.device) -> int | None:
    """Bytes in live tensors on the GPU now; None on a CPU."""
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else None


def allocator_retries(device: torch.device) -> int:
    """How often the allocator had to empty its cache to find room."""
    return int(torch.cuda.memory_stats(device).get("num_alloc_retries", 0)) if device.type == "cuda" else 0


def tensor_bytes(tensors: Iterable[Any], device: torch.device | None = None, seen: set[int] | None = None) -> int:
    """Bytes on this rank behind the tensors, each storage once; a sharded tensor counts its local shard.

    Args:
        device: count what lies on a device of this type only.
        seen: storages that were counted before; those of `tensors` are added.
    """
    seen = set() if seen is None else seen
    total = 0
    for tensor in tensors:
        local = shard_of(tensor)
        if not isinstance(local, torch.Tensor) or local.device.type == "meta":
            continue
        if device is not None and local.device.type != device.type:
            continue
        for part in plain_parts(local):
            storage = part.untyped_storage()
            if storage.nbytes() and storage.data_ptr() not in seen:
                seen.add(storage.data_ptr())
                total += storage.nbytes()
    return total


def model_state(run: TrainingRun) -> dict[str, float]:
    """Bytes of model state by kind that this rank's device holds now. What two kinds share counts for the first."""
    parts = run.state_parts()
    found: dict[str, list[Any]] = {
        "parameters": [*run.model.parameters(), *run.model.buffers(), *parts.get("parameters", ())],
        "optimizer": [*run.optimizer_tensors(), *parts.get("optimizer", ())],
        "gradients": [*run.gradient_tensors(), *parts.get("gradients", ())],
        "buckets": list(parts.get("buckets", ())),
    }
    seen: set[int] = set()
    state = {kind: float(tensor_bytes(tensors, run.device, seen)) for kind, tensors in found.items()}
    state["buckets"] += run.bucket_bytes()
    return state
