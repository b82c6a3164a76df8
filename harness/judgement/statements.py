"""Statements without a range: what was measured stands beside them; an expected value confirms or refutes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from harness.judgement.claims import Claim
from harness.judgement.finding import Finding
from harness.judgement.judged import Interval, Word
from harness.judgement.metrics import FIGURE_PREFIXES, METRICS, Metric, metric_named
from harness.judgement.pairs import measure
from harness.judgement.quantities import figure_value
from harness.judgement.site import Site
from harness.judgement.verdict import helped, helped_by_name
from harness.judgement.words import Bounds, label, measured, number, phrase, rounds, show_value
from harness.results.record import Record
from harness.trial.outcome import Outcome

#: Figures of a kind that stand in the table; the claim's page shows all.
MOST_FIGURES = 4


def judge_expected(claim: Claim, site: Site) -> Finding:
    """The figure must have the expected value in every round; where most rounds failed, nothing is said by the rest."""
    name = (claim.metric or "").partition(":")[2]
    values = [figure_value(trial, name) for trial in _good(site.arm.trials)]
    seen = [value for value in values if value is not None]
    if not seen:
        return Finding(word=Word.NOT_TESTABLE, reason=f"the records have no figure {name!r}")
    right = sum(1 for value in seen if _equal(value, claim.expect))
    shown = ", ".join(dict.fromkeys(show_value(value) for value in seen))
    reason = f"{name.replace('_', ' ')} was {shown} in {rounds(len(seen))}; claimed is {show_value(claim.expect)}"
    word = Word.CONFIRMED if right == len(seen) else Word.REFUTED_BELOW if right == 0 else Word.INCONCLUSIVE
    failed = len(site.arm.trials) - len(values)
    if failed > len(seen):
        word, reason = Word.INCONCLUSIVE, f"{reason}; most rounds failed, {failed} of {len(site.arm.trials)}"
    share = Interval(value=right / len(seen), rounds=len(seen), dropped=failed)
    return Finding(word=word, reason=reason, measured=shown, interval=share, details={"figures": figures(site)})


def judge_reported(claim: Claim, site: Site) -> Finding:
    """No range: the metric, those that the claim shows beside it, or the kind's own figures."""
    named = [name for name in (claim.metric, *claim.shows) if name is not None]
    shown = {name: words for name in named if (words := shown_metric(name, site, claim.view))}
    found = figures(site)
    if not shown and found:
        shown = {name: show_value(value) for name, value in found.items() if not isinstance(value, dict | list)}
    if not shown and site.arm is not site.baseline:
        shown = {name: words for name in ("speedup", "peak_saved") if (words := shown_metric(name, site, claim.view))}
    first = list(shown)[:MOST_FIGURES]
    text = _sentence({name: shown[name] for name in first}, site, claim.view)
    reason = "a statement without a range: measured, not judged" if text else "it ran, and left no figure to show"
    return Finding(
        word=Word.REPORTED if text else Word.NOT_TESTABLE, reason=reason, measured=text,
        interval=_interval(claim.metric, site, claim.view) if site.arm is not site.baseline else None,
        helped=_helped(first, site, claim.view), details={"shown": shown, "figures": found},
    )  # fmt: skip


def beside(claim: Claim, site: Site) -> str:
    """What a claim that is judged by its metric shows beside it, in words."""
    shown = {name: words for name in claim.shows if (words := shown_metric(name, site, claim.view))}
    return _sentence(shown, site, claim.view)


def _sentence(shown: Mapping[str, str], site: Site, view: str) -> str:
    return "; ".join(_phrase(name, site, view) or f"{label(name)} {words}" for name, words in shown.items())


def shown_metric(name: str, site: Site, view: str, bounds: Bounds = ()) -> str:
    """A metric of the site in words; text figures as they are; empty where there is none."""
    metric = metric_named(name)
    found = measure(metric, site.arm, site.baseline, view)
    if found is not None and not (name.startswith("figure:") and _is_word(site, name)):
        return measured(metric, found.interval, bounds)
    if not name.startswith("figure:"):
        return ""
    values = [figure_value(trial, name.partition(":")[2]) for trial in _good(site.arm.trials)]
    return ", ".join(dict.fromkeys(show_value(value) for value in values if value is not None))


def against_baseline(metric: Metric, site: Site, view: str) -> str:
    """` (baseline 0.5%)` after a figure of the cell alone; empty where there is no other arm with one."""
    if not metric.statistic.of_the_cell_alone or site.arm is site.baseline:
        return ""
    found = measure(metric, site.baseline, None, view)
    return f" (baseline {number(metric, found.interval.value)})" if found else ""


def _phrase(name: str, site: Site, view: str) -> str:
    """A figure that is a number, in words; empty where it is none."""
    interval = _interval(name, site, view)
    if interval is None or (name.startswith("figure:") and _is_word(site, name)):
        return ""
    metric = metric_named(name)
    return phrase(metric, interval) + against_baseline(metric, site, view)


def _interval(name: str | None, site: Site, view: str) -> Interval | None:
    """None for a figure of a kind that is named without a prefix, and where the records lack it."""
    if name is None or not (name in METRICS or name.startswith(FIGURE_PREFIXES)):
        return None
    found = measure(metric_named(name), site.arm, site.baseline, view)
    return found.interval if found else None


def _helped(names: Sequence[str], site: Site, view: str) -> str:
    """By what the metrics are about, where several are shown. A baseline that is shown by itself helps nothing."""
    found = [(metric_named(name), interval) for name in names if (interval := _interval(name, site, view))]
    words = {metric.subject: helped(metric, interval) for metric, interval in found}
    return "" if site.arm is site.baseline else helped_by_name(words)


def figures(site: Site) -> dict[str, Any]:
    """The kind's own figures of the cell: numbers as means over rounds, all else from the last round."""
    good = _good(site.arm.trials)
    names = dict.fromkeys(name for trial in good for name in trial.figures)
    result: dict[str, Any] = {}
    for name in names:
        values = [trial.figures[name] for trial in good if trial.figures.get(name) is not None]
        numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
        if values:
            result[name] = fmean(numbers) if len(numbers) == len(values) else values[-1]
    return result


def _equal(value: object, expected: object) -> bool:
    """Equal, and `true` is not 1."""
    return value == expected and isinstance(value, bool) == isinstance(expected, bool)


def _is_word(site: Site, name: str) -> bool:
    values = [figure_value(trial, name.partition(":")[2]) for trial in _good(site.arm.trials)]
    return any(isinstance(value, bool | str) for value in values)


def _good(trials: Iterable[Record]) -> list[Record]:
    return [trial for trial in trials if trial.outcome is Outcome.OK]
