"""Which trials belong together: one number a trial, paired inside a block, round and device."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.judgement.judged import ArmResult, Interval
from harness.judgement.metrics import Metric, Shape, Statistic
from harness.judgement.quantities import numeric
from harness.judgement.stats import Summary, level_interval, ratio_interval, summarise
from harness.judgement.words import rounds
from harness.results.record import Record
from harness.trial.outcome import Outcome

#: A round on one device: what two trials share that may be compared.
PairKey = tuple[int, str]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A metric of a cell, with what is needed to say how many rounds would settle it."""

    interval: Interval
    summary: Summary | None = None
    """Of the logarithms of r = cell ÷ baseline (paired) or of the plain values (level); None for memory."""
    ratio: float | None = None
    """r itself; None for a level."""
    overflowed: str = ""
    """Of peak memory: the arms that ran out of it in some rounds, in words. What the other rounds needed is then no
    peak."""


def device_key(record: Record) -> str:
    """The device (or the host, on a CPU) that a trial ran on; the others of the machine do not count."""
    environment = record.environment
    used = environment.get("device_uuid")
    if used:
        return str(used)
    devices = environment.get("devices") or []
    return str(devices[0].get("uuid", "")) if devices else str(environment.get("host", ""))


def pair_key(record: Record) -> PairKey:
    return record.round, device_key(record)


def by_key(trials: Iterable[Record]) -> dict[PairKey, Record]:
    """Trials of one arm by round and device; the last one of a round counts."""
    return {pair_key(trial): trial for trial in trials}


def matched(cell: Sequence[Record], baseline: Sequence[Record]) -> tuple[list[tuple[Record, Record]], int]:
    """The pairs of which both arms are ok, in order of rounds, and the number of pairs dropped since one failed.

    A round in which one of them was not run (it came to the study later, or the run was cut short) has no pair to drop.
    """
    first, second = by_key(cell), by_key(baseline)
    keys = sorted(first.keys() & second.keys())
    pairs = [(first[key], second[key]) for key in keys if _ok(first[key]) and _ok(second[key])]
    return pairs, len(keys) - len(pairs)


def measure(metric: Metric, cell: ArmResult, baseline: ArmResult | None, view: str) -> Measured | None:
    """The metric of `cell` against `baseline` (which a level does without); None where the records lack the figure."""
    if metric.statistic is Statistic.LEVEL:
        return _level(metric, cell.trials, view)
    if metric.statistic is Statistic.WORST:
        return _worst(metric, cell.trials, view)
    if baseline is None:
        return None
    if metric.statistic is Statistic.MAXIMUM:
        return _maximum(metric, cell.trials, baseline.trials, view)
    return _paired(metric, cell, baseline, view)


def ratios(metric: Metric, cell: ArmResult, baseline: ArmResult, view: str) -> tuple[dict[PairKey, float], int]:
    """r = cell ÷ baseline by round, and the number of rounds that were dropped."""
    pairs, dropped = matched(cell.trials, baseline.trials)
    scale = device_count(cell.cell) / device_count(baseline.cell) if metric.per_device else 1.0
    found = {}
    for one, other in pairs:
        above, below = metric.quantity(one, view), metric.quantity(other, view)
        if above and below and above > 0 and below > 0:
            found[pair_key(one)] = above / below / scale
    return found, dropped + len(pairs) - len(found)


def _paired(metric: Metric, cell: ArmResult, baseline: ArmResult, view: str) -> Measured | None:
    found, dropped = ratios(metric, cell, baseline, view)
    plain = ratio_interval(list(found.values()), dropped=dropped)
    if plain is None:
        return None
    summary = summarise([math.log(ratio) for ratio in found.values()])
    return Measured(interval=shaped(metric, plain), summary=summary, ratio=plain.value)


