"""Two ways in which documents use DeepSpeed: a configuration as it is printed, and an autocast around the engine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from harness.environment import Environment
from harness.experiment.axes import Axis
from harness.experiment.cell import Cell
from harness.techniques.base import Evidence, Stage, Technique
from harness.techniques.parallel import uses_engine

if TYPE_CHECKING:
    import torch

    from harness.trial.training import TrainingRun


class DeepSpeedOptions(Technique):
    """D3's configuration word for word; and D1's question whether autocast may stay on around DeepSpeed's bf16."""

    axes = (
        Axis(
            name="deepspeed_config", default="ours",
            settings={
                "ours": "made from the cell, with torch's AdamW",
                "as-printed": "D3's: fp16 whatever precision says, stage 2, DeepSpeed's own AdamW, large buckets",
            },
            meaning="which configuration DeepSpeed's engine is given", documents=("D3",),
        ),
        Axis(
            name="autocast_outside", default="off",
            settings={"off": "the engine decides alone", "on": "torch.autocast in bf16 around each call of the engine"},
            meaning="autocast around DeepSpeed's engine", documents=("D1",),
        ),
    )  # fmt: skip
    # after precision, which it overrides
    stage = Stage.PROCESS
    requirement = (
        "DeepSpeed's engine; on: not fp32 or tf32; "
        "as-printed: zero 2, a GPU, nvcc and ninja for its fused Adam (DeepSpeed#6892)"
    )
    packages = ("deepspeed",)
    proof = "the engine's fp16 flag and class of optimizer; autocast's state before the engine and inside a block"

    def requires(self, environment: Environment, cell: Cell) -> str | None:
        for axis in self.axes:
            if cell[axis.name] != axis.default and not uses_engine(cell):
                return f"{axis.name}={cell[axis.name]} is about DeepSpeed's engine; set zero, or precision to ds-bf16"
        if cell["autocast_outside"] == "on" and cell["precision"] in ("fp32", "tf32"):
            asked = cell["precision"]
            return f"autocast_outside=on computes in bf16, and precision={asked} does not; set precision to ds-bf16"
        return _printed_refusal(environment, cell) if cell["deepspeed_config"] == "as-printed" else None

    def apply(self, cell: Cell, run: TrainingRun) -> None:
        import torch

        if cell["deepspeed_config"] == "as-printed":
            run.parameter_dtype = torch.float32
            run.forward_contexts.clear()
            name_the_architecture(run.device)
        if cell["autocast_outside"] == "on":
            run.forward_contexts.append(lambda: torch.autocast(run.device.type, dtype=torch.bfloat16))

    def evidence(self, cell: Cell, run: TrainingRun) -> Evidence | None:
        engine = run.facts.get("engine")
        if engine is None:
            return Evidence(holds=False, word="no engine", reason="no DeepSpeed engine trained")
        facts: dict[str, Any] = {"engine_warnings": list(run.facts.get("engine_warnings", ()))}
        if cell["deepspeed_config"] == "as-printed":
            return _printed(engine, facts)
        outside, inside = autocast_states(run, engine)
        facts |= {"autocast_before_the_engine": outside, "autocast_inside": inside}
        word = "autocast kept by the engine" if inside else "autocast switched off by the engine"
        return Evidence(
            holds=outside, word=word, facts=facts,
            reason="autocast_outside=on was set, but no autocast was on when the engine was called",
        )  # fmt: skip


def name_the_architecture(device: torch.device) -> None:
    """Have DeepSpeed compile its AdamW for this device alone: of the environment's list it reads plain numbers, and
    images made for Hopper set `9.0a` there."""
    import torch

    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        os.environ["TORCH_CUDA_ARCH_LIST"] = f"{major}.{minor}"


def autocast_states(run: TrainingRun, engine: Any) -> tuple[bool, bool]:
    """In one more step: whether autocast was on where the engine was called, and inside the first block."""
    import torch

    from harness.trial.model import blocks_of

    seen: dict[str, bool] = {}

    def note(place: str) -> Any:
        return lambda *_: seen.__setitem__(place, torch.is_autocast_enabled(run.device.type))

    hooks = [
        engine.register_forward_pre_hook(note("outside")),
        blocks_of(run.plain_model)[0].register_forward_pre_hook(note("inside")),
    ]
    try:
        run.step()
    finally:
        for hook in hooks:
            hook.remove()
    return seen.get("outside", False), seen.get("inside", False)


def _printed_refusal(environment: Environment, cell: Cell) -> str | None:
    if cell["zero"] != 2:
        return f"deepspeed_config=as-printed is a configuration of stage 2, and zero is {cell['zero']}; set zero to 2"
    if not environment.has_gpu:
        return "deepspeed_config=as-printed asks for fp16, which DeepSpeed trains on a GPU only"
    missing = [name for name, there in (
        ("nvcc", "nvcc" in environment.tools), ("ninja", environment.has("ninja")),
    ) if not there]  # fmt: skip
    if missing:
        return (
            f"deepspeed_config=as-printed asks for DeepSpeed's AdamW, which is compiled on first use; there is no "
            f"{' and no '.join(missing)} here: install a CUDA toolkit and ninja, or use deepspeed_config=ours"
        )
    return None


def _printed(engine: Any, facts: dict[str, Any]) -> Evidence:
    basic = type(engine.basic_optimizer).__name__
    facts |= {"fp16_engine": bool(engine.fp16_enabled()), "basic_optimizer": basic}
    return Evidence(
        holds=facts["fp16_engine"] and "Fused" in basic, word=f"fp16, {basic}", facts=facts,
        reason=f"the printed configuration was asked for, but the engine has fp16={facts['fp16_engine']} and {basic}",
    )  # fmt: skip
