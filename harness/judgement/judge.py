"""Judges every claim: records → blocks → verdicts.

    judgement = judge(load_records(path), read_claims("claims.yaml"))

Before a figure is held against its range: was it run, is it comparable, is any trial usable, did the cell train the
same thing. Each step that fails is a verdict of its own, with a sentence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from harness.judgement.asked import Asked
from harness.judgement.blocks import compare
from harness.judgement.claims import Claim, Claims, show_settings
from harness.judgement.finding import Finding
from harness.judgement.judged import BlockResult, Judgement, Verdict, Word
from harness.judgement.limits import judge_limit
from harness.judgement.metrics import Metric, metric_named
from harness.judgement.notes import notes_on
from harness.judgement.orders import judge_order
from harness.judgement.own_step import doubt
from harness.judgement.pairs import Measured, measure
from harness.judgement.products import judge_product
from harness.judgement.same_training import parity_at
from harness.judgement.scope import scope_of
from harness.judgement.sentence import CHECK_STUDY
from harness.judgement.site import Absent, Site, blocks_of, find, locate, machine_of, standing
from harness.judgement.statements import against_baseline, beside, judge_expected, judge_reported, shown_metric
from harness.judgement.verdict import decide, helped, too_few
from harness.judgement.words import claimed, measured
from harness.results import gc_pause
from harness.results.record import Record

#: Words that stand for measurements; the others say why there are none.
MEASURED = frozenset(Word) - {Word.NOT_RUN, Word.NOT_COMPARABLE, Word.NOT_TESTABLE}
#: Metrics whose figure has another name where a record says why it is missing.
_RECORDED = {
    "activation_saved": "activations", "energy_ratio": "energy_joules_per_token", "speedup": "tokens_per_second",
    "step_time_per_token_ratio": "tokens_per_second", "scaling_efficiency": "tokens_per_second",
    "samples_ratio": "samples_per_second",
}  # fmt: skip


def judge(records: Iterable[Record], claims: Claims) -> Judgement:
    """Verdicts on all claims, in the order of the file, with the blocks that they stand on."""
    with gc_pause.paused():
        compared = compare(records)
        blocks = compared.blocks if claims.asked is None else tuple(_told_apart(compared.blocks, claims.asked))
        by_study: dict[str, list[BlockResult]] = {}
        for block in blocks:
            by_study.setdefault(block.study, []).append(block)
        verdicts = tuple(judge_claim(claim, by_study) for claim in claims.all())
    return Judgement(verdicts=verdicts, blocks=blocks, excluded=compared.excluded)


def _told_apart(blocks: Iterable[BlockResult], asked: Asked) -> Iterator[BlockResult]:
    """The blocks, with a word on those that only have the name of a study that is asked about (`BlockResult.another`).
    A study of `claimbench check` is in no matrix."""
    for block in blocks:
        if block.study.startswith(CHECK_STUDY):
            yield block
        elif planned := asked.same(block):
            yield replace(block, asked_rounds=planned.rounds)
        else:
            yield replace(block, another=asked.another(block))


def judge_claim(claim: Claim, by_study: dict[str, list[BlockResult]]) -> Verdict:
    """One claim, on the blocks of its study (and, for orders, of the studies of its entries)."""
    own = by_study.get(claim.study, ())
    blocks = blocks_of(claim.study, claim.device, own, claim)
    everything = [block for group in by_study.values() for block in group] if claim.order else []
    if claim.form == "order" and claim.metric is not None:
        site = None if isinstance(blocks, Absent) else locate(claim, blocks)
        found = judge_order(claim, metric_named(claim.metric), everything)
        return _verdict(claim, found, site if isinstance(site, Site) else None, None)
    if isinstance(blocks, Absent):
        return _verdict(claim, Finding(word=blocks.word, reason=blocks.reason), None, None)
    site = locate(claim, blocks)
    if isinstance(site, Absent):
        return _verdict(claim, Finding(word=site.word, reason=site.reason), None, None)
    metric = metric_named(claim.metric) if claim.metric else None
    found = _find(claim, metric, site, blocks, everything)
    return _verdict(claim, found, site, metric, blocks)


def _find(claim: Claim, metric: Metric | None, site: Site, blocks: Sequence[BlockResult],
          everything: Sequence[BlockResult]) -> Finding:  # fmt: skip
    """The finding by the form of the claim."""
    if claim.form == "limit" and metric is not None:
        return judge_limit(claim, metric, site, blocks)
    absent = standing(site, metric) or doubt(site, metric)
    if absent is not None:
        return Finding(word=absent.word, reason=absent.reason)
    if claim.expect is not None:
        return judge_expected(claim, site)
    if claim.form == "product" and metric is not None:
        return _gated(metric, site, judge_product(claim, metric, site, everything))
    if metric is None or claim.bounds == (None, None):
        return judge_reported(claim, site)
    return _gated(metric, site, _in_range(claim, metric, site))


def _in_range(claim: Claim, metric: Metric, site: Site) -> Finding:
    found = measure(metric, site.arm, site.baseline, claim.view)
    if found is None:
        return _lacking(claim, metric, site)
    decision = decide(claim, metric, found)
    return Finding(
        word=decision.word, reason=decision.reason, interval=found.interval,
        measured=measured(metric, found.interval, claim.bounds) + against_baseline(metric, site, claim.view),
        helped=_helped(metric, site, found), rounds_needed=decision.rounds_needed,
    )  # fmt: skip


def _gated(metric: Metric, site: Site, finding: Finding) -> Finding:
    """A cell that trained something else confirms nothing."""
    parity = parity_at(site)
    if not metric.gated or parity.holds is not False or finding.word not in MEASURED:
        return finding
    if too_few(metric, finding.interval):
        return replace(finding, reason=f"{finding.reason}; so far parity fails: {parity.reason}")
    reason = (
        f"the cell did not train what it is compared with, so that {finding.measured} is no answer, whichever way it "
        f"points; parity fails: {parity.reason}"
    )
    return Finding(word=Word.FAST_BUT_DIFFERENT, reason=reason, measured=finding.measured, interval=finding.interval,
                   helped=finding.helped, details=finding.details)  # fmt: skip


def _helped(metric: Metric, site: Site, found: Measured) -> str:
    """Whether the cell improved the metric; an efficiency helped where its devices together were faster than one.

    A level (a share, a utilisation) and a fact have no "no difference", so that nothing can be said.
    """
    if not metric.per_device:
        return helped(metric, found.interval)
    undivided = replace(metric, per_device=False)
    whole = measure(undivided, site.arm, site.baseline, "")
    return helped(undivided, whole.interval) if whole else ""


def _lacking(claim: Claim, metric: Metric, site: Site) -> Finding:
    """The records' own reason for a missing figure. Where they give none for a figure of a kind, another version of
    this code made them, and one that measures it can run."""
    trials = [trial for arm in site.arms for trial in arm.trials]
    names = [name for trial in trials for name in trial.missing]
    figure = metric.name.partition(":")[2]
    wanted = f"peak_{claim.view}_bytes" if metric.uses_view else figure or _RECORDED.get(metric.name, metric.name)
    reasons = [trial.missing[wanted] for trial in trials if wanted in trial.missing]
    if not reasons and figure:
        reason = f"the trials in the store are of a version that did not measure {figure!r}; run {claim.study!r} again"
        return Finding(word=Word.NOT_RUN, reason=reason)
    why = f": {reasons[0]}" if reasons else f" (missing: {', '.join(dict.fromkeys(names))})" if names else ""
    return Finding(word=Word.NOT_TESTABLE, reason=f"the records have no figure for {metric.name}{why}")


def _verdict(claim: Claim, found: Finding, site: Site | None, metric: Metric | None,
             blocks: Sequence[BlockResult] = ()) -> Verdict:  # fmt: skip
    """Everything around the finding: place, scope, other baseline, notes."""
    low, high = (claim.limit, claim.limit) if claim.limit else claim.bounds
    interval = found.interval
    ends = None if interval is None or interval.low is None or interval.high is None else (interval.low, interval.high)
    details: dict[str, Any] = {"statement": claim.statement, "documents": claim.documents, **found.details}
    scope, reason, other = "", found.reason, ""
    if site is not None and found.word in MEASURED:
        ranged = metric is not None and claim.bounds != (None, None) and claim.form not in {"product", "limit"}
        if ranged and metric is not None and claim.expect is None:
            points = scope_of(claim, metric, site, blocks)
            scope, details["points"] = points.text, list(points.points)
        other, other_word = _other_baseline(claim, metric, site)
        details |= {"other_word": other_word.value} if other_word else {}
        details |= _as_asked(claim, metric, site, found)
        details["beside"] = "" if found.word is Word.REPORTED else beside(claim, site)
        notes = notes_on(site, interval, _shown(claim))
        details |= {"notes": notes, "suspect": site.block.suspect, "elsewhere": _elsewhere(claim, metric, site, blocks)}
        reason = "; ".join([reason, *notes])
    return Verdict(
        claim=claim.id, word=found.word, reason=reason, helped=found.helped, claimed=claimed(claim),
        measured=found.measured, value=interval.value if interval else None, interval=ends,
        rounds=interval.rounds if interval else 0, rounds_needed=found.rounds_needed, scope=scope,
        metric=claim.metric or "", low=low, high=high, study=claim.study, block=site.block.block if site else "",
        fingerprint=site.block.fingerprint if site else "",
        device=site.block.device if site else "", arm=site.arm.name if site else "",
        sweep=dict(site.block.sweep) if site else dict(claim.at), other_baseline=other, details=details,
    )  # fmt: skip


def _shown(claim: Claim) -> tuple[Metric, ...]:
    """The claim's metric, and of a statement those that stand beside it."""
    names = (claim.metric, *(claim.shows if claim.form == "statement" else ()))
    return tuple(metric_named(name) for name in names if name)


