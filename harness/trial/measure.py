"""Warm-up, window and what is read afterwards. No synchronise inside the window: one at its start, one at its end."""

from __future__ import annotations

import math
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from harness.techniques.compilation import RECORDED, WITH_GRAPHS
from harness.techniques.kept import GATHERED, SavedActivations, entries_of
from harness.trial import gradients, memory
from harness.trial import ranks as group
from harness.trial.clock import CudaClock, Times
from harness.trial.host import between, read_host

if TYPE_CHECKING:
    from harness.trial.training import TrainingRun

#: Marks of one step: its start, four a micro-batch, the optimizer, and the ones a technique may add.
_MARKS_A_STEP = 8
#: A gradient whose largest entry is below counts as none, as D3's diagnose_gradients has it.
ZERO = 1e-8
REPLAYED = "CUDA graphs keep activations in memory of their own, which the allocator does not see at a replay"


@dataclass(kw_only=True)
class Measured:
    """What warm-up and window gave, before it is put into a record."""

    times: Times | None = None
    window: tuple[float, float] = (0.0, 0.0)
    warmup_seconds: list[float] = field(default_factory=list)
    first_gradient: gradients.Gradient | None = None
    gradient_norms: list[float] = field(default_factory=list)
    model_state: dict[str, float] = field(default_factory=dict)
    compile_in_window: dict[str, int] = field(default_factory=dict)
    compiled: dict[str, int] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    """Figures that could not be had → why."""


def measure(run: TrainingRun) -> Measured:
    """Warm up, then time `steps` steps."""
    measured = Measured()
    with ExitStack() as stack:
        for around in run.around_window:
            stack.enter_context(around())
        _warm_up(run, measured)
        _window(run, measured)
    return measured


def _warm_up(run: TrainingRun, measured: Measured) -> None:
    want_gradient = run.spec.gradient_check and gradients.why_skipped(run) is None
    for number in range(run.spec.warmup_steps):
        start = time.perf_counter()
        hooks = [lambda: measured.gradient_norms.append(run.gradient_norm())]
        if number == 0 and want_gradient:
            hooks.append(lambda: setattr(measured, "first_gradient", gradients.capture(run)))
        last = number == run.spec.warmup_steps - 1
        if last:
            hooks.append(lambda: _note_state(run, measured, "before_step"))
            hooks.append(lambda: measured.figures.update(gradient_health(run)))
        run.before_optimizer[:0] = hooks
        if last:
            _count_activations(run, measured)
        else:
            run.step()
        del run.before_optimizer[: len(hooks)]
        if last:
            _note_state(run, measured, "after_step")
        run.timeline.clock.settle()
        measured.warmup_seconds.append(time.perf_counter() - start)


def _window(run: TrainingRun, measured: Measured) -> None:
    memory.reset_peaks(run.device)
    run.restart()
    clock = run.timeline.clock
    if isinstance(clock, CudaClock):
        clock.reserve((run.spec.steps + 1) * (_MARKS_A_STEP + 4 * run.accumulation))
    before = compile_counters()
    retries = memory.allocator_retries(run.device)
    start_bytes = memory.allocated(run.device)
    host = read_host()
    start = time.monotonic()
    for _ in range(run.spec.steps):
        run.step()
    run.timeline.end()
    measured.window = (start, time.monotonic())
    measured.figures["host"] = between(host, read_host())
    measured.times = run.timeline.times()
    after = compile_counters()
    measured.compiled = after
    measured.compile_in_window = {name: after[name] - before.get(name, 0) for name in after}
    measured.figures["allocator_retries"] = memory.allocator_retries(run.device) - retries
    end_bytes = memory.allocated(run.device)
    if start_bytes is not None and end_bytes is not None:
        measured.figures["allocated_growth_bytes"] = end_bytes - start_bytes


