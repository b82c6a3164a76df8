"""A record survives JSON, whatever its numbers."""

import json
import math
from dataclasses import replace

import pytest

from harness.results.record import NAMES, Record
from harness.trial.numbers import decode, encode
from tests.records import make_records


@pytest.fixture
def record() -> Record:
    return make_records(rounds=3)[0]


def test_comes_back_equal_from_its_text_and_from_its_json(record: Record) -> None:
    assert Record.from_text(record.as_text()) == record
    assert Record.from_json(record.as_json()) == record


def test_text_is_strict_json_with_sorted_names_on_one_line(record: Record) -> None:
    names = list(json.loads(record.as_text()))
    assert names == sorted(NAMES)
    assert "\n" not in record.as_text()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_come_back(record: Record, bad: float) -> None:
    overflowed = replace(record, losses=[2.5, bad], figures={"gap": {"largest": bad}}, mfu=bad)
    text = overflowed.as_text()
    json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    back = Record.from_text(text)
    assert [repr(back.losses[1]), repr(back.figures["gap"]["largest"]), repr(back.mfu)] == [repr(bad)] * 3
    assert back.losses[0] == 2.5


def test_the_word_nan_in_a_text_field_stays_a_word(record: Record) -> None:
    named = replace(record, reason="nan", losses=[math.nan])
    assert Record.from_text(named.as_text()).reason == "nan"


def test_encoding_leaves_all_else_alone() -> None:
    content = {"a": [1, 2.5, None, True, "text"], "b": {"c": (1, 2)}}
    assert encode(content) == {"a": [1, 2.5, None, True, "text"], "b": {"c": [1, 2]}}
    assert decode({"a": ["nan", "nano"]})["a"][1] == "nano"


def test_names_of_a_newer_version_are_ignored(record: Record) -> None:
    assert Record.from_json({**record.as_json(), "invented_later": 1}) == record


@pytest.mark.parametrize("name", ["outcome", "block", "started_at"])
def test_a_required_name_that_is_missing_is_named(record: Record, name: str) -> None:
    content = record.as_json()
    del content[name]
    with pytest.raises(TypeError, match=name):
        Record.from_json(content)


def test_an_unknown_outcome_is_refused(record: Record) -> None:
    with pytest.raises(ValueError, match="fine"):
        Record.from_json({**record.as_json(), "outcome": "fine"})
