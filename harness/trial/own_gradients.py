"""The gradient check of a user's own step: its first gradient against the same step built anew, plain and in fp32."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from harness.experiment.axes import Setting
from harness.techniques.base import Inert
from harness.trial import custom, own_batches
from harness.trial.gradients import Gradient, exact_fp32, relative_error
from harness.trial.own_step import loss_of, transformers_in

if TYPE_CHECKING:
    from harness.trial.own_step import OwnStep
    from harness.trial.training import TrainingRun

#: What a step is without techniques that leave its arithmetic alone or round it differently.
PLAIN: dict[str, Setting] = {"attention": "eager", "compile": "off", "checkpointing": "off"}


def compare(run: TrainingRun, own: OwnStep, mine: Gradient) -> dict[str, Any]:
    """`error` and `eager_error`, as `gradients.compare` gives them; or `skipped`: why. The timed model is gone."""
    try:
        with exact_fp32():
            reference = _gradient(run, own, {**PLAIN, "precision": "fp32"}, dtype=torch.float32, contexts=())
        eager = _gradient(run, own, PLAIN, dtype=run.parameter_dtype, contexts=run.forward_contexts)
    except torch.OutOfMemoryError:
        return {"skipped": "the plain step in fp32 does not fit in this device's memory"}
    except Exception as error:  # noqa: BLE001 - whatever the user's code raises there, the trial itself was fine
        first = next(iter(str(error).strip().splitlines()), type(error).__name__)
        return {"skipped": f"the plain step in fp32 does not run: {first}"}
    return {
        "reference": "fp32 eager", "error": relative_error(mine, reference),
        "eager_error": relative_error(eager, reference), "parameters_compared": len(reference),
    }  # fmt: skip


def _gradient(
    run: TrainingRun, own: OwnStep, changes: dict[str, Setting], *, dtype: torch.dtype, contexts: Iterable[Any]
) -> Gradient:
    """The gradient of the first step of a step built anew from the same seed, summed over its micro-batches."""
    step = custom.call(own.build, own.source, run.device, {**run.spec.settings, **changes}, run.spec.seed)
    custom.seed_everything(run.spec.seed + 1)
    batches = own_batches.endless(step.batches, own.source, own.file)
    with contextlib.suppress(ValueError):  # a model that knows no eager attention is compared as it is
        inner = transformers_in(step.model)
        if inner is not None and "attention" not in step.honours:
            inner.set_attn_implementation("eager")
    step.model.to(dtype)
    for _ in range(run.accumulation):
        batch = own_batches.moved(next(batches), run.device, non_blocking=False)
        with contextlib.ExitStack() as stack:
            for context in (*contexts, _plain_kernels):
                stack.enter_context(context())
            loss = loss_of(own, step, step.model, batch)
        if not loss.requires_grad:
            raise Inert("the loss has no gradient")
        (loss / run.accumulation).backward()
    return {name: part.grad.float() for name, part in step.model.named_parameters() if part.grad is not None}


@contextlib.contextmanager
def _plain_kernels() -> Iterator[None]:
    """scaled_dot_product_attention by its reference in plain operations, whatever the cell holds it to."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.MATH):
        yield
