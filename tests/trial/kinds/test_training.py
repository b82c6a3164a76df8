"""What the result of a training trial is made of: all of its ranks, and what its window and its warm-up gave."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.techniques.registry import techniques
from harness.trial import measure as measuring
from harness.trial import memory, training
from harness.trial.clock import Times
from harness.trial.kinds import training as kind
from harness.trial.measure import Measured, measure
from harness.trial.measure import _count_activations as count_activations
from harness.trial.outcome import Outcome
from harness.trial.profile import Profile
from harness.trial.ranks import Ranks, disconnect
from harness.trial.spec import TrialResult
from harness.trial.training import TrainingRun, build
from tests.training import cell, cpu, run_trial, spec_of


def test_a_job_is_as_fast_as_its_slowest_rank_and_as_large_as_its_fullest(monkeypatch: pytest.MonkeyPatch) -> None:
    run = TrainingRun(spec_of(), Ranks(), cpu())
    build(run, techniques())
    measured = measure(run)
    total = run.parameter_counts["total"]
    everyone = [
        {"rank": 0, "window_seconds": 2.0, "tokens": 100, "samples": 10, "useful_tokens": 80, "losses": [1.0, 3.0],
         "peak_host_bytes": 7, "allocator_retries": 1,
         "model_state_bytes": {"before_step": 10.0 * total, "after_step": 8.0 * total}},
        {"rank": 1, "window_seconds": 4.0, "tokens": 300, "samples": 30, "useful_tokens": 120, "losses": [3.0, 5.0],
         "peak_host_bytes": 9, "allocator_retries": 4,
         "model_state_bytes": {"before_step": 20.0 * total, "after_step": 6.0 * total}},
        {"rank": 2, "window_seconds": 3.0, "tokens": 0, "samples": 0, "useful_tokens": 0, "losses": [],
         "peak_host_bytes": 8, "allocator_retries": 0,
         "model_state_bytes": {"before_step": 1.0 * total, "after_step": 1.0 * total}},
    ]  # fmt: skip
    monkeypatch.setattr(kind.group, "gather", lambda mine, ranks: everyone if "rank" in mine else [mine])
    result = TrialResult(outcome=Outcome.OK)
    kind.fill_result(run, measured, result)
    figures = result.measured["figures"]
    assert (result.measured["tokens_per_second"], result.measured["samples_per_second"]) == (100.0, 10.0)
    assert (figures["useful_tokens_per_second"], figures["useful_share"]) == (50.0, 0.5)
    assert result.measured["losses"] == [2.0, 4.0], "the mean of the ranks that have one"
    assert result.measured["peak_host_bytes"] == 9
    assert (figures["bytes_per_parameter"], figures["bytes_per_parameter_after_step"]) == (20.0, 8.0)
    assert figures["allocator_retries"] == 4
    assert "the allocator had to empty its cache 4 times inside the window on rank 1" in result.warnings


def test_model_state_is_told_by_kind_as_the_optimizers_step_finds_it() -> None:
    """In fp32: 4 bytes a parameter of weights, 4 of gradients, 8 of moments; after the step gradients are gone."""
    measured = run_trial().measured
    whole, state = measured["parameters"]["total"], measured["model_state_bytes"]
    kinds = {"parameters": 4, "gradients": 4, "optimizer": 8, "buckets": 0, "before_step": 16, "after_step": 12}
    # beside them the rotary frequencies and a count of steps for each parameter
    assert {kind: state[kind] for kind in kinds} == pytest.approx({k: n * whole for k, n in kinds.items()}, abs=256)


def test_state_is_shared_out_over_all_parameters_and_not_those_that_are_trained() -> None:
    measured = run_trial(lora=8).measured
    whole, state, figures = measured["parameters"]["total"], measured["model_state_bytes"], measured["figures"]
    assert figures["bytes_per_parameter"] == pytest.approx(state["before_step"] / whole)
    assert figures["bytes_per_parameter_after_step"] == pytest.approx(state["after_step"] / whole)


def test_the_start_of_a_trial_ends_where_its_warm_up_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAIMBENCH_REQUESTED_AT", "5.0")
    now, plain = [7.0], kind.measure

    def slowly(trial: TrainingRun) -> Measured:
        now[0] += 100.0
        return plain(trial)

    monkeypatch.setattr(kind, "measure", slowly)
    monkeypatch.setattr(kind, "time", SimpleNamespace(monotonic=lambda: now[0]))
    assert run_trial().measured["startup_seconds"] == 2.0
    monkeypatch.delenv("CLAIMBENCH_REQUESTED_AT")
    assert kind.seconds_since_request() is None, "nobody asked for this process"


def test_buffers_of_a_model_are_its_state_too() -> None:
    run = TrainingRun(spec_of(), Ranks(), cpu())
    run.model = torch.nn.BatchNorm1d(4)  # weight and bias, mean and variance of 4 numbers each, a count of 8 bytes
    assert memory.model_state(run) == {"parameters": 72, "gradients": 0, "optimizer": 0, "buckets": 0}


def test_a_storage_counts_once_and_for_the_device_that_it_lies_on() -> None:
    whole, seen = torch.zeros(8), set[int]()
    assert memory.tensor_bytes([whole, whole[2:], whole.view(2, 4)], seen=seen) == 32
    assert memory.tensor_bytes([whole[:4]], seen=seen) == 0, "it was counted before"
    assert memory.tensor_bytes([whole, torch.zeros(8, device="meta")], torch.device("cpu")) == 32
    assert memory.tensor_bytes([whole], torch.device("cuda", 0)) == 0, "as what is offloaded to the host"


def test_compilation_is_what_warm_up_takes_beyond_as_many_steps_of_the_window() -> None:
    times = Times(step_seconds=[0.5] * 4, window_seconds=2.0, phases={})
    measured = Measured(times=times, warmup_seconds=[10.5, 0.4, 0.75])
    compiled, plain = (SimpleNamespace(cell=cell(compile=each)) for each in ("default", "off"))
    assert kind._compile_seconds(compiled, measured) == pytest.approx(10.25)  # type: ignore[arg-type]
    assert kind._compile_seconds(plain, measured) is None  # type: ignore[arg-type]


def test_retries_of_the_allocator_are_those_of_the_window_and_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warm-up, which allocates most, had five of seven."""
    readings: Any = iter([5, 7])
    monkeypatch.setattr(memory, "allocator_retries", lambda device: next(readings))
    result = run_trial()
    assert result.measured["figures"]["allocator_retries"] == 2
    assert "the allocator had to empty its cache 2 times inside the window" in result.warnings


