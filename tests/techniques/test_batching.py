"""Padding is counted, documents of a row do not see each other, and a budget of tokens is what D3 makes of it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from harness.techniques.batching import Batching, _padded
from harness.trial import batching
from harness.trial.batching import IGNORED, LoaderSettings
from harness.trial.model import make_config
from harness.trial.outcome import Outcome
from harness.trial.ranks import Ranks
from harness.trial.spec import TrialResult
from harness.trial.training import TrainingRun, make_batches
from tests.techniques.test_precision import _gpu
from tests.training import cpu, refused, settings, spec_of

Run = Callable[..., TrialResult]


class _Documents:
    """A stream of documents of the given lengths; token n of document d is 10·d + n."""

    def __init__(self, *lengths: int) -> None:
        self.documents = np.cumsum([0, *lengths])
        self.lengths = lengths
        self.about = self
        self.tokens_in_all = np.concatenate([10 * d + np.arange(n) for d, n in enumerate(lengths)])

    def tokens(self, start: int, length: int) -> np.ndarray:
        return self.tokens_in_all[start : start + length]


class _InOrder:
    """Draws documents 0, 1, 2, …"""

    def __init__(self) -> None:
        self.drawn = -1

    def integers(self, *_: int) -> int:
        self.drawn += 1
        return self.drawn


def _settings(**changes: object) -> LoaderSettings:
    return LoaderSettings.of(settings(**{"sequence_length": 6, "batch_size": 1, **changes}))  # type: ignore[arg-type]


@pytest.fixture
def documents(monkeypatch: pytest.MonkeyPatch) -> _Documents:
    made = _Documents(4, 3, 2, 5)
    lengths = made.documents

    def document(stream: _Documents, given: LoaderSettings, random: _InOrder) -> np.ndarray:
        index = random.integers()
        return stream.tokens(lengths[index], lengths[index + 1] - lengths[index])[: given.sequence_length]

    monkeypatch.setattr(batching, "_document", document)
    return made


def test_padded_fills_up_to_the_longest(documents: _Documents) -> None:
    batch = batching.padded(documents, _settings(batch_size=2), _InOrder())  # type: ignore[arg-type]
    assert batch["input_ids"].tolist() == [[0, 1, 2, 3], [10, 11, 12, 0]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]
    assert batch["labels"].tolist() == [[0, 1, 2, 3], [10, 11, 12, IGNORED]]


def test_packed_starts_positions_anew_and_learns_nothing_across(documents: _Documents) -> None:
    batch = batching.packed(documents, _settings(), _InOrder())  # type: ignore[arg-type]
    assert batch["input_ids"].tolist() == [[0, 1, 2, 3, 10, 11]]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 3, 0, 1]]
    assert batch["labels"].tolist() == [[IGNORED, 1, 2, 3, IGNORED, 11]]


def test_a_budget_counts_unpadded_tokens(documents: _Documents) -> None:
    """4 + 3 tokens fit into 8, and 2 more would not: but two rows of 4 positions are computed, the budget whole."""
    batch = batching.token_budget(documents, _settings(sequence_length=4, batch_size=2), _InOrder())  # type: ignore[arg-type]
    assert batch["attention_mask"].sum() == 7
    assert batch["input_ids"].shape == (2, 4)


def test_a_batch_that_fills_its_budget_is_whole(documents: _Documents) -> None:
    """4 + 3 tokens are 7, which is what there is."""
    given = _settings(sequence_length=7, batch_size=1)
    assert batching.token_budget(documents, given, _InOrder())["input_ids"].shape == (2, 4)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("place", "length", "tokens"),
    [
        (0, 6, [0, 1, 2, 3]),
        (1, 6, [10, 11, 12]),
        # cut at the sequence length
        (0, 3, [0, 1, 2]),
        # one token alone teaches nothing: with the next one, or at the end of all the one before
        (2, 6, [20, 30]),
        (3, 6, [20, 30]),
    ],
)
def test_a_document_is_its_own_tokens_up_to_the_length(place: int, length: int, tokens: list[int]) -> None:
    stream: Any = _Documents(4, 3, 1, 1)
    stream.about = SimpleNamespace(documents=4, tokens=9)
    random: Any = SimpleNamespace(integers=lambda low, high: place)
    assert batching._document(stream, _settings(sequence_length=length), random).tolist() == tokens


def test_what_the_device_computes_can_pass_the_budget() -> None:
    """D3's sampler lets one long and many short documents share a batch: 9 unpadded tokens, 24 positions."""
    mask = torch.tensor([[1] * 6, [1] + [0] * 5, [1] + [0] * 5, [1] + [0] * 5])
    evidence = _padded("token-budget", [{"attention_mask": mask}], budget=9)
    assert evidence.holds
    assert evidence.facts["unpadded_tokens"] == [9]
    assert evidence.facts["positions_over_budget"] == pytest.approx(24 / 9)


