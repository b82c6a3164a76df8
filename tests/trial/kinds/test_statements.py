"""Kinds that try out what a document says. Each really does it, and gives its own figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.experiment.cell import Workload
from harness.trial.kinds import ALONE, KINDS, refusal, runner, samples_metric, throughput_recipe
from harness.trial.kinds.batch_finder import largest_that
from harness.trial.kinds.resume import counted
from harness.trial.launch import ENTRY, LocalLauncher
from harness.trial.outcome import Outcome
from harness.trial.spec import TrialResult
from tests.techniques.test_precision import _gpu
from tests.training import cell, cpu, run_trial, spec_of

RunApart = Callable[..., TrialResult]


@pytest.fixture
def run_apart(session_launcher: LocalLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunApart:
    """Runs a trial in a process of its own, as in a run: kinds that fork must not have computed before."""

    def run(kind: str, *, entry: str = ENTRY, **details: Any) -> TrialResult:
        monkeypatch.setattr(session_launcher, "entry", entry)
        spec = replace(spec_of(kind, **details), record_path=str(tmp_path / "result.json"))
        finished = session_launcher.run(spec, ranks=1, wall_limit_seconds=250, environment={"OMP_NUM_THREADS": "1"})
        assert finished.result is not None, finished.reason
        return finished.result

    return run


def test_every_kind_can_be_found() -> None:
    assert set(KINDS) > ALONE
    for kind in KINDS:
        assert callable(runner(kind))


@pytest.mark.parametrize(
    ("kind", "word"), [("opt-levels", "apex"), ("apex-fused", "apex"), ("flash-stable", "xformers")]
)
def test_kinds_about_a_package_are_refused_without_it(kind: str, word: str) -> None:
    bare = replace(cpu(), packages={})
    assert f"{word} is not installed" in str(refusal(bare, cell(), kind))
    assert "computes on a GPU" in str(refusal(replace(bare, packages={word: "1"}), cell(), kind))
    assert refusal(_gpu((9, 0), packages={word: "1"}), cell(), kind) is None
    assert refusal(bare, cell(), "training") is None


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_that_build_their_model_themselves_are_refused_a_step_of_the_users_own(kind: str) -> None:
    """Its every trial crashed."""
    everything = _gpu((9, 0), packages={"apex": "1", "xformers": "1"})
    own = replace(cell(), workload=Workload(name="own", model="my.py:build"))
    able = {"training", "copy-only", "samples-metric", "resume", "opt-levels"}
    said = refusal(everything, own, kind)
    assert said == (
        None
        if kind in able
        else f"kind {kind} builds its model itself; give its study a workload with a built-in model or a config.json"
    )
    assert refusal(everything, cell(), kind) is None


@pytest.mark.alone
def test_forward_passes_alone_are_faster_than_training() -> None:
    result = run_trial("throughput-recipe", steps=12)
    figures = result.measured["figures"]
    assert result.outcome is Outcome.OK
    assert figures["training_samples_per_second"] == pytest.approx(result.measured["samples_per_second"])
    assert figures["recipe_over_training"] > 1.2
    ratio = figures["recipe_samples_per_second"] / figures["training_samples_per_second"]
    assert figures["recipe_over_training"] == pytest.approx(ratio)


@pytest.mark.alone
@pytest.mark.parametrize("batch_size", [1, 4])
def test_steps_over_seconds_count_batches(batch_size: int) -> None:
    """Right at batch 1; at batch 4 a quarter of the truth. The window and the monitor's clock differ by a little."""
    figures = run_trial("samples-metric", batch_size=batch_size, steps=6).measured["figures"]
    assert figures["reported_over_true"] == pytest.approx(1 / batch_size, rel=0.3)


def test_the_recipe_is_warmed_up_before_it_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[int] = []
    plain = throughput_recipe.printed_throughput
    monkeypatch.setattr(
        throughput_recipe, "printed_throughput", lambda trial, some: batches.append(len(some)) or plain(trial, some)
    )
    run_trial("throughput-recipe", warmup_steps=2, steps=3)
    assert batches == [2, 3]


def test_the_printed_monitor_counts_the_steps_of_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    plain = samples_metric.PrintedMonitor.samples_per_second
    monkeypatch.setattr(
        samples_metric.PrintedMonitor, "samples_per_second", lambda self: steps.append(self.steps) or plain(self)
    )
    run_trial("samples-metric", warmup_steps=2, steps=3)
    assert steps == [3]


def test_workers_set_late_are_counted_alive() -> None:
    """What this torch does with it: the attributes are taken over by the next iterator."""
    result = run_trial("workers-late", warmup_steps=0, steps=4, options={"workers": 1, "prefetch": 2})
    assert result.measured["figures"] == {"took_effect": True, "workers_alive": 1, "workers_wanted": 1, "error": ""}


