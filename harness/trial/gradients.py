"""The gradient check: a cell's first gradient against the same model in fp32 with eager attention.

Losses alone would pass a wrong mask for many steps; the first gradient does not. What rounding costs at the cell's own
precision is shown beside it: the same model with eager attention at that precision, against the same reference.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from harness.techniques.checkpointing import enable_checkpointing
from harness.trial.batching import IGNORED, Batch
from harness.trial.data import Samples
from harness.trial.model import dropout_of, make_model
from harness.trial.outcome import is_out_of_memory
from harness.trial.parameters import Shapes, parameters_of, shapes_of

if TYPE_CHECKING:
    from pathlib import Path

    from harness.trial.training import TrainingRun

Gradient = dict[str, torch.Tensor]
#: A batch and the share that its mean loss has in the loss of the step.
Part = tuple[Batch, float]

#: Above this length a reference keeps no attention matrices: it recomputes each block in backward.
LONG = 2048


class NotCompared(Exception):  # noqa: N818 - no error: the message is why
    """What was built anew is no reference for what was timed."""


def why_skipped(run: TrainingRun) -> str | None:
    """Why this cell's gradient cannot be compared with the plain model's, or None."""
    cell = run.cell
    if dropout := dropout_of(run.plain_model):
        return f"the model has dropout ({dropout}): its random masks differ between kernels; set it to 0 for this check"
    if run.own is not None and run.ranks.world_size > 1:
        return "the step divides its work between ranks, and the plain one is built and run in one process"
    for axis, words in (("lora", "another set of weights is trained"), ("quantization", "the weights are others"),
                        ("pruning", "the weights are others"), ("distillation", "the loss is another")):  # fmt: skip
        if cell.settings.get(axis, "off") not in ("off", "none"):
            return f"{axis}: {words}"
    if cell.settings.get("zero", "off") != "off" or cell["precision"] == "ds-bf16":
        return "DeepSpeed's engine keeps gradients in buffers of its own"
    if cell.settings.get("parallel") == "pipeline":
        return "each stage of a pipeline holds the gradient of its own layers only"
    return None


def capture(run: TrainingRun) -> Gradient:
    """The present gradients of a run, whole and unscaled, on the CPU. Called between backward and the update."""
    scale = run.loss_scale()
    found: Gradient = {}
    for name, parameter in parameters_of(run.plain_model).items():
        if parameter.grad is not None:
            whole = parameter.grad.full_tensor() if hasattr(parameter.grad, "full_tensor") else parameter.grad
            whole = whole.to_dense() if whole.is_sparse else whole
            # a copy, also of what lies on the CPU already: clipping changes gradients in place
            found[name] = whole.detach().to("cpu", copy=True).div_(scale)
    return found


def same_parameters(shapes: Shapes, model: nn.Module) -> None:
    """Raises where a reference has other parameters than the model that was timed: a name, or a shape.

    A parameter that both have counts, whether a gradient reached it or not.

    Raises:
        NotCompared: names the first that differs.
    """
    plain = shapes_of(model)
    for name in sorted(shapes.keys() ^ plain.keys()):
        where = "timed one" if name in shapes else "plain one"
        raise NotCompared(f"the plain model has other parameters than the timed one: {name} is in the {where} alone")
    for name, shape in shapes.items():
        if shape != plain[name]:
            words = f"{name} has the shape {list(plain[name])}, and in the timed one {list(shape)}"
            raise NotCompared(f"the plain model has other parameters than the timed one: {words}")


def compare(run: TrainingRun, mine: Gradient, shapes: Shapes, folder: Path) -> dict[str, Any]:
    """`error` and `eager_error`, relative L2 against fp32 eager; or `skipped`: why.

    The caller has freed the model that was timed; `shapes` is what `shapes_of` said of it.
    """
    parts = first_parts(run, folder)
    try:
        with exact_fp32():
            reference = _gradient(run, parts, shapes, dtype=torch.float32, contexts=())
    except NotCompared as reason:
        return {"skipped": str(reason)}
    error = relative_error(mine, reference)
    # with the cell's own loss scale: fp16 without one loses what is small
    scale = run.loss_scale()
    eager = _gradient(run, parts, shapes, dtype=run.parameter_dtype, contexts=run.forward_contexts, scale=scale)
    return {
        "reference": "fp32 eager",
        "error": error,
        "eager_error": relative_error(eager, reference),
        "parameters_compared": len(reference),
    }


def first_parts(run: TrainingRun, folder: Path) -> list[Part]:
    """The micro-batches of the first step, of all ranks, weighted as the run does. They depend on the seed alone.

    Each loss is a mean over its own tokens; micro-batches, ranks (DDP and FSDP average gradients) and the replicas of
    DataParallel count alike, however many tokens each has.
    """
    settings = run.loader_settings()
    found: list[Part] = []
    for rank in range(run.ranks.world_size):
        samples = Samples(folder, settings, seed=run.spec.seed, rank=rank, batches=run.accumulation)
        for index in range(run.accumulation):
            replicas = _chunks(samples[index], run.devices_fed)
            share = 1 / (run.ranks.world_size * run.accumulation * len(replicas))
            found.extend((replica, share) for replica in replicas)
    return found


def relative_error(mine: Gradient, reference: Gradient) -> float:
    """‖mine − reference‖ ÷ ‖reference‖ over all parameters, on the reference's device; a missing one counts as zero."""
    difference = norm = 0.0
    for name, wanted in reference.items():
        got = mine.get(name)
        gap = wanted if got is None else got.to(wanted.device, torch.float32) - wanted
        difference += float(gap.norm()) ** 2
        norm += float(wanted.norm()) ** 2
    return float((difference / norm) ** 0.5) if norm else float("nan")


