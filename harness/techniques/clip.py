"""Clipping the gradient's norm."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from harness.environment import Environment
from harness.experiment.axes import Axis
from harness.experiment.cell import Cell
from harness.techniques.base import Evidence, Stage, Technique

if TYPE_CHECKING:
    from harness.trial.training import TrainingRun

#: clip_grad_norm_ adds 1e-6 to the norm it divides by, and 16-bit gradients round.
_TOLERANCE = 0.01
#: For the proof gradients are made this much larger than the limit: below it, clipping would have nothing to do.
_ABOVE = 10.0


class Clip(Technique):
    """`torch.nn.utils.clip_grad_norm_` between backward and the optimizer's step."""

    axes = (
        Axis(
            name="clip",
            default="off",
            settings={"off": "gradients are used as they are"},
            number=float,
            minimum=0.001,
            maximum=1e6,
            meaning="largest L2 norm of the whole gradient",
            documents=("D2", "D4"),
        ),
    )
    stage = Stage.STEP
    requirement = "gradients that are whole on a device: not pipeline, and not DeepSpeed's engine"
    proof = "in an untimed step with the gradient made ten times the limit, the norm afterwards is the limit"

    def requires(self, environment: Environment, cell: Cell) -> str | None:
        if cell["clip"] == "off":
            return None
        if cell.settings.get("parallel") == "pipeline":
            return f"clip={cell['clip']} needs the whole gradient, and a stage of a pipeline has a part; use ddp"
        if cell.settings.get("zero", "off") != "off" or cell["precision"] == "ds-bf16":
            return f"clip={cell['clip']} needs gradients, and DeepSpeed keeps them to itself; use amp-bf16, zero=off"
        return None

    def apply(self, cell: Cell, run: TrainingRun) -> None:
        if cell["clip"] == "off":
            return
        import torch

        limit = float(cell["clip"])

        def clip() -> None:
            if run.scaler is not None:
                run.scaler.unscale_(run.optimizer)
            torch.nn.utils.clip_grad_norm_(run.trainable(), limit)

        run.before_optimizer.append(clip)

    def evidence(self, cell: Cell, run: TrainingRun) -> Evidence | None:
        limit = float(cell["clip"])
        before, after = norms_of_a_large_step(run, limit * _ABOVE)
        return Evidence(
            holds=before > limit * 2 and abs(after / limit - 1) <= _TOLERANCE, word=f"norm {after:.3g}",
            facts={"norm_before": before, "norm_after": after, "limit": limit},
            reason=f"clip={limit:g} was set, but a gradient of norm {before:.3g} reached the optimizer as {after:.3g}",
        )  # fmt: skip


def norms_of_a_large_step(run: TrainingRun, wanted: float) -> tuple[float, float]:
    """One step whose gradient is scaled to the norm `wanted`: the norm before the step's hooks and after them, unscaled
    both: as the optimizer has it."""
    norms: list[float] = []

    def enlarge() -> None:
        scale = wanted / run.gradient_norm()
        for gradient in run.gradient_tensors():
            gradient.mul_(scale)
        norms.append(run.gradient_norm())

    def note() -> None:
        if run.scaler is not None:
            # what no hook before this one has unscaled the scaler does in its step: a second time is refused
            with contextlib.suppress(RuntimeError):
                run.scaler.unscale_(run.optimizer)
        norms.append(run.gradient_norm() * run.loss_scale())

    hooks = list(run.before_optimizer)
    run.before_optimizer[:] = [enlarge, *hooks, note]
    try:
        run.step()
    finally:
        run.before_optimizer[:] = hooks
    return norms[0], norms[1]
