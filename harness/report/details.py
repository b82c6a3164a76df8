"""`Verdict.details` in words: whatever judging adds (an order, a fit, predictions) is shown, known to us or not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.judgement.judged import Interval, Verdict
from harness.judgement.metrics import Metric
from harness.judgement.words import Bounds, measured
from harness.report import formats
from harness.report.tables import Table

#: What the section of a claim shows in its own way.
SHOWN_ELSEWHERE = frozenset({"statement", "documents", "notes", "suspect", "figures", "shown", "beside", "other_word",
                             "rounds_asked_for", "word_asked_for"})  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Detail:
    """One entry: a sentence, or a table."""

    title: str
    text: str = ""
    table: Table | None = None
    folded: bool = False
    """Shown on demand: it repeats in detail what a curve shows at a glance."""


def details(verdict: Verdict, metric: Metric | None) -> tuple[Detail, ...]:
    """Every entry that holds something."""
    found = (
        _points(value, metric, (verdict.low, verdict.high)) if name == "points" else _detail(str(name), value)
        for name, value in verdict.details.items()
        if name not in SHOWN_ELSEWHERE
    )
    return tuple(each for each in found if each.table or each.text not in {"", formats.ABSENT})


def _points(points: object, metric: Metric | None, bounds: Bounds) -> Detail:
    """The verdict at every point and for every further cell; nothing where there is only the one."""
    if not isinstance(points, list | tuple) or len(points) < 2 or metric is None:
        return Detail(title="points")
    rows = tuple(
        (str(each["name"]), _measured(each, metric, bounds), *map(str, (each["rounds"], each["word"], each["reason"])))
        for each in points
    )
    interval = " [95% interval]" if metric.statistic.has_interval else ""
    columns = ("where", f"{metric.meaning}{interval}", "rounds", "verdict", "why")
    caption = "The same claim at every point and for every further cell"
    return Detail(
        title="points", table=Table(caption=caption, columns=columns, rows=rows, numeric=frozenset({1, 2})), folded=True
    )


def _measured(point: Mapping[str, Any], metric: Metric, bounds: Bounds) -> str:
    if point["value"] is None:
        return formats.ABSENT
    return measured(metric, Interval(value=point["value"], low=point["low"], high=point["high"]), bounds)


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
    if value is None or value in ("", {}, [], ()):
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
