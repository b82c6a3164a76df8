"""Frozen weights in four bits (QLoRA, arXiv 2305.14314)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.environment import Environment
from harness.experiment.axes import Axis
from harness.experiment.cell import Cell
from harness.experiment.workloads import is_step
from harness.techniques.base import Evidence, Inert, Stage, Technique

if TYPE_CHECKING:
    from torch import nn

    from harness.trial.training import TrainingRun

#: 4 bits a weight, an 8-bit scale for each 64 weights, and an fp32 scale and offset for each 256 of those: 0.52 bytes.
_BYTES_A_WEIGHT_AT_MOST = 0.6


class Quantization(Technique):
    """bitsandbytes' NF4 layers with double quantization and bf16 compute, for every linear layer of the blocks."""

    axes = (
        Axis(
            name="quantization",
            default="none",
            settings={
                "none": "weights in the cell's own precision",
                "nf4": "linear layers of the blocks frozen in 4-bit NF4, double quantization, bf16 compute",
            },
            meaning="number format of frozen weights",
            documents=("D3",),
        ),
    )
    stage = Stage.MODEL
    packages = ("bitsandbytes",)
    requirement = (
        "bitsandbytes; lora (4-bit weights cannot be trained themselves); linear layers (not GPT-2's Conv1D); "
        "not with dp"
    )
    proof = "class of the layers, number format, bytes a weight, compute type"
    revised = "a step of one's own was quantized in the blocks of all its lists"

    def revision(self, cell: Cell) -> int:
        return 2 if is_step(cell.workload.model) and cell["quantization"] != "none" else 1

    def requires(self, environment: Environment, cell: Cell) -> str | None:
        if cell["quantization"] == "none":
            return None
        if not environment.has("bitsandbytes"):
            return "quantization=nf4 needs bitsandbytes; pip install bitsandbytes"
        if cell["lora"] == "off":
            return "quantization=nf4 freezes the weights, so there must be something else to train; set lora to a rank"
        return None

    def apply(self, cell: Cell, run: TrainingRun) -> None:
        if cell["quantization"] == "none":
            return
        from torch import nn

        # Under FSDP a shard must be of the type that is computed with (axolotl#1494).
        storage = "bfloat16" if cell["parallel"] == "fsdp" else "uint8"
        blocks = run.blocks()
        for parent in [module for block in blocks for module in block.modules()]:
            for name, layer in list(parent.named_children()):
                if type(layer) is nn.Linear:
                    setattr(parent, name, _four_bit(layer, storage, run.device))
        # a user's blocks may be layers themselves, in their list
        bare = {block for block in blocks if type(block) is nn.Linear}
        for parent in list(run.plain_model.modules()) if bare else ():
            for name, layer in list(parent.named_children()):
                if layer in bare:
                    setattr(parent, name, _four_bit(layer, storage, run.device))
        if not _layers(run.plain_model):
            raise Inert(
                "quantization=nf4: the blocks of this model hold no nn.Linear (GPT-2's layers are Conv1D); "
                "use a Llama or Qwen2 shape"
            )

    def evidence(self, cell: Cell, run: TrainingRun) -> Evidence | None:
        layers = _layers(run.plain_model)
        weights = sum(int(_packing(layer).shape.numel()) for layer in layers)
        stored = sum(_stored_bytes(layer) for layer in layers)
        each = stored / weights if weights else float("inf")
        formats = sorted({str(_packing(layer).quant_type) for layer in layers})
        computes = sorted({str(layer.compute_dtype).removeprefix("torch.") for layer in layers})
        facts = {
            "layers": len(layers), "weights": weights, "bytes_a_weight": each, "formats": formats,
            "compute_dtype": computes,
            "double_quantization": all(_packing(layer).nested for layer in layers),
        }  # fmt: skip
        return Evidence(
            holds=each <= _BYTES_A_WEIGHT_AT_MOST and formats == ["nf4"] and computes == ["bfloat16"],
            word=f"{each:.3f} bytes a weight", facts=facts,
            reason=f"quantization=nf4 was set, but {len(layers)} layers are 4-bit at {each:.2f} bytes a weight, "
            f"in {formats}, computing in {computes}",
        )  # fmt: skip


def _four_bit(layer: nn.Linear, storage: str, device: Any) -> Any:
    import bitsandbytes as bnb
    import torch

    new = bnb.nn.Linear4bit(
        layer.in_features, layer.out_features, bias=layer.bias is not None, compute_dtype=torch.bfloat16,
        compress_statistics=True, quant_type="nf4", quant_storage=getattr(torch, storage), device="meta",
    )  # fmt: skip
    new.weight = bnb.nn.Params4bit(
        layer.weight.data.cpu(), requires_grad=False, compress_statistics=True, quant_type="nf4",
        quant_storage=getattr(torch, storage), module=new,
    )  # fmt: skip
    if layer.bias is not None:
        new.bias = torch.nn.Parameter(layer.bias.data, requires_grad=False)
    # quantized as it moves to the device
    new.weight = new.weight.to(device)
    return new


def _layers(model: nn.Module) -> list[Any]:
    """Layers with packed weights: a class that only says so is not enough."""
    return [module for module in model.modules() if hasattr(module, "compute_dtype") and _packing(module) is not None]


def packed_weights(model: nn.Module) -> dict[str, int]:
    """Weights of 4-bit layers by the type in which they compute, as torch names it."""
    found: dict[str, int] = {}
    for layer in _layers(model):
        dtype = str(layer.compute_dtype)
        found[dtype] = found.get(dtype, 0) + int(_packing(layer).shape.numel())
    return found


def _packing(layer: Any) -> Any:
    """How a layer packed its weight; None where it did not. A shard (a DTensor) does not know: its layer does."""
    weight = getattr(layer, "weight", None)
    return getattr(weight, "quant_state", None) or getattr(layer, "quant_state", None)


def _stored_bytes(layer: Any) -> int:
    """Of the whole weight, over all ranks."""
    weight, state = layer.weight, _packing(layer)
    nested = state.state2
    parts = [weight, state.absmax, *([nested.absmax] if nested is not None else [])]
    return sum(int(part.numel() * part.element_size()) for part in parts)
