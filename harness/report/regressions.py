"""Two runs side by side: what `claimbench compare` prints, for a terminal and for a pull request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from harness.judgement.regress import CellChange, Comparison, Word
from harness.report import formats
from harness.report.terminal import add_row, empty_table

if TYPE_CHECKING:
    from rich.table import Table

#: Slow-downs that are told by number.
MOST_SHOWN = 9.0
HEAD = ("cell", "before", "after", "ratio", "memory", "finds", "result")
#: Most interesting first.
ORDER = (Word.FAILS, Word.SLOWER, Word.FASTER, Word.SAME, Word.NOT_COMPARED)


def summary(comparison: Comparison) -> str:
    """`2 of 12 cells slower or failing, 1 faster (threshold 5%)`."""
    compared = [cell for cell in comparison.cells if cell.word is not Word.NOT_COMPARED]
    faster = sum(cell.word is Word.FASTER for cell in compared)
    parts = [f"{len(comparison.regressions)} of {formats.plural(len(compared), 'cell')} slower or failing"]
    parts += [f"{faster} faster"] if faster else []
    parts += [f"{left} not compared"] if (left := len(comparison.cells) - len(compared)) else []
    return f"{', '.join(parts)} (threshold {100 * comparison.threshold:g}%)"


def lines_above(comparison: Comparison) -> Iterator[str]:
    """What stands before the table."""
    if comparison.warning:
        yield f"{comparison.warning}."
    yield f"before: {comparison.before.path} ({', '.join(comparison.before.devices)})"
    yield f"after: {comparison.after.path} ({', '.join(comparison.after.devices)})"


def lines_below(comparison: Comparison) -> Iterator[str]:
    """What stands after it: notes, what changed around the code, the count."""
    for note in comparison.notes:
        yield f"note: {note}"
    yield "environment: " + ("no difference" if not comparison.changes else "what changed")
    yield from (f"  {change}" for change in comparison.changes)
    yield summary(comparison)


def table(comparison: Comparison) -> Table:
    """A row a cell, for a terminal."""
    drawn = empty_table(HEAD)
    for cell in _ordered(comparison):
        add_row(drawn, *_row(cell))
    return drawn


def markdown(comparison: Comparison) -> str:
    """For a pull request: the answer first, the table, what changed."""
    parts = [f"**{_text(comparison.warning)}.**\n"] if comparison.warning else []
    parts.append(f"### claimbench: {_text(summary(comparison))}\n")
    devices = _text(", ".join(comparison.after.devices))
    parts.append(f"`{comparison.before.path}` → `{comparison.after.path}`, {devices}\n")
    parts += [f"| {' | '.join(HEAD)} |", f"|{'---|' * len(HEAD)}"]
    for cell in _ordered(comparison):
        bold = "**" if cell.regressed else ""
        parts.append(f"| {' | '.join(f'{bold}{_text(each)}{bold}' if each else '' for each in _row(cell))} |")
    parts += ["", *(f"- {_text(note)}" for note in comparison.notes)]
    parts += ["", "Environment: no difference." if not comparison.changes else "What changed around the code:", ""]
    parts += [f"- {_text(str(change))}" for change in comparison.changes]
    return "\n".join(parts).strip() + "\n"


def _ordered(comparison: Comparison) -> list[CellChange]:
    return sorted(comparison.cells, key=lambda cell: ORDER.index(cell.word))


def _row(cell: CellChange) -> tuple[str, ...]:
    unit = f" {cell.unit}" if cell.before is not None else ""
    result = f"{cell.word}: {cell.reason}" if cell.reason else str(cell.word)
    return (
        str(cell.key),
        f"{formats.rate(cell.before)}{unit}" if cell.before is not None else "",
        f"{formats.rate(cell.after)}{unit}" if cell.after is not None else "",
        formats.with_span(cell.ratio, cell.low, cell.high) if cell.ratio is not None else "",
        formats.ratio(cell.memory_ratio) if cell.memory_ratio is not None else "",
        _finds(cell.finds),
        result,
    )


def _finds(slowdown: float | None) -> str:
    """Beyond a tenfold step time the number says no more than that it is none."""
    if slowdown is None:
        return ""
    return f"{100 * slowdown:.1f}%" if slowdown <= MOST_SHOWN else f"over {100 * MOST_SHOWN:.0f}%"


def _text(text: str) -> str:
    """Text that Markdown and HTML leave alone."""
    for mark, written in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "\\|"), ("*", "\\*"), ("_", "\\_")):
        text = text.replace(mark, written)
    return " ".join(text.split())
