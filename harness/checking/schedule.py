"""How much fits a budget: decided once, from the pilot's times, before the first round that counts.

The pilot is one round of a few steps. It warms caches, shows whether the step builds and the setting takes effect, and
says how long a step and everything around it take. From that the number of steps and of rounds is fixed; it does not
depend on what the rounds then measure, so that nobody stops when the answer pleases.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from harness.checking.question import Question, Size
from harness.experiment.study import FEWEST_ROUNDS, SweepPoint
from harness.results.record import Record
from harness.trial.outcome import Outcome

PILOT = Size(warmup_steps=3, steps=3, rounds=1)
MOST_ROUNDS = 7
#: The fastest arm's window, seconds, on a GPU and on a CPU.
WINDOW_SECONDS = {True: 3.0, False: 2.0}
#: A window that is shorter is not steady (docs/measuring.md); it is taken where no other fits, and said.
SHORT_WINDOW_SECONDS = 1.0
#: More steps than this and rounding alone may drive the losses of two arms apart: parity's bounds are for short runs.
FEWEST_STEPS, MOST_STEPS = 5, 1000
#: Warm-up of a step that takes longer than this is shorter.
SLOW_STEP_SECONDS = 0.5
WARMUP_STEPS, SHORT_WARMUP_STEPS = 8, 4
#: Steps after the window: the profiled one and those that some techniques ask for.
PROBING_STEPS = 3
#: Reading a compilation cache instead of compiling.
WARM_COMPILE_SECONDS = 7.0
#: What is left unplanned: times vary.
SPARE = 0.1
_SIZES = ("sequence_length", "batch_size", "accumulation")


@dataclass(frozen=True, kw_only=True)
class ArmTimes:
    """One arm of the pilot."""

    step_seconds: float
    around_seconds: float
    """Start, build, evidence: whatever is no step."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """What is going to run."""

    size: Size
    points: int
    """Of the sweep, from its first on."""
    round_seconds: float = 0.0
    """Expected, of one round at all points; 0 where an earlier check fixed all of this."""
    stored: int = 0
    """Rounds, those of all points counted, that an earlier check left in the store."""


@dataclass(frozen=True, kw_only=True)
class TooShort:
    """Three rounds do not fit."""

    needed_seconds: float
    """For three rounds of the first point, with as few steps as there may be."""


def pilot_times(records: Sequence[Record]) -> list[ArmTimes]:
    """Of each arm of the pilot that ran well."""
    return [_times(record) for record in records if record.outcome is Outcome.OK and record.step_seconds]


def schedule(
    question: Question, times: Sequence[ArmTimes], *, seconds: float, gpu: bool, rounds: int | None = None
) -> Schedule | TooShort:
    """Steps and rounds for a budget.

    Args:
        question: its sweep points run as far as three rounds of them fit.
        times: of every arm of a block, the control included.
        seconds: what is left of the budget.
        gpu: whether trials run on one.
        rounds: as many, whatever the budget; None: as many as fit, three at least and seven at most.
    """
    slowest, fastest = max(each.step_seconds for each in times), min(each.step_seconds for each in times)
    warmup = WARMUP_STEPS if slowest <= SLOW_STEP_SECONDS else SHORT_WARMUP_STEPS
    usable = seconds * (1 - SPARE)
    fewest = rounds or FEWEST_ROUNDS
    first_round = sum(each.around_seconds for each in times)  # the gradient check builds the step anew
    whole, short = (_steps(window / fastest) for window in (WINDOW_SECONDS[gpu], SHORT_WINDOW_SECONDS))
    some = _steps_that_fit(times, warmup, (usable - first_round) / fewest)
    for steps in dict.fromkeys((whole, min(whole, short), min(whole, short, some))):
        costs = [_round_seconds(times, warmup, steps, _scale(question.points, point)) for point in question.points]
        points = next((count for count in range(len(costs), 0, -1)
                       if fewest * sum(costs[:count]) + first_round <= usable), 0)  # fmt: skip
        if points or rounds:
            points = points or len(costs)
            each = sum(costs[:points])
            fitting = rounds or max(FEWEST_ROUNDS, min(MOST_ROUNDS, int((usable - first_round) / each)))
            return Schedule(
                size=Size(warmup_steps=warmup, steps=steps, rounds=fitting), points=points, round_seconds=each
            )
    return TooShort(needed_seconds=(FEWEST_ROUNDS * costs[0] + first_round) / (1 - SPARE))


def _steps(wanted: float) -> int:
    return min(MOST_STEPS, max(FEWEST_STEPS, math.ceil(wanted)))


def _steps_that_fit(times: Sequence[ArmTimes], warmup: int, seconds: float) -> int:
    """Of a round at the first point that takes so long; as few as there may be where it is too short for any."""
    left = seconds - _round_seconds(times, warmup, 0, 1.0)
    return max(FEWEST_STEPS, math.floor(left / sum(each.step_seconds for each in times)))


def _times(record: Record) -> ArmTimes:
    step = fmean(record.step_seconds)
    compiling = record.compile_seconds or 0.0
    spent = (record.warmup_steps + record.steps + PROBING_STEPS) * step + compiling
    around = max(0.5, (record.wall_seconds or 0.0) - spent) + min(compiling, WARM_COMPILE_SECONDS)
    return ArmTimes(step_seconds=step, around_seconds=around)


def _round_seconds(times: Sequence[ArmTimes], warmup: int, steps: int, scale: float) -> float:
    in_steps = (warmup + steps + PROBING_STEPS) * scale
    return sum(each.around_seconds + in_steps * each.step_seconds for each in times)


def _scale(points: Sequence[SweepPoint], point: SweepPoint) -> float:
    """How much longer a step is at a point than at the first, by the sizes alone: a guess that learns nothing."""
    scale = 1.0
    for axis in _SIZES:
        here, first = point.get(axis), points[0].get(axis)
        if isinstance(here, int) and isinstance(first, int) and first:
            scale *= here / first
    return scale
