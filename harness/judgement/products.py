"""A claim about a stack and its parts: do gains multiply?"""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness.judgement.claims import Claim
from harness.judgement.finding import Finding
from harness.judgement.gains import Gain, gain_at, is_the_gain, measure_entry, value_of
from harness.judgement.judged import BlockResult, Interval, Word
from harness.judgement.metrics import Metric, metric_named
from harness.judgement.site import Absent, Site
from harness.judgement.stats import Summary, summarise, t_quantile
from harness.judgement.verdict import Decision, decide, helped
from harness.judgement.words import measured, number

#: Of two gains, whatever they are of.
_PLAIN = metric_named("speedup")


def judge_product(claim: Claim, metric: Metric, site: Site, blocks: Sequence[BlockResult]) -> Finding:
    """The measured stack over the product of its measured parts: 1 where gains multiply."""
    parts: list[Gain] = []
    for entry in claim.order:
        part = measure_entry(entry, claim, metric, blocks)
        if isinstance(part, Absent):
            return Finding(word=part.word, reason=f"part {entry.title}: {part.reason}")
        parts.append(part)
    stack = gain_at(site, metric, claim.view, "stack")
    if stack is None or not stack.logs:
        return Finding(word=Word.NOT_TESTABLE, reason=f"the records of the stack lack {metric.name}")
    interval = _over_product(stack, parts)
    product = value_of(metric, math.fsum(part.total for part in parts))
    over = "stack ÷ product" if is_the_gain(metric) else "the stack's gain ÷ that of all parts"
    if interval.rounds < max(gain.found.interval.rounds for gain in (stack, *parts)):
        over += f", over {interval.rounds} rounds,"
    said = f"its parts multiply to {number(metric, product)}: {over} is {measured(_PLAIN, interval)}"
    if different := [part.title for part in parts if part.different]:
        said += f"; parity fails for {', '.join(different)}, so that the product is none of like parts"
    decision = Decision(word=Word.REPORTED, reason="") if claim.range is None else decide(claim, metric, stack.found)
    shown = measured(metric, stack.found.interval, claim.bounds)
    return Finding(
        word=decision.word, reason="; ".join(part for part in (decision.reason, said) if part),
        measured=f"{shown}; product of its parts {number(metric, product)}", interval=stack.found.interval,
        helped=helped(metric, stack.found.interval), rounds_needed=decision.rounds_needed,
        details={"product": product, "over_product": {"value": interval.value, "low": interval.low,
                 "high": interval.high, "rounds": interval.rounds}, "parts": [part.row() for part in parts]},
    )  # fmt: skip


def _over_product(stack: Gain, parts: Sequence[Gain]) -> Interval:
    """By round within each block, whose arms share trials and the pace of their round; the blocks are independent, and
    add up with Welch's freedom."""
    summaries = _by_block([(stack, 1), *((part, -1) for part in parts)])
    mean = math.fsum(each.mean for each in summaries)
    variance = math.fsum(each.standard_error**2 for each in summaries)
    rounds = min(each.count for each in summaries)
    if not math.isfinite(variance):
        return Interval(value=math.exp(mean), rounds=rounds)
    weight = math.fsum(each.standard_error**4 / (each.count - 1) for each in summaries)
    half = t_quantile(variance**2 / weight) * math.sqrt(variance) if weight else 0.0
    return Interval(value=math.exp(mean), low=math.exp(mean - half), high=math.exp(mean + half), rounds=rounds)


def _by_block(terms: Sequence[tuple[Gain, int]]) -> list[Summary]:
    """Of each block the sum of its gains, with their signs, over the rounds that ran all of them.

    Gains without two such rounds in common stand by themselves.
    """
    blocks: dict[int, list[tuple[Gain, int]]] = {}
    for gain, sign in terms:
        blocks.setdefault(id(gain.site.block), []).append((gain, sign))
    found = []
    for members in blocks.values():
        common = set.intersection(*(set(gain.logs) for gain, _ in members))
        groups = [members] if len(common) > 1 else [[member] for member in members]
        for group in groups:
            keys = sorted(common) if len(groups) == 1 else sorted(group[0][0].logs)
            found.append(summarise([math.fsum(sign * gain.logs[key] for gain, sign in group) for key in keys]))
    return found