def test_a_loader_that_refuses_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.utils.data import DataLoader

    plain: Callable[..., None] = DataLoader.__setattr__

    def refuse(self: object, name: str, value: object) -> None:
        if name == "num_workers" and "num_workers" in vars(self):
            raise ValueError("num_workers attribute should not be set after DataLoader is initialized")
        plain(self, name, value)

    monkeypatch.setattr(DataLoader, "__setattr__", refuse)
    figures = run_trial("workers-late", warmup_steps=0, options={"workers": 1}).measured["figures"]
    assert figures["took_effect"] is False
    assert figures["error"].startswith("ValueError: num_workers attribute should not be set")


@pytest.mark.parametrize(
    ("limit", "found", "tries"),
    [
        (256, 256, 1),  # all fit: the ceiling, at once
        (100, 96, 5),  # 256 128 64 96 112: 96 < 100, and 112 - 96 is more than a tenth, 104 fails, 104 - 96 is less
        (0, 0, 9),
    ],
)
def test_bisection(limit: int, found: int, tries: int) -> None:
    asked: list[int] = []

    def trains(size: int) -> bool:
        asked.append(size)
        return size <= limit

    largest = largest_that(trains, 256, 0.1, known=0)
    assert largest == found
    assert len(asked) <= tries + 1
    assert limit - largest <= max(1, 0.1 * largest)


def test_bisection_begins_where_it_is_known_to_fit() -> None:
    asked: list[int] = []
    assert largest_that(lambda size: asked.append(size) or size <= 40, 64, 0.05, known=32) in (39, 40)  # type: ignore[func-returns-value]
    assert min(asked) > 32


def test_the_printed_search_against_what_trains(run_apart: RunApart) -> None:
    options = {"max_batch_size": 3, "ceiling": 6, "resolution": 0.1}
    result = run_apart("batch-finder", warmup_steps=0, steps=1, options=options)
    figures = result.measured["figures"]
    assert result.outcome is Outcome.OK
    assert (figures["found_batch"], figures["found_trains"], figures["largest_batch"]) == (3, True, 6)
    assert figures["found_is_largest"] is False
    assert figures["tries"] == 2
    assert "cache" in result.missing["largest_batch_emptying"]


def test_the_printed_loop_saves_nothing_when_it_is_interrupted(run_apart: RunApart) -> None:
    result = run_apart("emergency", warmup_steps=0, steps=2)
    assert result.outcome is Outcome.OK
    figures = result.measured["figures"]
    assert figures["steps_before"] >= 2
    assert (figures["saved"], figures["files"], figures["exit_status"]) == (False, 0, 0)


def saving(spec_path: Path) -> int:
    """What a trial's process calls: the worker, with a loop that writes a checkpoint when it is interrupted."""
    from harness.trial.kinds import emergency
    from harness.trial.worker import main

    plain = emergency.Trainer.train

    def train(self: emergency.Trainer, epochs: int) -> None:
        plain(self, epochs)
        self.save_checkpoint()

    emergency.Trainer.train = train  # type: ignore[method-assign]
    return main(spec_path)


def test_a_loop_that_saves_is_seen_to_save(run_apart: RunApart) -> None:
    """The same loop with a checkpoint in its handler: the kind can tell the two apart."""
    result = run_apart("emergency", entry=f"{__name__}:saving", warmup_steps=0, steps=2)
    figures = result.measured["figures"]
    assert (figures["saved"], figures["files"]) == (True, 1)


def test_an_import_changes_no_attention(run_apart: RunApart) -> None:
    figures = run_apart("flash-by-import", warmup_steps=0, steps=1).measured["figures"]
    assert figures["import_succeeded"] is True
    assert figures["turned_on"] is False
    assert figures["implementation_before"] == figures["implementation_after"] == "sdpa"


def test_a_run_that_was_killed_is_completed(run_apart: RunApart) -> None:
    figures = run_apart("resume").measured["figures"]
    assert 5 <= figures["stored_when_killed"] < 12
    assert (figures["complete"], figures["trials_lost"], figures["trials_doubled"]) == (True, 0, 0)


def test_what_is_lost_or_doubled_is_counted() -> None:
    """Twelve trials planned; one is there twice, one only as superseded, one crashed."""
    records = [
        {"arm": arm, "round": number, "superseded": False, "outcome": "ok"}
        for arm in ("baseline", "control", "a", "b")
        for number in (1, 2, 3)
    ]
    assert counted(records)["complete"] is True
    records[0]["superseded"] = True
    records[1]["outcome"] = "crash"
    assert counted([*records, records[5]]) == {
        "complete": False, "trials_planned": 12, "trials_lost": 2, "trials_doubled": 1,
    }  # fmt: skip