def _other_baseline(claim: Claim, metric: Metric | None, site: Site) -> tuple[str, Word | None]:
    """The same metric against the other baseline, in words; and what it says of a claimed range, if there is one."""
    if claim.other_baseline is None or metric is None:
        return "", None
    baseline = find(site.block, claim.other_baseline)
    if baseline is None:
        return f"no trial of {show_settings(claim.other_baseline)}", None
    other = Site(block=site.block, arm=site.arm, baseline=baseline)
    words = shown_metric(metric.name, other, claim.view, claim.bounds)
    if not words:
        return f"{baseline.name}: {baseline.reason or 'no figure'}", None
    found = measure(metric, other.arm, other.baseline, claim.view)
    moved = {axis: setting for axis, setting in baseline.cell.items() if setting != site.baseline.cell.get(axis)}
    said = f"{words} against {show_settings(moved) if baseline.role == 'baseline' and moved else baseline.name}"
    if found is None or claim.bounds == (None, None) or claim.form in {"product", "limit"}:
        return said, None
    word = _word_at(claim, metric, other, found)
    return f"{said}: {word}", word


def _as_asked(claim: Claim, metric: Metric | None, site: Site, found: Finding) -> dict[str, Any]:
    """What the rounds that the matrix asks for say alone, where there are more: who goes on because a verdict is open,
    and stops when it is not, gives a claim at an edge more than one chance."""
    asked = site.block.asked_rounds
    if metric is None or claim.form in {"product", "limit"} or not metric.statistic.has_interval:
        return {}
    if not asked or not any(trial.round > asked for arm in site.arms for trial in arm.trials):
        return {}
    arm, baseline = (
        replace(each, trials=tuple(trial for trial in each.trials if trial.round <= asked))
        for each in (site.arm, site.baseline)
    )
    first = Site(block=site.block, arm=arm, baseline=arm if site.arm is site.baseline else baseline)
    alone = measure(metric, first.arm, first.baseline, claim.view)
    if alone is None or found.interval is None or alone.interval.rounds >= found.interval.rounds:
        return {}
    word = _word_at(claim, metric, first, alone)
    words = measured(metric, alone.interval, claim.bounds)
    told = "" if word is Word.REPORTED else f": {word.value}"
    return {
        "rounds_asked_for": f"{alone.interval.rounds} of {found.interval.rounds}; those alone give {words}{told}",
        "word_asked_for": word.value,
    }


def _word_at(claim: Claim, metric: Metric, site: Site, found: Measured) -> Word:
    """The verdict at another place than the claim's own, by the one figure measured there."""
    if metric.gated and parity_at(site).holds is False and not too_few(metric, found.interval):
        return Word.FAST_BUT_DIFFERENT
    return decide(claim, metric, found).word if claim.bounds != (None, None) else Word.REPORTED


def _elsewhere(claim: Claim, metric: Metric | None, site: Site, blocks: Sequence[BlockResult]) -> list[dict[str, str]]:
    """The same claim on other machines whose records are here."""
    home, found = machine_of(site.block), []
    for machine in dict.fromkeys(machine_of(block) for block in blocks if machine_of(block) != home):
        there = locate(claim, [block for block in blocks if machine_of(block) == machine])
        if metric is None or isinstance(there, Absent) or standing(there, metric) or claim.form in {"product", "limit"}:
            continue
        words = shown_metric(metric.name, there, claim.view, claim.bounds)
        judged = measure(metric, there.arm, there.baseline, claim.view)
        if words and judged:
            word = _word_at(claim, metric, there, judged)
            found.append({"device": machine[0], "scale": machine[1], "measured": words, "verdict": str(word)})
    return found
