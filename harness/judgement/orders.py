"""A claim that ranks several cells: confirmed where each gains more than the next, refuted where one is misplaced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

from harness.experiment.study import FEWEST_ROUNDS
from harness.judgement.claims import Claim
from harness.judgement.finding import Finding
from harness.judgement.gains import Gain, measure_entry
from harness.judgement.judged import BlockResult, Interval, Word
from harness.judgement.metrics import Metric, Statistic
from harness.judgement.site import Absent
from harness.judgement.stats import holm, p_value, paired_p, summarise, welch
from harness.judgement.verdict import helped, helped_by_name
from harness.judgement.words import number, rounds

#: A pair of entries is told apart when its p value stays below this after Holm's correction over all pairs.
APART = 0.05


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """Two entries in the claimed order."""

    first: Gain
    second: Gain
    difference: float
    """Of their gains, in the rounds that are compared: positive where the claim is right."""
    p: float
    said: str = ""
    """Where not all rounds of both are compared: which are, or why none."""


def judge_order(claim: Claim, metric: Metric, blocks: Sequence[BlockResult]) -> Finding:
    """Every pair of entries that trained the same is compared; Holm's correction runs over all pairs."""
    entries = [(entry.title, measure_entry(entry, claim, metric, blocks)) for entry in claim.order]
    missing = {title: gain for title, gain in entries if isinstance(gain, Absent)}
    everything = [gain for _, gain in entries if isinstance(gain, Gain)]
    gains = [gain for gain in everything if not gain.different]
    different = [gain.title for gain in everything if gain.different]
    rows = [gain.row() for gain in sorted(everything, key=lambda gain: -gain.total)]
    if len(gains) < 2 and different:
        reason = f"parity fails for {', '.join(different)}, so that no two entries are left to compare"
        return Finding(word=Word.FAST_BUT_DIFFERENT, reason=reason, details={"order": rows})
    if len(gains) < 2:
        title, absent = next(iter(missing.items()))
        return Finding(word=absent.word, reason=f"{title}: {absent.reason}")
    compared = [_compare(one, other, metric) for one, other in combinations(gains, 2)]
    adjusted = holm([each.p for each in compared])
    apart = [each for each, p in zip(compared, adjusted, strict=True) if p < APART]
    right = [each for each in apart if each.difference > 0]
    word, reason = _word(gains, compared, right, [each for each in apart if each.difference < 0], metric)
    if different and word is not Word.REFUTED_BELOW:
        word, reason = Word.FAST_BUT_DIFFERENT, f"parity fails for {', '.join(different)}; of the others: {reason}"
    elif missing:
        unmeasured = "; ".join(f"{title} ({absent.reason})" for title, absent in missing.items())
        if word is not Word.REFUTED_BELOW:
            word, reason = Word.INCONCLUSIVE, f"the order is not complete: {unmeasured}"
    ranked = sorted(gains, key=lambda gain: -gain.total)
    return Finding(
        word=word, reason=reason,
        helped=helped_by_name({gain.title: helped(metric, gain.found.interval) for gain in ranked}),
        measured=" > ".join(f"{gain.title} {number(metric, gain.found.interval.value)}" for gain in ranked),
        interval=Interval(value=len(right) / len(compared), rounds=min(g.found.interval.rounds for g in gains)),
        details={"order": rows, "pairs_in_order": len(right), "pairs": len(compared),
                 "missing": {title: absent.reason for title, absent in missing.items()}},
    )  # fmt: skip


def _compare(one: Gain, other: Gain, metric: Metric) -> Comparison:
    """Memory by ranges that do not overlap, pairs of one block by paired t, of different blocks by Welch's t.

    Nothing is told apart by a peak that was not reached in every round, nor by fewer rounds than a verdict needs.
    """
    difference = one.total - other.total
    if overflowed := " and ".join(filter(None, dict.fromkeys((one.found.overflowed, other.found.overflowed)))):
        return Comparison(first=one, second=other, difference=difference, p=1.0, said=overflowed)
    if metric.statistic is Statistic.MAXIMUM:
        first, second = one.found.interval.observed, other.found.interval.observed
        overlap = min(max(first), max(second)) >= max(min(first), min(second))
        return Comparison(first=one, second=other, difference=difference, p=1.0 if overlap else 0.0)
    if one.site.block is other.site.block:
        common = [one.logs[key] - other.logs[key] for key in one.logs if key in other.logs]
        fewest, p = len(common), paired_p(common)
        difference = fmean(common) if common else difference
        said = f"in the {rounds(fewest)} that ran both" if fewest < max(len(one.logs), len(other.logs)) else ""
    else:
        difference, error, freedom = welch(summarise(list(one.logs.values())), summarise(list(other.logs.values())))
        fewest, p, said = min(len(one.logs), len(other.logs)), p_value(difference, error, freedom), ""
    if fewest < FEWEST_ROUNDS:
        p, said = 1.0, f"{rounds(fewest)} to compare, and {FEWEST_ROUNDS} at least are needed"
    return Comparison(first=one, second=other, difference=difference, p=p, said=said)


def _word(gains: Sequence[Gain], compared: Sequence[Comparison], right: Sequence[Comparison],
          wrong: Sequence[Comparison], metric: Metric) -> tuple[Word, str]:  # fmt: skip
    if wrong:
        worst = min(wrong, key=lambda each: each.difference)
        first, second = (worst.first.title, worst.second.title)
        if not worst.said:
            first, second = (f"{gain.title} ({number(metric, gain.found.interval.value)})"
                             for gain in (worst.first, worst.second))  # fmt: skip
        reason = f"{second} gains more than {first}, named before it{f', {worst.said}' if worst.said else ''}"
        return Word.REFUTED_BELOW, reason
    neighbours = [each for each in compared if gains.index(each.second) - gains.index(each.first) == 1]
    undecided = [f"{each.first.title} and {each.second.title}{f' ({each.said})' if each.said else ''}"
                 for each in neighbours if each not in right]  # fmt: skip
    if undecided:
        return Word.INCONCLUSIVE, f"not told apart at the rounds run: {'; '.join(undecided)}"
    return Word.CONFIRMED, "each gains more than the next one of the claimed order"
