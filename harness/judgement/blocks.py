"""Records become blocks: grouped by block, fingerprint and device, checked, compared with their baseline."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean
from typing import Any

from harness.judgement.judged import ArmResult, BlockResult, Interval, Parity
from harness.judgement.metrics import METRICS, Metric
from harness.judgement.pairs import by_key, device_key, measure, ratios
from harness.judgement.parity import LossPairs
from harness.judgement.same_training import of_the_baseline, parity_with
from harness.judgement.stats import NOISY, holm, noise_label, paired_p, ratio_interval, summarise
from harness.judgement.validity import checked, clock_gap, warnings
from harness.judgement.words import rounds
from harness.results.record import Record
from harness.techniques.registry import axis_table, techniques
from harness.trial.outcome import Outcome

VIEWS = ("allocated", "reserved", "device", "host")
#: A control's interval excludes 1 for good when its p value stays below this after Holm's correction.
SUSPECT = 0.05
#: A number by itself: no part of a version, an address or another word, and no name of a rank, a process or a line.
_NUMBER = re.compile(
    r"(?P<name>\b(?i:ranks?|process(?:es)?|pids?|lines?|ports?) \d+(?:, \d+)*)"
    r"|(?<![\w.,/-])(?P<number>[-+]?\d+(?:,\d{3})*(?:\.\d+)?%?)(?![\w/-]|[.,]\d)"
)


@dataclass(frozen=True, kw_only=True)
class Compared:
    """All blocks of the records, and the trials that no figure stands on."""

    blocks: tuple[BlockResult, ...]
    excluded: tuple[Record, ...]


def compare(records: Iterable[Record]) -> Compared:
    """Every block on every device and fingerprint, in the order in which they first appear."""
    groups: dict[tuple[str, ...], list[Record]] = {}
    excluded: list[Record] = []
    for record in records:
        if record.superseded or record.outcome is Outcome.INTERRUPTED:
            excluded.append(record)
        else:
            groups.setdefault(_group_of(record), []).append(record)
    blocks = []
    for trials in groups.values():
        kept, replaced = _latest(trials)
        good = [checked(record) for record in kept]
        excluded += replaced + [record for record in good if record.outcome is not Outcome.OK]
        blocks.append(_block(good))
    return Compared(blocks=tuple(_mark_suspects(blocks)), excluded=tuple(excluded))


def device_name(record: Record) -> str:
    """`NVIDIA H100 80GB HBM3`, or the processor's name."""
    devices = record.environment.get("devices") or []
    return str(devices[0].get("name", "GPU") if devices else record.environment.get("processor") or "CPU")


def _group_of(record: Record) -> tuple[str, ...]:
    return record.study, record.block, record.fingerprint, device_name(record), record.scale


def _latest(trials: Sequence[Record]) -> tuple[list[Record], list[Record]]:
    """The last try of each arm, round and device; the tries before it."""
    last: dict[tuple[str, int, str], Record] = {}
    replaced = []
    for record in sorted(trials, key=lambda each: (each.attempt, each.started_at)):
        key = (record.arm, record.round, device_key(record))
        if key in last:
            replaced.append(last[key])
        last[key] = record
    return sorted(last.values(), key=lambda each: (each.round, each.position)), replaced


def _block(trials: Sequence[Record]) -> BlockResult:
    arms: dict[str, list[Record]] = {}
    for record in trials:
        arms.setdefault(record.arm, []).append(record)
    ordered = sorted(arms.values(), key=lambda each: (not each[0].baseline, each[0].control))
    plain = next((each for each in ordered if each[0].baseline and not each[0].control), [])
    control = next((each for each in ordered if each[0].control), [])
    alone = of_the_baseline(plain, control)
    baseline = _arm(plain, None, alone) if plain else None
    results = [baseline] if baseline else []
    results += [_arm(each, baseline, alone) for each in ordered if each is not plain]
    first = trials[0]
    floor = next((arm.speedup for arm in results if arm.role == "control"), None)
    return BlockResult(
        study=first.study, block=first.block, kind=first.kind, workload=first.workload, model=first.model,
        sweep=dict(first.sweep or {}), scale=first.scale, device=device_name(first), fingerprint=first.fingerprint,
        arms=tuple(results), noise_floor=floor, suspect=False, rounds=len({(t.round, device_key(t)) for t in trials}),
        warnings=tuple(_block_warnings(baseline, control, first)),
    )  # fmt: skip


