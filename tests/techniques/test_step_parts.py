"""Clipping, schedules, the allocator's cache, and copies on a side stream."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.techniques import empty_cache
from harness.techniques.clip import Clip
from harness.techniques.copying import changed_batches, copied_ahead, streams_of_copies_alone
from harness.techniques.empty_cache import EmptyCache
from harness.techniques.schedule import Schedule, factor
from harness.trial.outcome import Outcome
from harness.trial.spec import TrialResult
from harness.trial.training import TrainingRun
from tests.techniques.test_precision import _gpu
from tests.training import cell, refused

Run = Callable[..., TrialResult]


def apart(work: Callable[..., Any], *arguments: Any) -> Any:
    """What a call returns in a process of its own: one that has used the GPU stays on it, in the way of later tests."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as one:
        return one.submit(work, *arguments).result()


# ---- clipping --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["fp32", "bf16", "amp-fp16"])
def test_a_large_gradient_is_cut_to_the_limit(run_trial: Run, precision: str) -> None:
    result = run_trial(clip=0.5, precision=precision)
    facts = result.evidence["clip"]["facts"]
    assert result.outcome is Outcome.OK
    assert facts["norm_before"] == pytest.approx(5, rel=0.02)
    assert facts["norm_after"] == pytest.approx(0.5, rel=0.01)


