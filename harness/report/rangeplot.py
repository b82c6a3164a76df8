"""The small plot in a row of the claims table: claimed band and measured interval on one axis, as inline SVG."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup, escape

from harness.judgement.judged import Verdict
from harness.report.formats import plain
from harness.report.verdicts import LOOKS

WIDTH, HEIGHT = 150, 26
_MARGIN = 8


@dataclass(frozen=True, kw_only=True)
class _Axis:
    low: float
    high: float

    def x(self, value: float) -> float:
        inner = WIDTH - 2 * _MARGIN
        where = (value - self.low) / (self.high - self.low)
        return round(_MARGIN + inner * min(max(where, 0.0), 1.0), 1)


def range_plot(verdict: Verdict, *, neutral: float | None = None) -> Markup:
    """SVG of the claimed range (band) and the measured value with its interval; empty when there is neither.

    `neutral` is the value that means "no change" (1 for ratios, 0 for savings); it gets a thin line when in sight.
    """
    ends = [end for end in (verdict.low, verdict.high) if end is not None]
    if not ends or verdict.value is None:
        return Markup("")
    measured = [verdict.value, *(verdict.interval or ())]
    axis = _axis([*ends, *measured, *([] if neutral is None else [neutral])])
    parts = [_band(axis, verdict), _neutral(axis, neutral), _measured(axis, verdict)]
    return Markup(
        f'<svg class="range" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
        f'aria-label="{escape(_words(verdict))}"><title>{escape(_words(verdict))}</title>{"".join(parts)}</svg>'
    )


def _axis(values: list[float]) -> _Axis:
    low, high = min(values), max(values)
    room = (high - low or abs(high) or 1.0) * 0.12
    return _Axis(low=low - room, high=high + room)


def _band(axis: _Axis, verdict: Verdict) -> str:
    left = _MARGIN / 2 if verdict.low is None else axis.x(verdict.low)
    right = WIDTH - _MARGIN / 2 if verdict.high is None else axis.x(verdict.high)
    edges = [end for end in (verdict.low, verdict.high) if end is not None]
    lines = "".join(f'<path class="edge" d="M{axis.x(end)} 4V{HEIGHT - 4}"/>' for end in edges)
    width = max(round(right - left, 1), 2)
    return f'<rect class="band" x="{left}" y="4" width="{width}" height="{HEIGHT - 8}"/>{lines}'


def _neutral(axis: _Axis, neutral: float | None) -> str:
    return "" if neutral is None else f'<path class="neutral" d="M{axis.x(neutral)} 1V{HEIGHT - 1}"/>'


def _measured(axis: _Axis, verdict: Verdict) -> str:
    middle, value = HEIGHT / 2, verdict.value or 0.0
    tone = LOOKS[verdict.word].tone
    line = ""
    if verdict.interval:
        left, right = axis.x(verdict.interval[0]), axis.x(verdict.interval[1])
        line = f'<path class="whisker {tone}" d="M{left} {middle}H{right}M{left} 8V18M{right} 8V18"/>'
    return f'{line}<circle class="dot {tone}" cx="{axis.x(value)}" cy="{middle}" r="3.6"/>'


def _words(verdict: Verdict) -> str:
    claimed = f"claimed {_end(verdict.low, 'any')} to {_end(verdict.high, 'any')}"
    interval = (
        "" if not verdict.interval else f", interval {plain(verdict.interval[0])} to {plain(verdict.interval[1])}"
    )
    return f"{claimed}; measured {plain(verdict.value)}{interval}"


def _end(value: float | None, otherwise: str) -> str:
    return otherwise if value is None else plain(value)
