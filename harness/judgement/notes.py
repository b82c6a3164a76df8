"""What a reader of a verdict should know beside it: dropped pairs, noise, a suspect study, warnings of the trials."""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness.experiment.cell import Cell, Workload
from harness.experiment.scale import SMOKE
from harness.judgement.claims import show_settings
from harness.judgement.judged import ArmResult, Interval
from harness.judgement.metrics import METRICS, Metric, Statistic
from harness.judgement.own_step import broken_rounds
from harness.judgement.pairs import computed, pair_key
from harness.judgement.parity import Demand, demand_of
from harness.judgement.site import IN_SMOKE, Site, made_how
from harness.judgement.stats import noise_label, summarise
from harness.judgement.validity import HELD_UP, IDLED
from harness.judgement.words import measured, rounds
from harness.results.fingerprint import revisions_of
from harness.techniques.registry import techniques
from harness.trial.outcome import Outcome

#: Of a verdict on trials that would be made otherwise now.
BEFORE = "was measured before"


def notes_on(site: Site, interval: Interval | None, metrics: Sequence[Metric] = ()) -> list[str]:
    """One clause each, the weightiest first. Memory has no interval, and does not care how the time passed.

    Args:
        metrics: what is judged or shown, the judged one first; nothing for a statement that names none: its speed.
    """
    judged = metrics or (METRICS["speedup"],)
    timed = any(metric.statistic.has_interval for metric in judged)
    passed = [*_noise(site, judged), *(_waits(site) if interval else []), *_drift(site)] if timed else []
    return [*_tiny(site), *_suspect(site), *_control_strays(site), *_older(site), *_dropped(site, interval),
            *_elsewhere(site, judged[0]), *_broken(site, judged),
            *_strayed(site), *_gradient_unseen(site, judged), *passed]  # fmt: skip


def _tiny(site: Site) -> list[str]:
    """Sizes of the smoke scale are other ones than those of the matrix, the sweep's too."""
    point = f" at {show_settings(site.block.sweep)}" if site.block.sweep else ""
    return [f"judged {IN_SMOKE}{point}"] if site.block.scale == SMOKE else []


def _suspect(site: Site) -> list[str]:
    floor = site.block.noise_floor
    if floor is None or not (site.block.suspect or site.block.control_differs):
        return []
    came = f"its A/A control, the baseline under a second name, came out at {measured(METRICS['speedup'], floor)}"
    alone = f"{came}: apart from 1 by itself, not after correction over all controls"
    return [f"the study is suspect: {came}" if site.block.suspect else alone]


def _control_strays(site: Site) -> list[str]:
    """One cell run twice trained apart, so that parity of the others proves less."""
    why = site.block.control_strays
    return [f"its A/A control fails parity, the baseline run twice did not train the same: {why}"] if why else []


def _older(site: Site) -> list[str]:
    """Where trials were made before a technique came to do something else."""
    made = made_how(site.block).revisions
    again = f"`claimbench run --study {site.block.study}` measures it anew"
    changes = {each.axes[0].name: each.revised for each in techniques() if each.axes}
    found = []
    for arm in site.arms:
        cell = Cell(workload=Workload(name="", model=""), settings=arm.cell)
        found += [
            f"{arm.name} {BEFORE} {changes[axis]}; {again}"
            for axis, revision in revisions_of(techniques(), [cell]).items()
            if made.get(axis, 1) < revision
        ]
    return found


def _dropped(site: Site, interval: Interval | None) -> list[str]:
    if interval is None or not interval.dropped:
        return []
    why = "; ".join(f"{arm.name}: {arm.reason}" for arm in site.arms if arm.reason)
    cause = f"failed ({why})" if why else "has no such figure in them"
    return [f"{interval.dropped} of {rounds(interval.rounds + interval.dropped)} were dropped because an arm {cause}"]


def _broken(site: Site, judged: Sequence[Metric]) -> list[str]:
    """Rounds in which a user's step trained nothing in the end: parity leaves them out. Where that leaves none, the
    verdict itself says so of what hangs on it."""
    broken, whole = broken_rounds(site)
    if len(broken) == whole and any(metric.gated for metric in judged):
        return []
    where = f"in {len(broken)} of {rounds(whole)} the loss of {site.baseline.name} becomes infinite or no number"
    return [f"{where} (from step {broken[0][1]} on in round {broken[0][0]})"] if broken else []


def _strayed(site: Site) -> list[str]:
    """Rounds in which the losses left the baseline's although those of most rounds did not."""
    return [
        f"in {arm.parity.strayed} of {rounds(arm.parity.rounds)} the losses of {arm.name} lie up to "
        f"{arm.parity.worst_gap:.3g} nats from the baseline's, {arm.parity.judged} {arm.parity.loss_gap:.3g}"
        for arm in site.arms
        if arm.parity.strayed
    ]


def _gradient_unseen(site: Site, judged: Sequence[Metric]) -> list[str]:
    """Where parity stands on the losses alone, since no round compared the first gradient or said why it cannot be."""
    trials = computed(site.arm.trials)
    owed = trials and trials[0].kind == "training" and any(metric.gated for metric in judged)
    if not owed or site.arm.role != "cell" or any(trial.gradient_check for trial in trials):
        return []
    if demand_of(site.arm.cell, site.baseline.cell)[0] is Demand.UNEQUAL:
        return []
    return [f"the first gradient of {site.arm.name} was compared in no round, so that its losses alone say what it "
            "trained"]  # fmt: skip


def _elsewhere(site: Site, metric: Metric) -> list[str]:
    """Trials of the cell that make no pair: their round has no trial of the baseline on the device that they ran on."""
    if site.arm is site.baseline or metric.statistic is not Statistic.PAIRED:
        return []
    cell = {pair_key(trial) for trial in site.arm.trials if trial.outcome is Outcome.OK}
    lost = len(cell - {pair_key(trial) for trial in site.baseline.trials})
    missing = f"{site.baseline.name} did not run on the same device in the same round"
    return [f"{lost} of {len(cell)} trials of {site.arm.name} without a pair: {missing}"] if lost else []


def _noise(site: Site, metrics: Sequence[Metric]) -> list[str]:
    """By the spread of what is judged: busy time may be steady where tokens/s are not. A level has its interval."""
    paired = [metric for metric in metrics if metric.statistic is Statistic.PAIRED]
    spreads = [(arm.name, metric.subject, _spread(arm, metric)) for metric in paired for arm in site.arms]
    return [f"{name} is {noise}: its {subject} spreads by {spread:.1%} between trials"
            for name, subject, spread in spreads if spread is not None and (noise := noise_label(spread))]  # fmt: skip


def _spread(arm: ArmResult, metric: Metric) -> float | None:
    """Standard deviation of the logarithm of what the metric reads, between the ok trials."""
    read = [metric.quantity(trial, "") for trial in arm.trials if trial.outcome is Outcome.OK]
    logs = [math.log(value) for value in read if value is not None and value > 0]
    return summarise(logs).deviation if len(logs) > 1 else None


def _waits(site: Site) -> list[str]:
    """Where a figure of time is the host's rather than the device's, or that of a few steps rather than of most."""
    waited = (HELD_UP, IDLED)
    return [f"{arm.name}: {flag}" for arm in site.arms for flag in arm.flags if any(each in flag for each in waited)]


def _drift(site: Site) -> list[str]:
    return [warning for warning in site.block.warnings if "drifted" in warning]
