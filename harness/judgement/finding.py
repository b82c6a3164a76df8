"""What judging one claim at one place gives, before it becomes a verdict."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from harness.judgement.judged import Interval, Word


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A word with everything that explains it. `judge` adds place, scope and the other baseline."""

    word: Word
    reason: str
    measured: str = ""
    interval: Interval | None = None
    helped: str = ""
    rounds_needed: int | None = None
    details: dict[str, Any] = field(default_factory=dict)
