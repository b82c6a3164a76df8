"""DeepSpeed's engine in the place of a run's model, backward and optimizer. Imported only where a model is trained.

The optimizer is torch's AdamW, handed in: DeepSpeed's own is compiled on first use, which fails without a compiler
(DeepSpeed#6892). Only the configuration that a document prints asks for it by name.
"""

from __future__ import annotations

import logging
import os
import warnings
from typing import TYPE_CHECKING, Any

from harness.experiment.cell import Cell

if TYPE_CHECKING:
    from harness.trial.training import TrainingRun

#: Elements exchanged at a time. DeepSpeed's default of 5e8 is more than most models here have, and its buffers would
#: outweigh what sharding saves; a twentieth of the model costs 0.1 bytes a parameter, and 5e7 keeps a link busy.
LARGEST_BUCKET, SMALLEST_BUCKET, BUCKETS_A_MODEL = 50_000_000, 1_024, 20

#: The document's configuration (D3, memory §5): fp16 with a dynamic scale, stage 2, DeepSpeed's own AdamW.
AS_PRINTED: dict[str, Any] = {
    "fp16": {"enabled": True, "loss_scale": 0, "loss_scale_window": 1000, "hysteresis": 2, "min_loss_scale": 1},
    "optimizer": {
        "type": "AdamW",
        "params": {"lr": 3e-4, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01},
    },
    "zero_optimization": {
        "stage": 2,
        "allgather_partitions": True,
        "allgather_bucket_size": 200_000_000,
        "overlap_comm": True,
        "reduce_scatter": True,
        "reduce_bucket_size": 200_000_000,
        "contiguous_gradients": True,
    },
}


def configuration(cell: Cell, *, parameters: int, hidden_size: int) -> dict[str, Any]:
    """What DeepSpeed is told for a cell.

    Args:
        parameters: of the whole model; sizes of buckets follow from it.
        hidden_size: parameters up to ten times as large (norms, biases) stay gathered in stage 3.
    """
    batch = {
        "train_micro_batch_size_per_gpu": cell.number("batch_size"),
        "gradient_accumulation_steps": cell.number("accumulation"),
        "steps_per_print": 1 << 30,
    }
    if cell["deepspeed_config"] == "as-printed":
        return {**AS_PRINTED, **batch}
    return {
        **batch, **_precision(cell),
        "zero_optimization": _zero(cell, parameters=parameters, hidden_size=hidden_size),
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        # DeepSpeed 0.19 clips to a norm of 1 unless told otherwise, and no other cell clips
        "gradient_clipping": 0.0,
    }  # fmt: skip


def stage_of(cell: Cell) -> int:
    """The stage of ZeRO. `offload` is stage 2 with the optimizer on the host: ZeRO-Offload as published (arXiv
    2101.06840) keeps the parameters on the device, and stage 3 would mix its own cost into the figure."""
    setting = cell["zero"]
    return 2 if setting == "offload" else 0 if setting == "off" else int(setting)


def _precision(cell: Cell) -> dict[str, Any]:
    """`bf16` keeps master weights and moments in bf16 as it does without DeepSpeed; `ds-bf16` keeps them in fp32."""
    if cell["precision"] == "amp-bf16":
        return {"torch_autocast": {"enabled": True, "dtype": "bfloat16"}}
    if cell["precision"] not in ("bf16", "ds-bf16"):
        return {}
    pure = cell["precision"] == "bf16"
    return {"bf16": {"enabled": True, "bf16_master_weights_and_grads": pure, "bf16_optimizer_states": pure}}


def _zero(cell: Cell, *, parameters: int, hidden_size: int) -> dict[str, Any]:
    stage = stage_of(cell)
    bucket = 2 * (max(SMALLEST_BUCKET, min(LARGEST_BUCKET, parameters // BUCKETS_A_MODEL)) // 2)
    zero: dict[str, Any] = {
        "stage": stage, "overlap_comm": cell["overlap_comm"], "contiguous_gradients": True, "reduce_scatter": True,
        "reduce_bucket_size": bucket, "allgather_bucket_size": bucket,
    }  # fmt: skip
    if stage == 3:
        zero |= {
            "stage3_prefetch_bucket_size": bucket,
            "stage3_param_persistence_threshold": 10 * hidden_size,
        }
    if cell["zero"] == "offload":
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    return zero


def start(run: TrainingRun) -> Any:
    """Make the engine, and let it take over the calls, backward and the update of a run."""
    # decided at import; without the variable DeepSpeed looks for a GPU
    os.environ.setdefault("DS_ACCELERATOR", run.device.type)
    import deepspeed

    # an all-reduce over shared memory for CPU inference: compiled for minutes on first use, and no part of training
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    run.facts["engine_warnings"] = _warnings_of(deepspeed)
    config = configuration(run.cell, parameters=run.parameter_counts["total"], hidden_size=int(run.config.hidden_size))
    ours = "optimizer" not in config
    trainable = run.trainable()
    engine, *_ = deepspeed.initialize(
        model=run.model, model_parameters=trainable, optimizer=run.make_optimizer(trainable) if ours else None,
        config=config, dist_init_required=False,
    )  # fmt: skip
    run.facts["engine"] = engine
    run.facts["steps_taken_back"] = _take_back_steps(engine)
    run.call, run.optimizer, run.update = engine, engine.optimizer, engine.step

    def backward(loss: Any) -> None:
        engine.backward(loss, scale_wrt_gas=False)
        if not run.last_micro_step:
            engine.step()  # counts the micro-batch; the update comes with the last one

    run.backward = backward
    return engine


def _take_back_steps(engine: Any) -> int:
    """Count the optimizer's steps from 0 again; how many it had made before training.

    To have its state allocated, DeepSpeed's bf16 without ZeRO makes one step on gradients of zero. The moments stay
    zero, but Adam's bias correction is a step ahead from then on: the first update is three quarters of what it should
    be, and the losses are not those of any other stage. (DeepSpeed's pull request 5104 took the step out of stages 1
    to 3.) The time of a step is the same either way. The step's decay of the master weights stays: a factor 1 - 3e-6.
    """
    made = 0
    for state in engine.basic_optimizer.state.values():
        if "step" in state:
            made = max(made, int(state["step"]))
            state["step"] = state["step"] * 0
    return made


def _warnings_of(deepspeed: Any) -> list[str]:
    """A list that fills with what DeepSpeed warns of. Its chatter below that is left out."""
    kept: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            kept.append(record.getMessage())

    logger = deepspeed.utils.logger
    logger.setLevel(logging.WARNING)
    logger.addHandler(Keep(level=logging.WARNING))
    # DeepSpeed 0.19 calls collectives by names that torch 2.13 has renamed: a warning for every one
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed")
    return kept
