"""The truth table: a claimed range [L, U] and a measured interval [lo, hi] give a word and a sentence.

    confirmed        L ≤ lo and hi ≤ U
    refuted, below   hi < L
    refuted, above   lo > U
    inconclusive     otherwise
    reached          a claim "up to x" with x ≤ lo, else "not reached here"

`tests/judgement/test_truth_table.py` is its specification.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from harness.experiment.study import FEWEST_ROUNDS
from harness.judgement.claims import Claim
from harness.judgement.judged import Interval, Word
from harness.judgement.metrics import Metric, Shape, Statistic
from harness.judgement.pairs import Measured
from harness.judgement.stats import CHANCE, MOST_ROUNDS, rounds_to_settle
from harness.judgement.words import claimed_range, is_wide, number, same, span


@dataclass(frozen=True, kw_only=True)
class Decision:
    """A row of the table with its sentence."""

    word: Word
    reason: str
    rounds_needed: int | None = None


def word_for(low: float | None, high: float | None, lo: float, hi: float) -> Word:
    """The word for a claimed range [low, high] (None: open) and an interval [lo, hi]."""
    if low is not None and hi < low and not same(hi, low):
        return Word.REFUTED_BELOW
    if high is not None and lo > high and not same(lo, high):
        return Word.REFUTED_ABOVE
    above = low is None or lo >= low or same(lo, low)
    below = high is None or hi <= high or same(hi, high)
    return Word.CONFIRMED if above and below else Word.INCONCLUSIVE


def decide(claim: Claim, metric: Metric, found: Measured) -> Decision:
    """The verdict on one measured metric, the claim's bounds given."""
    interval = found.interval
    ends = _ends(metric, interval)
    if found.overflowed:
        settled = "what the other rounds needed is not its peak, and more rounds would not show it"
        return Decision(word=Word.INCONCLUSIVE, reason=f"{found.overflowed}: {settled}")
    if ends is None:
        return Decision(word=Word.INCONCLUSIVE, reason="a single round gives no interval; run three at least")
    if too_few(metric, interval):
        few = f"{interval.rounds} rounds are too few to judge {span(metric, interval, claim.bounds)} by"
        return Decision(word=Word.INCONCLUSIVE, reason=f"{few}; run three at least")
    if claim.form == "up-to":
        return _up_to(claim, metric, ends, interval)
    low, high = claim.bounds
    word = word_for(low, high, *ends)
    needed = _needed(metric, found, low, high) if word is Word.INCONCLUSIVE else None
    reason = _sentence(word, claim, metric, interval, needed) + _otherwise(word, claim, metric, interval)
    return Decision(word=word, reason=reason, rounds_needed=needed)


def too_few(metric: Metric, interval: Interval | None) -> bool:
    """Whether there are rounds, and not enough of them for any verdict: parity's neither."""
    return interval is not None and metric.statistic.has_interval and 0 < interval.rounds < FEWEST_ROUNDS


def helped(metric: Metric, interval: Interval | None) -> str:
    """`yes`, `no` or `not shown`: on which side of "no difference" the interval lies. Empty where there is none.

    Memory has no interval: the lowest and the highest trial take its place, of the cell and of the baseline.
    """
    neutral = metric.neutral
    if interval is None or neutral is None or metric.more_is_better is None:
        return ""
    if metric.statistic is Statistic.MAXIMUM:
        values = (*interval.observed, interval.value)
        ends = (min(values), max(values))
    elif interval.low is None or interval.high is None:
        return "not shown"
    else:
        ends = (interval.low, interval.high)
    lowest, highest = interval.reference or (neutral, neutral)
    if ends[0] > highest:
        return "yes" if metric.more_is_better else "no"
    if ends[1] < lowest:
        return "no" if metric.more_is_better else "yes"
    return "not shown"


