"""How numbers become text: one place, so that the same figure never stands in two spellings on one page."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from datetime import datetime

from harness.experiment.axes import show_settings
from harness.judgement.words import digits

#: What stands where there is no figure.
ABSENT = "–"
#: What the name of an axis may end in.
UNITS = frozenset({"ms", "seconds", "bytes", "mebibytes"})
#: File systems allow 255 bytes, readers less.
LONGEST_SLUG = 60
#: A word of the language at the start of a text: names of settings, files and functions have other signs in them.
_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*[,;:.!?…)]*(?:\s|$)")


def ratio(value: float | None) -> str:
    """`1.48x`; more digits near 1, so that 0.998x and 1.002x stay apart, and below 0.1."""
    if value is None or not math.isfinite(value):
        return ABSENT
    return f"{value:.{digits(value) if value < 10 else 1}f}x"


def share(value: float | None) -> str:
    """`37.5%` for 0.375."""
    return ABSENT if value is None or not math.isfinite(value) else f"{100 * value:.1f}%"


def plain(value: float | None) -> str:
    """Up to four significant digits."""
    return ABSENT if value is None or not math.isfinite(value) else f"{value:.4g}"


def rate(value: float | None) -> str:
    """Tokens/s with thousands separated: `41,230`; below 100 with one digit after the point."""
    if value is None or not math.isfinite(value):
        return ABSENT
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"


def size(value: float | None) -> str:
    """Bytes as `12.41 GiB` or `310 MiB`."""
    if value is None or not math.isfinite(value):
        return ABSENT
    gib = value / 2**30
    return f"{gib:.2f} GiB" if gib >= 1 else f"{value / 2**20:.1f} MiB"


def milliseconds(value: float | None) -> str:
    """Seconds as `12.3 ms`; from one second on as `1.28 s`."""
    if value is None or not math.isfinite(value):
        return ABSENT
    return f"{value:.3g} s" if abs(value) >= 0.9995 else f"{1000 * value:.3g} ms"


def span(low: float | None, high: float | None) -> str:
    """An interval of ratios: `[1.46, 1.50]`, or nothing where the rules give none."""
    if low is None or high is None:
        return ""
    ends = (f"{end:.{3 if 0.95 < round(end, 2) < 1.05 else digits(end)}f}" for end in (low, high))
    return f"[{', '.join(ends)}]"


def with_span(value: float | None, low: float | None, high: float | None) -> str:
    """`1.48x [1.46, 1.50]`."""
    return f"{ratio(value)} {span(low, high)}".strip()


def settings(point: Mapping[str, object]) -> str:
    """`sequence_length=2048 batch_size=8`."""
    return show_settings(point)


def axis_name(axis: str) -> str:
    """An axis as people say it: `sequence length`, `cost per sample (ms)`."""
    name, _, unit = axis.replace("_", " ").rpartition(" ")
    return f"{name} ({unit})" if name and unit in UNITS else axis.replace("_", " ")


def moment(text: str) -> str:
    """An ISO time as `2025-03-01 14:05 UTC`; what cannot be read stays as it is."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return text
    return f"{when:%Y-%m-%d %H:%M} UTC"


def sentence(text: str) -> str:
    """A clause as a sentence: a capital letter, unless it begins with a name (`precision=bf16`, `my.py:build`), and a
    full stop."""
    text = text.strip()
    if not text:
        return ""
    stop = "" if text.endswith((".", "!", "?", "…")) else "."
    return f"{text[0].upper() if _WORD.match(text) else text[0]}{text[1:]}{stop}"


def figure(name: str, value: float) -> str:
    """A figure of a kind by the unit that its name ends in."""
    if name.endswith("_bytes"):
        return size(value)
    if name.endswith("_per_second"):
        return rate(value)
    if name.endswith("_seconds"):
        return milliseconds(value) if abs(value) < 1 else f"{value:.3g} s"
    return share(value) if name.endswith("_share") else plain(value)


def slug(text: str) -> str:
    """A name that is safe as a file name and as an anchor: letters, digits, dashes.

    Where letters had to be left out, a hash keeps two names apart.
    """
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    lost = len(plain) > LONGEST_SLUG or any(letter.isalnum() and not letter.isascii() for letter in text)
    mark = f"-{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:6]}" if lost else ""
    return f"{plain[:LONGEST_SLUG] or 'unnamed'}{mark}"


def devices(count: object, name: str) -> str:
    """`NVIDIA H100`, or `2 × NVIDIA H100`."""
    return name if count == 1 else f"{count} × {name}"


def plural(count: int, noun: str) -> str:
    """`1 trial`, `3 trials`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