def _maximum(metric: Metric, cell: Sequence[Record], baseline: Sequence[Record], view: str) -> Measured | None:
    above, below = (_values(metric, trials, view) for trials in (cell, baseline))
    if not above or not below or max(below) <= 0 or (metric.shape is Shape.INVERSE and max(above) <= 0):
        return None
    ratio = max(above) / max(below)
    failed = {pair_key(trial) for trial in (*cell, *baseline) if trial.outcome is not Outcome.OK}
    paired = len({pair_key(trial) for trial in cell} - failed)
    inverse = metric.shape is Shape.INVERSE
    each, own = ([metric.shaped(value / max(below)) for value in values if value > 0 or not inverse]
                 for values in (above, below))  # fmt: skip
    overflowed = _overflowed(metric, cell, baseline)
    reference = (-math.inf, math.inf) if overflowed else (min(own), max(own))
    interval = Interval(value=metric.shaped(ratio), rounds=paired or len(above), dropped=len(failed),
                        observed=tuple(each), reference=reference)  # fmt: skip
    return Measured(interval=interval, ratio=ratio, overflowed=overflowed)


def _overflowed(metric: Metric, *arms: Sequence[Record]) -> str:
    """`precision=bf16 ran out of memory in 4 of 5 rounds`; empty where none did, or where the metric is no peak."""
    parts = []
    for trials in arms if metric.is_peak else ():
        count = sum(trial.outcome is Outcome.OOM for trial in trials)
        parts += [f"{trials[0].arm} ran out of memory in {count} of {rounds(len(trials))}"] if count else []
    return " and ".join(parts)


def _level(metric: Metric, cell: Sequence[Record], view: str) -> Measured | None:
    values = _values(metric, cell, view)
    interval = level_interval(values, dropped=len(cell) - len(values))
    if interval is not None and metric.unit == "share" and all(0 <= value <= 1 for value in values):
        interval = _within_0_and_1(interval)
    return Measured(interval=interval, summary=summarise(values)) if interval else None


def computed(trials: Iterable[Record]) -> list[Record]:
    """Trials whose arithmetic counts: also those whose timing does not (a neighbour, a compilation in the window)."""
    return [trial for trial in trials if trial.outcome in (Outcome.OK, Outcome.INVALID)]


def _worst(metric: Metric, cell: Sequence[Record], view: str) -> Measured | None:
    """Trials without a figure are not dropped pairs: most rounds do not look."""
    values = _values(metric, cell, view)
    if not values:
        return None
    interval = Interval(value=max(values), rounds=len(values), observed=tuple(values))
    return Measured(interval=interval, overflowed=_overflowed(metric, cell))


def _within_0_and_1(interval: Interval) -> Interval:
    """The mean of shares lies between none and all, whatever Student's t says of a few rounds."""
    low, high = interval.low, interval.high
    if low is None or high is None:
        return interval
    return replace(interval, low=max(low, 0.0), high=min(high, 1.0))


def _values(metric: Metric, trials: Sequence[Record], view: str) -> list[float]:
    counted = computed(trials) if metric.untimed else [trial for trial in trials if trial.outcome is Outcome.OK]
    found = (metric.quantity(trial, view) for trial in counted)
    return [value for value in found if value is not None]


def shaped(metric: Metric, ratio: Interval) -> Interval:
    """The interval of r turned into the metric's own shape; a falling shape swaps the ends."""
    if metric.shape is Shape.RATIO:
        return ratio
    ends = (ratio.high, ratio.low)
    low, high = (None if end is None else metric.shaped(end) for end in ends)
    observed = tuple(metric.shaped(each) for each in ratio.observed)
    return Interval(value=metric.shaped(ratio.value), low=low, high=high, rounds=ratio.rounds,
                    dropped=ratio.dropped, observed=observed)  # fmt: skip


def device_count(cell: Mapping[str, object]) -> int:
    return int(numeric(cell.get("devices", 1)) or 1)


def _ok(record: Record | None) -> bool:
    return record is not None and record.outcome is Outcome.OK
