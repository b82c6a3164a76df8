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
    idle: tuple[float, float] = (0.0, 0.0)
    """Idle share of the step in the trial with the least and in that with the most."""

    @property
    def agrees(self) -> bool:
        return abs(self.sum_over_step - 1) <= TOLERANCE

    @property
    def busy_seconds(self) -> float:
        """Of the profiled step: all parts but idle, each instant once, whatever runs on other streams."""
        return sum(seconds for name, seconds in self.seconds.items() if name != "idle")

    @property
    def disagreement(self) -> str:
        """Why the parts do not add up to the step, in a sentence; empty where they do."""
        if self.agrees:
            return ""
        said = f"the parts of {self.arm} add up to {self.sum_over_step:.1%} of the measured step"
        if self.sum_over_step < 1:
            return f"{said}: the profiled step was another one"
        waits = self.seconds["communication"] > 0
        why = ", of which kernels of communication also wait for the other devices" if waits else ""
        return (f"{said}. They do not overlap, each instant counts once: the device was busy for "
                f"{1000 * self.busy_seconds:.3g} ms of the profiled steps{why}; the measured ones took "
                f"{1000 * self.step_seconds:.3g} ms")  # fmt: skip

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
    idle = [_number(each["seconds"].get("idle")) / (_number(each.get("step_seconds")) or 1.0) for each in found]
    return Why(
        arm=arm.name, seconds=seconds, step_seconds=step, measured_on=str(found[0].get("measured_on", "")),
        sum_over_step=sum(seconds.values()) / step if step else 0.0, idle=(min(idle), max(idle)),
    )  # fmt: skip


def _number(value: Any) -> float:
    return numeric(value) or 0.0
