"""The table of techniques, from the registry: `python -m harness.techniques.table > docs/techniques.md`.

What a technique states of itself in `requirement` and `proof` is a list of clauses, `;` between them. A clause that
begins with names of its axes or settings and a colon (`dp, pipeline: two devices`) is said of those alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from harness.experiment.axes import Axis, AxisTable, Setting, show_setting
from harness.experiment.cell import Cell, Workload
from harness.techniques.base import Technique
from harness.techniques.registry import BUILT_IN

#: How a clause names the numbers of an axis.
A_NUMBER = "a number"
NOTHING = "nothing"

HEAD = """\
# Techniques

Every setting of every axis: what it does, what it needs, and what proves in each trial that it was in effect. Where the
proof does not hold, the outcome of the trial is `inert`, and it counts for nothing. The default of an axis is **bold**;
where a default is the absence of a technique, there is nothing to prove.

This page is printed from the registry by `python -m harness.techniques.table`. [extending.md](extending.md) says how to
add a technique, and `claimbench doctor` which settings run on your machine and what the others lack. D1 to D4 are the
documents of `claims.yaml`.

| axis | setting | what it does | needs | proof | documents |
|---|---|---|---|---|---|
"""


def table() -> str:
    """The page, as it is committed."""
    return HEAD + "".join(f"{row}\n" for kind in BUILT_IN for row in rows(kind()))


def rows(technique: Technique) -> Iterator[str]:
    """A row for each setting of a technique."""
    names = names_of(technique)
    always = technique.active(_all_defaults())
    for axis in technique.axes:
        for setting, shown, meaning in settings_of(axis):
            is_default = setting == axis.default
            idle = is_default and not shown.startswith(A_NUMBER)
            needs = NOTHING if idle else clauses(technique.requirement, names, axis.name, shown)
            proof = NOTHING if idle and not always else clauses(technique.proof, names, axis.name, shown)
            word = f"**{shown}**" if is_default else shown
            cells = (axis.name, word, meaning or axis.meaning, needs, proof, ", ".join(axis.documents) or "none")
            yield f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _all_defaults() -> Cell:
    defaults = AxisTable(axis for kind in BUILT_IN for axis in kind.axes).defaults()
    return Cell(workload=Workload(name="", model=""), settings=defaults, defaults=defaults)


def settings_of(axis: Axis) -> Iterator[tuple[Setting, str, str]]:
    """Each setting, its word in the table and what it does; the numbers and the free text of an axis are one each."""
    for setting, meaning in axis.settings.items():
        yield setting, show_setting(setting), meaning
    if axis.number is not None:
        default = axis.default if axis.default not in axis.settings else A_NUMBER
        words = f"{A_NUMBER} (default {default})" if default != A_NUMBER else A_NUMBER
        yield default, words, axis.meaning
    if axis.free_text:
        default = axis.default if axis.default not in axis.settings else "text"
        yield default, str(default), axis.meaning


def names_of(technique: Technique) -> set[str]:
    """Words that may stand before a clause's colon."""
    words = {str(setting).lower() for axis in technique.axes for setting in axis.settings}
    return words | {axis.name for axis in technique.axes} | {A_NUMBER, "compiled"}


def clauses(text: str, names: Collection[str], axis: str, setting: str) -> str:
    """The clauses of `text` that are said of this setting: of all, of its axis or of it by name.

    >>> clauses("a device; dp, pipeline: two devices", {"dp", "pipeline"}, "parallel", "dp")
    'a device; two devices'
    """
    mine = {axis, setting, *([A_NUMBER] if setting.startswith(A_NUMBER) else [])}
    said = []
    for clause in text.split("; "):
        head, colon, body = clause.partition(": ")
        named = {word.strip() for word in head.split(",")}
        if not colon or not named <= set(names):
            said.append(clause)
        elif named & mine:
            said.append(body)
        elif named == {"compiled"}:
            said.append(clause)
    return "; ".join(said) or NOTHING


if __name__ == "__main__":
    print(table(), end="")
