"""Batches of a user's own step: their masks, their sizes and their kinds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from harness.trial import own_batches
from harness.trial.outcome import Outcome
from harness.trial.spec import TrialResult
from tests.check import test_own_step

STEPS = Path(__file__).with_name("batch_steps.py")
pytestmark = pytest.mark.train


def trial(build: str, **settings: Any) -> TrialResult:
    return test_own_step.trial(build, file=STEPS, **settings)


@pytest.mark.parametrize("build", ["padded_later", "padded_inside", "masked_by_the_loss", "end_to_end"])
def test_a_mask_of_the_step_stays_whatever_kernel_is_asked_for(build: str) -> None:
    """It was dropped where the first batch had no zeros in an `attention_mask` at its top: other losses by 0.01."""
    plain, held = trial(build, attention="sdpa"), trial(build, attention="sdpa-math")
    assert (held.outcome, held.reason) == (Outcome.OK, "")
    assert held.measured["losses"] == pytest.approx(plain.measured["losses"], abs=1e-5)


def test_without_a_mask_a_compiled_model_is_given_none() -> None:
    """Flash takes none, and transformers of some versions writes out the causal one when it is compiled."""
    result = trial("unmasked", attention="sdpa-flash", compile="default")
    assert (result.outcome, result.reason) == (Outcome.OK, "")
    assert "flash" in result.evidence["attention"]["word"]


@pytest.mark.parametrize(
    "batch",
    [
        lambda ids, mask: {"input_ids": ids, "attention_mask": mask},
        lambda ids, mask: ({"picture": torch.zeros(2, 9), "input_ids": ids, "attention_mask": mask}, mask),
    ],
)
def test_tokens_are_the_ids_wherever_they_lie_in_a_batch(batch: Any) -> None:
    mask = torch.tensor([[1, 1, 1], [1, 0, 0]])
    tokens, samples, useful = own_batches.sizes(batch(torch.ones(2, 3).long(), mask), None)
    assert (tokens, samples, int(useful)) == (6, 2, 4)
