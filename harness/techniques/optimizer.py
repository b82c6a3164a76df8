"""How AdamW's step is carried out."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from harness.experiment.axes import Axis
from harness.experiment.cell import Cell
from harness.techniques.base import Evidence, Stage, Technique

if TYPE_CHECKING:
    from harness.trial.profile import Profile
    from harness.trial.training import TrainingRun

#: Operators by which the step tells its implementation, in the order in which they are looked for: on a CPU, one over
#: a list calls the plain ones.
_SIGNS = {"fused": "aten::_fused_", "foreach": "aten::_foreach_", "for-loop": "aten::addcdiv_"}
#: What torch.optim.Optimizer calls its own step in a profile, before the name of its class.
_STEP = "Optimizer.step#"


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
    proof = "the operators inside the optimizer's own step in a one-step profile"

    def active(self, cell: Cell) -> bool:
        # a configuration that is run as it was printed brings its own optimizer, and has evidence of its own
        return cell.settings.get("deepspeed_config", "ours") == "ours"

    def apply(self, cell: Cell, run: TrainingRun) -> None:
        setting = cell["optimizer"]
        run.optimizer_options.update(fused=setting == "fused", foreach=setting == "foreach")

    def evidence(self, cell: Cell, run: TrainingRun) -> Evidence | None:
        setting = str(cell["optimizer"])
        assert run.profile is not None
        # under DeepSpeed's engine the step of torch's AdamW lies inside that of the engine's optimizer
        stepped = getattr(run.facts.get("engine"), "basic_optimizer", run.optimizer)
        defaults = getattr(stepped, "defaults", {})  # a user's own may have none
        names = operators_of_the_update(run.profile)
        seen = {kind: sum(n for name, n in names.items() if name.startswith(sign)) for kind, sign in _SIGNS.items()}
        unknown = "none of the three" if names else "no optimizer step"
        ran = next((kind for kind, count in seen.items() if count), unknown)
        facts = {"fused": defaults.get("fused"), "foreach": defaults.get("foreach"), "operators": seen, "ran": ran}
        return Evidence(
            holds=ran == setting, word=ran, facts=facts,
            reason=f"optimizer={setting} was set, but the profile of a step shows {ran}",
        )  # fmt: skip


def operators_of_the_update(profile: Profile) -> Counter[str]:
    """ATen operators by name → calls, on the host and inside the optimizer's own step.

    Clipping, GradScaler and FSDP work on lists of tensors too (`_foreach_norm`,
    `_amp_foreach_non_finite_check_and_unscale_`, `_foreach_copy_`), whatever the optimizer does.
    """
    host = [span for span in profile.spans if not span.on_device]
    steps = [span for span in host if span.name.startswith(_STEP)]
    return Counter(
        span.name for span in host
        if span.name.startswith("aten::") and any(
            step.lane == span.lane and step.start <= span.start <= step.end for step in steps
        )
    )  # fmt: skip
