"""Documents that say different things of the same figure, side by side on the same curve."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.judgement.claims import Claim, Claims, show_settings
from harness.judgement.judged import BlockResult, Judgement, Verdict, Word
from harness.judgement.metrics import Metric, Shape
from harness.judgement.scope import HOLDS
from harness.report import formats
from harness.report.claim_page import anchor_of, by_study, metric_of, sweeps_beside
from harness.report.figures.gallery import Gallery, Picture
from harness.report.origin import Origin
from harness.report.pictures import Bounds, sweep_picture
from harness.report.reproduce import ANY
from harness.report.sweeps import sweeps_of
from harness.report.verdicts import LOOKS, Look

#: Verdicts against a claim.
FAILS = frozenset({Word.REFUTED_BELOW, Word.REFUTED_ABOVE, Word.NOT_REACHED})


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of the claims, with what is said and what was found."""

    name: str
    anchor: str
    documents: str
    statement: str
    quotes: tuple[str, ...]
    verdict: Verdict
    look: Look
    holds: tuple[str, ...]
    """Where along the curve it holds, in sentences."""


@dataclass(frozen=True, kw_only=True)
class Contradiction:
    """Two or more claims that cannot all be right under the same conditions."""

    anchor: str
    title: str
    sides: tuple[Side, ...]
    picture: Picture | None
    missing: str
    agreed: str
    """Where there is no curve and one measurement answers all of them alike: what it says, in place of the sides."""


def contradictions(
    judgement: Judgement, claims: Claims, gallery: Gallery, origin: Origin = ANY
) -> tuple[Contradiction, ...]:
    """Each group of claims that name each other, once; those of which there is nothing to say are left out."""
    verdicts = {verdict.claim: verdict for verdict in judgement.verdicts}
    blocks = by_study(judgement)
    groups = (
        _contradiction([(claims.claims[name], verdicts[name]) for name in group], blocks, gallery, origin)
        for group in _groups(claims, verdicts)
    )
    return tuple(each for each in groups if not _says_nothing(each))


def sides_of(judgement: Judgement, claims: Claims) -> list[tuple[Side, ...]]:
    """The same without pictures."""
    verdicts = {verdict.claim: verdict for verdict in judgement.verdicts}
    blocks = by_study(judgement)
    return [tuple(_side(claims.claims[name], verdicts[name], blocks) for name in group)
            for group in _groups(claims, verdicts)]  # fmt: skip


def _groups(claims: Claims, verdicts: Mapping[str, Verdict]) -> list[tuple[str, ...]]:
    named = dict.fromkeys(
        tuple(sorted({name, *claim.contradicts} & verdicts.keys(), key=list(verdicts).index))
        for name, claim in claims.claims.items() if claim.contradicts and name in verdicts
    )  # fmt: skip
    return [group for group in named if len(group) > 1]


def bounds_on(metric: Metric, claim: Claim) -> Bounds:
    """The claim's range in units of `metric`: 7.6 times less memory is 87% saved. Two Nones where there is no way."""
    own = metric_of(claim)
    if own is None or _told_of(own) != _told_of(metric):
        return None, None
    low, high = claim.bounds
    if own.shape is metric.shape:
        return low, high
    first, second = (None if end is None else metric.shaped(own.unshaped(end)) for end in (low, high))
    rising = {own.shape, metric.shape} == {Shape.INVERSE, Shape.SAVED}  # both fall with r: one rises with the other
    return (first, second) if rising else (second, first)


def _told_of(metric: Metric) -> tuple[object, ...]:
    """What two metrics must have in common to be shapes of one ratio."""
    return metric.quantity, metric.statistic, metric.per_device


def _contradiction(
    members: Sequence[tuple[Claim, Verdict]],
    blocks: Mapping[str, Sequence[BlockResult]],
    gallery: Gallery,
    origin: Origin,
) -> Contradiction:
    group = [verdict.claim for _, verdict in members]
    first = members[0][0]
    metric = metric_of(first)
    own = blocks.get(first.study, ())
    sweeps = sweeps_of(first, metric, own) if metric else ()
    bands = [
        (verdict, bounds)
        for claim, verdict in members
        if metric
        and claim.study == first.study
        and (claim.view == first.view or not metric.uses_view)
        and (bounds := bounds_on(metric, claim)) != (None, None)
    ]
    held = [(verdict, bounds) for verdict, bounds in bands if verdict.word is not Word.NOT_COMPARABLE]
    picture = sweep_picture(held, sweeps[0], gallery) if sweeps and len(held) > 1 else None
    swept = not own or any(block.sweep for block in own)
    missing = "" if sweeps or not (bands and swept) else _no_curve(first, own, origin)
    sides = tuple(_side(claim, verdict, blocks) for claim, verdict in members)
    alike = not picture and not missing and not any(side.holds for side in sides)
    return Contradiction(
        anchor=f"contradiction-{formats.slug('-'.join(group))}", title=" against ".join(group), picture=picture,
        sides=sides, missing=missing, agreed=_agreed([verdict for _, verdict in members]) if alike else "",
    )  # fmt: skip


def _no_curve(claim: Claim, own: Sequence[BlockResult], origin: Origin) -> str:
    """Which points are missing: of a study that was run they are those of the claim's own cells."""
    cells = " or ".join(show_settings(cell) for cell in (claim.cell, *claim.also))
    lacking = f"there are no two sweep points with a figure of {cells}" if own else "it was not run"
    matrix = shlex.quote(claim.matrix or (origin.of(claim.study) if own else origin.whole))
    command = f"claimbench run --matrix {matrix} --study {shlex.quote(claim.study)}"
    return f"No curve of study {claim.study}: {lacking}. Run: {command}"


def _agreed(verdicts: Sequence[Verdict]) -> str:
    """`Both hold: utilisation 97.1%.` Empty where the verdicts differ, or are of no measurement."""
    words = {verdict.word for verdict in verdicts}
    if words <= HOLDS:
        said = "Both hold" if len(verdicts) == 2 else "All hold"
    elif words <= FAILS:
        said = "Neither holds" if len(verdicts) == 2 else "None holds"
    else:
        return ""
    found = dict.fromkeys(verdict.measured for verdict in verdicts if verdict.measured)
    return f"{said}: {'; '.join(found)}." if found else ""


def _says_nothing(group: Contradiction) -> bool:
    """Nothing was measured of any side, and there is no curve to wait for."""
    measured = any(side.verdict.measured or side.holds for side in group.sides)
    return not (measured or group.picture or group.missing)


def _side(claim: Claim, verdict: Verdict, blocks: Mapping[str, Sequence[BlockResult]]) -> Side:
    sweeps = sweeps_beside(verdict, claim, metric_of(claim), blocks.get(claim.study, ()))
    holds = [sentence for sweep in sweeps for sentence in sweep.sentences]
    return Side(
        name=verdict.claim, anchor=anchor_of(verdict.claim), documents=claim.documents, statement=claim.statement,
        quotes=tuple(source.quote for source in claim.sources), verdict=verdict, look=LOOKS[verdict.word],
        holds=tuple(holds),
    )  # fmt: skip
