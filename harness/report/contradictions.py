"""Documents that say different things of the same figure, side by side on the same curve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.judgement.claims import Claim, Claims
from harness.judgement.judged import BlockResult, Judgement, Verdict
from harness.judgement.metrics import Metric, Shape
from harness.report import formats
from harness.report.claim_page import anchor_of, metric_of
from harness.report.figures.gallery import Gallery, Picture
from harness.report.pictures import Bounds, sweep_picture
from harness.report.sweeps import sweeps_of
from harness.report.verdicts import LOOKS, Look


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


def contradictions(judgement: Judgement, claims: Claims, gallery: Gallery) -> tuple[Contradiction, ...]:
    """Each group of claims that name each other, once."""
    verdicts = {verdict.claim: verdict for verdict in judgement.verdicts}
    return tuple(
        _contradiction(group, claims, verdicts, judgement.blocks, gallery) for group in _groups(claims, verdicts)
    )


def sides_of(judgement: Judgement, claims: Claims) -> list[tuple[Side, ...]]:
    """The same without pictures."""
    verdicts = {verdict.claim: verdict for verdict in judgement.verdicts}
    return [tuple(_side(claims.claims[name], verdicts[name], judgement.blocks) for name in group)
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
    if own is None or (own.quantity, own.statistic) != (metric.quantity, metric.statistic):
        return None, None
    low, high = claim.bounds
    if own.shape is metric.shape:
        return low, high
    first, second = (None if end is None else metric.shaped(own.unshaped(end)) for end in (low, high))
    rising = {own.shape, metric.shape} == {Shape.INVERSE, Shape.SAVED}  # both fall with r: one rises with the other
    return (first, second) if rising else (second, first)


def _contradiction(
    group: Sequence[str], claims: Claims, verdicts: dict[str, Verdict], blocks: Sequence[BlockResult], gallery: Gallery
) -> Contradiction:
    members = [(claims.claims[name], verdicts[name]) for name in group]
    first = members[0][0]
    metric = metric_of(first)
    own = [block for block in blocks if block.study == first.study and not block.another]
    sweeps = sweeps_of(first, metric, own) if metric else ()
    bands = [
        (verdict, bounds)
        for claim, verdict in members
        if metric and claim.study == first.study and (bounds := bounds_on(metric, claim)) != (None, None)
    ]
    picture = sweep_picture(bands, sweeps[0], gallery) if sweeps and len(bands) > 1 else None
    swept = not own or any(block.sweep for block in own)
    missing = "" if picture or not (bands and swept) else (
        f"No curve: study {first.study} has no two measured sweep points. "
        f"Run: claimbench run --matrix matrix.yaml --study {first.study}"
    )  # fmt: skip
    return Contradiction(
        anchor=f"contradiction-{formats.slug('-'.join(group))}", title=" against ".join(group), picture=picture,
        sides=tuple(_side(claim, verdict, blocks) for claim, verdict in members), missing=missing,
    )  # fmt: skip


def _side(claim: Claim, verdict: Verdict, blocks: Sequence[BlockResult]) -> Side:
    metric = metric_of(claim)
    own = [block for block in blocks if block.study == claim.study and not block.another]
    sweeps = sweeps_of(claim, metric, own) if metric else ()
    holds = [sentence for sweep in sweeps for sentence in sweep.sentences]
    return Side(
        name=verdict.claim, anchor=anchor_of(verdict.claim), documents=claim.documents, statement=claim.statement,
        quotes=tuple(source.quote for source in claim.sources), verdict=verdict, look=LOOKS[verdict.word],
        holds=tuple(holds),
    )  # fmt: skip
