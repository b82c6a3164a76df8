"""How long a trial may take, and how long it is expected to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness.experiment.study import PlannedTrial
from harness.results.budget import Estimates, wall_limit_seconds
from harness.results.record import Record
from tests.records import make_records
from tests.results.plans import a_block, a_plan


@pytest.mark.parametrize(
    ("compiled", "options", "override", "seconds"),
    [
        ("off", {}, None, 120.0),
        ("default", {}, None, 420.0),
        ("reduce-overhead", {}, None, 420.0),
        ("max-autotune", {}, None, 720.0),
        ("max-autotune", {"wall_limit_seconds": 45}, None, 45.0),
        ("off", {"wall_limit_seconds": True}, None, 120.0),
        ("off", {"wall_limit_seconds": 45}, 5.0, 5.0),
    ],
)
def test_a_trial_may_take_as_long_as_the_user_or_its_study_says_or_its_compilation_needs(
    compiled: str, options: dict[str, Any], override: float | None, seconds: float
) -> None:
    trial = a_plan(a_block(settings={"compile": compiled}, options=options)).trials[0]
    assert wall_limit_seconds(trial, override) == seconds


def a_trial(compiled: str = "off", *, steps: int = 4, study: str = "study", refusal: str = "") -> PlannedTrial:
    refusals = {"baseline": refusal} if refusal else None
    plan = a_plan(a_block(study, settings={"compile": compiled}, steps=steps), refusals=refusals)
    return next(each for each in plan.trials if each.arm.name == "baseline")


def record_of(trial: PlannedTrial, wall_seconds: float, compile_seconds: float | None = None) -> Record:
    return replace(
        make_records()[0], study=trial.block.study, cell_key=trial.arm.cell.key, steps=trial.block.steps,
        wall_seconds=wall_seconds, compile_seconds=compile_seconds,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("gpu", "compiled", "seconds"),
    [(True, "off", 6.5), (False, "off", 1.5), (True, "default", 56.5), (False, "reduce-overhead", 51.5),
     (True, "max-autotune", 426.5)],
)  # fmt: skip
def test_a_cell_that_was_never_timed_is_guessed_with_its_first_compilation(
    gpu: bool, compiled: str, seconds: float
) -> None:
    assert Estimates(gpu=gpu).seconds(a_trial(compiled)) == seconds
    assert not Estimates(gpu=gpu).knows(a_trial(compiled))
    assert Estimates(gpu=gpu, first_guess_seconds=20.0).seconds(a_trial(compiled)) == 20.0


def test_a_trial_that_is_refused_takes_no_time() -> None:
    assert Estimates(gpu=True).seconds(a_trial(refusal="no GPU")) == 0.0


@pytest.mark.parametrize(
    ("wall", "compiling", "seconds"),
    [(10.0, None, 10.0), (60.0, 50.0, 17.0), (5.0, 0.5, 5.0), (50.2, 50.0, 8.0)],
    ids=["as it took", "its cold compilation was paid, the cache is read in 7 s", "never more than it took",
         "a second at least"],
)  # fmt: skip
def test_a_cell_that_was_timed_takes_as_long_again(wall: float, compiling: float | None, seconds: float) -> None:
    trial = a_trial("default")
    stored = Estimates(gpu=True, seen=[record_of(trial, 99.0), record_of(trial, wall, compiling)])
    assert stored.knows(trial)
    assert stored.seconds(trial) == pytest.approx(seconds), "the latest counts"
    assert not stored.knows(a_trial("default", steps=8)), "more steps take longer"
    assert not stored.knows(a_trial("default", study="other"))


def test_guesses_learn_how_far_they_were_off() -> None:
    """A compiled cell is guessed at 1.5 + 50 s and takes 103 s, then at 1.5 + 7 s and takes 17 s: twice as long."""
    estimates, trial = Estimates(gpu=False), a_trial("default")
    estimates.learn(trial, record_of(trial, 103.0, 90.0))
    assert estimates.seconds(a_trial()) == pytest.approx(3.0)
    estimates.learn(trial, record_of(trial, 17.0))
    assert estimates.seconds(a_trial()) == pytest.approx(3.0)
    assert estimates.seconds(trial) == 17.0
