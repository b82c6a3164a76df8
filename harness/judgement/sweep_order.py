"""The order of a sweep's points: numbers by their value, models by their parameters."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from harness.experiment.study import MODEL
from harness.judgement.judged import BlockResult
from harness.judgement.quantities import numeric

Natural = list[tuple[int, float, str]]

_DIGITS = re.compile(r"(\d+(?:\.\d+)?)")


def sweep_key(blocks: Sequence[BlockResult]) -> Callable[[BlockResult], Natural]:
    """What to sort these blocks by; those of one study have their points in order."""
    models = models_by_size(blocks)

    def key(block: BlockResult) -> Natural:
        places = {axis: models[str(value)] if axis == MODEL else value for axis, value in block.sweep.items()}
        return [part for axis, value in places.items() for part in natural(f"{axis}={value}")]

    return key


def models_by_size(blocks: Sequence[BlockResult]) -> dict[str, int]:
    """Swept models and their places, from 1, by the most parameters that a trial of theirs counted; one without any
    comes last."""
    sizes: dict[str, float] = {}
    for block in (each for each in blocks if MODEL in each.sweep):
        model = str(block.sweep[MODEL])
        totals = [numeric(trial.parameters.get("total")) for arm in block.arms for trial in arm.trials]
        sizes[model] = max([sizes.get(model, 0.0), *(total for total in totals if total)])
    order = sorted(sizes, key=lambda model: (sizes[model] == 0.0, sizes[model], model))
    return {model: place for place, model in enumerate(order, start=1)}


def natural(text: str) -> Natural:
    """A sort key by which `batch_size=64` comes before `batch_size=128`."""
    parts = _DIGITS.split(text)
    return [(0, float(part), "") if index % 2 else (1, 0.0, part) for index, part in enumerate(parts)]
