"""Which implementation of AdamW stepped is read from a profile."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.techniques.optimizer import Optimizer
from harness.trial.outcome import Outcome
from harness.trial.spec import TrialResult

Run = Callable[..., TrialResult]


@pytest.mark.parametrize("setting", ["foreach", "for-loop", "fused"])
def test_the_profile_shows_the_implementation(run_trial: Run, setting: str) -> None:
    result = run_trial(optimizer=setting)
    assert result.outcome is Outcome.OK
    assert result.evidence["optimizer"]["facts"]["ran"] == setting


def test_all_three_compute_the_same(run_trial: Run) -> None:
    curves = [run_trial(optimizer=each).measured["losses"] for each in ("foreach", "for-loop", "fused")]
    assert curves[1] == pytest.approx(curves[0], abs=1e-4)
    assert curves[2] == pytest.approx(curves[0], abs=1e-4)


@pytest.mark.parametrize(("setting", "seen"), [("fused", "for-loop"), ("foreach", "for-loop")])
def test_an_implementation_that_is_not_used_is_inert(
    run_trial: Run, setting: str, seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing_asked_for(_self: object, _cell: object, run: object) -> None:
        run.optimizer_options.update(foreach=False)  # type: ignore[attr-defined]

    monkeypatch.setattr(Optimizer, "apply", nothing_asked_for)
    result = run_trial(optimizer=setting)
    assert result.outcome is Outcome.INERT
    assert result.reason == f"optimizer={setting} was set, but the profile of a step shows {seen}"
