"""The section of one claim: what was said, what was measured, what proves it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from harness.experiment.scale import SMOKE
from harness.judgement.claims import Claim, Claims, show_settings
from harness.judgement.judged import ArmResult, BlockResult, Judgement, Verdict, Word, stands_on
from harness.judgement.metrics import Metric, UnknownMetric, metric_named
from harness.judgement.site import IN_SMOKE, find
from harness.judgement.words import title
from harness.report import formats, proof, tables
from harness.report.details import Detail, details
from harness.report.figures.gallery import Gallery, Picture
from harness.report.losses import losses_picture
from harness.report.pictures import Bounds, sweep_picture
from harness.report.rangeplot import range_plot
from harness.report.sweeps import Sweep, sweeps_of
from harness.report.verdicts import LOOKS, Look, rank
from harness.report.why import why_table


@dataclass(frozen=True, kw_only=True)
class Quote:
    """One place in one document."""

    text: str
    language: str
    """`zh` where the words are Chinese, else `en`: the page tells browsers and screen readers."""
    document: str
    title: str
    original_title: str
    section: str
    file: str


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A link to another claim."""

    name: str
    anchor: str
    statement: str


@dataclass(frozen=True, kw_only=True)
class Further:
    """A further study that explains a claim, and the claim along its sweep, where it has one with the claim's cells."""

    study: str
    anchor: str
    sweeps: tuple[tuple[Sweep, Picture | None], ...]


@dataclass(frozen=True, kw_only=True)
class ClaimPage:
    """All that the page shows of one claim."""

    claim: Claim
    verdict: Verdict
    look: Look
    rank: int
    anchor: str
    claimed: str
    """The claimed range; a dash for a statement without one, which stands beside it anyway."""
    plot: Markup
    quotes: tuple[Quote, ...]
    places: str
    """`D1 §1C, D2 table`."""
    comparison: str
    """Which cell against which baseline, where, on which metric."""
    metric: str
    contradicts: tuple[Reference, ...]
    study_anchor: str
    measured: tables.Table | None
    memory: tables.Table | None
    figures: tables.Table | None
    evidence: tables.Table | None
    parity: tables.Table | None
    why: tables.Table | None
    """Where the time of a step went, baseline first."""
    details: tuple[Detail, ...]
    sweeps: tuple[tuple[Sweep, Picture | None], ...]
    see: tuple[Further, ...]
    """Those that were run of the claim's further studies."""
    losses: Picture | None = None
    losses_at: str = ""
    """The anchor of the section where the same loss curves stand already; empty where they stand here."""


def claim_pages(judgement: Judgement, claims: Claims, gallery: Gallery) -> tuple[ClaimPage, ...]:
    """One for every claim that was judged, in the order of the verdicts."""
    blocks = by_study(judgement)
    built = []
    for verdict in judgement.verdicts:
        claim = claims.claims[verdict.claim]
        own = blocks.get(claim.study, [])
        primary = primary_block(claim, verdict, own)
        further = further_sweeps(verdict, claim, blocks)
        built.append((_page(verdict, claims, own, gallery, primary=primary, further=further), primary))
    return tuple(_with_losses(built, gallery))


def by_study(judgement: Judgement) -> dict[str, list[BlockResult]]:
    """The blocks that claims may be judged on."""
    blocks: dict[str, list[BlockResult]] = {}
    for block in (each for each in judgement.blocks if not each.another):
        blocks.setdefault(block.study, []).append(block)
    return blocks


def further_sweeps(
    verdict: Verdict, claim: Claim, blocks: Mapping[str, Sequence[BlockResult]]
) -> dict[str, tuple[Sweep, ...]]:
    """The claim along what its further studies sweep: of each that was run, in the order of `see`."""
    metric = metric_of(claim)
    return {study: sweeps_beside(verdict, claim, metric, blocks[study], study) for study in claim.see
            if study in blocks}  # fmt: skip


def _with_losses(pages: Iterable[tuple[ClaimPage, BlockResult | None]], gallery: Gallery) -> Iterator[ClaimPage]:
    """The loss curves of each page's block, once; after all other figures, of which a report has so many at most."""
    shown: dict[str, str] = {}
    for page, primary in pages:
        losses = losses_picture(primary, gallery) if primary else None
        first = shown.setdefault(losses.file, page.anchor) if losses else page.anchor
        here = first == page.anchor
        yield replace(page, losses=losses if here else None, losses_at="" if here else first)


def anchor_of(claim: str) -> str:
    """Where the section of a claim stands in the page."""
    return f"claim-{formats.slug(claim)}"


def metric_of(claim: Claim) -> Metric | None:
    """The claim's metric; None for a statement without one, or a metric that this version does not know."""
    try:
        return metric_named(claim.metric) if claim.metric else None
    except UnknownMetric:
        return None


