"""Axes whose technique is still to come."""

from __future__ import annotations

from harness.environment import Environment
from harness.experiment.axes import Axis
from harness.experiment.cell import Cell
from harness.techniques.base import Technique


class Later(Technique):
    """Known words that cannot run yet."""

    axes = (
        Axis(name="zero", default="off", settings={"off": "", 0: "", 1: "", 2: "", 3: "", "offload": ""}),
        Axis(name="lora", default="off", settings={"off": ""}, number=int, minimum=1, maximum=1024),
        Axis(name="quantization", default="none", settings={"none": "", "nf4": ""}),
        Axis(name="pruning", default="off", settings={"off": ""}, number=float, maximum=1),
        Axis(name="distillation", default="off", settings={"off": "", "teacher": ""}),
    )

    def requires(self, environment: Environment, cell: Cell) -> str | None:
        for axis in self.axes:
            if cell[axis.name] != axis.default:
                return f"{axis.name}={cell[axis.name]} is not built yet"
        return None
