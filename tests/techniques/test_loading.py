"""Workers are counted alive, streams are asked for their class, and none of it changes a sample."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.techniques import loading
from harness.techniques.loading import _checks
from harness.trial.batching import LoaderSettings
from harness.trial.corpus import prepare
from harness.trial.data import Samples, make_loader
from harness.trial.outcome import Outcome
from harness.trial.ranks import Ranks as OneRank
from harness.trial.spec import TrialResult
from harness.trial.streams import STREAMS
from harness.trial.training import TrainingRun
from tests.techniques.ranks import Ranks
from tests.training import cell, cpu, refused, settings, spec_of

Run = Callable[..., TrialResult]


def test_workers_are_alive(run_trial: Run) -> None:
    result = run_trial(workers=2)
    assert result.outcome is Outcome.OK
    assert result.evidence["stream"]["facts"]["workers_alive"] == 2


def test_workers_that_do_not_start_are_inert(run_trial: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = LoaderSettings.of

    def without(given: dict[str, object]) -> LoaderSettings:
        return plain({**given, "workers": 0})  # type: ignore[dict-item]

    monkeypatch.setattr(LoaderSettings, "of", staticmethod(without))
    result = run_trial(workers=2)
    assert result.outcome is Outcome.INERT
    assert result.reason == "workers=2 was set, but 0 worker processes are alive"


@pytest.mark.parametrize(
    ("stream", "kind"),
    [("parse", "ParsingStream"), ("cached", "CachedStream"), ("reopen", "ReopeningStream"), ("mmap", "MappedStream")],
)
def test_every_stream_gives_the_same_samples(run_trial: Run, stream: str, kind: str) -> None:
    result = run_trial(stream=stream, workers=1)
    assert result.evidence["stream"]["facts"]["stream_class"] == kind
    assert result.measured["losses"] == run_trial(stream="cached").measured["losses"]


@pytest.mark.parametrize("stream", ["parse", "reopen", "mmap"])
def test_streams_agree_where_documents_begin_and_end(tmp_path: Path, stream: str) -> None:
    folder = prepare(spec_of().data, 512, tmp_path)
    whole, found = STREAMS["cached"](folder), STREAMS[stream](folder)
    second, third, *_ = (int(start) for start in whole.documents[1:])
    for start, length in [(0, 3), (0, third), (second, 2), (second - 1, 2), (second, third - second),
                          (whole.about.tokens - 2, 2)]:  # fmt: skip
        assert found.tokens(start, length).tolist() == whole.tokens(start, length).tolist(), (start, length)


def test_a_sample_costs_what_it_is_told_to(run_trial: Run) -> None:
    """Two samples a batch at 20 ms each, loaded in the training process: at least 40 ms of waiting a step."""
    assert run_trial(cost_per_sample_ms=20).measured["phases"]["data_wait"] >= 0.040


def test_a_sample_that_costs_nothing_is_inert(run_trial: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Samples, "_spend", lambda *_: None)
    result = run_trial(cost_per_sample_ms=50)
    assert result.outcome is Outcome.INERT
    assert result.reason.startswith("cost_per_sample_ms=50 was set, but a sample took")


@pytest.mark.parametrize(
    ("asked", "given", "reason"),
    [
        ({"prefetch": 4}, {"prefetch": 2}, "prefetch=4 was set, but workers prepare 2 ahead"),
        ({"stream": "mmap"}, {"stream": "cached"}, "stream=mmap was set, but samples come from CachedStream"),
    ],
)
def test_a_setting_that_does_not_arrive_is_inert(
    run_trial: Run, asked: dict[str, Any], given: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = LoaderSettings.of
    monkeypatch.setattr(LoaderSettings, "of", staticmethod(lambda cell: plain({**cell, **given})))
    result = run_trial(workers=1, **asked)
    assert (result.outcome, result.reason) == (Outcome.INERT, reason)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"pinned": True, "host_waits_for_copies": False}, ""),
        ({"pinned": False}, "pin_memory=true was set, but batches are pageable"),
        ({"pinned": True, "host_waits_for_copies": True}, "non_blocking=true was set, but the host waits for a copy"),
    ],
)
def test_on_a_gpu_pinned_batches_and_copies_that_do_not_wait_are_seen(facts: dict[str, Any], reason: str) -> None:
    seen = {"workers_alive": 0, "stream_class": "CachedStream", **facts}
    faults = [words for holds, words in _checks(cell(pin_memory=True, non_blocking=True), seen) if not holds]
    assert [words[: len(reason)] for words in faults] == ([reason] if reason else [])


@pytest.mark.parametrize(("asked", "started"), [("spawn", "ForkProcess"), ("fork", "SpawnProcess")])
def test_workers_that_started_in_the_other_way_are_found_out(asked: str, started: str) -> None:
    seen = {"workers_alive": 1, "stream_class": "CachedStream", "started_as": [started], "prefetch": 2}
    faults = [words for holds, words in _checks(cell(workers=1, start=asked), seen) if not holds]
    assert faults == [f"start={asked} was set, but the workers are of {started}"]


def test_the_time_of_a_batch_is_shared_by_its_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """4 samples in 0.1 s are 25 ms each."""
    readings = iter([1.0, 1.1])
    monkeypatch.setattr(loading, "time", SimpleNamespace(perf_counter=lambda: next(readings)))
    run: Any = SimpleNamespace(loader=SimpleNamespace(dataset=[{"input_ids": torch.zeros(4, 8)}]))
    assert loading._milliseconds_a_sample(run) == pytest.approx(25.0)


@pytest.mark.parametrize(
    "asked",
    [
        {"workers": 0, "pin_memory": False},
        {"workers": 0, "pin_memory": True},
        {"workers": 2, "prefetch": 5, "persistent": True, "start": "spawn", "pin_memory": True},
        {"workers": 2, "prefetch": 2, "persistent": False, "start": "fork", "pin_memory": False},
    ],
    ids=lambda asked: " ".join(map(str, asked.values())),
)
def test_torchs_loader_is_told_what_the_cell_asks_for(tmp_path: Path, asked: dict[str, Any]) -> None:
    folder = prepare(spec_of().data, 512, tmp_path)
    loader = make_loader(folder, LoaderSettings.of(settings(**asked)), seed=1, rank=0, batches=4)
    workers = asked["workers"]
    assert (loader.num_workers, loader.pin_memory) == (workers, asked["pin_memory"])
    assert (loader.prefetch_factor, loader.persistent_workers) == (asked.get("prefetch"), bool(asked.get("persistent")))
    assert getattr(loader.multiprocessing_context, "_name", None) == asked.get("start")
    assert len(loader) == 4


@pytest.mark.parametrize("non_blocking", [False, True])
def test_copies_go_to_the_device_in_the_way_that_is_asked_for(non_blocking: bool) -> None:
    run = TrainingRun(spec_of(non_blocking=non_blocking), OneRank(), cpu())
    part = SimpleNamespace(to=lambda *on, **how: (on, how))
    assert run.copy({"input_ids": part}) == {"input_ids": ((run.device,), {"non_blocking": non_blocking})}  # type: ignore[dict-item]


def test_spawned_workers_are_told_from_forked_ones(run_trial: Run) -> None:
    result = run_trial(workers=1, start="spawn")
    assert result.outcome is Outcome.OK
    assert result.evidence["stream"]["facts"]["started_as"] == ["SpawnProcess"]


def test_datasets_never_touch_the_gpu(tmp_path: Path) -> None:
    """A worker that does dies after a fork (pytorch#40403): batches are made on the CPU, whatever the batching."""
    folder = prepare(spec_of().data, 512, tmp_path)
    for batching in ("fixed", "padded", "packed", "token-budget"):
        samples = Samples(folder, LoaderSettings.of(settings(batching=batching)), seed=1, rank=0, batches=1)
        assert {part.device for part in samples[0].values()} == {torch.device("cpu")}


def test_two_small_batches_are_not_the_halves_of_a_large_one(tmp_path: Path) -> None:
    """So accumulation at the same effective batch owes parity only as statistics (`judgement.parity.demand_of`)."""
    folder = prepare(spec_of().data, 512, tmp_path)
    small, large = (
        Samples(folder, LoaderSettings.of(settings(batch_size=size)), seed=1, rank=0, batches=2) for size in (2, 4)
    )
    halves = torch.cat([small[index]["input_ids"] for index in range(2)])
    assert halves.shape == large[0]["input_ids"].shape
    assert not torch.equal(halves, large[0]["input_ids"])
    assert torch.equal(small[0]["input_ids"], small[0]["input_ids"]), "the same each time"


def test_settings_without_effect_are_refused() -> None:
    assert "set workers to 1 or more" in str(refused(prefetch=4))
    assert "set workers to 1 or more" in str(refused(persistent=True))
    assert "there is none here" in str(refused(pin_memory=True))
    assert "there is none here" in str(refused(non_blocking=True))
    assert refused(workers=2, prefetch=4, persistent=True, start="spawn") is None


def test_batches_suffice_for_the_cell_that_looks_most_often_after_its_window(run_ranks: Ranks) -> None:
    """The profile, the ranks' gradients, recomputation, the adapters' gradients and the large one that is clipped."""
    result = run_ranks(parallel="ddp", devices=2, lora=8, checkpointing="full", clip=1.0, steps=2)
    assert result.outcome is Outcome.OK, result.reason
    assert {"parallel", "lora", "checkpointing", "clip"} <= result.evidence.keys()
