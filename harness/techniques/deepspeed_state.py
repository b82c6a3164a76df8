"""What DeepSpeed's engine keeps, and where: model state by kind, and the share of it that each rank holds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from harness.trial.training import TrainingRun


def show(run: TrainingRun) -> None:
    """Tell the run where the engine keeps gradients and state."""
    optimizer = run.optimizer
    run.split_gradients = getattr(optimizer, "averaged_gradients", None) is not None
    if run.split_gradients:
        run.gradient_tensors = lambda: list(held_gradients(run.optimizer))
        run.loss_scale = lambda: float(getattr(run.optimizer, "loss_scale", 1.0) or 1.0)
    run.state_parts = lambda: state_parts(run)


def held_gradients(optimizer: Any) -> Iterable[torch.Tensor]:
    """This rank's share of the averaged gradient between backward and the step (stages 1 to 3), scaled as the loss is:
    the engine's own buffers, so that what is counted or changed is what it holds."""
    offloaded = bool(getattr(optimizer, "cpu_offload", False))
    held: Any = optimizer.averaged_gradients
    if offloaded:
        held = [part.grad for part in optimizer.single_partition_of_fp32_groups]
    yield from _tensors_in(held)


def state_parts(run: TrainingRun) -> dict[str, Iterable[Any]]:
    """Tensors by kind beyond the model's own and the moments. What is of no other kind is a communication buffer."""
    optimizer = run.optimizer
    master = [
        getattr(optimizer, name, ())
        for name in ("single_partition_of_fp32_groups", "fp32_partitioned_groups_flat", "fp32_groups")
    ]
    shards = [each.ds_tensor for each in run.model.parameters() if hasattr(each, "ds_tensor")]
    own = {name: value for name, value in vars(optimizer).items() if name not in ("module", "optimizer")}
    return {
        "parameters": [*shards, *_tensors_in(getattr(optimizer, "bit16_groups_flat", ()))],
        "optimizer": [each.detach() for each in _tensors_in(master, with_gradients=False)],
        "gradients": [
            *_tensors_in(getattr(optimizer, "averaged_gradients", ())),
            *_tensors_in(getattr(optimizer, "grad_partitions_flat_buffer", ())),
            *(each.grad for each in _tensors_in(master, with_gradients=False) if each.grad is not None),
        ],
        "buckets": list(_tensors_in(own)) if hasattr(optimizer, "averaged_gradients") else [],
    }


def shares(run: TrainingRun) -> dict[str, Any]:
    """Elements of each kind that a rank holds between backward and update, as a share of the whole.

    Runs one more step. Collective: every rank calls it, with the same answer. Beside the shares stands by how much
    they may be uneven: `padding` to multiples of the ranks, and the `largest_parameter`, whose gradient is kept whole
    where it lies across two shares.
    """
    from harness.trial import ranks as group

    trained = [each for each in run.model.parameters() if each.requires_grad]
    sizes = [int(getattr(each, "ds_numel", each.numel())) for each in trained]
    moments = [each for each in run.optimizer_tensors() if each.numel() > 1]
    mine = {
        "optimizer": sum(each.numel() for each in moments) / (2 * sum(sizes)),
        "gradient": _gradient_elements_in_a_step(run) / sum(sizes),
        "parameter": sum(getattr(each, "ds_tensor", each).numel() for each in trained) / sum(sizes),
        "devices": sorted({each.device.type for each in moments}),
    }
    everyone = group.gather(mine, run.ranks)
    return {
        "world_size": len(everyone),
        "padding": len(sizes) * 2 * len(everyone) / sum(sizes),
        "largest_parameter": 0.0 if len(everyone) == 1 else max(sizes) / sum(sizes),
        "optimizer_devices": sorted({device for each in everyone for device in each["devices"]}),
        **{f"{kind}_shares": [each[kind] for each in everyone] for kind in ("optimizer", "gradient", "parameter")},
    }


def _gradient_elements_in_a_step(run: TrainingRun) -> int:
    """Elements of gradient that this rank holds after the backward of one more step."""
    found: list[int] = []

    def look() -> None:
        found.append(sum(each.numel() for each in run.gradient_tensors()))

    run.before_optimizer.insert(0, look)
    try:
        run.step()
    finally:
        run.before_optimizer.remove(look)
    return found[0]


def _tensors_in(value: Any, depth: int = 4, *, with_gradients: bool = True) -> Iterable[torch.Tensor]:
    """Every tensor in a nest of lists, dictionaries and DeepSpeed's own small objects (buckets, flat partitions)."""
    if isinstance(value, torch.Tensor):
        yield value
        if with_gradients and value.is_leaf and value.grad is not None:
            yield value.grad
    elif depth and isinstance(value, dict):
        for part in list(value.values()):
            yield from _tensors_in(part, depth - 1, with_gradients=with_gradients)
    elif depth and isinstance(value, list | tuple | set):
        for part in value:
            yield from _tensors_in(part, depth - 1, with_gradients=with_gradients)
    elif depth and type(value).__module__.startswith("deepspeed.") and hasattr(value, "__dict__"):
        yield from _tensors_in(vars(value), depth - 1, with_gradients=with_gradients)
