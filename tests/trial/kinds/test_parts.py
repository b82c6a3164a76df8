"""Kinds that look at a part of a step by itself: loader, attention, optimizer, copies, epochs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.techniques.optimizer import Optimizer
from harness.trial.clock import HostClock, Timeline, Times, clock_for
from harness.trial.data import Samples
from harness.trial.kinds import attention_only, copy_only, loader_only
from harness.trial.kinds import repeat as repeating
from harness.trial.outcome import Outcome
from harness.trial.profile import Profile, Span
from harness.trial.training import TrainingRun
from tests.training import run_trial


def test_the_loader_is_drawn_for_as_long_as_it_is_told() -> None:
    """Two samples of 64 tokens a batch, 5 ms each: 10 ms a batch, so 0.2 s hold at most 20."""
    result = run_trial("loader-only", cost_per_sample_ms=5, options={"seconds": 0.2})
    figures = result.measured["figures"]
    assert result.outcome is Outcome.OK
    assert 3 <= figures["batches"] <= 21
    assert sum(result.measured["step_seconds"]) >= 0.2
    assert result.measured["samples_per_second"] <= 200
    assert result.measured["tokens_per_second"] == pytest.approx(64 * result.measured["samples_per_second"])
    assert figures["first_batch_seconds"] >= 0.010


def test_a_loaders_warm_up_is_drawn_before_its_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four batches of warm-up, the first among them, which starts the workers."""
    log: list[str] = []
    plain = Samples.__getitem__
    monkeypatch.setattr(Samples, "__getitem__", lambda self, index: (log.append("batch"), plain(self, index))[1])
    clock = HostClock(read=lambda: log.append("mark") or float(len(log)))
    monkeypatch.setattr(loader_only, "HostClock", lambda: clock)
    assert run_trial("loader-only", warmup_steps=4, steps=3).outcome is Outcome.OK
    assert log[:11] == ["batch"] * 4 + ["mark", "batch"] * 3 + ["mark"]


def test_a_copy_holds_the_host_as_long_as_in_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the two of the warm-up, in which memory is first touched, a hundred times as long."""
    ends = itertools.accumulate([0.0, 100.0, 0.0, 100.0] + [0.0, 1.0] * 10)
    monkeypatch.setattr(copy_only, "time", SimpleNamespace(perf_counter=lambda: next(ends)))
    result = run_trial("copy-only", options={"mebibytes": 1}, warmup_steps=2, steps=3)
    assert result.measured["figures"]["host_seconds"] == 1.0


def test_a_batch_is_token_ids_and_labels_when_it_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """2 samples of 64 tokens: 2 * 2 * 64 numbers of 8 bytes."""
    sizes: list[int] = []
    plain = copy_only._timed

    def timed(spec: Any, device: torch.device, source: torch.Tensor) -> Any:
        sizes.append(source.nbytes)
        return plain(spec, device, source)

    monkeypatch.setattr(copy_only, "_timed", timed)
    run_trial("copy-only", options={"mebibytes": 1})
    assert sizes == [1 << 20, 2 * 2 * 64 * 8]


@pytest.mark.parametrize(("before", "memory"), [(None, None), (300, 700)])
def test_a_layers_memory_is_what_it_adds_to_what_was_there(before: int | None, memory: int | None) -> None:
    times = Times(step_seconds=[0.5, 0.5], window_seconds=1.0, phases={"forward": 0.2, "backward": 0.3})
    measured = repeating.Repeated(
        times=times, window=(0.0, 1.0), peaks={"peak_allocated_bytes": 1000}, missing={}, allocated_before=before
    )
    found = attention_only._result(measured, tokens=128).measured
    assert found["figures"].get("layer_peak_bytes") == memory
    assert found["tokens_per_second"] == 256


def test_without_a_duration_it_draws_the_steps() -> None:
    assert run_trial("loader-only", steps=7).measured["figures"]["batches"] == 7


def test_its_workers_are_proven() -> None:
    result = run_trial("loader-only", workers=2)
    assert result.evidence["stream"]["facts"]["workers_alive"] == 2


@pytest.mark.parametrize("model", ["tiny", "tiny-gpt2"])
@pytest.mark.parametrize(("attention", "kernels"), [("eager", []), ("sdpa-flash", ["sdpa-flash"])])
def test_one_layer_of_attention_by_its_own_kernel(model: str, attention: str, kernels: list[str]) -> None:
    result = run_trial("attention-only", model=model, attention=attention)
    figures = result.measured["figures"]
    assert result.outcome is Outcome.OK
    assert list(result.evidence["attention"]["facts"]["kernels"]) == kernels
    assert result.measured["tokens_per_second"] == pytest.approx(128 / figures["layer_seconds"])
    assert figures["busy_seconds"] == figures["layer_seconds"]
    assert "peak_allocated_bytes" in result.missing


def test_a_layer_of_attention_is_timed_forward_and_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that stands still but for a second in each forward and two in each backward."""
    called_with, plain, now = attention_only.called_with, torch.Tensor.backward, [0.0]

    def take(seconds: float) -> None:
        now[0] += seconds

    def called_slowly(trial: TrainingRun) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
        layer, positional, named = called_with(trial)
        layer.register_forward_pre_hook(lambda *_: take(1.0))
        return layer, positional, named

    monkeypatch.setattr(attention_only, "called_with", called_slowly)
    monkeypatch.setattr(torch.Tensor, "backward", lambda tensor, *rest: (take(2.0), plain(tensor, *rest))[1])
    monkeypatch.setattr(repeating, "clock_for", lambda device: HostClock(read=lambda: now[0]))
    result = run_trial("attention-only", attention="eager", steps=3)
    assert result.outcome is Outcome.OK, result.reason
    figures = result.measured["figures"]
    assert (figures["forward_seconds"], figures["backward_seconds"], figures["layer_seconds"]) == (1.0, 2.0, 3.0)
    assert result.measured["step_seconds"] == [3.0] * 3
    assert result.measured["tokens_per_second"] == pytest.approx(128 / 3.0)


