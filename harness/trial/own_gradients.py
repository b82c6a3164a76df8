"""The gradient check of a user's own step: its first gradient against the same step built anew, plain and in fp32."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from harness.experiment.axes import Setting
from harness.techniques.base import Inert
from harness.trial import custom, own_batches, own_blocks
from harness.trial.gradients import Gradient, NotCompared, exact_fp32, relative_error, same_parameters
from harness.trial.outcome import is_out_of_host_memory, is_out_of_memory
from harness.trial.own_step import BATCH, WEIGHTS, loss_of, random_state
from harness.trial.parameters import Shapes, parameters_of

if TYPE_CHECKING:
    from harness.trial.custom import TrainingStep
    from harness.trial.own_step import OwnStep
    from harness.trial.training import TrainingRun

#: What a step is without techniques that leave its arithmetic alone or round it differently.
PLAIN: dict[str, Setting] = {"attention": "eager", "compile": "off", "checkpointing": "off"}
_HALVES = (torch.bfloat16, torch.float16)


def compare(run: TrainingRun, own: OwnStep, mine: Gradient, shapes: Shapes) -> dict[str, Any]:
    """`error` and `eager_error`, as `gradients.compare` gives them; or `skipped`: why. The timed model is gone."""
    try:
        # with the cell's own loss scale: fp16 without one loses what is small
        scale, dtype = run.loss_scale(), run.parameter_dtype
        eager = _gradient(run, own, PLAIN, shapes, dtype=dtype, contexts=run.forward_contexts, scale=scale)
        with exact_fp32():
            fp32 = {**PLAIN, "precision": "fp32"}
            reference = _gradient(run, own, fp32, shapes, dtype=torch.float32, contexts=None)
    except NotCompared as reason:
        return {"skipped": str(reason)}
    except Exception as error:  # noqa: BLE001 - whatever the user's code raises there, the trial itself was fine
        if is_out_of_memory(error):
            full = "the host's" if is_out_of_host_memory(error) else "this device's"
            return {"skipped": f"the plain step in fp32 does not fit in {full} memory"}
        first = next(iter(str(error).strip().splitlines()), type(error).__name__)
        return {"skipped": f"the plain step in fp32 does not run: {first}"}
    return {
        "reference": "fp32 eager", "error": relative_error(mine, reference),
        "eager_error": relative_error(eager, reference), "parameters_compared": len(reference),
    }  # fmt: skip


def _gradient(
    run: TrainingRun, own: OwnStep, changes: dict[str, Setting], shapes: Shapes, *,
    dtype: torch.dtype, contexts: Iterable[Any] | None, scale: float = 1.0,
) -> Gradient:  # fmt: skip
    """The gradient of the first step of a step built anew from the same seed, summed over its micro-batches.

    Args:
        contexts: entered around each forward as in the trial; None: it is to be fp32 throughout.
        scale: of the loss in backward; the gradient that is given back is without it.

    Raises:
        NotCompared: it has other parameters, begins with other weights or data, draws, or is not fp32 although it
            is to be.
    """
    step = custom.call(own.build, own.source, run.device, {**run.spec.settings, **changes}, run.spec.seed)
    same_parameters(shapes, step.model)
    custom.seed_everything(run.spec.seed + 1)
    drawn = own_batches.endless(step.batches, own.source, own.file)
    first = next(drawn)
    if contexts is not None:  # in fp32 a `build` that honours precision has weights that round otherwise
        _same_beginning(own, step, first)
    batches = itertools.chain([first], drawn)
    for tower in () if "attention" in step.honours else own_blocks.towers(step.model):
        with contextlib.suppress(ValueError):  # a model that knows no eager attention is compared as it is
            tower.set_attn_implementation("eager")
    step.model.to(dtype)
    for _ in range(run.accumulation):
        batch = own_batches.moved(next(batches), run.device, non_blocking=False)
        with contextlib.ExitStack() as stack:
            for context in (*(contexts or ()), _plain_kernels):
                stack.enter_context(context())
            # what a compiled step draws says nothing: its compiler may draw too
            stack.enter_context(_held_to_fp32(step.model) if contexts is None else _nothing_drawn())
            loss = loss_of(own, step, step.model, batch)
        if not loss.requires_grad:
            raise Inert("the loss has no gradient")
        (loss * (scale / run.accumulation)).backward()
    found = {name: part.grad.float() for name, part in parameters_of(step.model).items() if part.grad is not None}
    return {name: (grad.to_dense() if grad.is_sparse else grad) / scale for name, grad in found.items()}


def _same_beginning(own: OwnStep, step: TrainingStep, batch: Any) -> None:
    """Raises where `build` gave something else than it did for the trial: a model or a generator that outlives it."""
    found = {"weights": (WEIGHTS, own_batches.weights_hash(step.model)), "data": (BATCH, own_batches.batch_hash(batch))}
    for words, (name, digest) in found.items():
        if own.figures[name] != digest:
            raise NotCompared(
                f"build gives other {words} at its second call, with plain settings in the same process; make them "
                "inside build, from the seeded random numbers alone"
            )


@contextlib.contextmanager
def _nothing_drawn() -> Iterator[None]:
    """Raises after the forward where it moved torch's random numbers on: a module's own dropout is told before."""
    before = random_state()
    yield
    if random_state() != before:
        raise NotCompared("the loss draws random numbers (dropout, noise), and kernels draw others")


@contextlib.contextmanager
def _held_to_fp32(model: nn.Module) -> Iterator[None]:
    """Raises after the forward where a module put out 16 bits: the step chooses its precision by itself."""
    found: list[str] = []

    def look(module: nn.Module, _inputs: Any, output: Any) -> None:
        halves = (part.dtype for _, part in own_batches.tensors(output) if part.dtype in _HALVES)
        found.extend(f"{type(module).__name__} put out {str(dtype).removeprefix('torch.')}" for dtype in halves)

    hooks = [module.register_forward_hook(look) for module in model.modules()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
    if found:
        raise NotCompared(
            f"the step computes in 16 bits by itself ({found[0]}, as under autocast), so that it has no gradient in "
            "fp32; the losses still count"
        )


@contextlib.contextmanager
def _plain_kernels() -> Iterator[None]:
    """scaled_dot_product_attention by its reference in plain operations, whatever the cell holds it to."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.MATH):
        yield
