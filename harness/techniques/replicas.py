"""Data parallelism with a whole model on every device: DistributedDataParallel, and DataParallel in one process."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from harness.techniques.base import Evidence
from harness.techniques.layers import product_layer

if TYPE_CHECKING:
    from harness.trial.batching import Batch
    from harness.trial.training import TrainingRun

#: Precision → type of a product, where it is not float32.
_PRODUCTS = {"amp-bf16": "bfloat16", "bf16": "bfloat16", "amp-fp16": "float16"}
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
    from harness.techniques.threads import Entering, MeanLoss

    # its threads know that autocast is on, but not in which type: they would compute in fp16 (torch 2.13, seen in
    # parallel_apply), so each replica enters the run's contexts itself
    run.model = MeanLoss(Entering(run.model, run.forward_contexts), device_ids=list(range(devices)))
    run.devices_fed = devices
    run.forwards_a_micro_step = devices


def devices_that_ran(run: TrainingRun, devices: int) -> Evidence:
    """Which devices ran an inner matrix product in one more step, and in which types."""
    layer = product_layer([run.blocks()[0], run.plain_model])
    seen: set[tuple[str, str]] = set()

    def note(_module: Any, _inputs: Any, output: Any) -> None:
        seen.add((str(output.device), str(output.dtype).removeprefix("torch.")))

    hook = layer.register_forward_hook(note)
    try:
        run.step()
    finally:
        hook.remove()
    ran, dtypes = (sorted(set(column)) for column in zip(*seen, strict=True))
    wanted = _PRODUCTS.get(str(run.cell["precision"]), "float32")
    return Evidence(
        holds=len(ran) == devices and dtypes == [wanted], word=f"{len(ran)} devices",
        facts={"devices": ran, "dtypes": dtypes},
        reason=f"{devices} devices in {wanted} were asked for; a block ran on {len(ran)} in {', '.join(dtypes)}",
    )  # fmt: skip
