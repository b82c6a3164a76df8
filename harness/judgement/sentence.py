"""A claim as one sentence, for `claimbench check` and for `check:` in a claims file.

    attention=flash2 vs eager >= 2x
    compile=default vs off 1.3x to 2x
    checkpointing=full saves 30% to 50% peak memory
    lora=8 >= 90% fewer trainable parameters
    precision=amp-bf16 up to 2x faster
    attention=flash2 vs eager at precision=bf16 sequence_length=2048 >= 2x

    sentence   SETTINGS [vs SETTINGS] [at SETTINGS] RANGE [METRIC]     words of the metric may stand before the range
    SETTINGS   axis=setting …; after `vs` a bare setting is one of the same axis; without `vs`: the default of each axis
    at         settings of both arms
    RANGE      >= 2x · at least 2x · <= 1.3x · at most 1.3x · 1.3x to 2x · up to 2x · 2x (at least); x or %
    METRIC     faster, slower (speed, the default) · step time · peak [allocated, reserved, device, host] memory ·
               activation memory · parameter memory · trainable parameters; less, fewer, saves, smaller or more, larger

`30% faster` is 1.3x the speed, `20% slower` 0.8x, `2x less memory` half of it. Where no word says less or more, a
figure is cell over baseline: `<= 0.5x peak memory`, `<= 50% of the peak memory`. `judgement.sentence_reader` reads it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal

from harness.experiment.axes import Setting
from harness.judgement.claims import Claim, Settings, Source, show_settings

View = Literal["allocated", "reserved", "device", "host"]
Bound = Literal["at-least", "at-most", "range", "up-to"]
Sense = Literal["more", "less", "plain"]
Unit = Literal["x", "%", ""]
#: The document that a sentence stands in, where a claims file names none.
OWN_DOCUMENT = "own"
#: How the study begins that `claimbench check` makes of a sentence.
CHECK_STUDY = "check-"
OWN_TITLE = "Sentences of your own"
#: Figures of a claim are rounded to so many: 1 - 0.7 is 0.30000000000000004.
DIGITS = 12


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A number as it is written."""

    value: float
    unit: Unit
    """Empty where none is written; the figures of a sentence that was read have one."""

    def __str__(self) -> str:
        """Every digit, never as 1e-07: it reads back as the same."""
        digits = f"{Decimal(repr(self.value)):f}"
        return f"{digits.rstrip('0').rstrip('.') if '.' in digits else digits}{self.unit}"


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What a metric's words mean: the metric for a factor and for a percentage."""

    words: str
    """As the sentence says it."""
    kind: Literal["speed", "time", "amount"]
    ratio_metric: str
    """cell ÷ baseline for speed and time, baseline ÷ cell for an amount; empty where there is none."""
    saved_metric: str = ""
    """Share saved, of an amount."""
    has_view: bool = False


SPEED = Subject(words="speed", kind="speed", ratio_metric="speedup")
SUBJECTS: Mapping[str, Subject] = {
    "speed": SPEED,
    "step time": Subject(words="step time", kind="time", ratio_metric="step_time_ratio"),
    "peak memory": Subject(
        words="peak memory", kind="amount", ratio_metric="peak_ratio", saved_metric="peak_saved", has_view=True
    ),
    "activation memory": Subject(
        words="activation memory", kind="amount", ratio_metric="", saved_metric="activation_saved"
    ),
    "parameter memory": Subject(
        words="parameter memory", kind="amount", ratio_metric="", saved_metric="parameter_bytes_saved"
    ),
    "trainable parameters": Subject(
        words="trainable parameters", kind="amount", ratio_metric="", saved_metric="trainable_share_saved"
    ),
}


