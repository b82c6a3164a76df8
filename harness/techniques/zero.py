"""ZeRO: DeepSpeed's engine divides optimizer state (1), gradients (2) and parameters (3) between the devices.

On one device every stage runs and divides nothing: a legitimate trial, which says nothing about sharding (the claims
judge that). DeepSpeed 0.19 shards gradients in stage 1 too; what a rank holds is recorded for every stage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.environment import Environment
from harness.experiment.axes import Axis
from harness.experiment.cell import Cell
from harness.techniques.base import Evidence, Stage, Technique
from harness.techniques.parallel import uses_engine, wrong_world

if TYPE_CHECKING:
    from harness.trial.training import TrainingRun

INSTALL = "DS_BUILD_OPS=0 pip install --no-build-isolation deepspeed"


class Zero(Technique):
    """DeepSpeed's engine, at a stage of ZeRO; `precision: ds-bf16` alone is the engine at stage 0."""

    axes = (
        Axis(
            name="zero", default="off",
            settings={
                "off": "no engine, unless precision is ds-bf16: then stage 0",
                0: "DeepSpeed's engine, nothing sharded",
                1: "optimizer state sharded",
                2: "optimizer state and gradients sharded",
                3: "optimizer state, gradients and parameters sharded",
                "offload": "stage 2 with the optimizer's state and step on the host (ZeRO-Offload)",
            },
            meaning="stage of DeepSpeed's ZeRO", documents=("D2", "D3"),
        ),
        Axis(
            name="overlap_comm", default=True,
            settings={True: "gradients are reduced while backward goes on", False: "backward waits for each reduction"},
            meaning="overlap of communication and backward in ZeRO", documents=("D3",),
        ),
    )  # fmt: skip
    stage = Stage.OPTIMIZER
    requirement = "deepspeed; not with autocast in fp16, parallel, compile"
    packages = ("deepspeed",)
    revised = "the step that DeepSpeed's stage 0 makes before training was taken back"
    proof = "elements of optimizer state, gradients and parameters that a rank holds; the engine's own stage and flags"

    def active(self, cell: Cell) -> bool:
        return uses_engine(cell)

    def revision(self, cell: Cell) -> int:
        return 2 if cell["precision"] == "ds-bf16" and cell["zero"] in ("off", 0) else 1

    def requires(self, environment: Environment, cell: Cell) -> str | None:
        if not uses_engine(cell):
            wanted = cell["overlap_comm"] is not True
            return "overlap_comm=false has no effect without zero; set zero to 1, 2 or 3" if wanted else None
        if not environment.has("deepspeed"):
            return f"zero={cell['zero']} needs deepspeed; {INSTALL}"
        return _precision_refusal(cell) or _combination_refusal(cell)

    def apply(self, cell: Cell, run: TrainingRun) -> None:
        if uses_engine(cell):
            from harness.techniques import deepspeed_engine, deepspeed_state

            deepspeed_engine.start(run)
            deepspeed_state.show(run)

    def evidence(self, cell: Cell, run: TrainingRun) -> Evidence | None:
        engine = run.facts.get("engine")
        if engine is None:
            asked = f"zero={cell['zero']}, precision={cell['precision']}"
            return Evidence(holds=False, word="no engine", reason=f"{asked} was set, but no DeepSpeed engine trained")
        from harness.techniques.deepspeed_engine import stage_of
        from harness.techniques.deepspeed_state import shares

        wrong = wrong_world(cell, run)
        if wrong is not None:
            return wrong
        facts: dict[str, Any] = {**_engine_facts(engine), **shares(run)}
        facts["steps_taken_back"] = run.facts["steps_taken_back"]
        wanted = 2 if cell["deepspeed_config"] == "as-printed" else stage_of(cell)
        reason = "; ".join([*_flag_faults(cell, facts, wanted), *_share_faults(facts, wanted)])
        word = f"stage {facts['stage']}, {max(facts['optimizer_shares']):.0%} of the optimizer a rank"
        return Evidence(holds=not reason, word=word, facts=facts, reason=reason)


