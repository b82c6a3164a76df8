"""Reads a sentence (`judgement.sentence` has the grammar). Where it does not parse, the error has the nearest one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NoReturn

from harness.errors import SentenceError, printable
from harness.experiment.axes import AxisError, AxisTable, Setting, show_setting, show_settings
from harness.judgement.sentence import Sentence
from harness.judgement.sentence_figures import claimed
from harness.judgement.sentence_mending import candidates
from harness.judgement.sentence_ranges import UnclearError
from harness.judgement.sentence_words import AT, VERSUS, WORDS, figure_of, tokens, typed

EXAMPLE = "attention=sdpa vs eager >= 1.5x"


def read_sentence(text: str, axes: AxisTable) -> Sentence:
    """The sentence in `text`.

    Raises:
        SentenceError: it does not parse; the message has the nearest one that does, or what to write in its place.
    """
    try:
        return _Reader(text, axes).read()
    except UnclearError:
        raise
    except SentenceError as error:
        near = nearest(text, axes)
        offer = "the nearest sentence" if near else "an example of a sentence"
        raise SentenceError(f"{error.message}; {offer} that can be checked: '{near or EXAMPLE}'") from None


def nearest(text: str, axes: AxisTable) -> str | None:
    """A sentence that parses, as much like `text` as repairing it word by word makes it; None: nothing is like it."""
    for attempt in candidates(text, axes):
        try:
            return _short(_Reader(attempt, axes).read())
        except SentenceError:
            continue
    return None


def _short(sentence: Sentence) -> str:
    """The sentence with a bare setting after `vs` where one is enough."""
    full = str(sentence)
    if len(sentence.cell) == 1 and sentence.cell.keys() == sentence.baseline.keys():
        ((axis, setting),) = sentence.baseline.items()
        full = full.replace(f" vs {axis}={show_setting(setting)}", f" vs {show_setting(setting)}", 1)
    return full


class _Reader:
    """Goes through the words of one sentence from left to right."""

    def __init__(self, text: str, axes: AxisTable) -> None:
        self._axes = axes
        self._text = printable(text.strip())
        self._words = tokens(text)

    def read(self) -> Sentence:
        cell = self._settings(())
        if not cell:
            self._fail(f"{self._text!r} does not begin with a setting such as attention=flash2")
        baseline: dict[str, Setting] = {}
        at: dict[str, Setting] = {}
        rest: list[str] = []
        while self._words:
            word = self._words[0].lower()
            if word in VERSUS and not baseline:
                del self._words[0]
                baseline = self._settings(tuple(cell))
                if not baseline:
                    self._fail(f"there is no setting after {word!r}")
            elif word in AT and len(self._words) > 1 and "=" in self._words[1].strip("<>="):
                del self._words[0]
                at |= self._settings(())
            else:
                rest.append(self._words.pop(0))
        baseline = {**{axis: self._axes[axis].default for axis in cell if axis not in baseline}, **baseline}
        self._check(cell, baseline, at)
        return Sentence(cell=cell, baseline=baseline, at=at, **claimed(rest, self._text))

    def _settings(self, bare: tuple[str, ...]) -> dict[str, Setting]:
        """Settings at the front. `bare`: the axes that a bare word may be a setting of."""
        found: dict[str, Setting] = {}
        while self._words:
            word = self._words[0].strip(",;")
            axis, equals, value = word.partition("=")
            if equals and axis and axis not in "<>":
                found[axis] = self._setting(axis, value)
            elif bare and not found and not _is_claim_word(word, self._axes, bare):
                if len(bare) > 1:
                    self._fail(f"{word!r} may be a setting of {' or '.join(bare)}; write {bare[0]}={word}")
                found[bare[0]] = self._setting(bare[0], word)
            elif not (word.lower() in {"and", "+"} and found and len(self._words) > 1 and "=" in self._words[1]):
                break
            del self._words[0]
        return found

    def _setting(self, axis: str, value: str) -> Setting:
        try:
            return self._axes.parse(axis, typed(value))
        except AxisError as error:
            self._fail(str(error))

    def _check(self, cell: Mapping[str, Setting], baseline: Mapping[str, Setting], at: Mapping[str, Setting]) -> None:
        if {**baseline, **cell} == dict(baseline):
            same = show_settings(baseline)
            self._fail(f"both arms are {same}; name another setting after vs")
        twice = sorted(at.keys() & ({*cell} | {*baseline}))
        if twice:
            self._fail(f"{twice[0]} stands after 'at' too, which is for settings of both arms")

    def _fail(self, why: str) -> NoReturn:
        raise SentenceError(why)


def _is_claim_word(word: str, axes: AxisTable, bare: Iterable[str]) -> bool:
    """Whether a word after `vs` belongs to the claim and not to the settings."""
    for axis in bare:
        try:
            axes.parse(axis, typed(word))
        except AxisError:
            continue
        return False
    lower = word.lower()
    return figure_of(word) is not None or lower in WORDS
