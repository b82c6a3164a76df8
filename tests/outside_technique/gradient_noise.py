"""Gaussian noise on every gradient: a technique in a package of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.environment import Environment
from harness.experiment.axes import Axis
from harness.experiment.cell import Cell
from harness.techniques.base import Evidence, Stage, Technique

if TYPE_CHECKING:
    from harness.trial.training import TrainingRun


class GradientNoise(Technique):
    """Gaussian noise on every gradient, between backward and the optimizer's step."""

    axes = (
        Axis(
            name="gradient_noise", default="off", settings={"off": "gradients are used as they are"},
            number=float, minimum=1e-6, maximum=0.1, meaning="standard deviation of the noise",
        ),
    )  # fmt: skip
    stage = Stage.STEP
    requirement = "a number: one device"
    proof = "gradients differ from what backward left by noise of that size"

    def requires(self, environment: Environment, cell: Cell) -> str | None:
        if cell["gradient_noise"] != "off" and cell.number("devices") > 1:
            return "gradient_noise would differ from rank to rank; set devices to 1"
        return None

    def apply(self, cell: Cell, run: TrainingRun) -> None:
        if cell["gradient_noise"] == "off":
            return
        import torch

        size = float(cell["gradient_noise"])

        def add_noise() -> None:
            for gradient in run.gradient_tensors():
                gradient.add_(torch.randn_like(gradient), alpha=size)

        run.before_optimizer.append(add_noise)

    def evidence(self, cell: Cell, run: TrainingRun) -> Evidence | None:
        """One step more, outside the window, with a look at the gradients before and after all hooks."""
        import torch

        looks: list[torch.Tensor] = []

        def look() -> None:
            looks.append(torch.cat([gradient.flatten().float() for gradient in run.gradient_tensors()]))

        hooks = list(run.before_optimizer)
        run.before_optimizer[:] = [look, *hooks, look]
        try:
            run.step()
        finally:
            run.before_optimizer[:] = hooks
        wanted, seen = float(cell["gradient_noise"]), float((looks[1] - looks[0]).std())
        return Evidence(
            holds=0.9 < seen / wanted < 1.1, word=f"noise of {seen:.1e}", facts={"standard_deviation": seen},
            reason=f"gradient_noise={wanted:g} was set, but gradients changed by {seen:.1e}",
        )  # fmt: skip
