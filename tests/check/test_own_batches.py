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
from tests.check.batch_steps import ROWS

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


@pytest.mark.parametrize(
    ("build", "why"),
    [
        ("casts_by_itself", "the step computes in 16 bits by itself (Linear put out bfloat16, as under autocast)"),
        ("draws_noise", "the loss draws random numbers"),
        ("drops_by_function", "the loss draws random numbers"),
        ("keeps_its_model", "build gives other weights at its second call"),
        ("draws_on", "build gives other data at its second call"),
    ],
)
def test_what_is_no_reference_is_not_compared_with(build: str, why: str) -> None:
    """Each was `fast but different`, by 0.0045 to 1.3."""
    result = trial(build, gradient_check=True)
    assert result.outcome is Outcome.OK
    assert why in result.measured["gradient_check"]["skipped"]


def test_a_step_that_honours_precision_is_compared_in_fp32() -> None:
    """Its weights in bf16 are other numbers than those of the reference, and no other weights."""
    found = trial("rounds_its_weights", precision="bf16", gradient_check=True).measured["gradient_check"]
    assert found["error"] == found["eager_error"]
    assert 1e-4 < found["error"] < 0.05


def test_whether_a_loss_draws_is_noted() -> None:
    assert [trial(build).measured["figures"]["draws"] for build in ("plain", "draws_noise")] == [False, True]


def test_the_last_batch_of_a_pass_may_be_smaller() -> None:
    """It was inert: the mean was compared."""
    result = trial("loader_that_drops_nothing", batch_size=8)
    assert (result.outcome, result.reason) == (Outcome.OK, "")
    assert result.evidence["sequence_length"]["word"] == "8 samples of 1 tokens, 4 in the last batch of a pass"


def test_batches_that_are_smaller_inside_a_pass_are_not_of_the_size() -> None:
    result = trial("uneven_everywhere", batch_size=8)
    assert result.outcome is Outcome.INERT
    assert "batches hold 3 to 8 samples, not batch_size=8 throughout" in result.reason


def test_ids_that_the_loss_shifts_are_one_longer() -> None:
    result = trial("ids_to_shift", sequence_length=32, batch_size=ROWS)
    assert (result.outcome, result.reason) == (Outcome.OK, "")
    assert result.evidence["sequence_length"]["word"] == "4 samples of 33 tokens"
