"""Data parallelism with a whole model on every device: DistributedDataParallel, and DataParallel in one process."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from harness.techniques.base import Evidence

if TYPE_CHECKING:
    from harness.trial.batching import Batch
    from harness.trial.training import TrainingRun

#: An exchange leaves the same bits on every rank; gradients of different batches differ by far more than this.
_SAME = 1e-6


def replicate(run: TrainingRun) -> None:
    """Wrap the model in DistributedDataParallel with torch's defaults (no search for unused parameters)."""
    from torch.nn.parallel import DistributedDataParallel

    run.model = DistributedDataParallel(run.model, device_ids=[run.device] if run.device.type == "cuda" else None)
    run.bucket_bytes = lambda: reducer_bytes(run.model)
    inner = run.micro_step

    def micro_step(batch: Batch) -> Any:
        model: Any = run.model
        # gradients are exchanged once a step; forward must lie inside as well (torch's documentation of no_sync)
        with nullcontext() if run.last_micro_step else model.no_sync():
            return inner(batch)

    run.micro_step = micro_step


def reducer_bytes(model: Any) -> int:
    """Bytes of DistributedDataParallel's buckets, by its own account: they stay allocated beside the gradients."""
    known = model._get_ddp_logging_data()
    sizes = known.get("rebuilt_bucket_sizes") or known.get("bucket_sizes") or ""
    return sum(int(size) for size in str(sizes).split(",") if size.strip())


def same_gradients(run: TrainingRun) -> Evidence:
    """After a backward, ranks that saw different batches hold the same gradient, and the model has a reducer."""
    from harness.trial import ranks as group

    everyone = group.gather(_checksums_of_a_step(run), run.ranks)
    reducer = getattr(run.model, "reducer", None) is not None
    sums = [each["gradient"] for each in everyone]
    facts = {
        "world_size": len(everyone), "reducer": reducer, "gradient_checksums": sums,
        "losses": [each["loss"] for each in everyone], "bucket_bytes": run.bucket_bytes(),
    }  # fmt: skip
    pairs = [pair for each in sums for pair in zip(each, sums[0], strict=True)]
    same = all(abs(mine - first) <= _SAME * abs(first) for mine, first in pairs)
    differ = "the gradients of the ranks differ after backward: nothing was exchanged"
    return Evidence(
        holds=same and reducer, word=f"gradients equal on {len(everyone)} ranks", facts=facts,
        reason=differ if not same else "the model has no reducer",
    )  # fmt: skip


def _checksums_of_a_step(run: TrainingRun) -> dict[str, Any]:
    """Sum and absolute sum of this rank's gradients after the backward of one more step, and its loss."""
    found: list[float] = []

    def look() -> None:
        gradients = [gradient.double() for gradient in run.gradient_tensors()]
        found.extend([sum(float(each.sum()) for each in gradients), sum(float(each.abs().sum()) for each in gradients)])

    run.before_optimizer.insert(0, look)
    try:
        run.step()
    finally:
        run.before_optimizer.remove(look)
    return {"gradient": found, "loss": float(run.losses[-1])}


def feed_several(run: TrainingRun, devices: int) -> None:
    """Wrap the model in DataParallel over the first `devices` GPUs; this process loads the batches of all."""
    from torch import nn

    class DataParallel(nn.DataParallel):  # type: ignore[misc]
        """torch's, and the mean of the losses that it gathers."""

        def forward(self, *inputs: Any, **kwargs: Any) -> Any:
            output = super().forward(*inputs, **kwargs)
            output.loss = output.loss.mean()
            return output

    run.model = DataParallel(run.model, device_ids=list(range(devices)))
    run.devices_fed = devices
    run.forwards_a_micro_step = devices


def devices_that_ran(run: TrainingRun, devices: int) -> Evidence:
    """Which devices ran the first block in one more step."""
    from harness.trial.model import blocks_of

    seen: set[str] = set()
    layer = next(iter(blocks_of(run.plain_model)[0].children()))
    hook = layer.register_forward_hook(lambda _module, _inputs, output: seen.add(str(output.device)))
    try:
        run.step()
    finally:
        hook.remove()
    return Evidence(
        holds=len(seen) == devices, word=f"{len(seen)} devices", facts={"devices": sorted(seen)},
        reason=f"parallel=dp with devices={devices} was set, but a block ran on {len(seen)} device(s)",
    )  # fmt: skip
