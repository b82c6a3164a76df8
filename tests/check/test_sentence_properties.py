"""Whatever words a sentence is made of: the direction is that of its words, what is echoed reads back as the same, and
what is offered for a sentence that does not parse is the same claim.

CLAIMBENCH_FUZZ_CASES=5000 pytest tests/check/test_sentence_properties.py      the long run (CI does 300)
"""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from harness.errors import SentenceError
from harness.judgement.metrics import Shape, metric_named
from harness.judgement.sentence import Sentence
from harness.judgement.sentence_reader import nearest, read_sentence
from harness.techniques.registry import axis_table
from tests.experiment.test_fuzz import fuzz

AXES = axis_table()
SETTING = "checkpointing=full"
#: What a word says of its subject: more or less of it.
OF_SPEED = {"faster": 1, "quicker": 1, "slower": -1, "more speed": 1, "higher throughput": 1, "less speed": -1}
OF_TIME = {"less step time": -1, "shorter step time": -1, "lower step time": -1, "more step time": 1,
           "longer step time": 1, "longer": 1, "shorter": -1}  # fmt: skip
OF_MEMORY = {"less peak memory": -1, "smaller peak memory": -1, "fewer trainable parameters": -1, "more memory": 1,
             "larger peak device memory": 1, "less activation memory": -1, "less parameter memory": -1}  # fmt: skip
SAID = {**OF_SPEED, **OF_TIME, **OF_MEMORY}
#: Without a direction: cell over baseline.
PLAIN = ("step time", "peak memory", "the memory", "trainable parameters", "activation memory", "the speed")
AT_LEAST, AT_MOST = (">=", "at least", "> ", "no less than", "more than"), ("<=", "at most", "<", "no more than")
FIGURES = st.floats(0.01, 90).map(lambda value: float(f"{value:.3g}"))
#: Far and near on both sides of what is claimed.
BESIDE = (0.5, 0.99, 1.01, 2)


def holds(sentence: Sentence, ratio: float) -> bool:
    """Whether the claim is true where cell over baseline of the subject is `ratio`, by the metric that judges it."""
    low, high = sentence.bounds()
    shape = metric_named(sentence.metric()).shape
    value = {Shape.RATIO: ratio, Shape.INVERSE: 1 / ratio, Shape.SAVED: 1 - ratio}[shape]
    return (-math.inf if low is None else low) <= value <= (math.inf if high is None else high)


@fuzz
@given(st.sampled_from(sorted(SAID)), st.sampled_from(AT_LEAST + AT_MOST), FIGURES, st.sampled_from("x%"))
def test_the_direction_is_that_of_the_words(words: str, sign: str, value: float, unit: str) -> None:
    """`>= 30% less` is true of what is 0.7 or less, whatever it is called and on whatever metric it is judged."""
    assume(unit == "%" or value >= 1)
    sentence = read_sentence(f"{SETTING} {sign} {value}{unit} {words}", AXES)
    more, at_least = SAID[words] > 0, sign in AT_LEAST
    said = value if unit == "x" else 1 + value / 100
    if not more:
        said = 1 / value if unit == "x" else 1 - value / 100
    for step in BESIDE:
        assert holds(sentence, said * step) == ((step > 1) == (more == at_least)), str(sentence)


@fuzz
@given(st.sampled_from(PLAIN), st.sampled_from(AT_LEAST + AT_MOST), FIGURES, st.sampled_from(["x ", "x of ", "% of "]))
def test_without_a_direction_a_figure_is_cell_over_baseline(words: str, sign: str, value: float, unit: str) -> None:
    sentence = read_sentence(f"{SETTING} {sign} {value}{unit}{words}", AXES)
    said = value / 100 if "%" in unit else value
    for step in BESIDE:
        assert holds(sentence, said * step) == ((step > 1) == (sign in AT_LEAST)), str(sentence)


@fuzz
@given(st.sampled_from([*sorted(SAID), *PLAIN, ""]), FIGURES, st.sampled_from(["x ", "% ", "% of "]))
def test_no_bare_figure_is_confirmed_by_what_changes_nothing(words: str, value: float, unit: str) -> None:
    try:
        sentence = read_sentence(f"{SETTING} {value}{unit}{words}", AXES)
    except SentenceError:
        return
    assert not holds(sentence, 1), str(sentence)


#: Words that mean something somewhere, and some that mean nothing.
WORDS = (
    SETTING, "compile=default", "compile = default", "pin_memory=True", "precision", "vs", "than", "off", "at", "with",
    "batch_size=8", ">=", "<=", ">", "<", "=", "at least", "at most", "up to", "up", "or more", "or less", "no", "not",
    "no more than", "between", "and", "to", "-", "by", "from", "of", "the", "half", "twice", "halves", "doubles", "0x",
    "0%", "1x", "2x", "0.5x", "1.3-2x", "20%", "100%", "150%", "2", "1e9x", "-20%", ".5x", "9" * 400 + "x", "faster",
    "slower", "shorter", "longer", "less", "fewer", "saves", "more", "costs", "reduces", "step time", "peak",
    "peak memory", "activation memory", "parameter memory", "trainable parameters", "device", "host", "speed",
    "speedup", "fast", "hardly", "loses", "fastr", "flash", "LoRA", "\x1b[2J", "²", "é",
)  # fmt: skip


@fuzz
@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=8), st.booleans())
@example(words=["checkpointing=full", "compile=default", "vs", "\x1b[2J"], begins=False)
def test_any_words_are_a_claim_that_reads_back_or_one_clear_error(words: list[str], begins: bool) -> None:
    text = " ".join([SETTING, *words] if begins else words)
    try:
        sentence = read_sentence(text, AXES)
    except SentenceError as error:
        message = str(error)
        offered = nearest(text, AXES)
        assert message.isprintable()
        assert offered is None or read_sentence(offered, AXES)
        return
    assert read_sentence(str(sentence), AXES) == sentence, str(sentence)
    fields = sentence.claim(study="s", name="c").model_dump(mode="json")
    json.dumps(fields, allow_nan=False)


@fuzz
@given(
    st.sampled_from(sorted(SAID)),
    st.sampled_from([">= ", "<= ", "up to ", ""]),
    st.integers(0, 4),
    st.sampled_from(["hardly", "loses", "wastes", "within", "nearly", "cheaper", "dropping", "rises"]),
)
def test_what_is_offered_for_a_sentence_with_a_strange_word_is_the_same_claim_or_none(
    words: str, sign: str, place: int, strange: str
) -> None:
    known = f"{sign}1.5x {words}".split()
    text = " ".join([SETTING, *known[:place], strange, *known[place:]])
    offered = nearest(text, AXES)
    same = read_sentence(f"{SETTING} {sign}1.5x {words}", AXES)
    assert offered is None or read_sentence(offered, AXES) == same, offered


@pytest.mark.parametrize("words", ["20% fastr", "20% slowr", "20% lss step time", "20% mre peak memory"])
def test_a_slip_of_the_pen_is_mended_in_its_own_direction(words: str) -> None:
    right = words.replace("fastr", "faster").replace("slowr", "slower").replace("lss", "less").replace("mre", "more")
    offered = nearest(f"{SETTING} {words}", AXES)
    assert offered is not None
    assert read_sentence(offered, AXES) == read_sentence(f"{SETTING} {right}", AXES)