def test_on_a_gpu_a_layer_is_busy_for_as_long_as_its_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten repetitions of two kernels of 0.1 and 0.2 ms, launched 1 ms apart by a slow host: 0.3 ms each, not 1.3."""
    kernels = [
        Span(name, start, start + length, on_device=True, lane=7)
        for step in range(attention_only.PROFILED)
        for name, start, length in (
            ("flash_fwd_kernel", step * 1_300_000, 100_000),
            ("flash_bwd_kernel", step * 1_300_000 + 600_000, 200_000),
        )
    ]

    calls: list[Timeline] = []

    def profiled(step: Callable[[], None], device: torch.device) -> Profile:
        step()
        return Profile(spans=tuple(kernels), wall_seconds=0.02)

    monkeypatch.setattr(attention_only, "profile_step", profiled)
    trial = SimpleNamespace(device=torch.device("cuda"), timeline=Timeline(clock_for(torch.device("cpu"))))
    busy = attention_only._busy_seconds(calls.append, trial, 1.3e-3)  # type: ignore[arg-type]
    assert len(calls) == attention_only.PROFILED
    assert busy == pytest.approx(0.3e-3)


def test_the_optimizer_by_itself() -> None:
    result = run_trial("optimizer-only", optimizer="fused", steps=4)
    figures = result.measured["figures"]
    assert result.outcome is Outcome.OK
    assert len(result.measured["step_seconds"]) == 4
    parameters = result.measured["parameters"]["trainable"]
    assert figures["parameters_per_second"] == pytest.approx(parameters / figures["optimizer_seconds"])


def test_an_optimizer_that_is_not_the_one_asked_for_is_inert(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Optimizer, "apply", lambda *_: None)
    assert run_trial("optimizer-only", optimizer="fused").outcome is Outcome.INERT


def test_copies_have_the_size_they_are_told() -> None:
    figures = run_trial("copy-only", options={"mebibytes": 2}, steps=5).measured["figures"]
    assert figures["gigabytes_per_second"] == pytest.approx(2 * 2**20 / figures["copy_seconds"] / 1e9)
    assert figures["batch_copy_seconds"] < figures["copy_seconds"]


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_stay_from_epoch_to_epoch_or_are_new(persistent: bool) -> None:
    options = {"epochs": 3, "batches": 4}
    result = run_trial("epoch-turnaround", workers=2, persistent=persistent, options=options)
    facts = result.evidence["workers"]["facts"]
    assert result.outcome is Outcome.OK
    assert facts == {"workers": [2], "same_processes": persistent, "started_as": ["ForkProcess"]}
    assert len(result.measured["step_seconds"]) == 2  # three epochs have two turnarounds


def test_workers_that_do_not_stay_are_inert(monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.trial.kinds import epoch_turnaround

    make = epoch_turnaround.make_loader

    def never_persistent(*arguments: object, **named: object) -> object:
        loader = make(*arguments, **named)  # type: ignore[arg-type]
        object.__setattr__(loader, "persistent_workers", False)
        return loader

    monkeypatch.setattr(epoch_turnaround, "make_loader", never_persistent)
    result = run_trial("epoch-turnaround", workers=1, persistent=True, options={"epochs": 2, "batches": 2})
    assert result.outcome is Outcome.INERT
    assert "persistent=true" in result.reason
