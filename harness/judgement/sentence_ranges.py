"""The figures of a sentence: one, or the two ends of a range, and the words on either side of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harness.errors import SentenceError
from harness.judgement.sentence import Figure, Unit
from harness.judgement.sentence_words import BETWEEN, NEGATIONS, SIGNS, figure_of


class UnclearError(SentenceError):
    """A sentence that says too little, or two things: the message has what to write, so that no other is offered."""


def figures_in(words: Sequence[str], text: str) -> tuple[list[Figure], list[str], list[str]]:
    """The figures, the words before them and those after, in small letters.

    Raises:
        SentenceError: there is none, or more than a range has.
        UnclearError: they are of two claims or in two units, or something is denied.
    """
    words = [word for each in words if (word := each.lower().strip(",;").rstrip("."))]
    _refuse_negations(words)
    found = [(index, figure) for index, word in enumerate(words) if (figure := figure_of(word)) is not None]
    if not found:
        raise SentenceError(f"{text!r} claims no figure such as '>= 2x' or '30% to 50%'")
    if len(found) > 2:
        raise SentenceError(f"{text!r} has {len(found)} figures; a range has two at most")
    first, last = found[0][0], found[-1][0]
    before, after = words[:first], words[last + 1 :]
    if len(found) == 2:
        _refuse_no_range(words[first : last + 1], text)
        before = before[:-1] if before[-1:] == ["between"] else before
    return _in_one_unit([figure for _, figure in found]), before, after


def _refuse_negations(words: Iterable[str]) -> None:
    negation = next((word for word in words if word in NEGATIONS), None)
    if negation:
        raise UnclearError(f"{negation!r}: say with a figure what is, as '>= 1x speed' for not slower")


def _refuse_no_range(words: Sequence[str], text: str) -> None:
    """Two figures that are no range: what stands between them tells."""
    between = [word for word in words[1:-1] if word != "of"]
    if between in (["to"], ["-"], ["and"]):
        return
    if all(word in {*BETWEEN, *SIGNS, "or", "but"} for word in between):
        raise UnclearError(f"two figures are a range; write it as '{words[0]} to {words[-1]}'")
    raise UnclearError(f"{text!r} is two claims; check them one at a time")


def _in_one_unit(figures: Sequence[Figure]) -> list[Figure]:
    """`1.3 to 2x`: a figure without a unit has that of the other, and a factor is meant where none has one.

    Raises:
        SentenceError: the smaller one is not the first.
        UnclearError: they have two.
    """
    units = {figure.unit for figure in figures if figure.unit}
    if len(units) > 1:
        given = " to ".join(map(str, figures))
        raise UnclearError(f"'{given}' has two units; write both in one, as '1.3x to 1.5x' or '30% to 50%'")
    unit: Unit = next(iter(units), "x")
    found = [Figure(value=figure.value, unit=unit) for figure in figures]
    if len(found) == 2 and found[0].value > found[1].value:
        raise SentenceError(f"the range {found[0]} to {found[1]} is empty; put the smaller figure first")
    return found
