"""A limit for many devices: extrapolated from the device counts that were run."""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness.judgement.claims import Claim
from harness.judgement.finding import Finding
from harness.judgement.judged import BlockResult, Interval, Word
from harness.judgement.metrics import Metric
from harness.judgement.pairs import device_count, measure
from harness.judgement.quantities import state_per_parameter
from harness.judgement.site import Site, machine_of, one_a_point, standing, worth
from harness.judgement.verdict import helped
from harness.judgement.words import number
from harness.judgement.zero import WHOLE_BYTES, Fit, OneDeviceCountError, StatePoint, fit, limit_of, sentence
from harness.results.record import Record
from harness.trial.outcome import Outcome


def judge_limit(claim: Claim, metric: Metric, site: Site, blocks: Sequence[BlockResult]) -> Finding:
    """The fit over every device count at which the claim's cell ran on this machine."""
    same = [block for block in blocks if machine_of(block) == machine_of(site.block)]

    def measures(each: Site) -> bool:
        return standing(each, metric) is None and _state(each.arm.trials) is not None

    sites = filter(measures, one_a_point(claim.cell, claim.baseline, same, measures).values())
    # of several at one number of devices the last one stands
    found = {device_count(each.arm.cell): each for each in sorted(sites, key=worth)}
    usable = list(found.values())
    states = {devices: state for devices, each in found.items() if (state := _state(each.arm.trials))}
    points = [StatePoint(devices=devices, bytes_per_parameter=state) for devices, state in states.items()]
    absent = standing(site, metric)
    if not points:
        return Finding(word=absent.word if absent else Word.NOT_TESTABLE,
                       reason=absent.reason if absent else "the records have no bytes of model state")  # fmt: skip
    whole = [state for each in usable if (state := _state(each.baseline.trials))]
    try:
        fitted = fit(points, max(whole, default=WHOLE_BYTES))
    except OneDeviceCountError as problem:
        reason = f"a limit for many devices cannot be extrapolated: {problem}; run it at two device counts at least"
        return Finding(word=Word.NOT_TESTABLE, reason=reason)
    largest = max(usable, key=lambda each: device_count(each.arm.cell))
    return _finding(claim, metric, largest, fitted)


def _finding(claim: Claim, metric: Metric, largest: Site, found: Fit) -> Finding:
    """The ratio measured at the largest device count, and what the fit makes of it."""
    here = measure(metric, largest.arm, largest.baseline, claim.view)
    interval = here.interval if here else Interval(value=found.whole_bytes / found.points[-1].bytes_per_parameter)
    devices = device_count(largest.arm.cell)
    limit = "no limit" if math.isinf(found.limit) else f"limit {number(metric, found.limit)}"
    details = {
        "fits": [
            *({"bytes per parameter and rank": form, "off by": f"{error:.1%}", "limit": _limit(limit_of(form))}
              for form, error in sorted(found.errors.items(), key=lambda each: each[1])),
            {"bytes per parameter and rank": "{:.2f} + {:.2f}/N (fitted)".format(*found.free),
             "off by": "" if found.free_error is None else f"{found.free_error:.1%}",
             "limit": _limit(found.free_limit)},
        ],
        "state": {str(point.devices): point.bytes_per_parameter for point in found.points},
        "predictions": {str(each): {"bytes_per_parameter": state, "ratio": found.ratio(each)}
                        for each, state in found.predictions.items()},
    }  # fmt: skip
    return Finding(
        word=Word.EXTRAPOLATED, reason=sentence(found, claim.limit or math.inf), interval=interval,
        measured=f"{number(metric, interval.value)} at {devices} devices, {limit}", helped=helped(metric, interval),
        details=details,
    )  # fmt: skip


def _limit(ratio: float) -> str:
    return "none" if math.isinf(ratio) else f"{ratio:.2f}x"


def _state(trials: Sequence[Record]) -> float | None:
    """The fullest rank of all ok trials, bytes per parameter."""
    states = [state for trial in trials if trial.outcome is Outcome.OK and (state := state_per_parameter(trial))]
    return max(states, default=None)
