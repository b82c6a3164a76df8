"""FLOPs against numbers worked out by hand, and against torch's own counter on a meta copy."""

from __future__ import annotations

import pytest

from harness.trial.flops import Attention, Weights, hardware_flops_per_token, model_flops_per_token

pytestmark = pytest.mark.train

#: By hand. GPT-2 124M: 12 layers of 768*(3*768) + 768*768 + 2*768*3072 = 7,077,888 weights, head 768 * 50257.
GPT2_BLOCKS = 12 * 7_077_888
GPT2_HEAD = 768 * 50_257
#: Llama-3.2-1B: 16 layers of 2048*2048 (q) + 2*2048*512 (k, v) + 2048*2048 (o) + 3*2048*8192, head 2048 * 128256.
LLAMA_BLOCKS = 16 * (2 * 2048 * 2048 + 2 * 2048 * 512 + 3 * 2048 * 8192)
LLAMA_HEAD = 2048 * 128_256


def count(model: str, length: int) -> tuple[Weights, Attention, float]:
    """Weights, attention, and what FlopCounterMode counts for one training step of one sample, a token."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from harness.trial.flops import attention_of, count_weights
    from harness.trial.model import head_of, make_config, make_model

    config = make_config(model, length)
    meta = torch.device("meta")
    built = make_model(config, attention="eager", dtype=torch.float32, device=meta, seed=0)
    ids = torch.zeros((1, length), dtype=torch.long, device=meta)
    positions = torch.arange(length, device=meta)[None]
    # an explicit mask: making one looks at values, which a meta tensor has not
    mask = torch.zeros((1, 1, length, length), device=meta)
    with FlopCounterMode(display=False) as counter:
        built(input_ids=ids, labels=ids, position_ids=positions, attention_mask=mask, use_cache=False).loss.backward()
    return count_weights(built, head_of(built)), attention_of(config, length), counter.get_total_flops() / length


@pytest.mark.parametrize(
    ("model", "blocks", "head"), [("gpt2-124m", GPT2_BLOCKS, GPT2_HEAD), ("llama-1b", LLAMA_BLOCKS, LLAMA_HEAD)]
)
def test_flops_agree_with_hand_and_counter(model: str, blocks: int, head: int) -> None:
    length = 1024
    weights, attention, counted = count(model, length)
    assert weights == Weights(trained_in_blocks=blocks, trained_head=head)
    ours = model_flops_per_token(weights, attention)
    assert ours == 6 * (blocks + head) + 6 * attention.layers * attention.width * length
    # the counter knows no causal mask: it counts the whole square, we count half of it
    assert counted == pytest.approx(ours + 6 * attention.layers * attention.width * length, rel=1e-3)


def test_a_published_figure_gpt2_124m_at_1024() -> None:
    weights = Weights(trained_in_blocks=GPT2_BLOCKS, trained_head=GPT2_HEAD)
    attention = Attention(layers=12, width=768, length=1024)
    assert model_flops_per_token(weights, attention) == 741_192_192 + 56_623_104


def test_frozen_weights_take_no_gradient_of_their_own() -> None:
    frozen = Weights(frozen_in_blocks=1000, trained_in_blocks=10)
    assert model_flops_per_token(frozen, Attention(layers=0, width=0, length=0)) == 4 * 1000 + 6 * 10


def test_recomputation_counts_in_hardware_flops_alone() -> None:
    weights = Weights(trained_in_blocks=1000, trained_head=100)
    attention = Attention(layers=2, width=8, length=16)
    model = model_flops_per_token(weights, attention)
    assert model == 6 * 1100 + 6 * 2 * 8 * 16
    assert hardware_flops_per_token(weights, attention, recompute_blocks=False) == model
    # the blocks' forward once more: 2 a weight, and 2·L·H·Q·T of attention; the head is not recomputed
    assert hardware_flops_per_token(weights, attention, recompute_blocks=True) == model + 2 * 1000 + 2 * 2 * 8 * 16
