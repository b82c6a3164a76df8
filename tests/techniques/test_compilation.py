"""Compilation is counted by torch's own counters, and must be over before the window begins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.techniques import compilation
from harness.techniques.compilation import Compilation
from harness.trial.kinds import training
from harness.trial.measure import Measured, compile_counters
from harness.trial.outcome import Outcome
from harness.trial.profile import Profile, Span
from harness.trial.ranks import Ranks
from harness.trial.spec import TrialResult
from harness.trial.training import TrainingRun
from tests.training import cell, cpu, gpus, refused, run_spec, spec_of

Run = Callable[..., TrialResult]


def test_a_compiled_cell_shows_its_frames_and_its_compile_time(run_trial: Run) -> None:
    assert refused(compile="default") is None, "install g++: compile=default works through it on a CPU"
    result = run_trial(compile="default", attention="eager")
    assert result.outcome is Outcome.OK
    assert result.evidence["compile"]["facts"]["frames"] >= 1
    # two steps of warm-up, of which the first at least took longer than one of the window
    steady = fmean(result.measured["step_seconds"])
    warmed = result.measured["figures"]["warmup_seconds"]
    assert warmed - 2 * steady - 1e-6 <= result.measured["compile_seconds"] <= warmed - steady + 1e-6


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


#: A step whose model counts its calls, as users do for logging or a warm-up. torch takes an integer on a module for
#: constant, compiles anew in every step, and gives up at the eighth.
_COUNTING = """
import torch
from torch import nn
from torch.nn import functional

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(64, 16), nn.Linear(16, 64)
        self.calls = 0

    def forward(self, ids):
        x = self.embed(ids)
        PART
        self.calls += 1
        return self.head(x * min(1.0, self.calls / 1000))

def build(device, settings):
    batches = [torch.randint(0, 64, (settings["batch_size"], settings["sequence_length"])) for _ in range(4)]
    loss = lambda model, batch: functional.cross_entropy(model(batch).flatten(0, 1), batch.flatten())
    return Model().to(device), batches, loss
"""


def _counting(folder: Path, monkeypatch: pytest.MonkeyPatch, part: str) -> TrialResult:
    """Of a compiled step that counts; torch's own backend `eager` spares the C++ compiler."""
    (folder / "my.py").write_text(_COUNTING.replace("PART", part), encoding="utf-8")
    compile_ = torch.compile
    monkeypatch.setattr(torch, "compile", lambda function, **_: compile_(function, backend="eager"))
    spec = spec_of(
        model=f"{folder / 'my.py'}:build", options={"named": ["compile"]}, compile="default", warmup_steps=8, steps=4
    )
    return run_spec(replace(spec, baseline_settings={**spec.settings, "compile": "off"}))