def compile_counters() -> dict[str, int]:
    """torch.compile's own counters: frames compiled, graphs, breaks, and CUDA graphs recorded. All zero where nothing
    was compiled."""
    counters = _dynamo_counters()
    if counters is None:
        return {"frames": 0, "graphs": 0, "graph_breaks": 0, "recordings": 0}
    return {
        "frames": int(counters["frames"]["ok"]),
        "graphs": int(counters["stats"]["unique_graphs"]),
        "graph_breaks": sum(counters["graph_break"].values()),
        "recordings": int(counters[RECORDED[0]][RECORDED[1]]),
    }


def graph_breaks() -> list[str]:
    """Why torch.compile broke graphs, each reason's first line."""
    counters = _dynamo_counters()
    return [] if counters is None else [str(reason).strip().splitlines()[0] for reason in counters["graph_break"]]


def _dynamo_counters() -> Any:
    """None where nothing has imported torch._dynamo: a trial that compiles nothing does not pay for that."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return None if dynamo is None else dynamo.counters


def gradient_health(run: TrainingRun) -> dict[str, int]:
    """Gradients that are not finite, and those below `ZERO` throughout, counted over all ranks that divide them.

    One wait for the device.
    """
    gradients_here = list(run.gradient_tensors())
    mine = _largest_entries(gradients_here)
    everyone = group.gather(mine, run.ranks) if run.split_gradients else [mine]
    sharded = len({len(one) for one in everyone}) == 1 and all(hasattr(each, "to_local") for each in gradients_here)
    # a shard of each gradient is on every rank, or each rank has others
    parts = zip(*everyone, strict=True) if sharded else ((each,) for one in everyone for each in one)
    found = [entries for part in parts if (entries := [each for each in part if each is not None])]
    if not found:
        return {}
    scale = run.loss_scale()
    return {
        "bad_gradients": sum(not all(map(math.isfinite, entries)) for entries in found),
        "zero_gradients": sum(all(each / scale < ZERO for each in entries) for entries in found),
    }


def _largest_entries(gradients_here: list[Any]) -> list[float | None]:
    """The largest absolute entry of what this rank has of each; None where it has nothing."""
    parts = [entries_of(part) for part in gradients_here]
    # as a norm, which needs no copy of the gradient as `abs().max()` does
    norms = [torch.linalg.vector_norm(part.detach(), ord=math.inf).float() for part in parts if part.numel()]
    largest = iter(torch.stack(norms).tolist() if norms else ())
    return [next(largest) if part.numel() else None for part in parts]


def _note_state(run: TrainingRun, measured: Measured, moment: str) -> None:
    state = memory.model_state(run)
    if moment == "before_step":
        measured.model_state.update(state)
    measured.model_state[moment] = float(sum(state.values()))
    held = memory.allocated(run.device)
    if held is not None:
        measured.model_state[f"allocated_{moment}"] = float(held)


def _count_activations(run: TrainingRun, measured: Measured) -> None:
    """One step in which what forward leaves for backward is counted."""
    plain = run.forward

    def counted(batch: Any) -> torch.Tensor:
        before = memory.allocated(run.device)
        if before is not None:
            there: set[int] = set()
            memory.tensor_bytes(run.model.parameters(), run.device, there)
            loss = plain(batch)
            grown = (memory.allocated(run.device) or 0) - before
            gathered = memory.tensor_bytes(run.model.parameters(), run.device, there)
            measured.model_state[GATHERED] = float(gathered)
            _keep_activations(run, measured, grown - gathered)
            return loss
        with SavedActivations(run.model.parameters()) as saved:
            loss = plain(batch)
        measured.model_state["activations"] = float(saved.bytes)
        return loss

    # an instance attribute hides the method for this one step
    run.forward = counted  # type: ignore[method-assign]
    try:
        run.step()
    finally:
        del run.forward


def _keep_activations(run: TrainingRun, measured: Measured, grown: int) -> None:
    """What the allocator grew by in forward, gathered weights apart, where that is what backward was left. Of several
    micro-batches the last one counts."""
    measured.model_state.pop("activations", None)
    measured.missing.pop("activations", None)
    if run.cell["compile"] in WITH_GRAPHS:
        measured.missing["activations"] = REPLAYED
    elif grown <= 0:
        measured.missing["activations"] = "the allocator's count did not grow in forward"
    else:
        measured.model_state["activations"] = float(grown)
