"""Range, direction and metric: what the words of a sentence say that are no settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.errors import SentenceError
from harness.judgement.sentence import SPEED, SUBJECTS, Bound, Figure, Sense, Subject, Unit, View, in_words, ratio_of
from harness.judgement.sentence_ranges import UnclearError, figures_in
from harness.judgement.sentence_words import (
    BESIDE,
    BETWEEN,
    COSTS,
    DIRECTIONS,
    FASTER,
    LONGER,
    MORE,
    SAVES,
    SHARE,
    SHORTER,
    SIGNS,
    SLOWER,
    SUBJECT_WORDS,
    VIEWS,
    WORDS,
)

#: Cell over baseline beyond these is a slip of the pen.
LEAST, MOST = 1e-9, 1e9


def claimed(words: Sequence[str], text: str) -> dict[str, Any]:
    """Range, direction and metric from what is left of a sentence.

    Raises:
        SentenceError: there is no figure, or a word that says nothing here.
        UnclearError: the words can be read in two ways, or say what cannot be.
    """
    return _Claimed(*figures_in(words, text)).fields()


class _Claimed:
    """The words around the figures."""

    def __init__(self, figures: Sequence[Figure], before: Sequence[str], after: Sequence[str]) -> None:
        self._after = after
        self._others = [*before, *after]
        self._figures = figures
        self._written = " to ".join(map(str, figures))
        """The figures, with their sign where one is written."""

    def fields(self) -> dict[str, Any]:
        self._refuse_unknown()
        bound = self._bound()
        named, view = self._subject()
        self._refuse_half_a_range(named or SPEED)
        sense = self._sense(named)
        subject = named or SPEED
        self._refuse_impossible(subject, sense)
        if bound is None:
            bound = self._of_a_bare_figure(subject, sense)
        if subject.kind == "speed" and sense == "plain" and self._unit == "x" and self._figures[0].value >= 1:
            sense = "more"
        low, high = self._figures[0], self._figures[1] if len(self._figures) == 2 else None
        return {"bound": bound, "low": low, "high": high, "subject": subject, "view": view, "sense": sense}

    @property
    def _unit(self) -> Unit:
        return self._figures[0].unit

    def _refuse_unknown(self) -> None:
        unknown = [word for word in self._others if word not in WORDS | BETWEEN]
        if unknown:
            raise SentenceError(f"{unknown[0]!r} says nothing that can be measured")

    def _refuse_half_a_range(self, subject: Subject) -> None:
        """`reduces step time to 80%` is no `80% less`."""
        word = next((word for word in self._others if word in BETWEEN - {"and"}), None)
        if word:
            share = f"{self._figures[0]} {in_words(subject, 'plain', self._unit)}"
            raise UnclearError(
                f"{word!r} stands between the two figures of a range; with one write '<= {share}' or '>= {share}'"
            )

    def _bound(self) -> Bound | None:
        """None: a bare figure."""
        signs = list(dict.fromkeys(word for word in self._others if word in SIGNS))
        names = [sign.replace("-", " ") for sign in signs]
        if len(self._figures) == 2:
            if signs:
                raise UnclearError(f"{names[0]!r} is for one figure; write '{self._written}' for a range")
            return "range"
        if len(signs) > 1:
            raise UnclearError(f"{names[0]!r} and {names[1]!r} contradict each other; keep one")
        if not signs:
            return None
        self._written = f"{names[0]} {self._written}"
        return SIGNS[signs[0]]

    def _of_a_bare_figure(self, subject: Subject, sense: Sense) -> Bound:
        """At least so much: of cell over baseline, at least so far from 1, so that no change confirms nothing."""
        ratio = ratio_of(self._figures[0], sense)
        if ratio == 1:
            words = in_words(subject, sense, self._unit)
            raise UnclearError(
                f"'{self._written} {words}' says no difference; write '<= {self._written} {words}' or "
                f"'>= {self._written} {words}'"
            )
        return "at-most" if sense == "plain" and ratio < 1 else "at-least"

    def _subject(self) -> tuple[Subject | None, View | None]:
        """None: no word names one."""
        said = [name for name, signs in SUBJECT_WORDS if signs & set(self._others)]
        apart = [name for name in said[1:] if name != BESIDE.get(said[0])]
        view = next((VIEWS[word] for word in self._others if word in VIEWS), None)
        if apart:
            raise UnclearError(f"{said[0]} and {apart[0]} are two claims; check them one at a time")
        if not said and {*SHORTER, *LONGER} & set(self._others):
            said = ["step time"]
        subject = SUBJECTS[said[0]] if said else None
        if view is not None and (subject is None or not subject.has_view):
            raise SentenceError(f"{view!r} is a view of peak memory; write 'peak {view} memory'")
        return subject, view

    # -- direction ----------------------------------------------------------------------------------------------------

    def _sense(self, subject: Subject | None) -> Sense:
        """Whether the figure is more or less of the subject, or cell over baseline."""
        directions = [word for word in self._others if word in DIRECTIONS]
        if len({*directions} - COSTS) > 0:
            directions = [word for word in directions if word not in COSTS]
        senses: dict[Sense, str] = {}
        for word in directions:
            senses.setdefault(self._said_by(word, subject), word)
        if len(senses) == 2:
            first, second = senses.values()
            raise UnclearError(f"{first!r} and {second!r} contradict each other; keep one")
        return next(iter(senses), None) or self._without_direction(subject)

    def _said_by(self, word: str, subject: Subject | None) -> Sense:
        """What a word of direction says of the subject.

        Raises:
            UnclearError: nothing, or more than one thing.
        """
        kind = subject.kind if subject else None
        if word in FASTER | SLOWER:
            return self._faster(word, subject or SPEED)
        if subject is None:
            known = "'step time', 'peak memory' or 'trainable parameters'"
            raise UnclearError(f"{word!r} does not say of what; add {known}, or write 'faster' or 'slower'")
        fits = "time" if word in SHORTER | LONGER else subject.kind
        if kind != fits or (word in SAVES and kind == "speed"):
            more, less = (f"{self._written} {in_words(subject, sense, self._unit)}" for sense in _BOTH)
            raise UnclearError(f"{word!r} is not said of {subject.words}; write '{more}' or '{less}'")
        if word in COSTS:
            return "less" if kind == "speed" else "more"
        return "more" if word in LONGER | MORE else "less"

    def _faster(self, word: str, subject: Subject) -> Sense:
        """`2x faster step time` is half of it; of a percentage nobody knows whether it is of the speed or the time."""
        more = word in FASTER
        if subject.kind == "speed":
            return "more" if more else "less"
        sense: Sense = "less" if more else "more"
        plain = f"{self._written} {in_words(subject, sense, self._unit)}"
        if subject.kind == "amount":
            raise UnclearError(f"{word!r} is not said of {subject.words}; write '{plain}' or leave {subject.words} out")
        if self._unit == "%":
            raise UnclearError(f"{word!r} is said of the speed; write '{self._written} {word}' or '{plain}'")
        return sense

    def _without_direction(self, subject: Subject | None) -> Sense:
        """No word says less or more: a factor is cell over baseline, and so is a percentage `of` it.

        Raises:
            UnclearError: a percentage that may be a share or a change.
        """
        if self._unit == "x":
            return "plain"
        share = self._after[:1] and self._after[0] in SHARE
        if subject is None and not share:
            return "more"
        if subject is None:
            raise UnclearError(f"'{self._written} of' does not say of what; add 'the step time' or 'the peak memory'")
        if share:
            return "plain"
        if "speedup" in self._others:
            return "more"
        senses: tuple[Sense, ...] = ("plain", "less", "more")
        share_of, less, more = (f"'{self._written} {in_words(subject, each, self._unit)}'" for each in senses)
        said = f"{self._written} {subject.words}"
        raise UnclearError(f"'{said}' may be a share or a change; write {share_of}, {less} or {more}")

    # -- what cannot be -----------------------------------------------------------------------------------------------

    def _refuse_impossible(self, subject: Subject, sense: Sense) -> None:
        words = in_words(subject, sense, self._unit)
        for figure in self._figures:
            if not figure.value and (self._unit == "x" or sense == "plain"):
                raise UnclearError(f"'{figure} {words}' cannot be: nothing would be left; write a figure above 0")
            if self._unit == "%" and sense == "less" and figure.value >= 100:
                raise UnclearError(
                    f"'{figure} {words}' cannot be: at 100% nothing is left; write less than 100%, or a factor such as "
                    f"'2x {in_words(subject, sense, 'x')}'"
                )
            if not LEAST <= ratio_of(figure, sense) <= MOST:
                raise UnclearError(f"'{figure} {words}' is beyond what can be measured; write a figure nearer 1x")
        if self._unit == "x" and sense != "plain" and self._figures[0].value < 1:
            figures, plain = " to ".join(map(str, self._figures)), in_words(subject, "plain", "x")
            offers = [f"'{sign}{figures} {plain}'" for sign in (("",) if len(self._figures) == 2 else ("<= ", ">= "))]
            raise UnclearError(
                f"'{figures} {words}' says two things, a factor below 1 being the other way round; write "
                f"{' or '.join(offers)}, which is cell over baseline"
            )


_BOTH: tuple[Sense, Sense] = ("more", "less")