@dataclass(frozen=True, kw_only=True)
class Sentence:
    """A sentence, read."""

    cell: Mapping[str, Setting]
    baseline: Mapping[str, Setting]
    """One setting for every axis of `cell`, and for the other axes that `vs` names."""
    at: Mapping[str, Setting] = field(default_factory=dict)
    """Of both arms."""
    subject: Subject = SPEED
    bound: Bound
    low: Figure
    high: Figure | None = None
    """Of a range alone."""
    sense: Sense = "more"
    """More or less of the subject; plain: cell over baseline, in x or in % of it. Faster is more speed."""
    view: View | None = None

    @property
    def changes(self) -> dict[str, Setting]:
        """The settings in which the cell differs from its baseline."""
        arm = {**self.baseline, **self.cell}
        return {axis: setting for axis, setting in arm.items() if self.baseline.get(axis) != setting}

    @property
    def named(self) -> tuple[str, ...]:
        """Every axis that the sentence speaks of."""
        return tuple(sorted({*self.cell, *self.baseline, *self.at}))

    def __str__(self) -> str:
        """The sentence in full, every default said; it reads back as the same."""
        at = f" at {_settings(self.at)}" if self.at else ""
        return f"{_settings(self.cell)} vs {_settings(self.baseline)}{at} {self.range_words()} {self.direction()}"

    def range_words(self) -> str:
        """`>= 2x`, `30% to 50%`."""
        if self.bound == "range":
            return f"{self.low} to {self.high}"
        return f"{ {'at-least': '>=', 'at-most': '<=', 'up-to': 'up to'}[self.bound] } {self.low}"

    def direction(self) -> str:
        """`faster`, `less peak memory`, `of the step time`."""
        subject = f"peak {self.view} memory" if self.view else self.subject.words
        return in_words(self.subject, self.sense, self.low.unit, subject)

    @property
    def study(self) -> str:
        """Name of the study that measures it: the arms say which, whatever is claimed of them."""
        arms = f"{_settings(self.cell)} vs {_settings(self.baseline)} {_settings(self.at) if self.at else ''}"
        words = re.sub(r"[^a-z0-9.]+", "-", arms.lower()).strip("-")
        digest = hashlib.sha256(arms.encode()).hexdigest()[:6]
        return f"{CHECK_STUDY}{words[:60].strip('-')}-{digest}"

    # -- as a claim ---------------------------------------------------------------------------------------------------

    def metric(self) -> str:
        """The metric that the range is put on."""
        if self._gain_of_time:
            return SPEED.ratio_metric
        times_less = self.sense == "less" and self.low.unit == "x" and self.subject.ratio_metric
        return self.subject.ratio_metric if times_less or not self.subject.saved_metric else self.subject.saved_metric

    def bounds(self) -> tuple[float | None, float | None]:
        """The claimed range on the metric; None where it is open."""
        first = self._on_metric(self.low)
        if self.high is not None:
            second = self._on_metric(self.high)
            return min(first, second), max(first, second)
        # "at most 10% more memory" is at least -10% saved, and so is "up to 10% more"
        at_most = self.bound == "at-most" or (self.bound == "up-to" and self.is_cost)
        falls = (self.sense == "less") != self._inverse
        return (None, first) if at_most != falls else (first, None)

    def fields(self) -> dict[str, Any]:
        """What the sentence says in the words of a claims file."""
        low, high = self.bounds()
        found: dict[str, Any] = {"metric": self.metric(), "cell": self.changes, "baseline": {}}
        if self.bound == "up-to" and not self.is_cost:
            found |= {"form": "up-to", "bound": low}
        elif low is not None and high is not None:
            found |= {"form": "range", "range": (low, high)}
        else:
            found |= {"form": "at-least", "bound": low} if high is None else {"form": "at-most", "bound": high}
        if self.view is not None:
            found["view"] = self.view
        return found

    def claim(self, *, study: str, name: str, at: Settings | None = None, view: View = "reserved") -> Claim:
        """The claim on any device, judged in a study whose baseline is the sentence's own.

        Args:
            view: of memory, where the sentence names none.
        """
        return Claim(**{
            "view": view, "at": at or {}, **self.fields(), "id": name, "study": study, "statement": str(self),
            "sources": (Source(document=OWN_DOCUMENT, quote=str(self)),), "device": "any",
        })  # fmt: skip

    @property
    def is_cost(self) -> bool:
        """Whether the sentence says what a technique costs, not what it gains."""
        return self.sense == "less" if self.subject.kind == "speed" else self.sense != "less"

    @property
    def _gain_of_time(self) -> bool:
        """`up to 20% less step time`: "up to" is judged on what grows, the speed."""
        return self.subject.kind == "time" and self.bound == "up-to" and not self.is_cost

    @property
    def _inverse(self) -> bool:
        """Whether the metric falls as cell over baseline grows."""
        return self.subject.kind == "amount" or self._gain_of_time

    def _on_metric(self, figure: Figure) -> float:
        ratio = ratio_of(figure, self.sense)
        if self.metric() == self.subject.saved_metric:
            return round(1 - ratio, DIGITS)
        return round(1 / ratio if self._inverse else ratio, DIGITS)


def ratio_of(figure: Figure, sense: Sense) -> float:
    """Cell over baseline, of the subject: `30% less` is 0.7, `2x less` 0.5, `30% of` 0.3.

    Raises:
        ZeroDivisionError: 0x less.
    """
    if figure.unit == "%":
        change = figure.value / 100
        return {"more": 1 + change, "less": 1 - change, "plain": change}[sense]
    return 1 / figure.value if sense == "less" else figure.value


def in_words(subject: Subject, sense: Sense, unit: Unit, words: str = "") -> str:
    """What stands after the figure: `faster`, `less peak memory`, `of the step time`.

    Args:
        words: of the subject, where it is called something else.
    """
    words = words or subject.words
    if sense == "plain":
        return f"of the {words}" if unit == "%" else words
    if subject.kind == "speed":
        return "faster" if sense == "more" else "slower"
    less = "fewer" if subject.words == "trainable parameters" else "less"
    return f"{less if sense == 'less' else 'more'} {words}"


def _settings(settings: Mapping[str, Setting]) -> str:
    return show_settings(settings)
