"""Which implementation of AdamW stepped is read from a profile."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from harness.techniques.optimizer import Optimizer, operators_of_the_update
from harness.trial.outcome import Outcome
from harness.trial.profile import profile_step
from harness.trial.spec import TrialResult
from tests.techniques.ranks import Ranks

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


@pytest.mark.parametrize("setting", ["foreach", "for-loop", "fused"])
def test_clipping_works_on_lists_of_tensors_and_is_not_taken_for_the_step(run_trial: Run, setting: str) -> None:
    """clip_grad_norm_ calls `_foreach_norm` and `_foreach_mul_` whatever the optimizer does."""
    result = run_trial(optimizer=setting, clip=1.0)
    assert result.outcome is Outcome.OK, result.reason
    assert result.evidence["optimizer"]["facts"]["ran"] == setting


def test_clipping_does_not_hide_a_loop_that_ran_for_foreach(run_trial: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Optimizer, "apply", lambda _self, _cell, run: run.optimizer_options.update(foreach=False))
    result = run_trial(optimizer="foreach", clip=1.0)
    assert result.outcome is Outcome.INERT
    assert result.reason == "optimizer=foreach was set, but the profile of a step shows for-loop"


def test_sharding_copies_lists_of_tensors_and_is_not_taken_for_the_step(run_ranks: Ranks) -> None:
    result = run_ranks(parallel="fsdp", devices=2, optimizer="for-loop")
    assert result.outcome is Outcome.OK, result.reason
    assert result.evidence["optimizer"]["facts"]["ran"] == "for-loop"


@pytest.mark.parametrize("setting", ["foreach", "for-loop", "fused"])
@pytest.mark.parametrize("engine", [{"zero": 0}, {"zero": 2}, {"precision": "ds-bf16"}], ids=str)
def test_under_deepspeeds_engine_too(run_ranks: Ranks, engine: dict[str, int | str], setting: str) -> None:
    """The engine steps the AdamW that it is handed; its flag alone said nothing of for-loop and foreach."""
    result = run_ranks(optimizer=setting, **engine)
    assert result.outcome is Outcome.OK, result.reason
    assert result.evidence["optimizer"]["facts"]["ran"] == setting


def test_under_deepspeeds_engine_another_implementation_is_inert(run_ranks: Ranks) -> None:
    result = run_ranks(sabotage="optimizer", zero=2, optimizer="fused")
    assert result.outcome is Outcome.INERT
    assert "optimizer=fused was set, but the profile of a step shows for" in result.reason


def test_a_scaler_looks_at_lists_of_gradients_and_is_not_taken_for_the_step() -> None:
    """GradScaler's `_amp_foreach_non_finite_check_and_unscale_` belongs to amp-fp16."""
    parameter = torch.nn.Parameter(torch.ones(8))
    optimizer = torch.optim.AdamW([parameter], foreach=False)
    scaler = torch.amp.GradScaler("cpu")

    def step() -> None:
        scaler.scale((parameter * parameter).sum()).backward()
        scaler.step(optimizer)

    profile = profile_step(step, torch.device("cpu"))
    assert profile.matching("_amp_foreach_")
    names = operators_of_the_update(profile)
    assert names["aten::addcdiv_"] == 1
    assert not any("foreach" in name for name in names)


def test_without_a_step_of_torchs_there_is_nothing_to_show(run_trial: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """An update that goes around `Optimizer.step` proves none of the three."""

    def sgd_by_hand(_self: object, _cell: object, run: object) -> None:
        def update() -> None:
            gradients = [each.grad for each in run.trainable()]  # type: ignore[attr-defined]
            torch._foreach_mul_(gradients, 0.0)

        run.update = update  # type: ignore[attr-defined]

    monkeypatch.setattr(Optimizer, "apply", sgd_by_hand)
    result = run_trial(optimizer="foreach")
    assert result.outcome is Outcome.INERT
    assert result.reason == "optimizer=foreach was set, but the profile of a step shows no optimizer step"
