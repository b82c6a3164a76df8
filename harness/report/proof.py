"""What shows that a technique was in effect, and that the cell trained the same thing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from harness.judgement.judged import ArmResult
from harness.report import formats
from harness.report.tables import Table

_FACTS_LENGTH = 160


def evidence_table(arms: Sequence[ArmResult]) -> Table | None:
    """A row per cell and axis: the fact in a word, in how many trials it held, what was seen."""
    rows = [row for arm in arms for row in _evidence_rows(arm)]
    if not rows:
        return None
    columns = ("cell", "axis", "evidence", "held in", "seen in the first trial")
    return Table(caption="Evidence that the setting was in effect", columns=columns, rows=tuple(rows))


def parity_table(arms: Sequence[ArmResult]) -> Table | None:
    """A row per cell: the two looks of parity with their limits."""
    shown = [arm for arm in arms if arm.parity.word]
    if not shown:
        return None
    rows = [
        (arm.name, arm.parity.word, _nats(arm.parity.loss_gap), _nats(arm.parity.worst_gap), _nats(arm.parity.margin),
         formats.plain(arm.parity.gradient_error), formats.plain(arm.parity.eager_error), arm.parity.reason)
        for arm in shown
    ]  # fmt: skip
    columns = ("cell", "parity", "loss gap", "largest", "margin", "gradient error", "error of eager", "why")
    return Table(
        caption="Parity with the baseline", columns=columns, rows=tuple(rows), numeric=frozenset({2, 3, 4, 5, 6})
    )


def _evidence_rows(arm: ArmResult) -> list[tuple[str, ...]]:
    seen: dict[str, list[dict[str, object]]] = {}
    for record in arm.trials:
        for axis, entry in record.evidence.items():
            if isinstance(entry, dict):
                seen.setdefault(axis, []).append(entry)
    return [
        (arm.name, formats.axis_name(axis), _most_common(entries, "word"), _held(entries), _facts(entries[0]))
        for axis, entries in seen.items()
    ]


def _most_common(entries: Sequence[dict[str, object]], field: str) -> str:
    return Counter(str(entry.get(field, "")) for entry in entries).most_common(1)[0][0] or formats.ABSENT


def _held(entries: Sequence[dict[str, object]]) -> str:
    held = sum(bool(entry.get("holds")) for entry in entries)
    return f"{held} of {formats.plural(len(entries), 'trial')}"


def _facts(entry: dict[str, object]) -> str:
    facts, reason = entry.get("facts") or {}, str(entry.get("reason") or "")
    if isinstance(facts, dict):
        text = "; ".join(f"{name}: {_short(value)}" for name, value in facts.items())
    else:
        text = _short(facts)
    whole = f"{reason} ({text})" if reason and text else reason or text
    return whole if len(whole) <= _FACTS_LENGTH else f"{whole[: _FACTS_LENGTH - 1]}…"


def _short(value: object) -> str:
    if isinstance(value, float):
        return formats.plain(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _nats(value: float | None) -> str:
    return formats.ABSENT if value is None else f"{value:.2g} nats"
