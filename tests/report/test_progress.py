"""What a run shows while it runs: how many trials are done of how many, and how long the rest takes."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from harness.report.progress import duration, line, progress
from harness.results.events import Event, RoundPostponed, RunPlanned, TrialFinished, TrialStarted
from harness.trial.outcome import Outcome
from tests.records import make_records
from tests.results.plans import a_block, a_plan

FIRST, *_, LAST = a_plan(a_block()).trials
OK = replace(make_records()[0], tokens_per_second=41230.4)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-3, "0 s"), (25.4, "25 s"), (89.4, "89 s"), (90, "2 min"), (700, "12 min"), (5370, "1 h 30 min"),
        (5360, "89 min"), (7500, "2 h 05 min"),
    ],
)  # fmt: skip
def test_a_time_is_said_in_its_own_unit(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def ended(outcome: Outcome, *, trial: int = 1, reason: str = "") -> TrialFinished:
    record = replace(OK, outcome=outcome, reason=reason)
    return TrialFinished(trial=FIRST if trial == 1 else LAST, record=record, done=7, trials=12, seconds_left=700)


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (RunPlanned(trials=1200, stored=0, seconds_left=25), "1,200 trials planned; about 25 s left"),
        (RunPlanned(trials=12, stored=3, seconds_left=25),
         "12 trials planned, 3 of them in the store already; about 25 s left"),
        (ended(Outcome.OK), "[7/12] study · control · round 1: ok, 41,230 tokens/s; about 12 min left"),
        (ended(Outcome.OOM, reason="out of memory\nmore"),
         "[7/12] study · control · round 1: oom: out of memory; about 12 min left"),
        (ended(Outcome.UNSUPPORTED, reason="no GPU"),
         "[7/12] study · control · round 1: unsupported: no GPU; about 12 min left"),
        (ended(Outcome.UNSUPPORTED, trial=2), ""),
        (RoundPostponed(study="study", round=2, needed_seconds=700, left_seconds=25),
         "study round 2 needs about 12 min, 25 s are left: another run will do it"),
        (TrialStarted(trial=FIRST, done=0, trials=12, attempt=1, seconds_left=25), ""),
    ],
)  # fmt: skip
def test_a_line_of_a_log(event: Event, said: str) -> None:
    assert line(event) == said


def shown(*events: Event) -> str:
    """The last look of the bar of a terminal, and what was printed above it."""
    out = io.StringIO()
    with progress(Console(file=out, force_terminal=True, width=200, color_system=None)) as observe:
        for event in events:
            observe(event)
    return out.getvalue()


def test_a_bar_counts_what_is_stored_and_what_has_ended() -> None:
    planned = RunPlanned(trials=12, stored=3, seconds_left=25)
    assert "3/12 about 25 s left" in shown(planned)
    assert "7/12 about 12 min left" in shown(planned, ended(Outcome.OK))


def test_a_bar_says_which_try_it_is_from_the_second_on() -> None:
    first = TrialStarted(trial=FIRST, done=0, trials=12, attempt=1, seconds_left=25)
    assert "(try" not in shown(first)
    assert "study · control · round 1 (try 2)" in shown(replace(first, attempt=2))


@pytest.mark.parametrize(
    ("outcome", "told"), [(Outcome.OK, False), (Outcome.UNSUPPORTED, False), (Outcome.CRASH, True), (Outcome.OOM, True)]
)
def test_what_went_wrong_stays_above_the_bar(outcome: Outcome, told: bool) -> None:
    assert ("[7/12] study" in shown(ended(outcome))) is told


@pytest.mark.parametrize("terminal", [True, False])
def test_of_the_rounds_that_no_longer_fit_each_studys_first_is_told(terminal: bool) -> None:
    out = io.StringIO()
    late = RoundPostponed(study="scaling", round=2, needed_seconds=700, left_seconds=25)
    with progress(Console(file=out, force_terminal=terminal, width=200, color_system=None)) as observe:
        for event in (late, replace(late, round=3), replace(late, study="zero"), replace(late, round=4)):
            observe(event)
    told = [text for text in out.getvalue().splitlines() if "another run will do it" in text]
    assert [text.split(" needs ")[0].split("\x1b[2K")[-1] for text in told] == ["scaling round 2", "zero round 2"]
