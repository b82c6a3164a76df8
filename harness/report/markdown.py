"""Markdown: what comes from data is escaped, so that a name can be shown and never becomes markup."""

from __future__ import annotations

import re
from html import escape

from harness.report.tables import Table

_SPECIAL = re.compile(r"([\\`*_\[\]|~#])")


class Safe(str):
    """Markdown that was made here and is not escaped again."""

    __slots__ = ()


def escape_text(value: object) -> object:
    """Text with Markdown's and HTML's signs made harmless, on one line; anything but text as it is."""
    if isinstance(value, Safe) or not isinstance(value, str):
        return value
    return _SPECIAL.sub(r"\\\1", escape(re.sub(r"\s+", " ", value), quote=False))


def code_line(text: str) -> Safe:
    """A line inside a fence: there nothing is markup but the fence itself."""
    return Safe(" ".join(text.replace("`", "'").split()))


def table(content: Table) -> Safe:
    """A Markdown table; numbers to the right, rows that stand out in bold; its notes as points below it."""
    rule = ["---:" if index in content.numeric else "---" for index in range(len(content.columns))]
    rows = [_row(row, bold=index in content.strong) for index, row in enumerate(content.rows)]
    notes = [f"- {escape_text(note)}" for note in content.notes]
    return Safe("\n".join([_row(content.columns), f"| {' | '.join(rule)} |", *rows, *(["", *notes] if notes else [])]))


def _row(cells: tuple[str, ...], *, bold: bool = False) -> str:
    shown = [str(escape_text(cell)) for cell in cells]
    return f"| {' | '.join(f'**{cell}**' if bold and cell else cell for cell in shown)} |"
