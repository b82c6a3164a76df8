"""`Verdict.details` in words: whatever judging adds (an order, a fit, predictions) is shown, known to us or not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harness.judgement.judged import Verdict
from harness.report import formats
from harness.report.tables import Table


@dataclass(frozen=True, kw_only=True)
class Detail:
    """One entry: a sentence, or a table."""

    title: str
    text: str = ""
    table: Table | None = None


def details(verdict: Verdict) -> tuple[Detail, ...]:
    """Every entry that holds something."""
    found = (_detail(str(name), value) for name, value in verdict.details.items())
    return tuple(each for each in found if each.text or each.table)


def _detail(name: str, value: object) -> Detail:
    title = name.replace("_", " ")
    if isinstance(value, list | tuple) and value and all(isinstance(each, Mapping) for each in value):
        return Detail(title=title, table=_table(title, [dict(each) for each in value]))
    if isinstance(value, Mapping) and value and all(isinstance(each, Mapping) for each in value.values()):
        return Detail(title=title, table=_table(title, [{"": key, **each} for key, each in value.items()]))
    return Detail(title=title, text=show(value))


def _table(title: str, rows: list[dict[str, object]]) -> Table:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    numeric = {
        index for index, name in enumerate(columns)
        if all(isinstance(row.get(name), int | float | None) and not isinstance(row.get(name), bool) for row in rows)
    }  # fmt: skip
    return Table(
        caption=title, columns=tuple(str(name).replace("_", " ") for name in columns), numeric=frozenset(numeric),
        rows=tuple(tuple(show(row.get(name)) for name in columns) for row in rows),
    )  # fmt: skip


def show(value: object) -> str:
    """A value of any JSON type as text."""
    if value is None:
        return formats.ABSENT
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return formats.plain(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{str(name).replace('_', ' ')}: {show(each)}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(show(each) for each in value)
    return str(value)
