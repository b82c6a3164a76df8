"""A pipeline: consecutive blocks on each device, micro-batches passed along (torch.distributed.pipelining).

The model is divided by hand: embeddings and the first blocks, further blocks, and the last blocks with norm and head.
The head counts as the blocks that its products are worth (4.3 of llama-1b's): with half of the blocks each, the second
device would compute half as long again as the first.
transformers' own inner model runs each part, with the layers of the others taken out, so that masks, positions and
checkpointing are its own. Where head and embedding share a weight, first and last stage hold a copy each and add up
their gradients (as Megatron-LM does); both copies then stay the same.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Any

from harness.experiment.cell import Cell
from harness.techniques.base import Evidence

if TYPE_CHECKING:
    from harness.trial.batching import Batch
    from harness.trial.training import TrainingRun

#: GPipe (arXiv 1811.06965) finds the idle time negligible from four micro-batches a stage on.
MICRO_BATCHES_A_STAGE = 4

_REFUSED = {
    "lora": ("off", "adapters sit in a wrapper that is not divided into stages"),
    "pruning": ("off", "stages are made of plain layers"),
    "compile": ("off", "stages are called by the schedule, uncompiled"),
}

#: Single settings that the schedule does not go with: why, and what to set instead.
_REFUSED_SETTINGS = {
    ("checkpointing", "reentrant"): (
        "the schedule asks backward for the gradients of given tensors, which the reentrant implementation cannot do",
        "full",
    ),
    ("monitor", "flops-profile"): ("its hooks cannot run in a backward that is asked for given tensors", "off"),
    ("monitor", "phases-synchronised"): (
        "forward and backward of different micro-batches take turns, so that a step has no such phases",
        "off",
    ),
}


def refusal(cell: Cell) -> str | None:
    """Why a cell cannot be a pipeline, or None."""
    for axis, (usual, reason) in _REFUSED.items():
        if cell.settings.get(axis, usual) != usual:
            return f"parallel=pipeline with {axis}={cell[axis]}: {reason}; set {axis} to {usual}"
    for (axis, setting), (reason, instead) in _REFUSED_SETTINGS.items():
        if cell.settings.get(axis) == setting:
            return f"parallel=pipeline with {axis}={setting}: {reason}; set {axis} to {instead}"
    if cell["precision"] == "amp-fp16":
        return "parallel=pipeline with precision=amp-fp16: the stages would scale their losses apart; use amp-bf16"
    return _micro_batch_refusal(cell)


def _micro_batch_refusal(cell: Cell) -> str | None:
    asked, batch_size, stages = cell["micro_batches"], cell.number("batch_size"), cell.number("devices")
    count = _micro_batches_of(cell, stages)
    if batch_size % count:
        return f"micro_batches={asked} does not divide batch_size={batch_size}; choose one of its divisors"
    if count < stages:
        divisor = next((each for each in range(stages, batch_size + 1) if batch_size % each == 0), None)
        remedy = (
            f"micro_batches: {divisor}" if divisor else f"a batch_size of {stages} or more, and micro_batches: auto"
        )
        return (
            f"parallel=pipeline with micro_batches={asked} cuts batch_size={batch_size} into {count}, and {stages} "
            f"stages need as many at least; choose {remedy}"
        )
    return None


def micro_batches(batch_size: int, stages: int) -> int:
    """The largest divisor of the batch size that is no more than four a stage.

    >>> micro_batches(8, 2), micro_batches(12, 2), micro_batches(7, 2)
    (8, 6, 7)
    """
    return max(count for count in range(1, MICRO_BATCHES_A_STAGE * stages + 1) if batch_size % count == 0)


def _micro_batches_of(cell: Cell, stages: int) -> int:
    if cell["micro_batches"] == "auto":
        return micro_batches(cell.number("batch_size"), stages)
    return cell.number("micro_batches")


def divide(run: TrainingRun) -> None:
    """Keep this rank's stage of the model, and let the schedule run forward and backward."""
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    from harness.techniques.stages import StageModule

    stages, rank = run.ranks.world_size, run.ranks.rank
    part = StageModule(run.model, index=rank, stages=stages, contexts=lambda: _entered(run))
    run.facts["layers"] = part.layers
    part.ends = dist.new_group([0, stages - 1])
    run.model = run.plain_model = part
    run.data_rank = 0
    run.reports_work = part.last
    run.split_gradients = True
    run.gradient_tensors = part.own_gradients
    run.forward_plain = part.alone  # type: ignore[method-assign]
    count = _micro_batches_of(run.cell, stages)
    run.forwards_a_micro_step = count
    stage = PipelineStage(part, rank, stages, run.device)
    schedule = Schedule1F1B(stage, count, loss_fn=_loss(run, part, count), scale_grads=False)
    run.micro_step = _micro_step(run, part, schedule)
    _free_what_left(run)


