"""The first step of a window on a GPU stands by itself and counts in none of the speeds.

A window begins behind a synchronise: the device's queue is empty, and the first step takes as long as the host needs to
fill it again. No later step pays that, and no step of a long training. On an H100 and on H200s it took 6 to 75 ms more
than the median of the others, in each of 37 studies; `docs/measuring.md` says what that did to their figures.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from harness.results.record import Record

#: Where the time of the first step is kept, seconds.
FIRST_STEP = "first_step_seconds"
#: A shorter window has none to spare.
FEWEST_STEPS = 8
#: Fields that are so many a second, and those that are so much a token.
_RATES = ("tokens_per_second", "samples_per_second", "mfu", "hfu")
_COSTS = ("energy_joules_per_token",)


def without_first_step(record: Record) -> Record:
    """The record with the first step of its window under `figures`, and the speeds of the other steps.

    The same record where that has been done, where there was no warm-up (the study wants what comes first), and where
    steps are not of one size. Trials that were stored before come out as those that are made now, whole rounds of both
    can stand in one block.
    """
    if not _has_one(record):
        return record
    first, *others = record.step_seconds
    whole = math.fsum(record.step_seconds) / len(record.step_seconds)
    faster = whole / (math.fsum(others) / len(others))
    figures: dict[str, Any] = {**record.figures, FIRST_STEP: first}
    useful = figures.get("useful_tokens_per_second")
    if isinstance(useful, int | float):
        figures["useful_tokens_per_second"] = useful * faster
    changed = {name: value * faster for name in _RATES if (value := getattr(record, name)) is not None}
    changed |= {name: value / faster for name in _COSTS if (value := getattr(record, name)) is not None}
    return replace(record, step_seconds=others, figures=figures, **changed)


def _has_one(record: Record) -> bool:
    return (
        record.kind == "training" and bool(record.environment.get("devices")) and record.warmup_steps > 0
        and len(record.step_seconds) >= FEWEST_STEPS and FIRST_STEP not in record.figures
        and record.cell.get("batching", "fixed") == "fixed" and min(record.step_seconds[1:]) > 0
    )  # fmt: skip
