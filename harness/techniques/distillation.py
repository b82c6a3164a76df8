"""Knowledge distillation: a teacher's soft targets beside the labels (arXiv 1503.02531)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.experiment.axes import Axis
from harness.experiment.cell import Cell
from harness.techniques.base import Evidence, Stage, Technique

if TYPE_CHECKING:
    import torch

    from harness.trial.batching import Batch
    from harness.trial.training import TrainingRun

#: D3's own choice.
TEMPERATURE = 2.0
SOFT_SHARE = 0.5


class Distillation(Technique):
    """The student learns from labels and from a frozen teacher of its own shape with other weights."""

    axes = (
        Axis(
            name="distillation",
            default="off",
            settings={"off": "labels alone", "teacher": "half of the loss from a frozen teacher of the same shape"},
            meaning="learn from a teacher's outputs as well",
            documents=("D3",),
        ),
    )
    stage = Stage.STEP
    requirement = "memory for the teacher's weights; one device or ddp"
    proof = "the teacher ran in the last step and its divergence is above zero"

    def requires(self, environment: Any, cell: Cell) -> str | None:
        if cell["distillation"] != "off" and (cell["parallel"] not in ("none", "ddp") or cell["zero"] != "off"):
            return "distillation keeps a whole teacher beside the student on each device; use one device or ddp"
        return None

    def apply(self, cell: Cell, run: TrainingRun) -> None:
        if cell["distillation"] == "off":
            return
        from harness.trial.model import make_model

        teacher = make_model(
            run.config, attention=run.attention, dtype=run.parameter_dtype, device=run.device, seed=run.spec.seed + 1
        )
        teacher.eval().requires_grad_(False)
        run.forward_only.append(teacher)
        run.loss_of = _Distilled(run, teacher)

    def evidence(self, cell: Cell, run: TrainingRun) -> Evidence | None:
        loss = run.loss_of
        calls = getattr(loss, "calls", 0)
        divergence = float(loss.divergence) if calls else 0.0  # type: ignore[attr-defined]
        return Evidence(
            holds=calls > 0 and divergence > 0, word=f"divergence {divergence:.3g}",
            facts={
                "teacher_forwards": calls, "divergence": divergence, "temperature": TEMPERATURE,
                "soft_share": SOFT_SHARE,
            },
            reason="distillation=teacher was set, but no teacher ran or it agrees with the student everywhere",
        )  # fmt: skip


class _Distilled:
    """The mixed loss of a batch."""

    def __init__(self, run: TrainingRun, teacher: Any) -> None:
        self._run = run
        self._teacher = teacher
        self.calls = 0
        self.divergence: torch.Tensor | float = 0.0

    def __call__(self, batch: Batch) -> torch.Tensor:
        import torch
        from torch.nn import functional

        with torch.no_grad():
            wanted = self._teacher(**{k: v for k, v in batch.items() if k != "labels"}, use_cache=False).logits
        got = self._run.call(**batch, use_cache=False)
        divergence = functional.kl_div(
            functional.log_softmax(got.logits / TEMPERATURE, dim=-1).flatten(0, 1),
            functional.softmax(wanted / TEMPERATURE, dim=-1).flatten(0, 1),
            reduction="batchmean",
        ) * TEMPERATURE**2  # fmt: skip
        self.calls += 1
        self.divergence = divergence.detach()
        mixed: torch.Tensor = (1 - SOFT_SHARE) * got.loss + SOFT_SHARE * divergence
        return mixed