def _arm(trials: Sequence[Record], baseline: ArmResult | None, alone: LossPairs) -> ArmResult:
    """`alone` holds what the baseline's losses do by themselves."""
    first = trials[0]
    good = [trial for trial in trials if trial.outcome is Outcome.OK]
    speeds = [trial.tokens_per_second for trial in good if trial.tokens_per_second]
    logs = summarise([math.log(speed) for speed in speeds]) if speeds else None
    spread = logs.deviation if logs and logs.count > 1 else None
    memory = {view: peaks for view in VIEWS if (peaks := _peaks(good, view)) is not None}
    before = baseline.memory if baseline else {}
    plain = baseline.trials if baseline else ()
    cell = _whole_cell(first)
    bare = ArmResult(
        name=first.arm, role="control" if first.control else "baseline" if first.baseline else "cell",
        cell=cell, cell_key=first.cell_key,
        outcomes=dict(Counter(str(trial.outcome) for trial in trials)),
        reason=_failures(trials), tokens_per_second=math.exp(logs.mean) if logs else None, spread=spread,
        noise=noise_label(spread), speedup=None, memory=memory,
        memory_ratio={view: peaks[0] / before[view][0] for view, peaks in memory.items() if before.get(view, (0,))[0]},
        mfu=_mean(trial.mfu for trial in good), hfu=_mean(trial.hfu for trial in good), phases=_phases(good),
        parity=parity_with(trials, cell, plain, baseline.cell, alone) if baseline
        else Parity(word="is the baseline", holds=None),
        evidence=_evidence(trials, cell, baseline), flags=tuple(_flags(trials, plain)), trials=tuple(trials),
    )  # fmt: skip
    return replace(bare, speedup=speed_over(bare, baseline)) if baseline else bare


def _whole_cell(record: Record) -> dict[str, Any]:
    """The cell with every axis known here: one that is newer than the record stood at its default."""
    return {**axis_table().defaults(), **record.cell}


def speed_over(cell: ArmResult, other: ArmResult) -> Interval | None:
    """How many times as fast as another arm of its block, paired within rounds. None where no round ran both."""
    found = measure(speed_metric(other), cell, other, "")
    return found.interval if found else None


def speed_over_product(cell: ArmResult, parts: Sequence[ArmResult], baseline: ArmResult) -> Interval | None:
    """Speed of a combination against the baseline over the product of its parts' speeds, by round.

    None where no round ran all of them; a round in which one of them failed is dropped.
    """
    whole, *others = (ratios(speed_metric(baseline), arm, baseline, "")[0] for arm in (cell, *parts))
    over = [gain / math.prod(each[key] for each in others)
            for key, gain in whole.items() if all(key in each for each in others)]  # fmt: skip
    together = set.intersection(*(set(by_key(arm.trials)) for arm in (cell, *parts, baseline)))
    return ratio_interval(over, dropped=len(together) - len(over))


def speed_metric(baseline: ArmResult) -> Metric:
    """Tokens a second, or samples where no model is trained."""
    return METRICS["speedup" if baseline.tokens_per_second else "samples_ratio"]


def _peaks(good: Sequence[Record], view: str) -> tuple[float, float] | None:
    values = [peak for trial in good if (peak := getattr(trial, f"peak_{view}_bytes")) is not None]
    return (float(max(values)), float(max(values) - min(values))) if values else None


def _phases(good: Sequence[Record]) -> dict[str, float]:
    names = dict.fromkeys(name for trial in good for name in trial.phases)
    return {name: fmean(trial.phases[name] for trial in good if name in trial.phases) for name in names}


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _failures(trials: Sequence[Record]) -> str:
    """`oom in 2 of 5 rounds: CUDA out of memory …`, one part an outcome."""
    parts = []
    for outcome, count in Counter(trial.outcome for trial in trials if trial.outcome is not Outcome.OK).items():
        why = next((trial.reason for trial in trials if trial.outcome is outcome and trial.reason), "")
        parts.append(f"{outcome} in {count} of {rounds(len(trials))}{f': {why}' if why else ''}")
    return "; ".join(parts)


