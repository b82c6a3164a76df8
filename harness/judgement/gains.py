"""Gains of several cells on one scale, for claims that rank or multiply them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from harness.judgement.claims import Claim, Entry
from harness.judgement.judged import BlockResult, Word
from harness.judgement.metrics import Metric, Shape
from harness.judgement.pairs import Measured, PairKey, measure, ratios
from harness.judgement.same_training import parity_at
from harness.judgement.site import Absent, Site, at_point, blocks_of, machine_of, one_a_point, standing


@dataclass(frozen=True, kw_only=True, eq=False)
class Gain:
    """One entry, measured. Logarithms are oriented so that more is more gain, whatever the metric's shape."""

    title: str
    site: Site
    found: Measured
    total: float
    """ln(gain) over all rounds."""
    logs: dict[PairKey, float]
    """ln(gain) by round; empty for memory."""
    different: bool
    """It fails parity."""

    def row(self) -> dict[str, object]:
        """For the claim's page."""
        interval, arm = self.found.interval, self.site.arm
        return {
            "name": self.title, "study": self.site.block.study, "arm": arm.name, "value": interval.value,
            "low": interval.low, "high": interval.high, "rounds": interval.rounds, "parity": arm.parity.word,
        }  # fmt: skip


def measure_entry(entry: Entry, claim: Claim, metric: Metric, blocks: Sequence[BlockResult]) -> Gain | Absent:
    """The gain of the entry's best cell, on the best machine that ran its study; a cell that trained something else is
    no best one where another did not."""
    study = entry.study or claim.study
    own = blocks_of(study, claim.device, blocks, claim)
    if isinstance(own, Absent):
        return own
    at = entry.at or (claim.at if study == claim.study else {})
    same_machine = [block for block in own if machine_of(block) == machine_of(own[0])]

    def gain(site: Site) -> Gain | None:
        return gain_at(site, metric, claim.view, entry.title) if standing(site, metric) is None else None

    here = at_point(same_machine, at)
    if isinstance(here, Absent):
        return here
    of_cells = (one_a_point(cell, entry.baseline, here, lambda site: gain(site) is not None) for cell in entry.cells)
    sites = [site for points in of_cells for site in points.values()]
    gains = [found for site in sites if (found := gain(site)) is not None]
    if gains:
        return max(gains, key=lambda gain: (not gain.different, gain.total))
    missing = Absent(word=Word.NOT_RUN, reason=f"study {study!r} has no trial of it")
    return next((fault for site in sites if (fault := standing(site, metric)) is not None), missing)


def gain_at(site: Site, metric: Metric, view: str, title: str) -> Gain | None:
    """The gain at one place; None where the records lack the figure."""
    found = measure(metric, site.arm, site.baseline, view)
    if found is None or not found.ratio:
        return None
    by_round, _ = ratios(metric, site.arm, site.baseline, view)
    sign = _sign(metric)
    return Gain(
        title=title, site=site, found=found, total=sign * math.log(found.ratio),
        logs={key: sign * math.log(ratio) for key, ratio in by_round.items()},
        different=metric.gated and parity_at(site).holds is False,
    )  # fmt: skip


def value_of(metric: Metric, total: float) -> float:
    """The metric's value for ln(gain)."""
    return metric.shaped(math.exp(_sign(metric) * total))


def is_the_gain(metric: Metric) -> bool:
    """Whether the metric's value is the gain itself: r, of which more is more."""
    return metric.shape is Shape.RATIO and metric.more_is_better is not False


def _sign(metric: Metric) -> float:
    """+1 where a larger r = cell ÷ baseline is the larger gain."""
    rising = metric.shape is Shape.RATIO
    return 1.0 if rising == (metric.more_is_better is not False) else -1.0
