"""Learning rates that change from step to step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from harness.environment import Environment
from harness.experiment.axes import Axis
from harness.experiment.cell import Cell
from harness.techniques.base import Evidence, Inert, Stage, Technique

if TYPE_CHECKING:
    from harness.trial.training import TrainingRun

#: Share of a trial's steps in which a warm-up rises.
RISING = 0.1


class Schedule(Technique):
    """transformers' linear schedule with warm-up, or torch's CosineAnnealingLR, stepped after each optimizer step."""

    axes = (
        Axis(
            name="schedule",
            default="none",
            settings={
                "none": "one learning rate",
                "warmup-linear": "rising for a tenth of the steps, then falling (get_linear_schedule_with_warmup)",
                "cosine": "falling to zero along a cosine (CosineAnnealingLR)",
            },
            meaning="learning rate over the steps of a trial",
            documents=("D2",),
        ),
    )
    stage = Stage.STEP
    requirement = "an optimizer of torch's: not DeepSpeed's engine"
    proof = "the learning rate of every step against the schedule's formula"

    def requires(self, environment: Environment, cell: Cell) -> str | None:
        engine = cell.settings.get("zero", "off") != "off" or cell["precision"] == "ds-bf16"
        if cell["schedule"] != "none" and engine:
            return f"schedule={cell['schedule']} drives an optimizer of torch's; use amp-bf16, zero=off"
        return None

    def apply(self, cell: Cell, run: TrainingRun) -> None:
        setting = cell["schedule"]
        if setting == "none":
            return
        _refuse_others(run, str(setting))
        seen: list[list[float]] = []
        run.facts["learning_rates"] = seen
        scheduler = _make(str(setting), run.optimizer, total_steps(run))
        groups = run.optimizer.param_groups
        run.facts["peak_rates"] = [float(group["initial_lr"]) for group in groups]
        run.before_optimizer.append(lambda: seen.append([float(group["lr"]) for group in groups]))
        run.after_step.append(lambda _step: scheduler.step())

    def evidence(self, cell: Cell, run: TrainingRun) -> Evidence | None:
        setting = str(cell["schedule"])
        rates: list[list[float]] = run.facts.get("learning_rates", [])
        peaks, total = run.facts.get("peak_rates") or [float(run.optimizer.defaults["lr"])], total_steps(run)
        expected = [[peak * factor(setting, step, total) for peak in peaks] for step in range(run.steps_done)]
        holds = len(rates) == len(expected) and all(
            math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-12)
            for groups in zip(rates, expected, strict=True) for a, b in zip(*groups, strict=True)
        )  # fmt: skip
        # in words and facts the first group speaks for all
        seen, wanted = ([each[0] for each in steps] for steps in (rates, expected))
        facts = {"learning_rates": [*seen[:3], *seen[-3:]], "expected": [*wanted[:3], *wanted[-3:]], "steps": len(seen)}
        word = f"{min(seen):.1e} to {max(seen):.1e}" if seen else "one learning rate"
        reason = f"schedule={setting} was set, but learning rates do not follow it ({word})"
        return Evidence(holds=holds, word=word, facts=facts, reason=reason)


def _refuse_others(run: TrainingRun, setting: str) -> None:
    """A user's step may bring an optimizer that torch's schedules do not know.

    Raises:
        Inert: it does.
    """
    import torch

    if run.own is not None and not isinstance(run.optimizer, torch.optim.Optimizer):
        raise Inert(
            f"schedule={setting} cannot be applied from outside: the step's optimizer is none of torch's, whose rates "
            "can be set; follow settings['schedule'] in build, add 'schedule' to honours, and prove it in evidence()"
        )


def total_steps(run: TrainingRun) -> int:
    """Steps over which the schedule runs: warm-up and window."""
    return run.spec.warmup_steps + run.spec.steps


def rising_steps(total: int) -> int:
    """Steps of a warm-up."""
    return max(1, round(total * RISING))


def factor(setting: str, step: int, total: int) -> float:
    """What the learning rate is multiplied by at a step (from 0), worked out from the published formula."""
    if setting == "cosine":
        return (1 + math.cos(math.pi * step / total)) / 2
    rising = rising_steps(total)
    return step / rising if step < rising else max(0.0, (total - step) / max(1, total - rising))


def _make(setting: str, optimizer: Any, total: int) -> Any:
    if setting == "cosine":
        from torch.optim.lr_scheduler import CosineAnnealingLR

        return CosineAnnealingLR(optimizer, T_max=total)
    from transformers import get_linear_schedule_with_warmup

    return get_linear_schedule_with_warmup(optimizer, rising_steps(total), total)