def _evidence(trials: Sequence[Record], cell: Mapping[str, Any], baseline: ArmResult | None) -> str:
    """The words for the axes in which the arm differs from the baseline; for the baseline all of its own."""
    proof = next((trial.evidence for trial in trials if trial.evidence), {})
    owners = {axis.name: number for number, each in enumerate(techniques()) for axis in each.axes}
    changed = {axis for axis in cell if not baseline or cell[axis] != baseline.cell.get(axis)}
    at_work = {owners[axis] for axis in changed if axis in owners}
    # a technique proves all of its axes under one of them
    shown = [each for axis, each in proof.items() if axis in changed or owners.get(axis) in at_work]
    return ", ".join(word for each in shown if isinstance(each, dict) and (word := str(each.get("word", ""))))


def _flags(trials: Sequence[Record], baseline: Sequence[Record]) -> list[str]:
    """Warnings in words: alike ones of several rounds become one."""
    alike: dict[str, list[str]] = {}
    for trial in trials:
        for warning in dict.fromkeys(warnings(trial)):
            alike.setdefault(_NUMBER.sub(lambda found: found["name"] or "\0", warning), []).append(warning)
    flags = [_span(each) + (f" ({len(each)} of {len(trials)} rounds)" if len(trials) > 1 else "")
             for each in alike.values()]  # fmt: skip
    gap = clock_gap(trials, baseline) if baseline and not trials[0].baseline else ""
    return [*flags, gap] if gap else flags


def _span(alike: Sequence[str]) -> str:
    """Warnings that differ in numbers as one, with the smallest and largest of each: `idled for 32% to 41%`."""
    columns = iter(zip(*([each["number"] for each in _NUMBER.finditer(one)] for one in alike), strict=True))

    def ends(found: re.Match[str]) -> str:
        column = next(columns)
        if found["name"]:
            return str(found["name"])
        numbers = sorted(column, key=lambda number: float(number.rstrip("%").replace(",", "")))
        return numbers[0] if numbers[0] == numbers[-1] else f"{numbers[0]} to {numbers[-1]}"

    return _NUMBER.sub(ends, alike[0])


def _block_warnings(baseline: ArmResult | None, control: Sequence[Record], first: Record) -> list[str]:
    if baseline is None:
        return [f"study {first.study} has no trial of its baseline here: nothing can be compared"]
    found = [] if control else ["no A/A control was run: the noise floor is unknown"]
    drift = _drift(baseline.trials)
    if abs(drift) > NOISY:
        found.append(f"the baseline drifted by {drift:+.1%} from its first round to its last; pairing within rounds "
                     "takes most of it out")  # fmt: skip
    return found


def _drift(trials: Sequence[Record]) -> float:
    """Change of the baseline's speed from the first round to the last where it goes one way throughout, else 0."""
    speeds = [trial.tokens_per_second for trial in trials if trial.outcome is Outcome.OK and trial.tokens_per_second]
    steps = [later - sooner for sooner, later in pairwise(speeds)]
    one_way = all(step > 0 for step in steps) or all(step < 0 for step in steps)
    return speeds[-1] / speeds[0] - 1 if len(speeds) >= 3 and one_way else 0.0


def _mark_suspects(blocks: Sequence[BlockResult]) -> list[BlockResult]:
    """Holm over all A/A controls of the run."""
    p_values = [paired_p([math.log(each) for each in block.noise_floor.observed]) if block.noise_floor else 1.0
                for block in blocks]  # fmt: skip
    places = [index for index, block in enumerate(blocks) if block.noise_floor]
    adjusted = dict(zip(places, holm([p_values[index] for index in places]), strict=True))
    return [replace(block, suspect=adjusted.get(index, 1.0) < SUSPECT) for index, block in enumerate(blocks)]
