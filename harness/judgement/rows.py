"""Claims and verdicts as rows: what `claimbench claims` and `claimbench judge` print."""

from __future__ import annotations

import math
from typing import Any

from harness.judgement.claims import Claims
from harness.judgement.judged import Judgement
from harness.judgement.words import claimed


def claims_rows(claims: Claims) -> list[dict[str, str]]:
    """One row a claim: claim, document (with section), statement, claimed, metric, study."""
    return [
        {
            "claim": claim.id, "document": claim.documents, "statement": claim.statement, "claimed": claimed(claim),
            "metric": claim.metric or "", "study": claim.study,
        }
        for claim in claims.all()
    ]  # fmt: skip


def verdict_objects(judgement: Judgement) -> list[dict[str, Any]]:
    """One JSON object a verdict, in the order of the claims. `interval` is [low, high], or null where there is none."""
    return [
        {
            "claim": each.claim, "document": each.details.get("documents", ""), "verdict": str(each.word),
            "helped": each.helped, "claimed": each.claimed, "measured": each.measured, "value": finite(each.value),
            "interval": [finite(end) for end in each.interval] if each.interval else None, "rounds": each.rounds,
            "rounds_needed": each.rounds_needed, "reason": each.reason, "scope": each.scope, "metric": each.metric,
            "range": [each.low, each.high], "study": each.study, "arm": each.arm, "sweep": dict(each.sweep),
            "other_baseline": each.other_baseline,
        }
        for each in judgement.verdicts
    ]  # fmt: skip


def finite(value: float | None) -> float | None:
    """JSON has no infinities."""
    return value if value is not None and math.isfinite(value) else None
