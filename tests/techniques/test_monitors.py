"""Every monitor really watches, and none watches where it was not asked for."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from harness.techniques import monitors
from harness.techniques.monitor import Monitor
from harness.techniques.registry import techniques
from harness.trial.outcome import Outcome
from harness.trial.ranks import Ranks
from harness.trial.spec import TrialResult
from harness.trial.training import TrainingRun, build
from tests.techniques.test_precision import _gpu
from tests.training import active, cpu, gpus, refused, spec_of

Run = Callable[..., TrialResult]

#: On a CPU. Warm-up, window and the profiled step are 2 + 3 + 1 steps.
CALLS = {
    "phases-synchronised": 18,
    "item": 6,
    "gradient-norms": 6,
    "flops-profile": 1,
    "profiler": 1,
    "tensorboard": 6,
}


@pytest.mark.parametrize("setting", CALLS)
def test_calls_are_counted(run_trial: Run, setting: str) -> None:
    result = run_trial(monitor=setting)
    assert result.outcome is Outcome.OK
    assert result.evidence["monitor"]["facts"]["calls"] == CALLS[setting]


@pytest.mark.parametrize(("steps", "traces"), [(5, 1), (6, 2), (8, 2), (10, 2), (11, 3)])
def test_a_trace_that_the_window_cuts_short_is_counted_too(run_trial: Run, steps: int, traces: int) -> None:
    """Cycles are five steps long, the last two recorded; warm-up and window are 7, 8, 10, 12 and 13 steps."""
    result = run_trial(monitor="profiler", warmup_steps=2, steps=steps)
    assert result.outcome is Outcome.OK, result.reason
    assert result.evidence["monitor"]["facts"]["calls"] == traces


def test_watching_does_not_change_what_is_watched(run_trial: Run) -> None:
    plain = run_trial().measured["losses"]
    for setting in ("phases-synchronised", "item", "gradient-norms"):
        assert run_trial(monitor=setting).measured["losses"] == plain


def test_cpu_percent_holds_every_step_for_a_second(run_trial: Run) -> None:
    result = run_trial(monitor="cpu-percent", warmup_steps=1, steps=1)
    assert result.outcome is Outcome.OK
    assert min(result.measured["step_seconds"]) >= 1


@pytest.mark.parametrize("setting", ["phases-synchronised", "item", "gradient-norms", "flops-profile", "tensorboard"])
def test_a_monitor_that_is_never_called_is_inert(run_trial: Run, setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitors.WATCHES[setting], "attach", lambda _: None)
    result = run_trial(monitor=setting)
    assert result.outcome is Outcome.INERT
    assert f"monitor={setting} was called 0 times" in result.reason


def test_a_monitor_that_is_not_applied_is_inert(run_trial: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Monitor, "apply", lambda *_: None)
    assert "nothing watched the run" in run_trial(monitor="item").reason


def test_a_monitor_that_sees_nothing_is_inert(run_trial: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitors.Item, "look", lambda *_: None)
    result = run_trial(monitor="item")
    assert (result.outcome, result.reason) == (Outcome.INERT, "monitor=item was called 6 times and saw nothing (None)")


def test_a_phase_is_timed_between_two_waits_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """As D3's benchmark has it: without the first it would hold what was queued before."""
    log: list[str] = []
    monkeypatch.setattr(monitors.Phases, "_synchronise", lambda _: log.append("wait"))
    monkeypatch.setattr(monitors, "time", SimpleNamespace(time=lambda: log.append("look") or 1.0))
    phases = monitors.Phases(SimpleNamespace())  # type: ignore[arg-type]
    phases.last = {}
    phases._timed("forward_time", lambda: log.append("work"))()
    assert log == ["wait", "look", "work", "wait", "look"]


def _hooks(setting: str) -> tuple[Any, ...]:
    """What is called around the parts of a step, and whether they are still the run's own."""
    run = TrainingRun(spec_of(monitor=setting), Ranks(), cpu())
    with run.held:
        build(run, techniques())
    own = (run.call is run.model, run.micro_step == run._micro_step, run.backward == run._backward)
    return run.before_optimizer, run.after_step, run.around_window, (*own, run.update == run._update)


def test_all_other_cells_run_unwatched() -> None:
    """lightning#189 has a monitor that made training ten times slower."""
    assert "monitor" not in active()
    unwatched = ([], [], [], (True,) * 4)
    assert _hooks("off") == unwatched
    for setting in CALLS:
        assert _hooks(setting) != unwatched, setting


def test_what_a_monitor_lacks_is_said_before_launch() -> None:
    assert refused(monitor="nvml") == "monitor=nvml reads a GPU, and there is none here"
    bare = _gpu((9, 0), packages={})
    assert "pip install tensorboard" in str(refused(bare, monitor="tensorboard"))
    assert "use compile=off" in str(refused(_gpu((9, 0)), monitor="flops-profile", compile="default"))
    assert "use ddp" in str(refused(gpus(2), monitor="flops-profile", parallel="dp", devices=2))
    assert refused(gpus(2), monitor="item", parallel="dp", devices=2) is None
