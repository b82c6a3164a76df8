"""FSDP2: every block's parameters sharded over the ranks, gathered when the block runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.techniques.base import Evidence
from harness.techniques.kept import shard_of

if TYPE_CHECKING:
    from harness.trial.batching import Batch
    from harness.trial.training import TrainingRun

#: Shards are cut along the first dimension, so a rank holds more than 1/N where that does not divide: 5% covers the
#: built-in models, and an unsharded copy is 100% or more above.
_UNEVEN = 0.05


def shard(run: TrainingRun) -> None:
    """`fully_shard` around each block and then around the whole, over all ranks."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    from harness.trial.model import blocks_of

    options: dict[str, Any] = {
        "mesh": init_device_mesh(run.device.type, (run.ranks.world_size,)), "mp_policy": _policy(run),
    }  # fmt: skip
    for block in blocks_of(run.model):
        fully_shard(block, **options)
    fully_shard(run.model, **options)
    run.split_gradients = True
    inner = run.micro_step

    def micro_step(batch: Batch) -> Any:
        model: Any = run.model
        model.set_requires_gradient_sync(run.last_micro_step)
        return inner(batch)

    run.micro_step = micro_step


def _policy(run: TrainingRun) -> Any:
    """What is gathered in which type: under autocast the 16-bit copy that the products need, reduced in fp32."""
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy

    if run.cell["precision"] == "amp-bf16":
        return MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=False)
    return MixedPrecisionPolicy()


def local_share(run: TrainingRun) -> Evidence:
    """Parameters are sharded tensors, and a rank holds its share of their bytes."""
    from harness.trial import ranks as group

    for module in run.model.modules():
        if hasattr(module, "reshard"):  # a forward without a backward leaves its module gathered
            module.reshard()
    parameters = list(run.model.parameters())
    sharded = [parameter for parameter in parameters if hasattr(parameter, "to_local")]
    whole = sum(parameter.numel() for parameter in parameters)
    # a parameter that is no DTensor is whole on every rank
    mine = sum(shard_of(each).numel() for each in parameters)
    shares = group.gather(mine / whole, run.ranks)
    wanted = 1 / len(shares)
    facts = {
        "world_size": len(shares), "sharded_parameters": len(sharded), "parameters": len(parameters), "shares": shares,
    }  # fmt: skip
    holds = len(sharded) == len(parameters) and max(shares) <= wanted * (1 + _UNEVEN)
    reason = f"a rank holds {max(shares):.0%} of the parameters, and {len(sharded)} of {len(parameters)} are sharded"
    return Evidence(holds=holds, word=f"{max(shares):.0%} of the parameters a rank", facts=facts, reason=reason)
