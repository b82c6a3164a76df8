"""What a sentence that does not parse may have meant: other sentences to try, the likeliest first."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

from harness.experiment.axes import AxisError, AxisTable, show_setting
from harness.judgement.sentence_names import with_setting
from harness.judgement.sentence_words import (
    AT,
    BETWEEN,
    DIRECTIONS,
    SUBJECT_WORDS,
    VERSUS,
    VIEWS,
    WORDS,
    figure_of,
    tokens,
    typed,
)


def candidates(text: str, axes: AxisTable) -> Iterator[str]:
    """Sentences made of the words of `text`: with everyday names put right where it has no setting, else each word the
    nearest one known, figures put in order, or one added where there is none. No word is left out that could turn what
    is said into its opposite."""
    words = tokens(text)
    named = with_setting(text, axes)
    if named is not None and not any(_is_setting(word) for word in words):
        yield named
        yield from _repaired(tokens(named), axes)
    yield from _repaired(words, axes)
    yield " ".join(_by_setting(words, axes))


def _repaired(words: list[str], axes: AxisTable) -> Iterator[str]:
    mended = _mended(words, axes)
    if mended and not any(map(figure_of, mended)) and (DIRECTIONS & {*mended} or not _OF_A_SUBJECT & {*mended}):
        yield " ".join([*mended, "1.1x"])
    yield " ".join(mended)
    yield " ".join(word for word in mended if word not in VIEWS)


def _is_setting(word: str) -> bool:
    return "=" in word.strip("<>=")


def _mended(words: list[str], axes: AxisTable) -> list[str]:
    """Each word replaced by the nearest one known; nothing where one is like none."""
    mended: list[str] = []
    axis = ""
    for word in words:
        name, equals, value = word.partition("=")
        if equals and name and name not in "<>":
            axis = _near(name, axes) or ""
            near = _nearest_setting(axis, value, axes) if axis else None
            mended.append(f"{axis}={near}" if near else "")
        elif mended and mended[-1] in VERSUS and axis:
            mended.append(word if figure_of(word) else _nearest_setting(axis, word.lower(), axes) or "")
        else:
            mended.append(word if figure_of(word) else _near(word.lower().strip(",;."), _KNOWN, cutoff=0.8) or "")
    return _in_order(mended) if all(mended) else []


def _in_order(words: list[str]) -> list[str]:
    """With the smaller of two figures first."""
    places = [index for index, word in enumerate(words) if figure_of(word)]
    if len(places) == 2:
        low, high = sorted((words[place] for place in places), key=_value)
        words[places[0]], words[places[1]] = low, high
    return words


def _by_setting(words: list[str], axes: AxisTable) -> list[str]:
    """A setting named without its axis, `flash is 2x faster`, with the rest of the words."""
    settings = {
        show_setting(setting): name
        for name, axis in axes.items()
        for setting in axis.settings
        if setting != axis.default and len(show_setting(setting)) > 3  # `off` and `2` are settings of many axes
    }
    strange = [word for word in words if not (figure_of(word) or word.lower() in _KNOWN or _is_setting(word))]
    for word in strange[:1]:
        alike = [each for each in settings if len(word) > 3 and each.startswith(word.lower())]
        near = alike[0] if alike else _near(word.lower(), settings)
        if near and len(strange) == 1:
            rest = [each for each in words if figure_of(each) or each.lower() in WORDS]
            return [f"{settings[near]}={near}", *rest]
    return []


#: What has a figure of its own, whose direction nobody knows where none is said.
_OF_A_SUBJECT = frozenset(sign for name, signs in SUBJECT_WORDS if name != "speed" for sign in signs)
#: Words of a sentence besides settings and figures; the last three in phrases, which are put together again.
_KNOWN = (*sorted(VERSUS | AT | WORDS | BETWEEN), "between", "least", "most", "up")


def _value(word: str) -> float:
    figure = figure_of(word)
    return figure.value if figure else 0.0


def _nearest_setting(axis: str, value: str, axes: AxisTable) -> str | None:
    try:
        return show_setting(axes.parse(axis, typed(value)))
    except AxisError:
        return _near(value.lower(), [show_setting(each) for each in axes[axis].settings], cutoff=0.4)


def _near(word: str, known: Iterable[str], *, cutoff: float = 0.7) -> str | None:
    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)), None)
