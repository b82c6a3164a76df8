"""How AdamW's step is carried out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.experiment.axes import Axis
from harness.experiment.cell import Cell
from harness.techniques.base import Evidence, Stage, Technique

if TYPE_CHECKING:
    from harness.trial.training import TrainingRun

#: Operators and kernels by which a profile tells the implementations apart.
_SIGNS = {"fused": ("_fused_adamw", "fusedadam"), "foreach": ("_foreach_", "multi_tensor_apply")}


class Optimizer(Technique):
    """torch's AdamW: one kernel for everything, a few over lists of tensors, or a loop over tensors."""

    axes = (
        Axis(
            name="optimizer",
            default="foreach",
            settings={
                "foreach": "torch's default: each operation once over all tensors",
                "for-loop": "every operation for every tensor",
                "fused": "the whole update in one kernel over all tensors",
            },
            meaning="implementation of AdamW's step",
            documents=("D4",),
        ),
    )
    stage = Stage.PROCESS
    requirement = "nothing"
    proof = "the optimizer's own flag, and the operator in a one-step profile"

    def active(self, cell: Cell) -> bool:
        return cell.settings.get("zero", "off") == "off" and cell["precision"] != "ds-bf16"

    def apply(self, cell: Cell, run: TrainingRun) -> None:
        setting = cell["optimizer"]
        run.optimizer_options.update(fused=setting == "fused", foreach=setting == "foreach")

    def evidence(self, cell: Cell, run: TrainingRun) -> Evidence | None:
        setting = str(cell["optimizer"])
        assert run.profile is not None
        defaults = run.optimizer.defaults
        seen = {name: sum(run.profile.matching(*signs).values()) for name, signs in _SIGNS.items()}
        # the fused kernel goes through the same multi-tensor machinery on a GPU, so it is looked for first
        ran = "fused" if seen["fused"] else "foreach" if seen["foreach"] else "for-loop"
        facts = {"fused": defaults.get("fused"), "foreach": defaults.get("foreach"), "operators": seen, "ran": ran}
        return Evidence(
            holds=ran == setting, word=ran, facts=facts,
            reason=f"optimizer={setting} was set, but the profile of a step shows {ran}",
        )  # fmt: skip
