"""Unstructured magnitude pruning: small weights set to zero, in layers that stay dense."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from harness.experiment.axes import Axis
from harness.experiment.cell import Cell
from harness.experiment.workloads import is_step
from harness.techniques.base import Evidence, Stage, Technique

if TYPE_CHECKING:
    from harness.trial.training import TrainingRun


class Pruning(Technique):
    """torch.nn.utils.prune.l1_unstructured on every matrix of the blocks, as D3 does, its mask kept."""

    axes = (
        Axis(
            name="pruning",
            default="off",
            settings={"off": "no weight is set to zero"},
            number=float,
            minimum=0.001,
            maximum=0.99,
            meaning="share of each matrix's smallest weights that are zero",
            documents=("D3",),
        ),
    )
    stage = Stage.MODEL
    requirement = "weights that are trained (not lora, not nf4) and whole on a device (not fsdp, pipeline, zero)"
    proof = "share of zeros in the weights that the last step used"
    revised = "a step of one's own was pruned in the blocks of all its lists"

    def revision(self, cell: Cell) -> int:
        return 2 if is_step(cell.workload.model) and cell["pruning"] != "off" else 1

    def requires(self, environment: Any, cell: Cell) -> str | None:
        if cell["pruning"] != "off" and cell["quantization"] != "none":
            return "pruning cannot set packed 4-bit weights to zero; leave quantization at none"
        if cell["pruning"] != "off" and cell["lora"] != "off":
            return "pruning masks weights that are trained, and lora freezes them inside its adapters; leave lora off"
        if cell["pruning"] != "off" and (cell["parallel"] == "fsdp" or cell["zero"] != "off"):
            return "pruning replaces each weight by a masked one, which sharding cannot divide; use one device or ddp"
        return None

    def apply(self, cell: Cell, run: TrainingRun) -> None:
        if cell["pruning"] == "off":
            return
        from torch.nn.utils import prune

        for layer in matrices(run.blocks()):
            prune.l1_unstructured(layer, name="weight", amount=float(cell["pruning"]))

    def evidence(self, cell: Cell, run: TrainingRun) -> Evidence | None:
        wanted = float(cell["pruning"])
        layers = matrices(run.blocks())
        zeros = sum(int((layer.weight == 0).sum()) for layer in layers)
        size = sum(int(layer.weight.numel()) for layer in layers)
        share = zeros / size if size else 0.0
        return Evidence(
            holds=abs(share - wanted) < 0.01, word=f"{100 * share:.1f}% zeros",
            facts={"share_of_zeros": share, "matrices": len(layers), "dense": True},
            reason=f"pruning={wanted} was set, but {100 * share:.1f}% of the weights are zero",
        )  # fmt: skip


def matrices(blocks: Iterable[Any]) -> list[Any]:
    """The layers in blocks whose weight is a matrix."""
    return [
        module for block in blocks for module in block.modules()
        if getattr(module, "weight", None) is not None and module.weight.ndim == 2
    ]  # fmt: skip
