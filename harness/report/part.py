"""A section of the report that is not about one claim."""

from __future__ import annotations

from dataclasses import dataclass

from harness.report.csvs import Row
from harness.report.figures.gallery import Picture
from harness.report.tables import Table


@dataclass(frozen=True, kw_only=True)
class Part:
    """Sentences, figures and tables under one title; `missing` instead where there is nothing to show."""

    anchor: str
    title: str
    short: str
    """The title in the list of contents."""
    lead: str = ""
    """How to read it, in a sentence or two."""
    sentences: tuple[str, ...] = ()
    """What it shows, computed from the data."""
    pictures: tuple[Picture, ...] = ()
    tables: tuple[Table, ...] = ()
    missing: str = ""
    """What is missing and what to run."""
    rows: tuple[Row, ...] = ()
    """The same as figures, for `tables/<anchor>.csv`."""
