"""How much work a step holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.experiment.axes import Axis
from harness.experiment.cell import Cell
from harness.experiment.workloads import is_step
from harness.techniques.base import Evidence, Stage, Technique

if TYPE_CHECKING:
    from harness.trial.training import TrainingRun


class Size(Technique):
    """Sequence length, batch size and accumulation."""

    axes = (
        Axis(
            name="sequence_length", default=1024, number=int, minimum=2, maximum=1 << 20,
            meaning="tokens in a sample", documents=("D2", "D3"),
        ),
        Axis(
            name="batch_size", default=8, number=int, minimum=1, maximum=1 << 16,
            meaning="samples in a micro-batch on one device", documents=("D3", "D4"),
        ),
        Axis(
            name="accumulation", default=1, number=int, minimum=1, maximum=1024,
            meaning="micro-batches whose gradients are added up before the optimizer's step", documents=("D4",),
        ),
    )  # fmt: skip
    stage = Stage.PROCESS
    requirement = "nothing but memory"
    proof = "tokens counted in the window"
    revised = "accumulation that a step of one's own honours was left to it"

    def active(self, cell: Cell) -> bool:
        return cell["batching"] == "fixed"

    def revision(self, cell: Cell) -> int:
        return 2 if is_step(cell.workload.model) and cell.number("accumulation") > 1 else 1

    def evidence(self, cell: Cell, run: TrainingRun) -> Evidence | None:
        if run.own is not None:
            return run.own.size_evidence(run)
        a_step = cell.number("sequence_length") * cell.number("batch_size") * cell.number("accumulation")
        a_step *= run.devices_fed
        seen = run.facts["tokens_a_step"]
        return Evidence(
            holds=seen == a_step, word=f"{seen} tokens a step", facts={"tokens_a_step": seen},
            reason=f"a step held {seen} tokens, not the {a_step} that batch size, length and accumulation ask for",
        )  # fmt: skip
