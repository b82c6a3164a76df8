"""Numbers, ranges and points in words: what verdicts say."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import takewhile

from harness.judgement.claims import Claim, show_settings
from harness.judgement.judged import Interval
from harness.judgement.metrics import Metric, Shape, Statistic, metric_named

#: Ends this close are the same: 1 - 0.7 is 0.30000000000000004.
CLOSE = 1e-9
#: Memory of trials that differ by no more than this is one figure.
ALIKE = 0.01
#: Digits beyond the usual ones that tell a figure from a bound.
MOST_MORE = 4
#: Digits after the point up to which the two ends of a narrow interval are told apart.
MOST_DECIMALS = 4
#: Units that a name need not repeat.
TIMES = frozenset({"seconds", "ms"})
#: Ends of a claimed range; None where it is open.
Bounds = Sequence[float | None]


def number(metric: Metric, value: float, apart: Bounds = (), *, least: int = 0) -> str:
    """`1.48x`, `47.3%`, `12.4 GiB`, `3.2 seconds`, by the metric's unit; enough digits to tell 0.998x from 1x.

    Args:
        apart: values that it must not look equal to unless it is: 1.198x, not 1.20x, beside a bound of 1.2x.
        least: digits beyond the usual ones that it has in any case.
    """
    others = [end for end in apart if end is not None and not same(value, end)]
    texts = ((more, _text(metric, value, more)) for more in range(least, MOST_MORE))
    clear = (text for more, text in texts if all(text != _text(metric, end, more) for end in others))
    return next(clear, _text(metric, value, MOST_MORE))


def same(one: float, other: float) -> bool:
    """Equal but for rounding of the computer."""
    return math.isclose(one, other, rel_tol=CLOSE, abs_tol=CLOSE)


def _text(metric: Metric, value: float, more: int) -> str:
    """With `more` digits than usual."""
    if not math.isfinite(value):
        return "∞" if value > 0 else "-∞"
    if metric.unit == "share":
        return f"{100 * value:z.{more + (2 if 0.995 <= abs(value) < 1.005 else 1)}f}%"
    if metric.unit == "bytes":
        return _size(value, more)
    if metric.unit == "x":
        return f"{value:.{more + digits(value)}f}x"
    return f"{value:.{more + 4}g} {metric.unit}".strip()


def bound(metric: Metric, value: float) -> str:
    """A claimed figure without digits that nobody claimed: `1.5x`, `45%`."""
    if metric.unit == "share":
        return f"{100 * value:.6g}%"
    if metric.unit == "bytes":
        return _size(value)
    return f"{value:.6g}x" if metric.unit == "x" else f"{value:.6g} {metric.unit}".strip()


def measured(metric: Metric, interval: Interval, bounds: Bounds = ()) -> str:
    """`1.48x [1.46x, 1.50x]`, `1.1912x [1.1908x, 1.1915x]`; the value alone where the rules give no interval, or one
    whose ends four digits after the point do not tell apart.

    What saves less than nothing `needs 12.0% more`. Of memory, which has no interval, trials that differ by more than
    1% are told: `22.3% (22.3% to 31.2% by trial)`. `bounds` are those that no figure may seem to reach (`number`).
    """
    if _costs(metric, interval):
        more = _negative(interval)
        return f"needs {_value(metric, more)} more{_beside(metric, more)}{_by_trial(metric, more)}"
    shown = f"{_value(metric, interval, bounds)}{_beside(metric, interval, bounds)}"
    return f"{shown}{_by_trial(metric, interval, bounds)}"


def phrase(metric: Metric, interval: Interval) -> str:
    """A figure by itself, such that its direction is plain: `turnaround time 25.19x shorter [21.73x, 29.21x]`."""
    if _costs(metric, interval):
        more = _negative(interval)
        return f"{metric.subject} {_value(metric, more)} more{_beside(metric, more)}"
    if metric.shape is not Shape.INVERSE:
        return f"{metric.subject if metric.unit in TIMES else title(metric)} {measured(metric, interval)}"
    above, below = metric.comparatives
    shown, word = (interval, above) if interval.value >= 1 else (_reciprocal(interval), below)
    return f"{metric.subject} {_value(metric, shown)} {word}{_beside(metric, shown)}"


def title(metric: Metric) -> str:
    """A metric as it is called before its value."""
    return label(metric.name)


def label(name: str) -> str:
    """`figure:largest_batch` as a reader says it."""
    return (name.partition(":")[2] or name).replace("_", " ").replace(".", " ")


def _value(metric: Metric, interval: Interval, bounds: Bounds = ()) -> str:
    """The value, with as many digits as its interval has."""
    return number(metric, interval.value, bounds, least=_more(metric, interval, bounds) or 0)


def _beside(metric: Metric, interval: Interval, bounds: Bounds = ()) -> str:
    """The interval after its value; nothing where there is none, or one too narrow to show."""
    return f" {span(metric, interval, bounds)}" if is_wide(metric, interval, bounds) else ""


def _by_trial(metric: Metric, interval: Interval, bounds: Bounds = ()) -> str:
    """The range over trials of a maximum; nothing where they are alike."""
    if metric.statistic is not Statistic.MAXIMUM or not interval.observed:
        return ""
    lowest, highest = min(interval.observed), max(interval.observed)
    if not math.isfinite(highest) or highest - lowest <= ALIKE * (1.0 if metric.unit == "share" else abs(highest)):
        return ""
    return f" ({number(metric, lowest, bounds)} to {number(metric, highest, bounds)} by trial)"


def is_wide(metric: Metric, interval: Interval, bounds: Bounds = ()) -> bool:
    """Whether there is an interval, and one that is wider than what is printed of it."""
    return _more(metric, interval, bounds) is not None


def _more(metric: Metric, interval: Interval, bounds: Bounds = ()) -> int | None:
    """Digits beyond the usual ones that tell its ends apart; None without an interval, or where no digits do."""
    if interval.low is None or interval.high is None:
        return None
    for more in range(MOST_MORE):
        low, high = (number(metric, end, bounds, least=more) for end in (interval.low, interval.high))
        if more and max(map(_decimals, (low, high))) > MOST_DECIMALS:
            return None
        if low != high:
            return more
    return None


def _decimals(text: str) -> int:
    """Digits after the point of `1.48x`, `12.40 GiB`."""
    return sum(1 for _ in takewhile(str.isdigit, text.partition(".")[2]))


def span(metric: Metric, interval: Interval, bounds: Bounds = ()) -> str:
    """`[1.46x, 1.50x]`; the value alone where there is no interval, or one too narrow to show."""
    low, high, more = interval.low, interval.high, _more(metric, interval, bounds)
    if low is None or high is None or more is None:
        return _value(metric, interval, bounds)
    return f"[{number(metric, low, bounds, least=more)}, {number(metric, high, bounds, least=more)}]"


def _costs(metric: Metric, interval: Interval) -> bool:
    """Whether it "saves" less than nothing, beyond rounding."""
    return metric.shape is Shape.SAVED and float(number(metric, interval.value).rstrip("%")) < 0


def _negative(interval: Interval) -> Interval:
    low, high = (None if end is None else -end for end in (interval.high, interval.low))
    observed = tuple(-each for each in interval.observed)
    return replace(interval, value=-interval.value, low=low, high=high, observed=observed)


def _reciprocal(interval: Interval) -> Interval:
    low, high = (None if end is None else 1 / end for end in (interval.high, interval.low))
    return replace(interval, value=1 / interval.value, low=low, high=high)


def claimed(claim: Claim) -> str:
    """The claim in words: `speedup 1.5x to 2x`."""
    if claim.metric is None:
        return claim.statement
    if claim.form == "order":
        return " > ".join(entry.title for entry in claim.order)
    metric = metric_named(claim.metric)
    name, closing = title(metric), ""
    if metric.shape is Shape.INVERSE:
        name, closing = metric.subject, f" {metric.comparatives[0]}"
    if claim.expect is not None:
        return f"{name} is {show_value(claim.expect)}"
    if claim.limit is not None:
        return f"{name} {claim.limit:g}x{closing} for many devices"
    if claim.form == "product":
        name = "stack"
    words = claimed_range(metric, claim)
    return f"{name} {words}{closing}" if words else claim.statement


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


def rounds(count: int) -> str:
    """`1 round`, `3 rounds`."""
    return f"{count} round{'' if count == 1 else 's'}"


def show_value(value: object) -> str:
    """A figure of any type."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def point(settings: Mapping[str, object]) -> str:
    """`sequence_length=1024 batch_size=8`; empty without a sweep."""
    return show_settings(settings) if settings else ""


def _size(value: float, more: int = 0) -> str:
    """Bytes as `12.40 GiB` or `1.00 MiB`."""
    digits = 2 + more
    return f"{value / 2**30:.{digits}f} GiB" if abs(value) >= 2**30 else f"{value / 2**20:.{digits}f} MiB"


def digits(value: float) -> int:
    """After the point: more near 1, where the difference counts, and below 0.1, where two would leave one figure."""
    if 0 < value < 0.1:
        return 2 - math.floor(math.log10(value))
    return 3 if 0.95 < value < 1.05 else 2 if value < 100 else 0