def test_clipping_that_cuts_nothing_is_inert(run_trial: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", lambda *_: None)
    result = run_trial(clip=1.0)
    assert result.outcome is Outcome.INERT
    assert result.reason == "clip=1 was set, but a gradient of norm 10 reached the optimizer as 10"


def test_clipping_a_gradient_that_is_still_scaled_is_inert(run_trial: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut to 1 as it stands, and unscaled afterwards by 65536, next to nothing of it is left."""

    def too_early(_self: Clip, _cell: Any, run: TrainingRun) -> None:
        run.before_optimizer.append(lambda: torch.nn.utils.clip_grad_norm_(run.trainable(), 1.0))

    monkeypatch.setattr(Clip, "apply", too_early)
    result = run_trial(clip=1.0, precision="amp-fp16")
    assert result.outcome is Outcome.INERT
    assert result.reason == "clip=1 was set, but a gradient of norm 10 reached the optimizer as 1.53e-05"


def test_clipping_that_is_not_hooked_in_is_inert(run_trial: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Clip, "apply", lambda *_: None)
    assert run_trial(clip=1.0).outcome is Outcome.INERT


def test_where_no_rank_has_the_whole_gradient_clipping_is_refused() -> None:
    two = _gpu((9, 0))
    assert "DeepSpeed keeps them to itself" in str(refused(two, clip=1.0, precision="ds-bf16"))


# ---- schedules -------------------------------------------------------------------------------------------------------


def test_the_formulas() -> None:
    """20 steps: the warm-up rises over two of them and falls over eighteen; the cosine is halfway down at the tenth."""
    assert [factor("warmup-linear", step, 20) for step in (0, 1, 2, 11, 20)] == [0, 0.5, 1, 0.5, 0]
    assert factor("cosine", 0, 20) == 1
    assert factor("cosine", 10, 20) == pytest.approx(0.5)
    assert factor("cosine", 5, 20) == pytest.approx((1 + math.sqrt(0.5)) / 2)


@pytest.mark.parametrize(
    ("setting", "first"),
    [
        ("warmup-linear", [0, 1, 0.75]),
        ("cosine", [1, (1 + math.cos(math.pi / 5)) / 2, (1 + math.cos(math.pi / 2.5)) / 2]),
    ],
)
def test_every_step_has_the_rate_of_its_schedule(run_trial: Run, setting: str, first: list[float]) -> None:
    """It runs over the two steps of the warm-up and the three of the window."""
    result = run_trial(schedule=setting, warmup_steps=2, steps=3)
    assert result.outcome is Outcome.OK
    assert result.evidence["schedule"]["facts"]["learning_rates"][:3] == pytest.approx([3e-4 * each for each in first])
    assert result.evidence["schedule"]["facts"]["steps"] >= 6


@pytest.mark.parametrize("setting", ["warmup-linear", "cosine"])
def test_a_rate_that_stays_is_inert(run_trial: Run, setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Schedule, "apply", lambda *_: None)
    assert run_trial(schedule=setting).outcome is Outcome.INERT


def test_another_schedule_than_the_one_asked_for_is_inert(run_trial: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    applied = Schedule.apply
    monkeypatch.setattr(Schedule, "apply", lambda self, _cell, run: applied(self, cell(schedule="cosine"), run))
    assert run_trial(schedule="warmup-linear").outcome is Outcome.INERT


# ---- the allocator's cache -------------------------------------------------------------------------------------------


def test_emptying_is_refused_without_a_gpu() -> None:
    assert refused(empty_cache=100) == "empty_cache=100 empties CUDA's allocator and needs a GPU; use never"
    assert refused(_gpu((9, 0)), empty_cache=100) is None


def test_emptying_is_called_as_the_document_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """`batch_idx % 100 == 0`: before anything else at the first batch, then at the hundredth."""
    emptied: list[int] = []
    run: Any = SimpleNamespace(facts={}, after_step=[], device=torch.device("cpu"))
    EmptyCache().apply(cell(empty_cache=100), run)
    for step in range(201):
        monkeypatch.setattr(empty_cache, "empty", lambda step=step: emptied.append(step))
        run.after_step[0](step)
    assert emptied == run.facts["empty_cache"]["calls"] == [0, 100, 200]


def test_emptying_that_was_not_called_is_no_evidence() -> None:
    run: Any = SimpleNamespace(
        facts={}, after_step=[], device=torch.device("cpu"), steps_done=9,
        spec=SimpleNamespace(warmup_steps=2, steps=6),
    )  # fmt: skip
    evidence = EmptyCache().evidence(cell(empty_cache=4), run)
    assert evidence is not None
    assert not evidence.holds
    assert evidence.reason == "the cache was emptied 0 times in 9 steps, not 3 times"


def emptied_every_hundred(calls: list[int], steps: int, gives_back: int | None, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The evidence of a run whose allocator had given five segments back when it began, and seven when it was asked."""
    monkeypatch.setattr(empty_cache, "segments_freed", lambda device: 7)
    monkeypatch.setattr(empty_cache, "bytes_given_back", lambda device: gives_back)
    run: Any = SimpleNamespace(
        facts={"empty_cache": {"calls": calls, "segments_freed_before": 5}}, device=torch.device("cuda"),
        steps_done=2 + steps, spec=SimpleNamespace(warmup_steps=2, steps=steps),
    )  # fmt: skip
    return EmptyCache().evidence(cell(empty_cache=100), run)


@pytest.mark.parametrize(("calls", "steps", "warned"), [([0, 100], 110, False), ([0], 20, True)])
def test_emptying_that_no_window_saw_is_told(
    calls: list[int], steps: int, warned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence = emptied_every_hundred(calls, steps, 64 << 20, monkeypatch)
    assert evidence.holds
    said = "no call fell into the window of 20 steps: what it costs is not in this trial's time"
    assert evidence.warnings == ((said,) if warned else ())
    assert evidence.facts["segments_freed"] == 2


@pytest.mark.parametrize(("gives_back", "holds"), [(64 << 20, True), (0, False), (None, True)])
def test_emptying_that_gives_nothing_back_is_inert_unless_there_is_no_memory_to_try_it(
    gives_back: int | None, holds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert emptied_every_hundred([0, 100], 110, gives_back, monkeypatch).holds is holds


@pytest.mark.gpu
def test_on_a_gpu_a_freed_block_leaves_the_allocator() -> None:
    assert (apart(empty_cache.bytes_given_back, torch.device("cuda")) or 0) >= 64 << 20


# ---- copies on a side stream -----------------------------------------------------------------------------------------


def test_a_side_stream_is_refused_without_a_gpu() -> None:
    assert "needs a GPU" in str(refused(copy="side-stream"))
    assert refused(_gpu((9, 0)), copy="side-stream", pin_memory=True) is None


def test_a_stream_on_which_only_copies_ran_is_told_apart() -> None:
    kernels = {"sgemm": {7}, "Memset (Device)": {7}}
    assert streams_of_copies_alone({**kernels, "Memcpy HtoD (Pinned -> Device)": {7, 13}}) == {13}
    assert streams_of_copies_alone({**kernels, "Memcpy HtoD (Pinned -> Device)": {7}}) == set()
    assert streams_of_copies_alone({**kernels, "Memcpy DtoH (Device -> Pinned)": {13}}) == set()


@pytest.mark.gpu
def test_recorded_copies_arrive_and_unrecorded_ones_are_overwritten() -> None:
    """The document's loader lets the allocator give a batch's memory to the next copy while kernels still read it."""
    device = torch.device("cuda", 0)
    assert apart(partial(changed_batches, device, record=True)) == 0
    assert apart(partial(changed_batches, device, record=False)) > 0


@pytest.mark.gpu
def test_every_batch_comes_once_and_in_order() -> None:
    assert apart(first_numbers, 5) == [0, 1, 2, 3, 4]


def first_numbers(count: int) -> list[int]:
    """Of so many batches that were copied ahead, each of one number."""
    batches = ({"numbers": torch.full((4,), number).pin_memory()} for number in range(count))
    return [int(batch["numbers"][0]) for batch in copied_ahead(batches, torch.device("cuda", 0))]
