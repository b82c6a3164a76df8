"""Numbers, ranges and points in words: what verdicts say."""

from __future__ import annotations

import math
from collections.abc import Mapping

from harness.judgement.claims import Claim, show_settings
from harness.judgement.judged import Interval
from harness.judgement.metrics import Metric, metric_named


def number(metric: Metric, value: float) -> str:
    """`1.48x`, `47.3%`, `12.4 GiB`, `3.2 seconds`, by the metric's unit; enough digits to tell 0.998x from 1x."""
    if not math.isfinite(value):
        return "∞" if value > 0 else "-∞"
    if metric.unit == "share":
        return f"{100 * value:.{2 if 0.995 <= abs(value) < 1.005 else 1}f}%"
    if metric.unit == "bytes":
        return _size(value)
    if metric.unit == "x":
        return f"{value:.{_digits(value)}f}x"
    return f"{value:.4g} {metric.unit}".strip()


def bound(metric: Metric, value: float) -> str:
    """A claimed figure without digits that nobody claimed: `1.5x`, `45%`."""
    if metric.unit == "share":
        return f"{100 * value:.6g}%"
    if metric.unit == "bytes":
        return _size(value)
    return f"{value:.6g}x" if metric.unit == "x" else f"{value:.6g} {metric.unit}".strip()


def measured(metric: Metric, interval: Interval) -> str:
    """`1.48x [1.46x, 1.50x]`; the value alone where the rules give no interval, or one too narrow to show."""
    value = number(metric, interval.value)
    if interval.low is None or interval.high is None:
        return value
    ends = {number(metric, interval.low), number(metric, interval.high)}
    return value if ends == {value} else f"{value} {span(metric, interval)}"


def span(metric: Metric, interval: Interval) -> str:
    low, high = interval.low, interval.high
    if low is None or high is None:
        return number(metric, interval.value)
    return f"[{number(metric, low)}, {number(metric, high)}]"


def claimed(claim: Claim) -> str:
    """The claim in words: `speedup 1.5x to 2x`."""
    if claim.metric is None:
        return claim.statement
    if claim.form == "order":
        return " > ".join(entry.title for entry in claim.order)
    metric = metric_named(claim.metric)
    name = metric.name.partition(":")[2].replace("_", " ") or metric.name.replace("_", " ")
    if claim.expect is not None:
        return f"{name} is {show_value(claim.expect)}"
    if claim.limit is not None:
        return f"{name} {claim.limit:g}x for many devices"
    if claim.form == "product":
        name = "stack"
    words = claimed_range(metric, claim)
    return f"{name} {words}" if words else claim.statement


def claimed_range(metric: Metric, claim: Claim) -> str:
    low, high = claim.bounds
    if claim.form == "exact" and claim.value is not None and claim.tolerance is not None:
        return f"{bound(metric, claim.value)} (±{bound(metric, claim.tolerance)})"
    if claim.form == "up-to" and low is not None:
        return f"up to {bound(metric, low)}"
    if low is None or high is None:
        at_least = "" if low is None else f"at least {bound(metric, low)}"
        return at_least or ("" if high is None else f"at most {bound(metric, high)}")
    return f"{bound(metric, low)} to {bound(metric, high)}"


def show_value(value: object) -> str:
    """A figure of any type."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def point(settings: Mapping[str, object]) -> str:
    """`sequence_length=1024 batch_size=8`; empty without a sweep."""
    return show_settings(settings) if settings else ""


def _size(value: float) -> str:
    """Bytes as `12.40 GiB` or `1.00 MiB`."""
    return f"{value / 2**30:.2f} GiB" if abs(value) >= 2**30 else f"{value / 2**20:.2f} MiB"


def _digits(value: float) -> int:
    return 3 if 0.95 < value < 1.05 else 2 if value < 100 else 0