def _page(
    verdict: Verdict, claims: Claims, blocks: Sequence[BlockResult], gallery: Gallery, *,
    primary: BlockResult | None, further: Mapping[str, Sequence[Sweep]],
) -> ClaimPage:  # fmt: skip
    claim = claims.claims[verdict.claim]
    metric = metric_of(claim)
    group = [primary] if primary else []
    arms = _arms(claim, primary)
    return ClaimPage(
        claim=claim, verdict=verdict, look=LOOKS[verdict.word], rank=rank(verdict.word),
        anchor=anchor_of(verdict.claim),
        claimed=verdict.claimed if verdict.claimed not in {"", claim.statement} else formats.ABSENT,
        plot=range_plot(verdict, neutral=metric.neutral if metric else None),
        quotes=_quotes(claim, claims), places=claim.documents, comparison=_comparison(claim, metric, verdict, primary),
        metric=f"{title(metric)}: {metric.meaning}" if metric else "", contradicts=_contradicts(claim, claims),
        study_anchor=tables.study_anchor(claim.study) if blocks else "",
        measured=tables.study_table(claim.study, group) if group else None,
        memory=tables.memory_table(group), figures=tables.figures_table(group),
        evidence=proof.evidence_table(arms), parity=proof.parity_table(arms),
        why=why_table([*_baseline(primary), *_compared_with(claim, primary, arms), *arms]),
        details=details(verdict, metric),
        sweeps=_drawn(verdict, claim, sweeps_beside(verdict, claim, metric, blocks), gallery),
        see=tuple(
            Further(study=study, anchor=tables.study_anchor(study), sweeps=_drawn(verdict, claim, sweeps, gallery))
            for study, sweeps in further.items()
        ),
    )  # fmt: skip


def _drawn(
    verdict: Verdict, claim: Claim, sweeps: Sequence[Sweep], gallery: Gallery
) -> tuple[tuple[Sweep, Picture | None], ...]:
    return tuple((sweep, sweep_picture([(verdict, _band(claim))], sweep, gallery)) for sweep in sweeps)


def sweeps_beside(
    verdict: Verdict, claim: Claim, metric: Metric | None, blocks: Sequence[BlockResult], further: str = ""
) -> tuple[Sweep, ...]:
    """The curves that a claim is held against, `further` as in `sweeps_of`: none where the trials are of another kind
    of machine than it speaks of, where no figure stands beside what is claimed."""
    return sweeps_of(claim, metric, blocks, further) if metric and verdict.word is not Word.NOT_COMPARABLE else ()


def _band(claim: Claim) -> Bounds:
    """What the figure shows of the claim: its range, or its limit as a line."""
    return (claim.limit, claim.limit) if claim.limit is not None else claim.bounds


def primary_block(claim: Claim, verdict: Verdict, blocks: Sequence[BlockResult]) -> BlockResult | None:
    """The block that the verdict stands on, else the one at the claim's sweep point, else the study's first."""
    by_key = [block for block in blocks if stands_on(verdict, block)]
    by_point = [block for block in blocks if claim.at.items() <= block.sweep.items()]
    return next(iter([*by_key, *by_point, *blocks]), None)


def _arms(claim: Claim, block: BlockResult | None) -> list[ArmResult]:
    """The arms that the claim speaks of; all of the block where it names none that is there."""
    if block is None:
        return []
    entries = [settings for entry in claim.order for settings in entry.cells]
    names = {show_settings(settings) for settings in (claim.cell, *claim.also, *entries)} - {"baseline"}
    named = [arm for arm in block.arms if arm.name in names]
    return named or [arm for arm in block.arms if arm.role == "cell"]


def _baseline(block: BlockResult | None) -> list[ArmResult]:
    return [block.baseline] if block and block.baseline else []


def _compared_with(claim: Claim, block: BlockResult | None, arms: Sequence[ArmResult]) -> list[ArmResult]:
    """The arm that the claim's cell is held against, where it is not the study's baseline."""
    own = find(block, claim.baseline) if block and claim.baseline else None
    return [own] if own is not None and own.role != "baseline" and own not in arms else []


def _quotes(claim: Claim, claims: Claims) -> tuple[Quote, ...]:
    quotes = []
    for source in claim.sources:
        document = claims.documents.get(source.document)
        quotes.append(
            Quote(
                text=source.quote,
                document=source.document,
                section=source.section,
                language="zh" if any("\u4e00" <= sign <= "\u9fff" for sign in source.quote) else "en",
                title=document.title if document else "",
                file=document.file if document else "",
                original_title=document.original_title if document else "",
            )
        )
    return tuple(quotes)


def _comparison(claim: Claim, metric: Metric | None, verdict: Verdict, primary: BlockResult | None) -> str:
    """Where the verdict stands on trials, the place at which they ran, else the one that the claim names."""
    where = f", on {verdict.device}" if verdict.device else ""
    if primary is not None and stands_on(verdict, primary) and primary.scale == SMOKE:
        where += f", {IN_SMOKE}"
    if claim.order:
        return f"{', '.join(entry.title for entry in claim.order)}: each on its own best cell{where}"
    cells = " and ".join(show_settings(cell) for cell in (claim.cell, *claim.also))
    baseline = show_settings(claim.baseline)
    at = {**claim.at, **verdict.sweep}  # in the order of the claim
    point = f" at {formats.settings(at)}" if at else ""
    if counts := verdict.details.get("state"):  # a limit stands on every number of devices that was measured
        point = f" at devices={', '.join(counts)}"
    view = f", {claim.view} memory" if metric and metric.uses_view else ""
    against = f" against {baseline}" if metric is None or metric.neutral is not None else ""
    return f"{cells}{against} in study {claim.study}{point}{view}{where}"


def _contradicts(claim: Claim, claims: Claims) -> tuple[Reference, ...]:
    others = [claims.claims[name] for name in claim.contradicts if name in claims.claims]
    names = [name for name in claim.contradicts if name in claims.claims]
    return tuple(
        Reference(name=name, anchor=anchor_of(name), statement=other.statement)
        for name, other in zip(names, others, strict=True)
    )