def test_a_model_that_hit_the_recompile_limit_ran_eagerly_and_is_inert(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight frames were compiled in the warm-up, none in the window, and none of them runs."""
    result = _counting(tmp_path, monkeypatch, "pass")
    facts = result.evidence["compile"]["facts"]
    assert (facts["frames"], facts["regions"], facts["eager_frames"]) == (8, 0, 1)
    assert result.outcome is Outcome.INERT
    assert result.reason == (
        "compile=default was set, but a step ran no compiled code: "
        "1 frame hit torch's recompile limit (torch._dynamo.config.recompile_limit) and ran eagerly"
    )


def test_where_a_part_hit_the_recompile_limit_the_rest_is_compiled_and_a_warning_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = _counting(tmp_path, monkeypatch, "torch._dynamo.graph_break()")
    facts = result.evidence["compile"]["facts"]
    assert result.outcome is Outcome.OK, result.reason
    assert (facts["regions"], facts["eager_frames"]) == (1, 1)
    assert any(each.startswith("1 graph breaks: Call to") for each in result.warnings), result.warnings
    warning = next(each for each in result.warnings if "recompile limit" in each)
    assert warning.startswith("a part of the model was not compiled: 1 frame hit torch's recompile limit")
    assert warning.endswith("; 1 compiled regions ran in a step")


def test_a_compiled_model_that_is_not_called_is_inert(run_trial: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames are counted from the beginning of the process: what ran in the warm-up may be gone from the window."""
    compile_ = torch.compile

    def only_at_first(function: Any, **_: Any) -> Any:
        compiled, calls = compile_(function, backend="eager"), iter(range(1000))

        def call(**batch: Any) -> Any:
            return compiled(**batch) if next(calls) < 2 else function(**batch)

        return call

    monkeypatch.setattr(torch, "compile", only_at_first)
    result = run_trial(compile="default")
    assert result.outcome is Outcome.INERT
    assert result.reason == "compile=default was set, but a step ran no compiled code"


@pytest.mark.parametrize("accumulation", [1, 3])
def test_a_region_runs_in_every_micro_batch(run_trial: Run, accumulation: int, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_ = torch.compile
    monkeypatch.setattr(torch, "compile", lambda function, **_: compile_(function, backend="eager"))
    result = run_trial(compile="default", accumulation=accumulation)
    facts = result.evidence["compile"]["facts"]
    assert result.outcome is Outcome.OK, result.reason
    assert (facts["regions"], facts["eager_frames"]) == (accumulation, 0)


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


def test_batches_of_many_lengths_under_cuda_graphs_are_refused() -> None:
    """A graph is of one shape: new lengths turned up all through the window, and each was recorded in it."""
    for mode in ("reduce-overhead", "max-autotune"):
        for batching in ("padded", "token-budget"):
            why = str(refused(gpus(1), compile=mode, batching=batching))
            assert f"compile={mode} with batching={batching}: a CUDA graph is of one shape" in why
            assert refused(gpus(1), compile="default", batching=batching) is None
        assert refused(gpus(1), compile=mode, batching="packed") is None


def test_recordings_of_cuda_graphs_are_counted() -> None:
    """As torch tells of them itself; a step of one's own may pad as it likes."""
    from torch._dynamo.callback import CallbackTrigger, callback_handler

    run: Any = SimpleNamespace(call=lambda: None, own=None)
    for _ in range(2):  # a second trial in one process counts no double
        Compilation().apply(cell(compile="reduce-overhead"), run)
    before = compile_counters()
    try:
        for trigger in ("CUDAGRAPH_RECORDING", "DYNAMO", "CUDAGRAPH_RECORDING"):
            with callback_handler.install_callbacks(CallbackTrigger[trigger], "0/0"):
                pass
        assert {name: count - before[name] for name, count in compile_counters().items()} == {
            "frames": 0, "graphs": 0, "graph_breaks": 0, "recordings": 2,
        }  # fmt: skip
    finally:
        torch._dynamo.reset()


@pytest.mark.parametrize(("recorded", "warned"), [(3, True), (0, False)])
def test_recordings_inside_the_window_are_said(recorded: int, warned: bool) -> None:
    result = TrialResult(outcome=Outcome.OK, measured={"losses": [1.0]})
    window = {"frames": 0, "graphs": 0, "graph_breaks": 0, "recordings": recorded}
    everyone = [{"rank": 0, "allocator_retries": 0}]
    training._judge_window(TrainingRun(spec_of(), Ranks(), cpu()), Measured(compile_in_window=window), result, everyone)
    words = "CUDA graphs were recorded 3 times inside the window, which holds the time of that"
    assert [each.partition(";")[0] for each in result.warnings] == ([words] if warned else [])
    assert result.outcome is Outcome.OK


@pytest.mark.parametrize(("graphs", "frames", "spoilt"), [(0, 0, False), (1, 1, True), (1, 0, True), (0, 1, True)])
def test_whatever_is_compiled_inside_the_window_spoils_it(graphs: int, frames: int, spoilt: bool) -> None:
    result = TrialResult(outcome=Outcome.OK, measured={"losses": [1.0]})
    window = {"frames": frames, "graphs": graphs, "graph_breaks": 0, "recordings": 0}
    everyone = [{"rank": 0, "allocator_retries": 0}]
    training._judge_window(TrainingRun(spec_of(), Ranks(), cpu()), Measured(compile_in_window=window), result, everyone)
    assert result.outcome is (Outcome.INVALID if spoilt else Outcome.OK)


@pytest.mark.parametrize(("launches", "holds"), [(2, True), (0, False)])
def test_modes_with_cuda_graphs_launch_them(launches: int, holds: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation, "recompile_limit_hits", lambda: 0)
    region = Span("Torch-Compiled Region: 0/0", 0, 1, on_device=False, lane=1)
    operators = Counter({"cudaGraphLaunch": launches} if launches else {"aten::mm": 3})
    run: Any = SimpleNamespace(profile=Profile(operators=operators, spans=(region,)), facts={"compiled": {"frames": 1}})
    evidence = Compilation().evidence(cell(compile="reduce-overhead"), run)
    assert evidence is not None
    assert evidence.holds is holds


@pytest.mark.parametrize(
    ("setting", "mode", "begins"),
    [("default", None, []), ("reduce-overhead", "reduce-overhead", ["begin"]),
     ("max-autotune", "max-autotune", ["begin"])],
)  # fmt: skip
def test_torch_is_given_the_mode_and_graphs_the_beginning_of_each_step(
    setting: str, mode: str | None, begins: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[str | None] = []
    marks: list[str] = []
    monkeypatch.setattr(torch, "compile", lambda function, mode: modes.append(mode) or function)
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: marks.append("begin"))
    run: Any = SimpleNamespace(call=lambda: 3, own=None)
    Compilation().apply(cell(compile=setting), run)
    assert (run.call(), modes, marks) == (3, [mode], begins)


def test_cuda_graphs_are_told_where_a_step_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Untold they write over what the step before put out."""
    marks: list[str] = []
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: marks.append("begin"))
    assert compilation._marking_steps(lambda value: marks.append("call") or value)(3) == 3  # type: ignore[func-returns-value]
    assert marks == ["begin", "call"]