def _precision_refusal(cell: Cell) -> str | None:
    precision, zero = cell["precision"], cell["zero"]
    if precision == "amp-fp16":
        return f"zero={zero} with precision=amp-fp16: engine and GradScaler would both scale the loss; use amp-bf16"
    if precision == "bf16" and zero in (0, "offload"):
        return (
            f"zero={zero} with precision=bf16: there DeepSpeed keeps master weights and moments in fp32; "
            "say ds-bf16, or use stage 1, 2 or 3"
        )
    return None


def _combination_refusal(cell: Cell) -> str | None:
    if cell["compile"] != "off":
        return f"compile={cell['compile']} has no effect with zero={cell['zero']}: the engine calls the plain model"
    if cell["zero"] == 3 and cell.settings.get("quantization", "none") == "nf4":
        return "zero=3 cannot partition packed 4-bit weights; use zero 2 or quantization=none"
    if cell["overlap_comm"] is not True and cell["zero"] in ("off", 0):
        return "overlap_comm=false has no effect at stage 0; set zero to 1, 2 or 3"
    return None


def _engine_facts(engine: Any) -> dict[str, Any]:
    """What the engine says of itself."""
    optimizer = engine.optimizer
    return {
        "stage": int(engine.zero_optimization_stage()),
        "optimizer": type(optimizer).__name__,
        "basic_optimizer": type(engine.basic_optimizer).__name__,
        "fused": bool(engine.basic_optimizer.defaults.get("fused")),
        "bf16_engine": bool(engine.bfloat16_enabled()),
        "overlap_comm": bool(engine.zero_overlap_comm()),
        "communication_stream": _has_stream(optimizer),
        "offload": bool(engine.zero_cpu_offload()),
        "skipped_steps": int(engine.skipped_steps),
    }


def _has_stream(optimizer: Any) -> bool:
    """Whether reductions have a stream beside the one that computes. On a CPU there are none."""
    import torch

    stream = getattr(optimizer, "reduction_stream", None) or getattr(optimizer, "reduce_and_partition_stream", None)
    return isinstance(stream, torch.cuda.Stream) and stream != torch.cuda.current_stream()


def _flag_faults(cell: Cell, facts: dict[str, Any], wanted: int) -> list[str]:
    """Where the engine is not what the cell asked for."""
    faults = []
    if facts["stage"] != wanted:
        faults.append(f"stage {wanted} was asked for, and the engine runs at stage {facts['stage']}")
    if wanted and facts["overlap_comm"] != cell["overlap_comm"]:
        faults.append(f"overlap_comm={cell['overlap_comm']} was set, and the engine has {facts['overlap_comm']}")
    if cell["precision"] == "ds-bf16" and cell["deepspeed_config"] == "ours" and not facts["bf16_engine"]:
        faults.append("precision=ds-bf16 was set, and the engine's bf16 is off")
    if (cell["zero"] == "offload") != facts["offload"]:
        faults.append(f"zero={cell['zero']} was set, and the engine's offload is {facts['offload']}")
    if cell["zero"] == "offload" and facts["optimizer_devices"] != ["cpu"]:
        faults.append(f"zero=offload was set, and optimizer state lies on {', '.join(facts['optimizer_devices'])}")
    return faults


def _share_faults(facts: dict[str, Any], wanted: int) -> list[str]:
    """Where a rank holds more than its share."""
    share = 1 / facts["world_size"] + facts["padding"]
    limits = {1: ("optimizer", share), 2: ("gradient", share + facts["largest_parameter"]), 3: ("parameter", share)}
    return [
        f"a rank holds {max(facts[f'{kind}_shares']):.0%} of the {kind} elements at stage {wanted}, not {limit:.0%}"
        for stage, (kind, limit) in limits.items()
        if stage <= wanted and max(facts[f"{kind}_shares"]) > limit
    ]
