"""Why an arm is as fast as it is: where the time of its steps went, from the profile that every trial takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from harness.judgement.judged import ArmResult
from harness.judgement.quantities import numeric
from harness.trial.outcome import Outcome

#: As `trial.breakdown` names them, with what is shown.
TITLES: Mapping[str, str] = {
    "matrix_products": "matrix products", "attention": "attention", "elementwise_and_norms": "elementwise and norms",
    "optimizer": "optimizer", "copies": "copies", "communication": "communication", "idle": "idle",
}  # fmt: skip
#: The parts and the measured step may differ by this much.
TOLERANCE = 0.05


@dataclass(frozen=True, kw_only=True)
class Why:
    """One arm, the mean over its trials."""

    arm: str
    seconds: Mapping[str, float]
    """Of a step, by category."""
    step_seconds: float
    """Measured."""
    sum_over_step: float
    """The parts added up, over the measured step."""
    measured_on: str

    @property
    def agrees(self) -> bool:
        return abs(self.sum_over_step - 1) <= TOLERANCE

    def share(self, category: str) -> float:
        return self.seconds[category] / self.step_seconds if self.step_seconds else 0.0


def why_of(arm: ArmResult) -> Why | None:
    """From the ok trials of an arm; None where they have no breakdown."""
    found = [trial.figures["breakdown"] for trial in arm.trials
             if trial.outcome is Outcome.OK and isinstance(trial.figures.get("breakdown"), dict)]  # fmt: skip
    if not found:
        return None
    seconds = {name: fmean(_number(each["seconds"].get(name)) for each in found) for name in TITLES}
    step = fmean(_number(each.get("step_seconds")) for each in found)
    return Why(
        arm=arm.name, seconds=seconds, step_seconds=step, measured_on=str(found[0].get("measured_on", "")),
        sum_over_step=sum(seconds.values()) / step if step else 0.0,
    )  # fmt: skip


def _number(value: Any) -> float:
    return numeric(value) or 0.0