def test_a_batch_above_its_budget_does_not_hold() -> None:
    assert not _padded("token-budget", [{"attention_mask": torch.ones(2, 8)}], budget=9).holds


@pytest.mark.parametrize("setting", ["padded", "token-budget"])
def test_padding_is_counted(run_trial: Run, setting: str) -> None:
    result = run_trial(batching=setting, batch_size=4)
    facts, figures = result.evidence["batching"]["facts"], result.measured["figures"]
    assert result.outcome is Outcome.OK
    assert 0 < facts["padded_share"] < 1
    assert 0 < figures["useful_share"] <= 1
    assert figures["useful_tokens_per_second"] == pytest.approx(
        result.measured["tokens_per_second"] * figures["useful_share"]
    )


@pytest.mark.parametrize("model", ["tiny", "tiny-gpt2"])
@pytest.mark.parametrize("attention", ["sdpa", "eager", "sdpa-math"])
def test_documents_of_a_row_do_not_see_each_other(run_trial: Run, model: str, attention: str) -> None:
    result = run_trial(batching="packed", model=model, attention=attention)
    facts = result.evidence["batching"]["facts"]
    assert result.outcome is Outcome.OK
    assert facts["documents"] > facts["rows"]
    assert facts["own_logits_moved"] > 0.1
    assert facts["other_documents_moved"] <= 1e-3 * facts["own_logits_moved"]
    assert result.measured["figures"]["useful_share"] == 1


@pytest.mark.parametrize("setting", ["padded", "packed", "token-budget"])
def test_a_batching_that_is_not_used_is_inert(run_trial: Run, setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(batching.BATCHINGS, setting, batching.fixed)  # type: ignore[index]
    assert run_trial(batching=setting).outcome is Outcome.INERT


def test_attention_across_documents_is_inert(run_trial: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions that start anew but a mask that does not: the batch looks packed, and documents leak."""
    from transformers import masking_utils

    monkeypatch.setattr(masking_utils, "find_packed_sequence_indices", lambda *_, **__: None)
    result = run_trial(batching="packed")
    assert result.outcome is Outcome.INERT
    assert "moved the logits of the next" in result.reason


def test_a_kernel_without_masks_is_refused_on_a_gpu() -> None:
    for setting in ("padded", "packed", "token-budget"):
        reason = refused(_gpu((9, 0)), batching=setting, attention="sdpa-flash", precision="bf16")
        assert "takes no mask on a GPU" in str(reason)


@pytest.mark.parametrize("devices", [1, 2])
def test_the_budget_is_that_of_all_devices_that_a_batch_feeds(devices: int) -> None:
    """`parallel=dp` draws one batch for all: each such trial was called inert, above the budget of one device."""
    run = TrainingRun(spec_of(batching="token-budget", batch_size=4), Ranks(), cpu())
    run.devices_fed = devices
    run.config = make_config("tiny", 64)
    make_batches(run)
    evidence = Batching().evidence(run.cell, run)
    assert evidence is not None
    assert evidence.holds, evidence.reason
    assert evidence.facts["budget"] == 4 * 64 * devices
    assert max(evidence.facts["unpadded_tokens"]) > 4 * 64 * (devices - 1)
    run.devices_fed = 1
    assert Batching().evidence(run.cell, run).holds is (devices == 1)  # type: ignore[union-attr]
