"""Several devices that train one model: copies of it, shards of it, or its layers in a row.

`batch_size` is that of one device: `dp`, `ddp` and `fsdp` on N devices do N times the work of one (weak scaling); a
study of strong scaling sets a smaller batch_size. A `pipeline` passes one batch through all its devices.

The samples of a rank depend on the seed and on the rank, so rank 0 of any of these sees the batches of the one-device
cell, and a pipeline sees nothing else: its losses are comparable step by step. Those of `ddp` and `fsdp` are a mean
over more samples, `dp` draws its larger batch as one: their curves are comparable as statistics only. What is exact
there is the gradient check, which takes the batches of all ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.environment import Environment
from harness.experiment.axes import Axis
from harness.experiment.cell import Cell
from harness.techniques import pipeline, replicas, sharding
from harness.techniques.base import Evidence, Stage, Technique

if TYPE_CHECKING:
    from harness.trial.training import TrainingRun

#: More gloo ranks than this on one machine's cores measure nothing.
MOST_RANKS_ON_A_CPU = 8


class Parallel(Technique):
    """torch's own ways of using several devices."""

    axes = (
        Axis(
            name="parallel", default="none",
            settings={
                "none": "one device, or DeepSpeed's own data parallelism where `zero` is set",
                "dp": "torch.nn.DataParallel: one process, the model copied to every device in each forward",
                "ddp": "DistributedDataParallel: a process and a copy a device, gradients averaged during backward",
                "fsdp": "FSDP2 (fully_shard) around each block: parameters, gradients and optimizer state sharded",
                "pipeline": "consecutive blocks a device, micro-batches through them (torch's 1F1B schedule)",
            },
            meaning="how several devices divide the work", documents=("D3", "D4"),
        ),
        Axis(
            name="devices", default=1, number=int, minimum=1, maximum=1024,
            meaning="devices of a trial, a process each", documents=("D3", "D4"),
        ),
        Axis(
            name="micro_batches", default="auto",
            settings={"auto": "as many as divide the batch, up to four a stage"}, number=int, minimum=1, maximum=1024,
            meaning="parts of a batch that follow each other through a pipeline", documents=("D4",),
        ),
    )  # fmt: skip
    stage = Stage.PARALLEL
    revised = "stages were cut by their work, and no longer by their number of blocks"
    requirement = (
        "as many GPUs as devices, or a CPU with up to 8 ranks; dp, pipeline: two devices; dp: GPUs; "
        "micro_batches: a pipeline with no more stages, a batch that they divide"
    )
    proof = (
        "size of the group; ddp: equal gradients on ranks with different batches; fsdp: bytes of a rank's shards; "
        "pipeline: layers a rank holds; pipeline, micro_batches: forwards of a stage in a step; "
        "dp: devices that ran a block"
    )

    def revision(self, cell: Cell) -> int:
        return 2 if cell["parallel"] == "pipeline" else 1

    def requires(self, environment: Environment, cell: Cell) -> str | None:
        return _contradiction(cell) or _devices_refusal(environment, cell) or _combination_refusal(cell)

    def apply(self, cell: Cell, run: TrainingRun) -> None:
        setting = cell["parallel"]
        if setting == "dp":
            replicas.feed_several(run, cell.number("devices"))
        elif setting == "ddp":
            replicas.replicate(run)
        elif setting == "fsdp":
            sharding.shard(run)
        elif setting == "pipeline":
            pipeline.divide(run)

    def evidence(self, cell: Cell, run: TrainingRun) -> Evidence | None:
        setting = cell["parallel"]
        if setting == "dp":
            return replicas.devices_that_ran(run, cell.number("devices"))
        wrong = wrong_world(cell, run)
        if wrong is not None:
            return wrong
        if setting == "ddp":
            return replicas.same_gradients(run)
        if setting == "fsdp":
            return sharding.local_share(run)
        if setting == "pipeline":
            return pipeline.own_layers(run)
        return Evidence(holds=True, word=f"{run.ranks.world_size} ranks", facts={"world_size": run.ranks.world_size})


def uses_engine(cell: Cell) -> bool:
    """Whether DeepSpeed's engine trains the cell."""
    return cell.settings.get("zero", "off") != "off" or cell["precision"] == "ds-bf16"


def wrong_world(cell: Cell, run: TrainingRun) -> Evidence | None:
    """What is wrong with the group of ranks, where it has another size than the cell asks for."""
    import torch.distributed as dist

    wanted = cell.number("devices")
    size = dist.get_world_size() if dist.is_initialized() else 1
    if size == wanted:
        return None
    return Evidence(
        holds=False, word=f"{size} ranks", facts={"world_size": size},
        reason=f"devices={wanted} was set, but {size} rank(s) trained",
    )  # fmt: skip


def _contradiction(cell: Cell) -> str | None:
    parallel, devices, parts = cell["parallel"], cell.number("devices"), cell["micro_batches"]
    if parts != "auto" and parallel != "pipeline":
        return f"micro_batches={parts} has no effect without a pipeline; set parallel to pipeline, or use accumulation"
    if parallel != "none" and uses_engine(cell):
        engine = f"zero={cell['zero']}" if cell["zero"] != "off" else "precision=ds-bf16"
        return f"parallel={parallel} and {engine} both divide the training between devices; leave one of them out"
    if parallel == "none" and devices > 1 and not uses_engine(cell):
        return f"devices={devices} has no effect alone; set parallel to ddp, fsdp, dp or pipeline, or set zero"
    if parallel in ("dp", "pipeline") and devices < 2:
        return f"parallel={parallel} needs devices to be 2 or more"
    return None


def _devices_refusal(environment: Environment, cell: Cell) -> str | None:
    devices = cell.number("devices")
    if environment.has_gpu:
        there = len(environment.devices)
        if devices > there:
            return f"devices={devices} needs {devices} GPUs, and there are {there} here"
        a_node = environment.devices_of_a_process
        if cell["parallel"] == "dp" and devices > a_node:
            return f"parallel=dp is one process on one node, which has {a_node} of the {devices} GPUs here; use ddp"
        return None
    if cell["parallel"] == "dp":
        return "parallel=dp copies the model between GPUs and needs two of them; use ddp on a CPU"
    if devices > MOST_RANKS_ON_A_CPU:
        return f"devices={devices} needs {devices} GPUs; a CPU runs up to {MOST_RANKS_ON_A_CPU} ranks"
    return None


def _combination_refusal(cell: Cell) -> str | None:
    """What torch cannot do together."""
    parallel, settings = cell["parallel"], cell.settings
    if parallel == "pipeline":
        return pipeline.refusal(cell)
    if parallel == "dp" and cell["compile"] != "off":
        return "parallel=dp copies the model in each forward, which torch.compile cannot follow; use ddp or compile=off"
    if parallel == "dp" and settings.get("quantization", "none") == "nf4":
        return (
            "parallel=dp copies weights to each device, but not the scales by which bitsandbytes unpacks 4-bit ones; "
            "use ddp"
        )
    if parallel == "fsdp" and settings.get("quantization", "none") == "nf4" and cell["precision"] != "bf16":
        return (
            "parallel=fsdp shards 4-bit weights only where they are stored in the type that is computed in, bf16; "
            "set precision to bf16"
        )
    if parallel == "fsdp" and cell["precision"] == "amp-fp16":
        return (
            "parallel=fsdp with precision=amp-fp16: torch's GradScaler does not agree between ranks on a step to skip; "
            "use amp-bf16"
        )
    return None
