"""The first step of a window on a GPU stands by itself and counts in none of the speeds.

A window begins behind a synchronise: the device's queue is empty, and the first step waits for the host where later
ones do not, as no step of a long training does. On an H100 and on H200s it took 6 to 75 ms more than the median of the
others, in the median trial of each of 37 studies; `docs/measuring.md` says what that did to their figures.

Records pass through here when they are made and whenever they are read, so that trials that were stored before come out
as those that are made now, and whole rounds of both can stand in one block.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from harness.results.record import Record

#: Where the time of the first step is kept, seconds.
FIRST_STEP = "first_step_seconds"
#: A shorter window has none to spare.
FEWEST_STEPS = 9
#: Fields that are so many a second. The energy is what was metered over the whole window, and stays.
_RATES = ("tokens_per_second", "samples_per_second", "mfu", "hfu")


def without_first_step(record: Record) -> Record:
    """The record with the first step of its window under `figures`, and the speeds of the other steps.

    The same record where that has been done, and where there was no warm-up: such a study wants what comes first. The
    tokens of the first step are taken for the mean of all.
    """
    if not _has_one(record):
        return record
    first, *others = record.step_seconds
    steady = math.fsum(others) / len(others)
    # the slowest rank's window, in which all ranks keep step; the steps are rank 0's
    window = max([_window(rank) for rank in record.ranks] or [0.0]) or math.fsum(record.step_seconds)
    faster = window / len(record.step_seconds) / steady
    figures: dict[str, Any] = {**record.figures, FIRST_STEP: first}
    useful = figures.get("useful_tokens_per_second")
    if isinstance(useful, int | float):
        figures["useful_tokens_per_second"] = useful * faster
    if isinstance(parts := figures.get("breakdown"), dict):
        figures["breakdown"] = _of_a_steady_step(parts, steady)
    changed = {name: value * faster for name in _RATES if (value := getattr(record, name)) is not None}
    return replace(record, step_seconds=others, figures=figures, **changed)


def _has_one(record: Record) -> bool:
    return (
        record.kind == "training" and bool(record.environment.get("devices")) and record.warmup_steps > 0
        and len(record.step_seconds) >= FEWEST_STEPS and FIRST_STEP not in record.figures
        and min(record.step_seconds[1:]) > 0
    )  # fmt: skip


def _window(rank: dict[str, Any]) -> float:
    seconds = rank.get("window_seconds")
    return float(seconds) if isinstance(seconds, int | float) and math.isfinite(seconds) else 0.0


def _of_a_steady_step(parts: dict[str, Any], steady: float) -> dict[str, Any]:
    """Where the time of a step goes: what the first step took beyond the others had been counted as idle."""
    seconds = parts.get("seconds")
    if parts.get("measured_on") != "gpu" or not isinstance(seconds, dict) or "idle" not in seconds:
        return parts
    busy = math.fsum(spent for name, spent in seconds.items() if name != "idle")
    idle = max(0.0, steady - busy)
    return {
        **parts,
        "seconds": {**seconds, "idle": idle},
        "step_seconds": steady,
        "sum_over_step": (busy + idle) / steady,
    }
