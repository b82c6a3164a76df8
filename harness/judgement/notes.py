"""What a reader of a verdict should know beside it: dropped pairs, noise, a suspect study, warnings of the trials."""

from __future__ import annotations

from harness.experiment.cell import Cell, Workload
from harness.judgement.judged import Interval
from harness.judgement.metrics import METRICS, Metric, Statistic
from harness.judgement.pairs import pair_key
from harness.judgement.site import Site, made_how
from harness.judgement.validity import IDLED
from harness.judgement.words import measured
from harness.results.fingerprint import revisions_of
from harness.techniques.registry import techniques
from harness.trial.outcome import Outcome

#: Of a verdict on trials that would be made otherwise now.
BEFORE = "was measured before"


def notes_on(site: Site, interval: Interval | None, metric: Metric | None = None) -> list[str]:
    """One clause each, the weightiest first."""
    return [*_suspect(site), *_control_strays(site), *_older(site), *_dropped(site, interval),
            *_elsewhere(site, metric), *_strayed(site), *_noise(site), *_waits(site, interval),
            *_drift(site)]  # fmt: skip


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
    whole = interval.rounds + interval.dropped
    return [f"{interval.dropped} of {whole} rounds were dropped because an arm failed{f' ({why})' if why else ''}"]


def _strayed(site: Site) -> list[str]:
    """Rounds in which the losses left the baseline's although those of most rounds did not."""
    return [
        f"in {arm.parity.strayed} of {arm.parity.rounds} rounds the losses of {arm.name} lie up to "
        f"{arm.parity.worst_gap:.3g} nats from the baseline's, in the median round {arm.parity.loss_gap:.3g}"
        for arm in site.arms
        if arm.parity.strayed
    ]


def _elsewhere(site: Site, metric: Metric | None) -> list[str]:
    """Rounds of which cell and baseline ran on different devices, so that they make no pair."""
    if site.arm is site.baseline or metric is None or metric.statistic is not Statistic.PAIRED:
        return []
    cell, baseline = ({pair_key(trial) for trial in arm.trials if trial.outcome is Outcome.OK}
                      for arm in (site.arm, site.baseline))  # fmt: skip
    paired = {number for number, _ in cell & baseline}
    lost = len({number for number, _ in cell} & {number for number, _ in baseline} - paired)
    return [f"{lost} round(s) make no pair: cell and baseline ran on different devices"] if lost else []


def _noise(site: Site) -> list[str]:
    return [f"{arm.name} is {arm.noise}: its trials spread by {arm.spread:.1%}"
            for arm in site.arms if arm.noise and arm.spread is not None]  # fmt: skip


def _waits(site: Site, interval: Interval | None) -> list[str]:
    """Where a figure of time is the host's rather than the device's. Memory has no interval, and does not care."""
    if interval is None:
        return []
    return [f"{arm.name}: {flag}" for arm in site.arms for flag in arm.flags if IDLED in flag]


def _drift(site: Site) -> list[str]:
    return [warning for warning in site.block.warnings if "drifted" in warning]
