"""Batch, length and accumulation are proven by the tokens that were counted."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from harness.techniques.size import Size
from harness.trial.outcome import Outcome
from harness.trial.spec import TrialResult
from harness.trial.training import TrainingRun
from tests.training import cell

Run = Callable[..., TrialResult]


def test_tokens_a_step_are_the_product(run_trial: Run) -> None:
    result = run_trial(sequence_length=32, batch_size=3, accumulation=4)
    assert result.outcome is Outcome.OK
    assert result.evidence["sequence_length"]["facts"] == {"tokens_a_step": 32 * 3 * 4}
    seconds = sum(result.measured["step_seconds"])
    assert result.measured["tokens_per_second"] == pytest.approx(3 * 384 / seconds, rel=1e-6)
    assert result.measured["samples_per_second"] == pytest.approx(3 * 12 / seconds, rel=1e-6)


@pytest.mark.parametrize(("tokens", "holds"), [(2 * 256, True), (256, False)])
def test_a_process_that_feeds_two_devices_takes_two_batches(tokens: int, holds: bool) -> None:
    """`parallel=dp`: one process, a batch for each device."""
    run: Any = SimpleNamespace(own=None, devices_fed=2, facts={"tokens_a_step": tokens})
    evidence = Size().evidence(cell(sequence_length=64, batch_size=4), run)
    assert evidence is not None
    assert evidence.holds is holds


def test_accumulation_that_does_not_happen_is_inert(run_trial: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    made = TrainingRun.__init__

    def without(self: TrainingRun, *arguments: object) -> None:
        made(self, *arguments)  # type: ignore[arg-type]
        self.accumulation = 1

    monkeypatch.setattr(TrainingRun, "__init__", without)
    result = run_trial(accumulation=2)
    assert result.outcome is Outcome.INERT
    assert result.reason == "a step held 128 tokens, not the 256 that batch size, length and accumulation ask for"


def test_a_step_is_the_mean_of_its_micro_batches(run_trial: Run) -> None:
    """A warm-up starts at a learning rate of zero, so the first two steps see the same weights."""
    apart = run_trial(accumulation=1, schedule="warmup-linear").measured["losses"]
    together = run_trial(accumulation=2, schedule="warmup-linear").measured["losses"]
    assert together[0] == pytest.approx((apart[0] + apart[1]) / 2, rel=1e-6)
