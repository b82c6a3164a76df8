"""Sentences in a claims file: `check: …` becomes the fields that the claim would otherwise be written in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.errors import SentenceError
from harness.experiment.problems import Problems
from harness.judgement.sentence import OWN_DOCUMENT
from harness.judgement.sentence_reader import read_sentence

#: What the sentence says, so that the claim must not say it again.
SAID = ("form", "metric", "range", "bound", "value", "tolerance", "limit", "order", "expect", "cell", "baseline")


def has_own_sentences(content: Mapping[str, Any]) -> bool:
    """Whether a claims file has a sentence that names no source."""
    claims = content.get("claims")
    entries = claims.values() if isinstance(claims, dict) else ()
    return any(isinstance(each, dict) and "check" in each and "sources" not in each for each in entries)


def expanded(name: str, fields: Mapping[str, Any], problems: Problems) -> dict[str, Any]:
    """The fields of a claim, with those that its sentence stands for. What is wrong is noted at its place."""
    if "check" not in fields:
        return dict(fields)
    from harness.techniques.registry import axis_table

    path = ["claims", name]
    for each in SAID:
        if each in fields:
            message = f"{each!r} stands in the sentence of 'check' already; remove one of the two"
            problems.add(message, [*path, each], key=True)
    try:
        sentence = read_sentence(str(fields["check"]), axis_table())
    except SentenceError as error:
        problems.add(error.message, [*path, "check"])
        problems.raise_if_any()
        raise
    said = sentence.fields()
    if "study" in fields:
        # another study has a baseline of its own: both arms are named in full
        both = {**sentence.baseline, **sentence.at}
        said |= {"cell": {**both, **sentence.cell}, "baseline": both}
    own = {"statement": str(sentence), "sources": [{"document": OWN_DOCUMENT, "quote": str(fields["check"])}]}
    return {"device": "any", "study": sentence.study, **own, **said, **fields}
