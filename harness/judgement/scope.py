"""Where else a claim holds: the same judgement at every point of the sweep and on every further cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.judgement.claims import Claim, show_settings
from harness.judgement.judged import BlockResult, Word
from harness.judgement.metrics import Metric
from harness.judgement.pairs import measure
from harness.judgement.same_training import parity_at
from harness.judgement.site import Site, machine_of, one_a_point, site_in, standing
from harness.judgement.sweep_order import sweep_key
from harness.judgement.verdict import decide, too_few

HOLDS = frozenset({Word.CONFIRMED, Word.REACHED})
#: What becomes of a claim at a point, in words; where none of the words applies there is no figure.
FATES: Mapping[str, frozenset[Word]] = {
    "holds": HOLDS,
    "fails": frozenset({Word.REFUTED_BELOW, Word.REFUTED_ABOVE, Word.NOT_REACHED, Word.FAST_BUT_DIFFERENT}),
    "undecided": frozenset({Word.INCONCLUSIVE}),
}


@dataclass(frozen=True, kw_only=True)
class Scope:
    """The points on the machine of the primary one."""

    text: str
    """`holds at 1, fails at 2, undecided at 1 of 4 points; it holds at …`; empty where there is one point only."""
    points: tuple[dict[str, Any], ...]
    """For curves: sweep, arm, value, low, high, rounds, word, reason."""


def scope_of(claim: Claim, metric: Metric, primary: Site, blocks: Sequence[BlockResult]) -> Scope:
    """Judge the claim at every point; the primary one is among them."""
    sites = _sites(claim, primary, blocks)
    points = [_point(claim, metric, site) for site in sites]
    if len(points) < 2:
        return Scope(text="", points=tuple(points))
    return Scope(text=_counted(points), points=tuple(points))


def _counted(points: Sequence[Mapping[str, Any]]) -> str:
    counts = {fate: sum(1 for point in points if point["word"] in words) for fate, words in FATES.items()}
    counts["no figure"] = len(points) - sum(counts.values())
    parts = [f"{fate} at {count}" for fate, count in counts.items() if count or fate == "holds"]
    holding = ", ".join(str(point["name"]) for point in points if point["word"] in HOLDS)
    some = f"; it holds at {holding}" if 0 < counts["holds"] < len(points) else ""
    return f"{', '.join(parts)} of {len(points)} points{some}"


def _sites(claim: Claim, primary: Site, blocks: Sequence[BlockResult]) -> list[Site]:
    """One site a point and cell, in the order of the sweep."""
    same = [block for block in blocks if machine_of(block) == machine_of(primary.block)]
    found: list[Site] = []
    for cell in (claim.cell, *claim.also):
        points = one_a_point(cell, claim.baseline, same)
        own = site_in(primary.block, cell, claim.baseline)
        if own is not None:  # what the verdict stands on is not shown from elsewhere
            points[show_settings(primary.block.sweep), *machine_of(primary.block)] = own
        found += points.values()
    point = sweep_key([primary.block, *same])
    return sorted(found, key=lambda site: point(site.block))


def _point(claim: Claim, metric: Metric, site: Site) -> dict[str, Any]:
    here = show_settings(site.block.sweep) if site.block.sweep else ""
    name = " ".join(part for part in (here, site.arm.name if not here or claim.also else "") if part)
    point: dict[str, Any] = {"name": name, "sweep": dict(site.block.sweep), "arm": site.arm.name, "value": None,
                             "low": None, "high": None, "rounds": 0}  # fmt: skip
    absent = standing(site, metric)
    found = None if absent else measure(metric, site.arm, site.baseline, claim.view)
    if absent or found is None:
        reason = absent.reason if absent else "the records lack the figure"
        return {**point, "word": absent.word if absent else Word.NOT_TESTABLE, "reason": reason}
    decision = decide(claim, metric, found)
    parity = parity_at(site)
    failed = metric.gated and parity.holds is False and not too_few(metric, found.interval)
    word = Word.FAST_BUT_DIFFERENT if failed else decision.word
    interval = found.interval
    return {**point, "value": interval.value, "low": interval.low, "high": interval.high, "rounds": interval.rounds,
            "word": word, "reason": parity.reason if failed else decision.reason}  # fmt: skip