def own_layers(run: TrainingRun) -> Evidence:
    """Each rank holds layers that no other has, together they are all, and a step was as many forwards as asked for."""
    from harness.trial import ranks as group
    from harness.trial.model import blocks_of

    held = len(blocks_of(run.model))
    mine = {"layers": run.facts.get("layers", []), "held": held, "passes": run.facts.get("passes", 0)}
    everyone = group.gather(mine, run.ranks)
    wanted = int(run.config.num_hidden_layers)
    parts, passes = _micro_batches_of(run.cell, len(everyone)), [each["passes"] for each in everyone]
    facts = {"world_size": len(everyone), "stages": everyone, "micro_batches": parts}
    shown = " + ".join(str(each["held"]) for each in everyone)
    word = f"{shown} layers, {parts} micro-batches"
    dealt = sorted(number for each in everyone for number in each["layers"])
    if dealt != list(range(wanted)) or any(each["held"] != len(each["layers"]) for each in everyone):
        reason = f"the ranks hold {shown} layers of a model of {wanted}: it was not divided"
        return Evidence(holds=False, word=word, facts=facts, reason=reason)
    if any(each != parts for each in passes):
        reason = f"{parts} micro-batches were asked for, and the stages ran {passes} forwards in a step"
        return Evidence(holds=False, word=word, facts=facts, reason=reason)
    return Evidence(holds=True, word=word, facts=facts)


def _entered(run: TrainingRun) -> AbstractContextManager[Any]:
    stack = ExitStack()
    for context in run.forward_contexts:
        stack.enter_context(context())
    return stack


def _loss(run: TrainingRun, part: Any, count: int) -> Callable[[Any, Any], Any]:
    """The loss of a micro-batch, scaled so that gradients add up to those of the mean over the step."""

    def loss(logits: Any, labels: Any) -> Any:
        return part.loss(logits, labels) / (count * run.accumulation)

    return loss


def _micro_step(run: TrainingRun, part: Any, schedule: Any) -> Callable[[Batch], Any]:
    import torch

    def micro_step(batch: Batch) -> torch.Tensor:
        losses: list[torch.Tensor] = []
        given = (batch["input_ids"],) if part.first else ()
        target = {"target": batch["labels"], "losses": losses} if part.last else {}
        before = part.passes
        schedule.step(*given, **target, return_outputs=False)
        run.facts["passes"] = part.passes - before
        # forward and backward of different micro-batches take turns: there is no line between them
        run.timeline("backward")
        if run.last_micro_step:
            part.add_up_tied_gradients()
        if not part.last:
            return torch.zeros((), device=run.device)
        return torch.stack([each.detach() for each in losses]).sum() * run.accumulation

    return micro_step


def _free_what_left(run: TrainingRun) -> None:
    """Give back the memory of the layers that other stages keep."""
    import gc

    import torch

    gc.collect()
    if run.device.type == "cuda":
        torch.cuda.empty_cache()
