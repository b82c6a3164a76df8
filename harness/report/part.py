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
    """What is missing; `overview` adds what to run."""
    run: str = ""
    """Before the command that would bring it; empty where none would."""
    study: str = ""
    """Of the default matrix, the study that is there for it; empty: any of them brings it."""
    rows: tuple[Row, ...] = ()
    """The same as figures, for `tables/<anchor>.csv`."""
