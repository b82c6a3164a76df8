"""Emptying CUDA's caching allocator in the training loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.environment import Environment
from harness.experiment.axes import Axis
from harness.experiment.cell import Cell
from harness.techniques.base import Evidence, Stage, Technique

if TYPE_CHECKING:
    from harness.trial.training import TrainingRun

#: A block of this size at least is given back to the allocator for the check: larger than what it rounds away.
_PROBE_BYTES = 64 << 20


class EmptyCache(Technique):
    """`torch.cuda.empty_cache()` after every n-th step, the first step included, as D1 counts."""

    axes = (
        Axis(
            name="empty_cache",
            default="never",
            settings={"never": "the allocator keeps its blocks"},
            number=int,
            minimum=1,
            maximum=1_000_000,
            meaning="steps from one torch.cuda.empty_cache() to the next",
            documents=("D1",),
        ),
    )
    stage = Stage.STEP
    requirement = "a number: a GPU"
    proof = "calls counted against steps; a freed block leaves the allocator"

    def requires(self, environment: Environment, cell: Cell) -> str | None:
        if cell["empty_cache"] != "never" and not environment.has_gpu:
            return f"empty_cache={cell['empty_cache']} empties CUDA's allocator and needs a GPU; use never"
        return None

    def apply(self, cell: Cell, run: TrainingRun) -> None:
        if cell["empty_cache"] == "never":
            return
        every = cell.number("empty_cache")
        calls: list[int] = []
        run.facts["empty_cache"] = {"calls": calls, "segments_freed_before": segments_freed(run.device)}

        def after(step: int) -> None:
            if step % every == 0:
                empty()
                calls.append(step)

        run.after_step.append(after)

    def evidence(self, cell: Cell, run: TrainingRun) -> Evidence | None:
        noted = run.facts.get("empty_cache", {"calls": [], "segments_freed_before": 0})
        wanted = -(-run.steps_done // cell.number("empty_cache"))
        first, end = run.spec.warmup_steps, run.spec.warmup_steps + run.spec.steps
        facts: dict[str, Any] = {
            "calls": len(noted["calls"]), "calls_in_window": sum(first <= step < end for step in noted["calls"]),
            "segments_freed": segments_freed(run.device) - noted["segments_freed_before"],
        }  # fmt: skip
        if facts["calls"] != wanted:
            reason = f"the cache was emptied {facts['calls']} times in {run.steps_done} steps, not {wanted} times"
            return Evidence(holds=False, word=f"{facts['calls']} calls", facts=facts, reason=reason)
        facts["bytes_given_back"] = back = bytes_given_back(run.device)
        unseen = f"no call fell into the window of {run.spec.steps} steps: what it costs is not in this trial's time"
        return Evidence(
            holds=back is None or back >= _PROBE_BYTES, word=f"{facts['calls_in_window']} calls in the window",
            facts=facts, reason="torch.cuda.empty_cache() was called, but a freed block stays in the allocator",
            warnings=() if facts["calls_in_window"] else (unseen,),
        )  # fmt: skip


def empty() -> None:
    """What is called."""
    import torch

    torch.cuda.empty_cache()


def segments_freed(device: Any) -> int:
    """Segments that the allocator has given back to the driver since the process began."""
    import torch

    return int(torch.cuda.memory_stats(device).get("segment.all.freed", 0)) if device.type == "cuda" else 0


def bytes_given_back(device: Any) -> int | None:
    """What emptying gives back right after a block was freed; None when there is no memory left to try it.

    The block is larger than all that is free in segments that are in use in part, so that it gets one of its own.
    """
    import torch

    torch.cuda.empty_cache()
    scattered = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    try:
        block = torch.empty(scattered + _PROBE_BYTES, dtype=torch.uint8, device=device)
    except torch.OutOfMemoryError:
        return None
    del block
    before = torch.cuda.memory_reserved(device)
    empty()
    return int(before - torch.cuda.memory_reserved(device))
