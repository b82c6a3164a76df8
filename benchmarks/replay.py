"""Measured step times for pytest-benchmark: a clock that replays them, and what stands beside them in `extra_info`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from harness.judgement.judged import ArmResult, BlockResult, Interval
from harness.results.record import Record

#: Version of the layout of `extra_info`. 2: speeds without the first step of a window on a GPU.
LAYOUT = 2


class ReplayedClock:
    """A timer for the `benchmark` marker. pytest-benchmark reads it before and after each round; the two readings are
    one recorded step apart.

    Each round begins at zero again: a sum of all steps before it would cost the last digits of the difference, and the
    medians must be those of the store.
    """

    __name__ = "replayed_clock"  # what pytest-benchmark writes under `options.timer`

    def __init__(self) -> None:
        self._readings: Iterator[float] = iter(())

    def load(self, step_seconds: Iterable[float]) -> None:
        """Replay these, in this order."""
        self._readings = iter([reading for seconds in step_seconds for reading in (0.0, seconds)])

    def __call__(self) -> float:
        return next(self._readings)


def step() -> None:
    """What pytest-benchmark calls between two readings: the step has been run already, in a process of its own."""


def step_seconds(trials: Iterable[Record]) -> list[float]:
    """The steps of all trials, round by round."""
    return [seconds for trial in trials for seconds in trial.step_seconds]


def extra_info(block: BlockResult, arm: ArmResult) -> dict[str, Any]:
    """What is known of a cell beside its step times. Units are in the names; null is a figure that could not be had.

    `trials` holds the one number of each trial: `claimbench compare` works with these, never with the steps.
    """
    first = arm.trials[0]
    return {
        "claimbench": LAYOUT,
        "study": block.study,
        "sweep": block.sweep,
        "cell": arm.name,
        "role": arm.role,
        "kind": block.kind,
        "cell_key": arm.cell_key,
        "workload": block.workload,
        "model": block.model,
        "settings": arm.cell,
        "scale": block.scale,
        "warmup_steps": first.warmup_steps,
        "steps": first.steps,
        "device": block.device,
        "outcome": arm.outcomes,
        "tokens_per_second": arm.tokens_per_second,
        "speedup": _interval(arm.speedup),
        "noise_floor": _interval(block.noise_floor),
        **{f"peak_{view}_bytes": arm.memory[view][0] if view in arm.memory else None for view in _VIEWS},
        "mfu": arm.mfu,
        "hfu": arm.hfu,
        "parity": arm.parity.word,
        "evidence": arm.evidence,
        "warnings": list(arm.flags),
        "trials": [_trial(trial) for trial in arm.trials],
    }


_VIEWS = ("allocated", "reserved", "device", "host")


def _trial(record: Record) -> dict[str, Any]:
    return {
        "round": record.round, "outcome": str(record.outcome), "tokens_per_second": record.tokens_per_second,
        "samples_per_second": record.samples_per_second,
        "steps_per_second": len(record.step_seconds) / sum(record.step_seconds) if record.step_seconds else None,
        "started_at": record.started_at,
    }  # fmt: skip


def _interval(interval: Interval | None) -> dict[str, Any] | None:
    """A ratio with its 95% interval and the ratio of each round."""
    if interval is None:
        return None
    return {"value": interval.value, "low": interval.low, "high": interval.high, "observed": list(interval.observed)}
