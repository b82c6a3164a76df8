"""What a sentence that does not parse may have meant: other sentences to try, the likeliest first."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

from harness.experiment.axes import AxisError, AxisTable, show_setting
from harness.judgement.sentence_names import with_setting
from harness.judgement.sentence_words import AT, RANGE_WORDS, VERSUS, WORDS, figure_of, tokens, typed


def candidates(text: str, axes: AxisTable) -> Iterator[str]:
    """Sentences made of the words of `text`: with everyday names put right where it has no setting, else each word the
    nearest one known, a figure added, some left out."""
    words = tokens(text)
    named = with_setting(text, axes)
    if named is not None and not any(_is_setting(word) for word in words):
        yield named
        yield from _repaired(tokens(named), axes)
    yield from _repaired(words, axes)
    yield " ".join(_by_setting(words, axes))


def _repaired(words: list[str], axes: AxisTable) -> Iterator[str]:
    mended = _mended(words, axes)
    for attempt in (mended, [*mended, ">=", "1.1x"], _settings_only(words, axes)):
        yield " ".join(attempt)


def _is_setting(word: str) -> bool:
    return "=" in word.strip("<>=")


def _mended(words: list[str], axes: AxisTable) -> list[str]:
    """Each word replaced by the nearest one known; what is like none is left out."""
    mended: list[str] = []
    axis = ""
    for word in words:
        name, equals, value = word.partition("=")
        if equals and name and name not in "<>":
            axis = _near(name, axes) or ""
            mended += [f"{axis}={_nearest_setting(axis, value, axes)}"] if axis else []
        elif mended and mended[-1] in VERSUS and axis:
            mended.append(word if figure_of(word) else str(_nearest_setting(axis, word.lower(), axes)))
        elif figure_of(word) or word in {">=", "<="}:
            mended.append(word)
        else:
            near = _near(word.lower(), [*VERSUS, *AT, *RANGE_WORDS, *WORDS])
            mended += [near] if near else []
    figures = [index for index, word in enumerate(mended) if figure_of(word)]
    if len(figures) == 2:
        first, second = sorted(_value(mended[index]) for index in figures), sorted(figures)
        unit = "%" if mended[figures[1]].endswith("%") else "x"
        mended[second[0]], mended[second[1]] = (f"{value:g}{unit}" for value in first)
    return mended


def _settings_only(words: list[str], axes: AxisTable) -> list[str]:
    """The first setting that can be made out, with a figure of its own."""
    settings = [word for word in _mended(words, axes) if _is_setting(word)]
    figures = [word for word in words if figure_of(word)]
    return [*settings[:1], ">=", figures[0] if figures else "1.1x"]


def _by_setting(words: list[str], axes: AxisTable) -> list[str]:
    """A setting named without its axis, `flash is 2x faster`, with the rest of the words."""
    settings = {
        show_setting(setting): name
        for name, axis in axes.items()
        for setting in axis.settings
        if setting != axis.default and len(show_setting(setting)) > 3  # `off` and `2` are settings of many axes
    }
    for word in words:
        if figure_of(word) or word.lower() in {*VERSUS, *AT, *RANGE_WORDS, *WORDS}:
            continue
        alike = [each for each in settings if len(word) > 3 and each.startswith(word.lower())]
        near = alike[0] if alike else _near(word.lower(), settings)
        if near:
            known = (*RANGE_WORDS, *WORDS)
            rest = [each for each in words if each != word and (figure_of(each) or each.lower() in known)]
            return [f"{settings[near]}={near}", *rest]
    return []


def _value(word: str) -> float:
    figure = figure_of(word)
    return figure.value if figure else 0.0


def _nearest_setting(axis: str, value: str, axes: AxisTable) -> str:
    try:
        return show_setting(axes.parse(axis, typed(value)))
    except AxisError:
        known = [show_setting(each) for each in axes[axis].settings]
        near = difflib.get_close_matches(value, known, n=1, cutoff=0.4)
        other = [each for each in known if each != show_setting(axes[axis].default)]
        return near[0] if near else other[0] if other else show_setting(axes[axis].default)


def _near(word: str, known: Iterable[str]) -> str | None:
    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=0.7)), None)
