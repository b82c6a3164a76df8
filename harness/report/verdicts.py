"""How verdicts look: a symbol, a tone and a word each, so that colour is never the only sign."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from harness.judgement.judged import Verdict, Word


@dataclass(frozen=True, kw_only=True)
class Look:
    """`tone` is a CSS class: good, bad, above, open, odd, none."""

    symbol: str
    tone: str
    meaning: str


#: In the order in which they are counted and sorted.
LOOKS: dict[Word, Look] = {
    Word.CONFIRMED: Look(symbol="✓", tone="good", meaning="the whole interval lies within the claimed range"),
    Word.REACHED: Look(symbol="✓", tone="good", meaning="a claim “up to x”: x was reached"),
    Word.REFUTED_BELOW: Look(symbol="▼", tone="bad", meaning="the whole interval lies below the claimed range"),
    Word.REFUTED_ABOVE: Look(symbol="▲", tone="above", meaning="the whole interval lies above the claimed range"),
    Word.NOT_REACHED: Look(symbol="▽", tone="bad", meaning="a claim “up to x”: x was not reached on this machine"),
    Word.INCONCLUSIVE: Look(symbol="≈", tone="open", meaning="the interval crosses an end of the claimed range"),
    Word.FAST_BUT_DIFFERENT: Look(symbol="≠", tone="odd", meaning="parity fails, so the speed confirms nothing"),
    Word.EXTRAPOLATED: Look(
        symbol="↗", tone="open", meaning="a limit for many devices, fitted from those measured here"
    ),
    Word.REPORTED: Look(symbol="i", tone="open", meaning="a statement without a range: what was measured is shown"),
    Word.INVALID: Look(symbol="!", tone="odd", meaning="the numbers cannot be trusted"),
    Word.NOT_COMPARABLE: Look(symbol="∅", tone="none", meaning="this run differs from what the claim speaks of"),
    Word.NOT_TESTABLE: Look(symbol="⊘", tone="none", meaning="this machine or installation cannot show it"),
    Word.NOT_RUN: Look(symbol="○", tone="none", meaning="no trial of it is stored"),
}

#: The four counts of the first screen, with the words that each takes in.
GROUPS: tuple[tuple[str, str, tuple[Word, ...]], ...] = (
    ("confirmed", "good", (Word.CONFIRMED, Word.REACHED)),
    ("refuted", "bad", (Word.REFUTED_BELOW, Word.REFUTED_ABOVE, Word.NOT_REACHED, Word.FAST_BUT_DIFFERENT)),
    ("inconclusive", "open", (Word.INCONCLUSIVE, Word.INVALID)),
    ("reported", "open", (Word.REPORTED, Word.EXTRAPOLATED)),
    ("not testable here", "none", (Word.NOT_TESTABLE, Word.NOT_COMPARABLE)),
    ("not run", "none", (Word.NOT_RUN,)),
)


@dataclass(frozen=True, kw_only=True)
class Count:
    """One tile of the first screen."""

    name: str
    tone: str
    number: int
    parts: str
    """What the number is made of, where it holds more than one word: `3 below, 1 above`."""


def counts(verdicts: Iterable[Verdict]) -> tuple[Count, ...]:
    """How many claims have which kind of verdict, in a fixed order, zeros included."""
    seen = Counter(verdict.word for verdict in verdicts)
    tiles = []
    for name, tone, words in GROUPS:
        present = [word for word in words if seen[word]]
        detail = ", ".join(f"{seen[word]} {_short(word)}" for word in present)
        shown = detail if len(present) > 1 or any(word.value != name for word in present) else ""
        tiles.append(Count(name=name, tone=tone, number=sum(seen[word] for word in words), parts=shown))
    return tuple(tiles)


def rank(word: Word) -> int:
    """Where the word sorts."""
    return list(LOOKS).index(word)


def _short(word: Word) -> str:
    return word.value.removeprefix("refuted, ")
