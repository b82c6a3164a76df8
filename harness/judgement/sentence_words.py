"""The words of a sentence: what the reader and the mender of sentences both know."""

from __future__ import annotations

import re
from collections.abc import Mapping

from harness.experiment.axes import Setting
from harness.judgement.sentence import Figure, View

VERSUS = frozenset({"vs", "versus", "against", "over"})
AT = frozenset({"at", "with"})
_FIGURE = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>x|×|%|percent)?", re.IGNORECASE)
LESS = frozenset({"saves", "save", "saved", "saving", "less", "fewer", "smaller", "lower", "slower", "shorter"})
MORE = frozenset({"faster", "more", "larger", "higher", "longer"})
VIEWS: Mapping[str, View] = {"allocated": "allocated", "reserved": "reserved", "device": "device", "host": "host"}
#: Words by which a subject is known, and those that may stand beside it.
SUBJECT_WORDS = (
    ("trainable parameters", frozenset({"trainable", "parameters"})),
    ("activation memory", frozenset({"activation", "activations"})),
    ("parameter memory", frozenset({"parameter"})),
    ("peak memory", frozenset({"memory"})),
    ("step time", frozenset({"time"})),
)  # fmt: skip
_FILLERS = frozenset({
    "speed", "speedup", "gpu", "peak", "step", "memory", "is", "gives", "the", "of", "trains", "in", "by", "training",
    "as", "fast",
})  # fmt: skip
#: Figures that are said in a word.
_SPOKEN = {"twice": "2x", "double": "2x", "doubles": "2x", "thrice": "3x", "halves": "50% less", "half": "50% less"}
RANGE_WORDS = frozenset({">=", "<=", "up", "to", "at", "least", "most", "or", "-"})
WORDS = (
    *sorted(LESS | MORE), *VIEWS, "trainable", "parameters", "activation", "activations", "parameter", "memory",
    "time", *sorted(_FILLERS),
)  # fmt: skip


def figure_of(word: str) -> Figure | None:
    found = _FIGURE.fullmatch(word.strip(",;"))
    return None if found is None else Figure(value=float(found["number"]), percent=found["unit"] in ("%", "percent"))


def tokens(text: str) -> list[str]:
    """Words, with comparison signs set apart and ranges written with a dash taken apart."""
    text = text.replace("≥", " >= ").replace("≤", " <= ").replace("–", "-")
    text = re.sub(r"([<>]=)", r" \1 ", text)
    text = re.sub(r"(?<=[\d%x])-(?=\d)", " to ", text)
    words = re.sub(r"(\d)\s+(x|%|percent)(?=\s|$)", r"\1\2", text).split()
    return " ".join(_SPOKEN.get(word.lower(), word) for word in words).split()


def typed(value: str) -> Setting:
    """`8` is a number and `true` a truth value, as in YAML."""
    if value in ("true", "false"):
        return value == "true"
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value
