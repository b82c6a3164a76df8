"""The words of a sentence: what the reader and the mender of sentences both know."""

from __future__ import annotations

import re
from collections.abc import Mapping

from harness.experiment.axes import Setting
from harness.judgement.sentence import Bound, Figure, Unit, View

VERSUS = frozenset({"vs", "versus", "against", "over", "than"})
AT = frozenset({"at", "with"})
_NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)"
_FIGURE = re.compile(rf"(?P<number>{_NUMBER})(?P<unit>x|×|%|percent)?", re.IGNORECASE)
_UNITS: Mapping[str | None, Unit] = {None: "", "%": "%", "percent": "%"}
#: Of speed; of a time they say the opposite.
FASTER = frozenset({"faster", "quicker"})
SLOWER = frozenset({"slower"})
#: Of a time alone.
SHORTER = frozenset({"shorter", "shortens"})
LONGER = frozenset({"longer"})
#: Of a time or an amount: nobody saves speed.
SAVES = frozenset({"saves", "save", "saved", "saving"})
#: More of a time or an amount, less speed.
COSTS = frozenset({"costs", "cost"})
#: Of anything that is named.
LESS = frozenset({
    "less", "fewer", "smaller", "lower", "lowers", "reduces", "reduce", "reduced", "reducing", "cuts", "cut",
    "decreases", "decrease", "shrinks",
})  # fmt: skip
MORE = frozenset({
    "more", "larger", "bigger", "higher", "greater", "increases", "increase", "raises", "adds", "extra",
})  # fmt: skip
DIRECTIONS = FASTER | SLOWER | SHORTER | LONGER | SAVES | COSTS | LESS | MORE
VIEWS: Mapping[str, View] = {"allocated": "allocated", "reserved": "reserved", "device": "device", "host": "host"}
#: Words by which a subject is known. The first row counts, so that `activation memory` is no peak memory.
SUBJECT_WORDS = (
    ("trainable parameters", frozenset({"trainable", "parameters"})),
    ("activation memory", frozenset({"activation", "activations"})),
    ("parameter memory", frozenset({"parameter"})),
    ("peak memory", frozenset({"memory", "peak"})),
    ("step time", frozenset({"time", "step", "steps"})),
    ("speed", frozenset({"speed", "speedup", "fast", "throughput"})),
)  # fmt: skip
#: Whose words stand beside those of another subject, as in `parameter memory`.
BESIDE = {"activation memory": "peak memory", "parameter memory": "peak memory"}
_FILLERS = frozenset({
    "gpu", "is", "gives", "the", "of", "trains", "in", "by", "training", "as", "a", "an", "and", "at", "or", "it",
    "makes", "needs", "uses", "takes", "requires", "runs",
})  # fmt: skip
#: A percentage that one of these follows is a share: `50% of the memory`, `80% as fast`.
SHARE = frozenset({"of", "as", "the"})
#: Figures that are said in a word.
_SPOKEN = {
    "twice": "2x", "double": "2x", "doubles": "2x", "thrice": "3x", "triples": "3x", "half": "50% of",
    "quarter": "25% of", "halves": "50% less", "halve": "50% less",
}  # fmt: skip
_A_FIGURE = rf"(?=\s*(?:[\d.]|(?:{'|'.join(_SPOKEN)})\b))"
#: What is said in several words, or in signs of its own, and the one word for it; the first that fits counts.
_PHRASES = (
    (r"≥|(?<!\w)=>", ">="),
    (r"≤|(?<!\w)=<", "<="),
    (r">\s*=?", ">="),
    (r"<\s*=?", "<="),
    (rf"\bas much as{_A_FIGURE}", "up-to"),
    (rf"\bnot? (?:less|fewer|lower) than{_A_FIGURE}", ">="),
    (rf"\bnot? (?:more|higher|greater) than{_A_FIGURE}", "<="),
    (rf"\b(?:more than|greater than|higher than|above){_A_FIGURE}|\bat least\b|\bor (?:more|higher|above)\b", ">="),
    (rf"\b(?:less than|fewer than|lower than|below|under){_A_FIGURE}|\bat most\b|\bor (?:less|lower|below)\b", "<="),
    (r"\bup to\b", "up-to"),
    (r"\bspeeds? up\b(?!-)", "faster"),
    (r"\bslows(?: down)?\b", "slower"),
    (r"\bas much\b", "of"),
)
#: A claim that is bounded on one side.
SIGNS: Mapping[str, Bound] = {">=": "at-least", "<=": "at-most", "up-to": "up-to"}
#: What stands between the two figures of a range.
BETWEEN = frozenset({"to", "-", "and"})
NEGATIONS = frozenset({"not", "no", "never", "without"})
WORDS = frozenset({*DIRECTIONS, *VIEWS, *_FILLERS, *SIGNS, *(sign for _, signs in SUBJECT_WORDS for sign in signs)})


def figure_of(word: str) -> Figure | None:
    found = _FIGURE.fullmatch(word.strip(",;").rstrip("."))
    if found is None:
        return None
    unit = found["unit"] and found["unit"].lower()
    return Figure(value=float(found["number"]), unit=_UNITS.get(unit, "x"))


def tokens(text: str) -> list[str]:
    """Words: comparison signs set apart, ranges written with a dash taken apart, `axis = setting` put together, and
    each phrase as the one word that it stands for."""
    text = text.replace("–", "-")
    for pattern, word in _PHRASES:
        text = re.sub(pattern, f" {word} ", text, flags=re.IGNORECASE)
    text = re.sub(rf"(?<=\w)\s*=\s*(?=\w)(?!{_NUMBER}\s*(?:x\b|%))", "=", text)
    text = re.sub(rf"(?<![\w=.-])({_NUMBER}(?:x|%)?)-(?=[\d.])", r"\1 to ", text)
    text = re.sub(r"(?<=\d)\s+times\b", "x", text)
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