@pytest.mark.parametrize(
    ("compile", "after", "held", "why"),
    [
        ("off", 5_000, 4_000.0, None),
        ("default", 5_000, 4_000.0, None),
        ("off", 1_000, None, "the allocator's count did not grow in forward"),
        ("reduce-overhead", 1_000, None, "CUDA graphs keep activations in memory of their own"),
        ("max-autotune", 5_000, None, "CUDA graphs keep activations in memory of their own"),
    ],
)
def test_activations_are_what_the_allocator_grew_by_in_forward_unless_a_graph_has_them(
    compile: str, after: int, held: float | None, why: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replay of a CUDA graph allocates nothing: as 0 bytes it would be a saving of 100%."""
    run = TrainingRun(spec_of(compile=compile), Ranks(), cpu())
    build(run, [])
    readings: Any = iter([1_000, after])
    monkeypatch.setattr(memory, "allocated", lambda device: next(readings))
    measured = Measured()
    count_activations(run, measured)
    assert measured.model_state.get("activations") == held
    assert measured.missing.get("activations", "").startswith(why or "")
    assert ("activations" in measured.missing) is (why is not None)


@pytest.mark.parametrize(("grown", "held"), [((0, 4_000), 4_000.0), ((4_000, 0), None)])
def test_activations_are_a_figure_or_missing_and_never_both(
    grown: tuple[int, int], held: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two micro-batches, one in whose forward the allocator had room enough already."""
    run = TrainingRun(spec_of(accumulation=2), Ranks(), cpu())
    build(run, [])
    readings: Any = iter([1_000, 1_000 + grown[0], 2_000, 2_000 + grown[1]])
    monkeypatch.setattr(memory, "allocated", lambda device: next(readings))
    measured = Measured()
    count_activations(run, measured)
    assert measured.model_state.get("activations") == held
    assert ("activations" in measured.missing) is (held is None)


def test_why_a_figure_of_the_window_is_missing_stands_in_the_result() -> None:
    run = TrainingRun(spec_of(), Ranks(), cpu())
    build(run, [])
    measured = measure(run)
    measured.missing["activations"] = "of no use"
    result = TrialResult(outcome=Outcome.OK)
    kind.fill_result(run, measured, result)
    assert result.missing["activations"] == "of no use"


def test_without_warm_up_the_cold_start_lies_in_the_window_and_is_said() -> None:
    words = "no warm-up steps: the first step's start-up costs lie inside the window"
    cold = run_trial(warmup_steps=0, gradient_check=True)
    assert words in cold.warnings
    assert cold.measured["gradient_check"] == {"skipped": "there was no warm-up step to take it from"}
    assert words not in run_trial(warmup_steps=1).warnings


def test_a_loss_that_is_no_number_any_more_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "LEARNING_RATE", 1e30)
    result = run_trial(steps=4)
    assert not math.isfinite(float(result.measured["losses"][-1]))
    assert "the loss is not finite" in result.warnings
    monkeypatch.undo()
    assert "the loss is not finite" not in run_trial(steps=4).warnings


