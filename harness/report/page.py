"""Everything that the templates show, put together once; HTML and Markdown are two views of this."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from markupsafe import Markup

from harness.judgement.claims import Claims
from harness.judgement.judged import Judgement, Word
from harness.report import formats, tables, verdicts
from harness.report.claim_page import ClaimPage, claim_pages
from harness.report.figures.gallery import Gallery
from harness.report.machine import Machine, describe
from harness.report.origin import UNKNOWN_MATRIX, Origin
from harness.report.overview import Overview, overview
from harness.report.reproduce import ANY, again, checks_alone
from harness.results.record import Record

#: Verdicts on what was not measured.
UNMEASURED = frozenset({Word.NOT_RUN, Word.NOT_COMPARABLE, Word.NOT_TESTABLE})
#: Rows of excluded trials on the page; all are in `tables/excluded.csv`.
EXCLUDED_SHOWN = 100
#: Blocks shown in full; the rest are in `tables/cells.csv`. The default matrix has about a hundred.
BLOCKS_SHOWN = 250


@dataclass(frozen=True, kw_only=True)
class Page:
    """The whole report."""

    name: str
    machine: Machine
    checks: bool
    """All of it is of `claimbench check`: there is no matrix to run."""
    judged: bool
    """Whether the claims come first. Not where there are trials and none of them answers a claim: then the studies do,
    and the claims are folded."""
    unjudged: str
    """The line behind which they are."""
    lacking: str
    """In place of a trial: where there is none, and what to run."""
    again: dict[str, str]
    """Claim → the command that measures it again."""
    counts: tuple[verdicts.Count, ...]
    claims: tuple[ClaimPage, ...]
    looks: tuple[tuple[str, verdicts.Look], ...]
    """Legend: the verdicts that occur, with what they mean."""
    claims_table: tables.Table
    studies: tuple[tables.Study, ...]
    studies_more: int
    """Blocks that only `tables/cells.csv` shows."""
    overview: Overview
    excluded: tables.Table
    excluded_more: int
    left_out: int
    """Figures beyond the budget."""
    budget: int
    style: Markup
    script: Markup

    @property
    def figures_left_out(self) -> str:
        """That there are figures beyond the budget, in a sentence; empty where there are none."""
        if not self.left_out:
            return ""
        more = formats.plural(self.left_out, "further figure")
        return f"{more} left out: the report draws at most {self.budget}; the tables hold their numbers."


def build(
    judgement: Judgement, claims: Claims, records: Sequence[Record], gallery: Gallery, *, name: str,
    origin: Origin | None = None,
) -> Page:  # fmt: skip
    """Put the report together and draw its figures into the gallery.

    Args:
        origin: the matrices of the trials; None: nobody looked, and trials that claims are about are of matrix.yaml.
    """
    present = {verdict.word for verdict in judgement.verdicts}
    guessed = ANY if judgement.verdicts or not records else Origin(otherwise=UNKNOWN_MATRIX)
    origin = origin or guessed
    # in the order of what a reader would miss most: beyond the gallery's budget no figure is drawn
    whole = overview(judgement, claims, gallery, origin)
    pages = claim_pages(judgement, claims, gallery)
    excluded = excluded_rows(judgement.excluded)
    commands = {one.verdict.claim: again(one.claim, records, origin) for one in pages}
    checks = checks_alone(records, claims)
    machine = describe(records, None if checks else origin, excluded=judgement.excluded)
    studies = tables.studies(judgement.blocks[:BLOCKS_SHOWN], origin.questions)
    if checks:  # what a matrix would fill is not missing here
        whole = replace(whole, parts=tuple(part for part in whole.parts if not part.missing))
        machine = replace(machine, commands=(*machine.commands, *commands.values()))
    return Page(
        name=name, machine=machine, checks=checks, again=commands,
        judged=bool(pages) and (checks or not records or not present <= UNMEASURED),
        unjudged=_unjudged(judgement, claims),
        lacking="No trial is stored." if checks else origin.missing("No trial is stored.", "Run:"),
        counts=verdicts.counts(judgement.verdicts), claims=pages,
        looks=tuple((word.value, look) for word, look in verdicts.LOOKS.items() if word in present),
        claims_table=_claims_table(pages), studies=studies, overview=whole,
        studies_more=max(0, len(judgement.blocks) - BLOCKS_SHOWN), budget=gallery.budget,
        excluded=_table_of_excluded(excluded[:EXCLUDED_SHOWN]),
        excluded_more=max(0, len(excluded) - EXCLUDED_SHOWN), left_out=len(gallery.left_out),
        style=Markup(_template("report.css")), script=Markup(_template("report.js")),
    )  # fmt: skip


def _unjudged(judgement: Judgement, claims: Claims) -> str:
    """`No claim was judged on these trials: 82 not run, 1 not comparable.`"""
    if not claims.claims:
        return "There is no claims file here, so no claim was judged."
    if not judgement.verdicts:
        return "No claim of the claims file is about a study of these trials."
    words = Counter(verdict.word.value for verdict in judgement.verdicts)
    return f"No claim was judged on these trials: {', '.join(f'{count} {word}' for word, count in words.items())}."


def _claims_table(pages: Sequence[ClaimPage]) -> tables.Table:
    several = len({one.verdict.device for one in pages if one.verdict.device}) > 1
    rows = [
        (one.verdict.claim, one.places, one.claimed, one.verdict.measured or formats.ABSENT,
         f"{one.look.symbol} {one.verdict.word.value}", one.verdict.helped or formats.ABSENT,
         *([one.verdict.device or formats.ABSENT] if several else []))
        for one in pages
    ]  # fmt: skip
    columns = ("claim", "document", "claimed", "measured", "verdict", "helped at all", *(["on"] if several else []))
    return tables.Table(caption="Claims", rows=tuple(rows), columns=columns)


def excluded_rows(records: Sequence[Record]) -> list[tuple[str, ...]]:
    """Trials that ended alike share a row: study, sweep point, cell, rounds, outcome, reason."""
    alike: dict[tuple[str, str, str, str, str], list[int]] = {}
    for record in records:
        point = formats.settings(record.sweep or {}) or formats.ABSENT
        word = "superseded" if record.superseded else record.outcome.value
        alike.setdefault((record.study, point, record.arm, word, record.reason), []).append(record.round)
    return [
        (study, point, arm, ", ".join(str(each) for each in sorted(set(rounds))), word, reason or formats.ABSENT)
        for (study, point, arm, word, reason), rounds in alike.items()
    ]


def _table_of_excluded(rows: Sequence[tuple[str, ...]]) -> tables.Table:
    return tables.Table(
        caption="Trials that no figure stands on", rows=tuple(rows),
        columns=("study", "sweep point", "cell", "rounds", "outcome", "reason"),
    )  # fmt: skip


def _template(name: str) -> str:
    return (Path(__file__).parent / "templates" / name).read_text(encoding="utf-8")
