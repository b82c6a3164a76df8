"""A record of what was planned, what the trial said of itself and what was seen of it from outside."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.results.assemble import Circumstances, Try, record_of
from harness.results.record import Record
from harness.trial.device import DeviceFigures
from harness.trial.launch import Finished
from harness.trial.outcome import Outcome
from harness.trial.spec import TrialResult
from tests.records import many_records
from tests.results.plans import a_block, a_plan

CIRCUMSTANCES = Circumstances(scale="full", fingerprint="f" * 16, environment={})


def assembled(
    result: TrialResult, device: DeviceFigures | None = None, *, warnings: tuple[str, ...] = (),
    peak_host_bytes: int | None = None, circumstances: Circumstances = CIRCUMSTANCES,
) -> Record:  # fmt: skip
    """The record of a trial that ended ok."""
    trial = a_plan(a_block(rounds=1)).trials[0]
    finished = Finished(outcome=Outcome.OK, reason="", result=result, warnings=warnings, started=0.0, wall_seconds=2.0,
                        peak_host_bytes=peak_host_bytes)  # fmt: skip
    at = Try(attempt=1, started_at="2026-03-01T09:00:00.000+00:00")
    return record_of(trial, finished, device or DeviceFigures(), at=at, circumstances=circumstances)


def test_what_the_parent_warns_of_stands_after_the_trials_own_warnings() -> None:
    result = TrialResult(outcome=Outcome.OK, warnings=["the loss is not finite"])
    record = assembled(result, warnings=("a process of it outlived its rank",))
    assert record.warnings == ["the loss is not finite", "a process of it outlived its rank"]


def test_a_reason_for_a_figure_that_is_there_after_all_is_dropped() -> None:
    """As of a trial that said why before it measured."""
    missing = {"losses": "not kept", "mfu": "no peak is known", "hfu": "nor here", "activations": "nobody saw them"}
    record = assembled(TrialResult(outcome=Outcome.OK, measured={"losses": [1.0], "hfu": 0.5}, missing=missing))
    said = {name: reason for name, reason in record.missing.items() if name in missing}
    assert said == {"mfu": "no peak is known", "activations": "nobody saw them"}


def test_the_first_step_of_a_window_on_a_gpu_stands_by_itself_from_the_start() -> None:
    """What a run shows of a trial that has just ended is what is read of it later."""
    on_gpu = replace(CIRCUMSTANCES, environment=many_records(1)[0].environment)
    result = TrialResult(outcome=Outcome.OK, measured={"step_seconds": [0.25, *[0.05] * 9], "tokens_per_second": 1e4})
    record = assembled(result, circumstances=on_gpu)
    assert (record.step_seconds, record.figures["first_step_seconds"]) == ([0.05] * 9, 0.25)
    assert record.tokens_per_second == pytest.approx(1.4e4)  # 0.07 s a step with it, 0.05 without


@pytest.mark.parametrize(("own", "kept"), [(7_000, 7_000), (None, 5_000)])
def test_what_a_trial_says_of_its_memory_comes_before_what_was_seen_from_outside(own: int | None, kept: int) -> None:
    """A trial knows the peak of its window; its parent that of the whole process."""
    result = TrialResult(outcome=Outcome.OK, measured={} if own is None else {"peak_host_bytes": own})
    assert assembled(result, peak_host_bytes=5_000).peak_host_bytes == kept


@pytest.mark.parametrize(
    ("watts", "speed", "joules"), [(400.0, 1000.0, 0.4), (None, 1000.0, None), (400.0, None, None), (400.0, 0.0, None)]
)
def test_energy_of_a_token_is_the_mean_power_over_the_tokens_of_a_second(
    watts: float | None, speed: float | None, joules: float | None
) -> None:
    """1200 J in a window of 3 s, 1000 tokens/s: 400 W over 1000, whatever the window lasted."""
    result = TrialResult(outcome=Outcome.OK, measured={"tokens_per_second": speed})
    record = assembled(result, DeviceFigures(energy_joules=1200.0, power_watts=watts))
    assert record.energy_joules_per_token == (None if joules is None else pytest.approx(joules))
