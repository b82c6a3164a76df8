"""The documents' estimate and the published one, worked out by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from harness.trial.estimator import estimates, printed_bytes, published_bytes
from tests.training import run_trial, settings


def test_the_documents_own_example() -> None:
    """7 billion parameters, length 2048, batch 4, bf16: 14 + 14 + 28 + 4·2048·7·0.001 = 113.344 GB."""
    given = settings(precision="bf16", sequence_length=2048, batch_size=4)
    assert printed_bytes(given, 7_000_000_000) == pytest.approx(113.344e9)


@pytest.mark.parametrize(("changes", "size"), [({}, 4), ({"precision": "tf32"}, 4), ({"precision": "amp-bf16"}, 2)])
def test_bytes_a_parameter_follow_the_precision(changes: dict[str, str], size: int) -> None:
    given = settings(sequence_length=100, batch_size=1, **changes)
    assert printed_bytes(given, 10**9) == pytest.approx(4e9 * size + 0.1e9)


def test_four_bit_weights_count_half_a_byte() -> None:
    given = settings(sequence_length=100, batch_size=1, precision="bf16", lora=8, quantization="nf4")
    assert printed_bytes(given, 10**9) == pytest.approx(4e9 * 0.5 + 0.1e9)


def test_the_published_formula() -> None:
    """s 8, b 2, h 4, a 2, 3 layers, vocabulary 10, 100 bf16 parameters, flash: 34·8·2·4 = 2176 bytes a layer."""
    config = SimpleNamespace(hidden_size=4, num_attention_heads=2, num_hidden_layers=3, vocab_size=10)
    parameters = {"total": 100, "trainable": 100}
    state, logits = 100 * 8, 4 * 8 * 2 * 10

    def estimate(itemsize: int = 2, **changes: str) -> float:
        given = settings(sequence_length=8, batch_size=2, **{"precision": "bf16", **changes})
        return published_bytes(given, config, parameters, itemsize)

    assert estimate() == state + 3 * 2176 + logits
    # attention that writes its matrices out: 5·2·8²·2 = 1280 bytes more a layer
    assert estimate(attention="eager") == estimate(attention="sdpa-math") == state + 3 * (2176 + 1280) + logits
    # recomputed whole, a layer keeps its input: 2·8·2·4 = 128 bytes
    assert estimate(checkpointing="full") == state + 3 * 128 + logits
    # fp32: weights, gradients and moments of 4 bytes, activations twice as large
    assert estimate(4, precision="fp32") == 2 * state + 2 * 3 * 2176 + logits
    # a tenth is trained: gradients and moments for that alone
    assert published_bytes(settings(sequence_length=8, batch_size=2, precision="bf16"), config,
                           {"total": 100, "trainable": 10}, 2) == 200 + 60 + 3 * 2176 + logits  # fmt: skip


@pytest.mark.parametrize(("precision", "state"), [("bf16", 8), ("ds-bf16", 16)])
def test_the_engine_keeps_weights_and_moments_in_fp32_beside_those_of_16_bits(precision: str, state: int) -> None:
    run: Any = SimpleNamespace(
        spec=SimpleNamespace(settings=settings(sequence_length=8, batch_size=2, precision=precision)),
        config=SimpleNamespace(hidden_size=4, num_attention_heads=2, num_hidden_layers=3, vocab_size=10),
        parameter_counts={"total": 100, "trainable": 100}, parameter_dtype=SimpleNamespace(itemsize=2),
    )  # fmt: skip
    assert estimates(run)["published_bytes"] == 100 * state + 3 * 2176 + 4 * 8 * 2 * 10


@pytest.mark.train
def test_both_stand_in_every_training_record() -> None:
    result = run_trial()
    total = result.measured["parameters"]["total"]
    figures = result.measured["figures"]
    assert figures["predicted_bytes"] == pytest.approx(total * 16 + 2 * 64 * total * 0.001)
    assert figures["published_bytes"] > 16 * total
