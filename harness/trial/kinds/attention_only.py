"""One attention layer of the model, forward and backward, on seeded inputs.

A layer of a small model takes a GPU less time than its host needs to launch it: on an H200 flash took 0.9 ms a layer on
one host and 1.4 ms on another, at every length up to 2048. So the time for which the device was busy stands beside it.

It is the model's own layer, called with what the model itself passes to it (mask, positions), except for the hidden
states, which are drawn from the seed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn

from harness.environment import Environment
from harness.techniques.attention import Attention
from harness.techniques.precision import Precision
from harness.trial.breakdown import breakdown
from harness.trial.clock import Timeline
from harness.trial.kinds.repeat import Repeated, repeat
from harness.trial.kinds.training import gather_evidence
from harness.trial.model import blocks_of
from harness.trial.outcome import Outcome
from harness.trial.profile import profile_step
from harness.trial.ranks import Ranks
from harness.trial.spec import TrialResult, TrialSpec
from harness.trial.training import TrainingRun, build

#: Repetitions over which the device's busy time is averaged.
PROFILED = 10


def run(spec: TrialSpec, ranks: Ranks, environment: Environment) -> TrialResult:
    """Time the layer's forward and backward."""
    trial = TrainingRun(spec, ranks, environment)
    with trial.held:
        build(trial, (Precision(), Attention()))
        layer, positional, named = called_with(trial)
        hidden, *rest = positional
        generator = torch.Generator(device=trial.device).manual_seed(spec.seed)
        drawn = torch.randn(hidden.shape, generator=generator, device=trial.device).to(hidden.dtype)
        drawn.requires_grad_()

        def once(timeline: Timeline) -> None:
            with ExitStack() as stack:
                for context in trial.forward_contexts:
                    stack.enter_context(context())
                output = layer(drawn, *rest, **named)[0]
            timeline("forward")
            # a gradient of ones from above; what backward costs does not depend on its values
            output.backward(torch.ones_like(output))
            drawn.grad = None
            layer.zero_grad(set_to_none=True)
            timeline("backward")

        measured = repeat(once, trial.device, warmup=spec.warmup_steps, steps=spec.steps)
        result = _result(measured, tokens=hidden.shape[0] * hidden.shape[1])
        trial.profile = profile_step(lambda: once(Timeline(trial.timeline.clock)), trial.device)
        gather_evidence(trial, (Precision(), Attention()), result)
        result.measured["figures"]["busy_seconds"] = _busy_seconds(once, trial, measured.seconds)
    return result


def _busy_seconds(once: Callable[[Timeline], None], trial: TrainingRun, seconds: float) -> float:
    """Mean of a repetition in which something ran on the device; on a CPU, where nothing is launched ahead, all of it.

    Kernels take as long under the profiler as without it.
    """
    if trial.device.type == "cpu":
        return seconds
    timeline = Timeline(trial.timeline.clock)

    def repeatedly() -> None:
        for _ in range(PROFILED):
            once(timeline)

    profile = profile_step(repeatedly, trial.device)
    return float(breakdown(profile, PROFILED * seconds)["profiled_seconds"]) / PROFILED


def called_with(trial: TrainingRun) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    """The first block's attention and the arguments that the model calls it with, hidden states first."""
    layer = next(each for name, each in blocks_of(trial.plain_model)[0].named_children() if "attn" in name)
    seen: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    hook = layer.register_forward_pre_hook(lambda _, args, kwargs: seen.append((args, kwargs)), with_kwargs=True)
    try:
        with torch.no_grad():
            trial.forward_plain(trial.prepare_batch(trial.copy(next(trial.batches))))
    finally:
        hook.remove()
    positional, named = seen[0]
    if not positional:
        positional = (named.pop("hidden_states"),)
    return layer, positional, named


def _result(measured: Repeated, tokens: int) -> TrialResult:
    result = TrialResult(outcome=Outcome.OK, window=measured.window, missing=dict(measured.missing))
    figures = {
        "layer_seconds": measured.seconds,
        "forward_seconds": measured.times.phases["forward"],
        "backward_seconds": measured.times.phases["backward"],
    }
    if measured.allocated_before is not None:
        figures["layer_peak_bytes"] = measured.peaks["peak_allocated_bytes"] - measured.allocated_before
    result.measured.update(
        tokens_per_second=tokens / measured.seconds, step_seconds=measured.times.step_seconds,
        phases=measured.times.phases, figures=figures, **measured.peaks,
    )  # fmt: skip
    return result
