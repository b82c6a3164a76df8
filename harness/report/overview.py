"""What is seen across studies: contradictions, speed against memory, the stack, phases, targets, noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from harness.judgement.claims import Claim, Claims
from harness.judgement.judged import BlockResult, Judgement
from harness.judgement.places import fits
from harness.judgement.site import Absent, blocks_of, current
from harness.judgement.sweep_order import sweep_key
from harness.report.agreement import agreement_part
from harness.report.contradictions import Contradiction, contradictions
from harness.report.csvs import Row
from harness.report.fastest import fastest_part
from harness.report.figures.gallery import Gallery, Picture
from harness.report.frontier import frontier_part
from harness.report.interactions import interactions_part
from harness.report.leave_one_out import leave_one_out_part
from harness.report.levels import estimator_part, targets_part
from harness.report.noise import noise_part
from harness.report.origin import Origin
from harness.report.part import Part
from harness.report.pictures import memory_picture, phases_picture
from harness.report.reproduce import ANY
from harness.report.stack import stack_part

Draw = Callable[[BlockResult, Gallery], Picture | None]
#: Studies whose phases and memory are drawn; all are in the tables.
MOST_DRAWN = 12


@dataclass(frozen=True, kw_only=True)
class Overview:
    """The sections after the claims."""

    contradictions: tuple[Contradiction, ...]
    parts: tuple[Part, ...]
    tables: dict[str, list[Row]] = field(default_factory=dict)
    """File name → rows, for the CSV files of these sections."""


def overview(judgement: Judgement, claims: Claims, gallery: Gallery, origin: Origin = ANY) -> Overview:
    """Put the sections together; one that has nothing to show says what is missing and what to run."""
    blocks = current(judgement.blocks)
    drawn = _drawn(blocks, claims)
    answers = contradictions(judgement, claims, gallery, origin)
    parts = (
        frontier_part(blocks, gallery),
        fastest_part(blocks),
        stack_part(blocks, gallery),
        leave_one_out_part(blocks, gallery),
        interactions_part(blocks, gallery),
        _drawn_part(
            "phases", "Where the time of a step goes", "Phases", _each(drawn, gallery, phases_picture),
            "No trial recorded the phases of a step. They are recorded by every training trial that ends ok.", run="",
        ),
        _drawn_part(
            "memory", "Peak memory in three views", "Memory", _each(drawn, gallery, memory_picture),
            "No device memory was recorded: it needs a GPU.", run="Run on one:",
        ),
        targets_part(judgement, claims, gallery),
        estimator_part(blocks, claims, gallery),
        noise_part(judgement.blocks, gallery),
        agreement_part(blocks),
    )  # fmt: skip
    rows = {part.anchor: list(part.rows) for part in parts if part.rows}
    return Overview(
        contradictions=answers, parts=tuple(_with_command(part, origin) for part in parts), tables=rows,
    )  # fmt: skip


def _with_command(part: Part, origin: Origin) -> Part:
    if not part.missing or not part.run:
        return part
    return replace(part, missing=origin.missing(part.missing, part.run, part.study))


def _drawn_part(anchor: str, title: str, short: str, pictures: Sequence[Picture], missing: str, *, run: str) -> Part:
    missing = "" if pictures else missing
    return Part(anchor=anchor, title=title, short=short, pictures=tuple(pictures), missing=missing, run=run)


def _drawn(blocks: Sequence[BlockResult], claims: Claims) -> list[BlockResult]:
    """A block of each training study: those that claims are about first, in the order of the claims."""
    groups: dict[str, list[BlockResult]] = {}
    for block in (each for each in blocks if each.kind == "training"):
        groups.setdefault(block.study, []).append(block)
    asked = [claim.study for claim in claims.claims.values()]
    ranks = {study: asked.index(study) if study in asked else len(asked) for study in groups}
    studies = sorted(groups, key=lambda study: ranks[study])[:MOST_DRAWN]
    return [_telling(groups[study], [each for each in claims.claims.values() if each.study == study])
            for study in studies]  # fmt: skip


def _telling(blocks: Sequence[BlockResult], claims: Sequence[Claim]) -> BlockResult:
    """The block at the point that the study's claims name, else at its largest: on one device ZeRO shards nothing.

    Of several there the one that counts (`site.blocks_of`).
    """
    found = blocks_of(blocks[0].study, "any", blocks)
    ranked = list(blocks) if isinstance(found, Absent) else found
    named = [block for claim in claims if claim.at for block in ranked if fits(block.sweep, claim.at)]
    return named[0] if named else max(ranked, key=sweep_key(ranked))


def _each(blocks: Sequence[BlockResult], gallery: Gallery, draw: Draw) -> list[Picture]:
    drawn = (draw(block, gallery) for block in blocks)
    return [picture for picture in drawn if picture is not None]
