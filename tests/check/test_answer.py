"""What is said of a sentence beside its verdict, from trials with known figures: nothing here starts a process."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from harness.checking.answer import Answer, answer_of
from harness.checking.question import Size, ask
from harness.checking.schedule import Schedule
from harness.environment import Environment
from harness.judgement.judge import judge
from harness.judgement.stats import smallest_found
from harness.results.record import Record
from harness.trial.outcome import Outcome
from tests.records import CellShape, StudyShape, make_records

QUESTION = ask("precision=bf16 vs fp32 >= 1.5x", "tiny")
SCHEDULE = Schedule(size=Size(warmup_steps=8, steps=20, rounds=5), points=1)


def trials(cell: Sequence[float | None], control: Sequence[float | None]) -> list[Record]:
    """Rounds with these logarithms of cell ÷ baseline and of control ÷ baseline; None crashed."""
    apart = {"precision=bf16": cell, "control": control}
    shape = StudyShape(name=QUESTION.study, cells=(CellShape(settings={"precision": "bf16"}),))
    found = []
    for each in make_records([shape], rounds=len(cell)):
        log = apart[each.arm][each.round - 1] if each.arm in apart else 0.0
        fields = {"outcome": Outcome.CRASH} if log is None else {"tokens_per_second": 1e5 * math.exp(log)}
        found.append(replace(each, **fields))  # type: ignore[arg-type]
    return found


def answered(records: Sequence[Record]) -> Answer:
    claims = QUESTION.claims(Environment(cores=2))
    return answer_of(QUESTION, claims, judge(records, claims), records, schedule=SCHEDULE)


def test_the_resolution_is_that_of_the_spread_of_cell_and_control_each_by_what_it_knows() -> None:
    """Variances of 0.00005 over five rounds and of 0.0004 over three: (4 · 0.00005 + 2 · 0.0004) / 6 = 0.012910²."""
    found = answered(trials([0.49, 0.5, 0.5, 0.5, 0.51], [-0.02, 0.0, 0.02, None, None])).resolution
    assert found is not None
    assert found.rounds == 5
    assert found.spread == pytest.approx(0.012910, abs=1e-6)
    assert found.smallest_ratio == pytest.approx(smallest_found(found.spread, 5, chance=0.8))


def test_two_rounds_have_a_resolution_and_one_has_none() -> None:
    """Deviations of 0.01 · √2 and of none at all, at one degree of freedom each: 0.01."""
    found = answered(trials([0.49, 0.51], [0.0, 0.0])).resolution
    assert found is not None
    assert (found.rounds, found.spread) == (2, pytest.approx(0.01))
    assert answered(trials([0.5], [0.0])).resolution is None


def test_the_shortest_window_is_that_of_a_trial_that_counts() -> None:
    records = trials([0.5] * 3, [0.0] * 3)
    short, failed, whole = records[0], records[1], records[2:]
    found = answered([replace(short, superseded=True, step_seconds=[0.01] * 20),
                      replace(failed, outcome=Outcome.INVALID, step_seconds=[0.02] * 20),
                      *(replace(each, step_seconds=[0.1] * 20) for each in whole)])  # fmt: skip
    assert found.window_seconds == pytest.approx(2.0)


def test_what_is_shown_is_the_block_that_the_verdict_stands_on() -> None:
    """A store that has trials of another version too, fewer of them, and stored before."""
    other = [replace(each, fingerprint="e" * 16) for each in trials([1.0] * 3, [0.0] * 3)]
    found = answered([*other, *trials([0.5] * 5, [0.0] * 5)])
    assert found.block is not None
    assert (found.block.fingerprint, found.block.rounds) == (found.verdict.fingerprint, 5)
