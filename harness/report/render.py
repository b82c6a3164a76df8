"""From a page to files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import jinja2
from markupsafe import Markup, escape

from harness.errors import EnvironmentProblem
from harness.judgement.claims import Claims
from harness.judgement.judged import Judgement, Word
from harness.report import csvs, formats, verdicts
from harness.report.figures.gallery import BUDGET, Gallery
from harness.report.figures.studio import Studio
from harness.report.markdown import code_line, escape_text, table
from harness.report.order import in_reading_order
from harness.report.origin import Origin
from harness.report.page import Page, build
from harness.results.record import Record

#: A store of more trials than this gets fewer figures: the tables take the time.
LARGE, LARGE_BUDGET = 5000, 12


def write_report(
    judgement: Judgement,
    claims: Claims,
    records: Sequence[Record],
    folder: Path,
    *,
    name: str,
    figures: int | None,
    studio: Studio,
    origin: Origin | None = None,
) -> Path:
    """Tables, `report.md`, figures and `report.html`, in this order; the path of the last."""
    budget = figures if figures is not None else BUDGET if len(records) <= LARGE else LARGE_BUDGET
    try:
        _prepare(folder)
        judgement = in_reading_order(about_these_trials(judgement, claims))
        gallery = Gallery(folder=folder / "figures", studio=studio, budget=budget)
        page = build(judgement, claims, records, gallery, name=name, origin=origin)
        _write_tables(folder / "tables", judgement, page)
        (folder / "report.md").write_text(_markdown(page), encoding="utf-8")
        gallery.finish()
        html = folder / "report.html"
        html.write_text(_html(page, gallery), encoding="utf-8")
    except OSError as error:
        what = f"the report cannot be written to {folder}: {error.strerror or error}"
        raise EnvironmentProblem(f"{what}; name another folder with --output") from error
    return html


def about_these_trials(judgement: Judgement, claims: Claims) -> Judgement:
    """Without the claims, where none of them stands on a study that was run: a page of `not run` says nothing."""
    studies = {block.study for block in judgement.blocks}
    stands_on = {verdict.study or claims.claims[verdict.claim].study for verdict in judgement.verdicts}
    if not studies or studies & stands_on or any(each.word is not Word.NOT_RUN for each in judgement.verdicts):
        return judgement
    return replace(judgement, verdicts=())


def _prepare(folder: Path) -> None:
    for part, endings in (("figures", ("svg", "png")), ("tables", ("csv",))):
        (folder / part).mkdir(parents=True, exist_ok=True)
        for ending in endings:
            for old in (folder / part).glob(f"*.{ending}"):
                old.unlink()


def _write_tables(folder: Path, judgement: Judgement, page: Page) -> None:
    files = {
        "claims": csvs.claim_rows(judgement.verdicts),
        "cells": csvs.cell_rows(judgement.blocks),
        "figures": csvs.figure_rows(judgement.blocks),
        "excluded": csvs.excluded_rows(judgement.excluded),
        **page.overview.tables,
    }
    for name, rows in files.items():
        if rows:
            csvs.write_csv(folder / f"{name}.csv", rows)


def _html(page: Page, gallery: Gallery) -> str:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("harness.report"), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.globals.update(formats=formats, looks=verdicts.LOOKS, inline=gallery.inline)
    environment.filters["ticks"] = ticks
    return _without_blank_lines(environment.get_template("report.html.j2").render(page=page))


def _markdown(page: Page) -> str:
    # Autoescape is for HTML; here every value is escaped for Markdown unless it is marked safe.
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("harness.report"), autoescape=False, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, finalize=escape_text,
    )  # fmt: skip
    environment.globals.update(formats=formats, table=table)
    environment.filters["code_line"] = code_line
    return re.sub(r"\n{3,}", "\n\n", environment.get_template("report.md.j2").render(page=page)).strip() + "\n"


def ticks(text: str) -> Markup:
    """Escaped text in which words between backticks are set as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _without_blank_lines(text: str) -> str:
    return re.sub(r"\n\s*\n+", "\n", text) + "\n"