def test_a_window_that_the_hypervisor_held_up_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "between", lambda *_: {"wall_seconds": 4.0, "steal_seconds": 1.0})
    words = "the hypervisor withheld processor time of 25% of the window, all cores together"
    assert words in run_trial().warnings


def test_where_the_time_went_is_held_against_the_mean_step_of_the_window() -> None:
    measured = run_trial(steps=4).measured
    spent, steps = measured["figures"]["breakdown"], measured["step_seconds"]
    assert spent["step_seconds"] == pytest.approx(sum(steps) / 4)
    assert sum(spent["seconds"].values()) == pytest.approx(sum(steps) / 4)


@pytest.mark.train
def test_weights_that_forward_gathers_are_no_activations(monkeypatch: pytest.MonkeyPatch) -> None:
    """FSDP keeps its root gathered to backward's end: embedding (tied) 512 x 64 and a norm of 64, in fp32."""
    run = TrainingRun(spec_of(parallel="fsdp"), Ranks(), cpu())
    try:
        build(run, techniques())
        root = 4 * (512 * 64 + 64)
        readings: Any = iter([1_000, 1_000 + 5_000 + root])
        monkeypatch.setattr(memory, "allocated", lambda device: next(readings))
        measured = Measured()
        count_activations(run, measured)
    finally:
        disconnect()
    assert measured.model_state == {"activations": 5_000, "gathered": root}


@pytest.mark.parametrize("launches", [0, 1])
def test_activations_of_a_step_that_replays_graphs_of_its_own_are_left_out(
    launches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With compile=off the graphs are the user's: what forward allocates beside the replay is not what it leaves."""
    profiled = kind.profile_step

    def with_launches(*arguments: Any, **named: Any) -> Profile:
        profile = profiled(*arguments, **named)
        profile.operators.update({"cudaGraphLaunch": launches} if launches else {})
        return profile

    monkeypatch.setattr(kind, "profile_step", with_launches)
    result = run_trial()
    assert ("activations" in result.measured["model_state_bytes"]) is not bool(launches)
    assert ("activations" in result.missing) is bool(launches)
