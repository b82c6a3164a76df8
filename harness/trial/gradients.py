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
from harness.trial.model import make_model

if TYPE_CHECKING:
    from pathlib import Path

    from harness.trial.training import TrainingRun

Gradient = dict[str, torch.Tensor]

#: Above this length a reference keeps no attention matrices: it recomputes each block in backward.
LONG = 2048


def why_skipped(run: TrainingRun) -> str | None:
    """Why this cell's gradient cannot be compared with the plain model's, or None."""
    cell = run.cell
    for axis, words in (("lora", "another set of weights is trained"), ("quantization", "the weights are others"),
                        ("pruning", "the weights are others"), ("distillation", "the loss is another")):  # fmt: skip
        if cell.settings.get(axis, "off") not in ("off", "none"):
            return f"{axis}: {words}"
    if cell.settings.get("zero", "off") != "off" or cell["precision"] == "ds-bf16":
        return "DeepSpeed's engine keeps gradients in buffers of its own"
    if cell.settings.get("parallel") == "pipeline":
        return "each stage of a pipeline holds the gradient of its own layers only"
    if cell.settings.get("parallel") == "pipeline":
        return "each rank holds a part of the model"
    return None


def capture(run: TrainingRun) -> Gradient:
    """The present gradients of a run, whole and unscaled, on the CPU in fp32. Called between backward and the update."""
    scale = run.scaler.get_scale() if run.scaler is not None else 1.0
    found: Gradient = {}
    for name, parameter in run.plain_model.named_parameters():
        if parameter.grad is not None:
            whole = parameter.grad.full_tensor() if hasattr(parameter.grad, "full_tensor") else parameter.grad
            found[_plain(name)] = whole.detach().float().cpu() / scale
    return found


def compare(run: TrainingRun, mine: Gradient, folder: Path) -> dict[str, Any]:
    """`error` and `eager_error`, relative L2 against fp32 eager. The caller has freed the model that was timed."""
    batches = first_batches(run, folder)
    with _exact_fp32():
        reference = _gradient(run, batches, dtype=torch.float32, contexts=())
    eager = _gradient(run, batches, dtype=run.parameter_dtype, contexts=run.forward_contexts)
    return {
        "reference": "fp32 eager",
        "error": relative_error(mine, reference),
        "eager_error": relative_error(eager, reference),
        "parameters_compared": len(reference),
    }


def first_batches(run: TrainingRun, folder: Path) -> list[Batch]:
    """The micro-batches of the first step, of all ranks: they depend on the seed alone."""
    settings = run.loader_settings()
    found = []
    for rank in range(run.ranks.world_size):
        samples = Samples(folder, settings, seed=run.spec.seed, rank=rank, batches=run.accumulation)
        found.extend(samples[index] for index in range(run.accumulation))
    return found


def relative_error(mine: Gradient, reference: Gradient) -> float:
    """‖mine − reference‖ ÷ ‖reference‖ over all parameters; a gradient that is missing counts as zero."""
    difference = norm = 0.0
    for name, wanted in reference.items():
        got = mine.get(name)
        gap = wanted if got is None else got - wanted
        difference += float(gap.double().square().sum())
        norm += float(wanted.double().square().sum())
    return float((difference / norm) ** 0.5) if norm else float("nan")


def _gradient(run: TrainingRun, batches: list[Batch], *, dtype: torch.dtype, contexts: Iterable[Any]) -> Gradient:
    model = make_model(run.config, attention="eager", dtype=dtype, device=run.device, seed=run.spec.seed)
    if int(run.spec.settings["sequence_length"]) > LONG:
        enable_checkpointing(model, reentrant=False)
    for batch in batches:
        _backward_by_rows(model, batch, run.device, contexts, 1 / len(batches))
    return {name: p.grad.detach().float().cpu() for name, p in model.named_parameters() if p.grad is not None}


def _backward_by_rows(model: nn.Module, batch: Batch, device: torch.device, contexts: Iterable[Any], share: float) -> None:
    """The gradient of a batch's mean loss, a row at a time, so that eager attention's squares fit in memory."""
    learnt = [int((row[1:] != IGNORED).sum()) for row in batch["labels"]]
    for index, count in enumerate(learnt):
        row = {name: part[index : index + 1].to(device) for name, part in batch.items()}
        with contextlib.ExitStack() as stack:
            for context in contexts:
                stack.enter_context(context())
            loss = model(**row, use_cache=False).loss
        if count:
            (loss * (share * count / sum(learnt))).backward()


@contextlib.contextmanager
def _exact_fp32() -> Any:
    """Full fp32 products whatever the cell chose."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _plain(name: str) -> str:
    for wrapper in ("module.", "_orig_mod.", "_checkpoint_wrapped_module."):
        name = name.replace(wrapper, "")
    return name
