"""Compilation is counted by torch's own counters, and must be over before the window begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from harness.trial.outcome import Outcome
from harness.trial.spec import TrialResult
from tests.training import cpu, gpus, refused

Run = Callable[..., TrialResult]


def test_a_compiled_cell_shows_its_frames_and_its_compile_time(run_trial: Run) -> None:
    assert refused(compile="default") is None, "install g++: compile=default works through it on a CPU"
    result = run_trial(compile="default", attention="eager")
    assert result.outcome is Outcome.OK
    assert result.evidence["compile"]["facts"]["frames"] >= 1
    assert result.measured["compile_seconds"] > 1


def test_compile_that_compiles_nothing_is_inert(run_trial: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def identity(function: Any, **_: Any) -> Any:
        return function

    monkeypatch.setattr(torch, "compile", identity)
    result = run_trial(compile="default")
    assert result.outcome is Outcome.INERT
    assert result.reason == "compile=default was set, but no frame was compiled"


def test_without_warm_up_the_compilation_spoils_the_window(run_trial: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph is traced and counted as always; torch's own backend `eager` spares the minute in the C++ compiler."""
    compile_ = torch.compile
    monkeypatch.setattr(torch, "compile", lambda function, **_: compile_(function, backend="eager"))
    result = run_trial(compile="default", warmup_steps=0)
    assert result.outcome is Outcome.INVALID
    assert "compiled inside the window; raise warmup_steps (it is 0)" in result.reason
    assert run_trial(compile="default", warmup_steps=2).outcome is Outcome.OK


def test_modes_that_work_through_cuda_graphs_are_refused_without_a_gpu() -> None:
    for mode in ("reduce-overhead", "max-autotune"):
        assert "use compile=default on a CPU" in str(refused(compile=mode))
    assert cpu().has_gpu is False


def test_accumulation_under_cuda_graphs_is_refused() -> None:
    """Run on H200s with torch 2.11 it ends with "accessing tensor output of CUDAGraphs that has been overwritten"."""
    for mode in ("reduce-overhead", "max-autotune"):
        assert "pytorch#169545" in str(refused(gpus(1), compile=mode, accumulation=2))
        assert refused(gpus(1), compile=mode) is None
    assert refused(gpus(1), compile="default", accumulation=2) is None