def helped_by_name(words: Mapping[str, str]) -> str:
    """Of several figures, by name: one word where all have the same, else `speed: no; peak memory: yes`.

    Args:
        words: name → `helped`; figures without a "no difference" have none, and are left out.
    """
    if len(set(words.values())) == 1:
        return next(iter(words.values()))
    return "; ".join(f"{name}: {word}" for name, word in words.items() if word)


def _ends(metric: Metric, interval: Interval) -> tuple[float, float] | None:
    if not metric.statistic.has_interval:
        return interval.value, interval.value
    if interval.low is None or interval.high is None:
        return None
    return interval.low, interval.high


def _up_to(claim: Claim, metric: Metric, ends: tuple[float, float], interval: Interval) -> Decision:
    goal = claim.bound if claim.bound is not None else math.inf
    words, shown = number(metric, goal), span(metric, interval, claim.bounds)
    if ends[0] >= goal or same(ends[0], goal):
        return Decision(word=Word.REACHED, reason=f"the whole interval {shown} reaches {words}")
    if ends[1] < goal:
        return Decision(word=Word.NOT_REACHED, reason=f"{shown} stays below {words}")
    return Decision(word=Word.NOT_REACHED, reason=f"{shown} crosses {words}: reaching it is not shown")


def _needed(metric: Metric, found: Measured, low: float | None, high: float | None) -> int | None:
    """Rounds that would settle it; bounds go to the scale on which the statistics were made."""
    if found.summary is None:
        return None
    if metric.statistic is Statistic.LEVEL:
        return rounds_to_settle(found.summary, low, high)
    bounds = [None if end is None else metric.unshaped(end) for end in (low, high)]
    logs = [math.log(end) if end is not None and 0 < end < math.inf else None for end in bounds]
    if metric.shape is not Shape.RATIO:
        logs.reverse()
    return rounds_to_settle(found.summary, logs[0], logs[1])


def _sentence(word: Word, claim: Claim, metric: Metric, interval: Interval, needed: int | None) -> str:
    shown = span(metric, interval, claim.bounds)
    what = f"the whole interval {shown}" if is_wide(metric, interval, claim.bounds) else shown
    wanted = claimed_range(metric, claim)
    low, high = claim.bounds
    if word is Word.CONFIRMED:
        verb = "is" if low is None or high is None or claim.form == "exact" else "lies within"
        return f"{what} {verb} {wanted}"
    if word is Word.REFUTED_BELOW and low is not None:
        return f"{what} lies below {number(metric, low)}{_judged_as(metric, better=False)}"
    if word is Word.REFUTED_ABOVE and high is not None:
        return f"{what} lies above {number(metric, high)}{_judged_as(metric, better=True)}"
    crossed = [number(metric, end) for end in (low, high) if end is not None and _inside(end, interval)]
    likely = f"about {needed} rounds would settle it at the spread seen, with a chance of {CHANCE:.0%}"
    rounds = likely if needed else (
        f"it lies so close to the end of the range that not even {MOST_ROUNDS} rounds would settle it")  # fmt: skip
    return f"the interval {shown} crosses {' and '.join(crossed) or wanted}; {rounds}"


def _otherwise(word: Word, claim: Claim, metric: Metric, interval: Interval) -> str:
    """How many rounds lie elsewhere than the largest peak, by which memory is judged; empty where none does."""
    if metric.statistic is not Statistic.MAXIMUM:
        return ""
    count = sum(word_for(*claim.bounds, each, each) is not word for each in interval.observed)
    verb = "says" if count == 1 else "say"
    return f"; by itself {count} of {len(interval.observed)} rounds {verb} otherwise" if count else ""


def _judged_as(metric: Metric, *, better: bool) -> str:
    """Whether being outside is good news."""
    if metric.more_is_better is None:
        return ""
    return ": better than claimed" if metric.more_is_better is better else ": worse than claimed"


def _inside(end: float, interval: Interval) -> bool:
    return interval.low is not None and interval.high is not None and interval.low <= end <= interval.high