def _gradient(
    run: TrainingRun, parts: list[Part], shapes: Shapes, *, dtype: torch.dtype, contexts: Iterable[Any],
    scale: float = 1.0,
) -> Gradient:  # fmt: skip
    """The gradient of the weighted loss of `parts`, in fp32 on the device.

    A batch at a time, or where eager attention's squares do not fit in memory a row at a time, summed in fp32 so that
    the order of summing costs no precision.
    """
    model = make_model(run.config, attention="eager", dtype=dtype, device=run.device, seed=run.spec.seed)
    same_parameters(shapes, model)
    if int(run.spec.settings["sequence_length"]) > LONG:
        enable_checkpointing(model, reentrant=False)
    try:
        return _summed(model, parts, run.device, list(contexts), scale)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        model.zero_grad(set_to_none=True)
        torch.cuda.empty_cache()
        return _summed(model, [row for part in parts for row in _rows(part)], run.device, list(contexts), scale)


def _summed(model: nn.Module, parts: list[Part], device: torch.device, contexts: list[Any], scale: float) -> Gradient:
    total: Gradient = {}
    for batch, share in parts:
        with contextlib.ExitStack() as stack:
            for context in contexts:
                stack.enter_context(context())
            loss = model(**{name: tensor.to(device) for name, tensor in batch.items()}, use_cache=False).loss
        (loss * scale).backward()
        for name, parameter in parameters_of(model).items():
            if parameter.grad is not None:
                part = parameter.grad.float() * (share / scale)
                total[name] = total[name] + part if name in total else part
        model.zero_grad(set_to_none=True)
    return total


def _rows(part: Part) -> list[Part]:
    """The rows of a batch, each with its tokens' part of the share; without those from which nothing is learnt."""
    batch, share = part
    rows = _chunks(batch, len(batch["input_ids"]))
    learnt = [int((row["labels"][:, 1:] != IGNORED).sum()) for row in rows]
    return [(row, share * count / sum(learnt)) for row, count in zip(rows, learnt, strict=True) if count]


def _chunks(batch: Batch, count: int) -> list[Batch]:
    """A batch cut into `count` parts of rows, as DataParallel does: fewer where there are not as many rows."""
    pieces = {name: tensor.chunk(count) for name, tensor in batch.items()}
    return [dict(zip(pieces, row, strict=True)) for row in zip(*pieces.values(), strict=True)]


@contextlib.contextmanager
def exact_fp32() -> Any:
    """Full fp32 products whatever the cell chose."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
