"""FLOPs against numbers worked out by hand, and against torch's own counter on a meta copy."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

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
    weights = count_weights(built, head_of(built), config)
    return weights, attention_of(config, {length: 1}), counter.get_total_flops() / length


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


@pytest.mark.parametrize(
    ("model", "parameters", "heads", "head_size"),
    [
        ("gpt2-124m", 124_439_808, 12, 64),
        ("gpt2-124m-padded", 124_439_808 + 47 * 768, 12, 64),
        ("gpt2-350m", 354_823_168, 16, 64),
        ("qwen2-0.5b", 494_032_768, 14, 64),
        ("llama-1b", 1_235_814_400, 32, 64),
    ],
)
def test_a_shape_is_that_of_the_model_that_it_is_named_after(
    model: str, parameters: int, heads: int, head_size: int
) -> None:
    """As the published checkpoints have them. How wide a head is changes no count, and the speed of attention."""
    import torch

    from harness.trial.model import make_config, make_model

    config = make_config(model, 1024)
    built = make_model(config, attention="eager", dtype=torch.float32, device=torch.device("meta"), seed=0)
    assert sum(each.numel() for each in built.parameters()) == parameters
    assert (config.num_attention_heads, config.hidden_size // heads) == (heads, head_size)


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


def shape(model_type: str, **values: Any) -> Any:
    """A configuration of two layers of 64, 4 heads of 16, 2 of keys and values, 512 tokens."""
    from transformers import AutoConfig

    small = {"vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
             "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512}  # fmt: skip
    return AutoConfig.for_model(model_type, **{**small, **values})


def built(config: Any) -> Any:
    import torch

    from harness.trial.model import make_model

    return make_model(config, attention="eager", dtype=torch.float32, device=torch.device("cpu"), seed=0)


def weights_of(config: Any) -> Weights:
    from harness.trial.flops import count_weights
    from harness.trial.model import head_of

    model = built(config)
    return count_weights(model, head_of(model), config)


#: q and o 64 * 64 each, k and v 64 * 32 each.
PROJECTIONS = 2 * 64 * 64 + 2 * 64 * 32
HEAD = 64 * 512


@pytest.mark.parametrize(
    ("config", "block"),
    [
        # each token: the router's 8 * 64, and 2 of 8 experts of 3 * 64 * 128
        (("mixtral", {"num_local_experts": 8, "num_experts_per_tok": 2}), 8 * 64 + 2 * 3 * 64 * 128),
        # and a shared expert of 3 * 64 * 96 with its gate of 64 beside 4 of 16 of 3 * 64 * 32
        (
            ("qwen2_moe", {"num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 32,
                           "shared_expert_intermediate_size": 96}),
            16 * 64 + 4 * 3 * 64 * 32 + 3 * 64 * 96 + 64,
        ),
    ],
)  # fmt: skip
def test_of_experts_those_count_that_a_token_is_sent_to(config: tuple[str, Mapping[str, Any]], block: int) -> None:
    name, values = config
    assert weights_of(shape(name, **values)) == Weights(trained_in_blocks=2 * (PROJECTIONS + block), trained_head=HEAD)


def test_of_experts_that_are_layers_too() -> None:
    """2 of 4, each of 4 * 4; some releases of transformers, and models of users, keep them in a list."""
    from torch import nn

    from harness.trial.flops import count_weights

    model = nn.ModuleDict({"experts": nn.ModuleList(nn.Linear(4, 4, bias=False) for _ in range(4))})
    config = SimpleNamespace(num_experts=4, num_experts_per_tok=2)
    assert count_weights(model, None, config) == Weights(trained_in_blocks=2 * 16)


def test_a_parameter_that_zero_3_has_divided_counts_whole() -> None:
    import torch

    from harness.trial.flops import count_parameters

    layer = torch.nn.Linear(4, 3, bias=False)
    layer.weight = torch.nn.Parameter(torch.empty(0))
    layer.weight.ds_numel = 12  # type: ignore[attr-defined]
    assert count_parameters(layer) == {"total": 12, "trainable": 12}


def test_active_experts_agree_with_torchs_counter() -> None:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    config = shape("mixtral", num_local_experts=8, num_experts_per_tok=2)
    config._experts_implementation = "eager"  # the counter does not know grouped products
    model, ids = built(config), torch.zeros((1, 128), dtype=torch.long)
    with FlopCounterMode(display=False) as counter:
        model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
    # attention counted as the whole square
    products = counter.get_total_flops() / 128 - 2 * 6 * 2 * 64 * 128
    ours = model_flops_per_token(weights_of(config), Attention(layers=0, width=0, length=0))
    assert ours == pytest.approx(products, rel=1e-4)  # transformers 5.17 rotates positions by a product, too: 16


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ({"experts": {"0": (4, 4)}}, "how many experts a token is sent to is not known, of which experts.0 is one"),
        ({"mixer": None}, r"what is computed with mixer.weight \(3, 4, 5\) is not known"),
    ],
)
def test_products_that_are_not_known_have_no_figure(layers: dict[str, Any], words: str) -> None:
    import re

    import torch
    from torch import nn

    from harness.trial.flops import count_weights

    model = nn.Module()
    for name, parts in layers.items():
        part = nn.ModuleDict({key: nn.Linear(*size) for key, size in parts.items()}) if parts else nn.Module()
        if not parts:
            part.weight = nn.Parameter(torch.zeros(3, 4, 5))
        model.add_module(name, part)
    model.add_module("rest", nn.Linear(8, 8))
    found = count_weights(model, None, None)
    assert re.fullmatch(words, found.unknown)
    assert found == Weights(unknown=found.unknown), "no part of a sum that lacks a part"


def test_attention_to_both_sides_has_no_figure() -> None:
    assert "counted as causal" in weights_of(shape("bert")).unknown


def side(config: Any, lengths: dict[float, int]) -> float:
    from harness.trial.flops import attention_of

    return attention_of(config, lengths).length


@pytest.mark.parametrize("length", [8, 16, 17, 128])
def test_a_window_is_as_wide_as_the_keys_that_it_shows(length: int) -> None:
    config = shape("mistral", sliding_window=16)
    keys = sum(min(position, 16) for position in range(1, length + 1))
    # of T² / 2 the convention counts no diagonal: half a key a row of the square that is left
    assert side(config, {length: 1}) * length / 2 == pytest.approx(keys - min(length, 16) / 2)


def test_layers_of_several_kinds_each_count_what_they_see() -> None:
    config = shape("gemma2", sliding_window=16, head_dim=16)
    assert config.layer_types == ["sliding_attention", "full_attention"]
    assert side(config, {128: 1}) == pytest.approx((16 * (2 - 16 / 128) + 128) / 2)
    assert side(shape("qwen2", sliding_window=16), {128: 1}) == 128, "use_sliding_window is off there"


def test_chunks_see_nothing_of_the_one_before() -> None:
    config = shape("llama")
    config.layer_types, config.attention_chunk_size = ["chunked_attention"] * 2, 48
    assert side(config, {128: 1}) == pytest.approx((2 * 48**2 + 32**2) / 128)


def test_lengths_count_by_their_tokens() -> None:
    # 3 of 10 tokens and 1 of 90: 10 keys for 30 tokens, 90 for 90
    assert side(shape("llama"), {10: 3, 90: 1}) == pytest.approx((30 * 10 + 90 * 90) / 120)


def test_latent_attention_has_heads_of_two_sizes() -> None:
    from transformers import AutoConfig

    from harness.trial.flops import attention_of

    config = AutoConfig.for_model("deepseek_v3")
    assert attention_of(config, {64: 1}).width == config.num_attention_heads * ((128 + 64) + 128) / 2


@pytest.mark.parametrize("name", ["mamba", "qwen3_next"])
def test_layers_without_attention_have_no_figure(name: str) -> None:
    from transformers import AutoConfig

    from harness.trial.flops import UnknownShape, attention_of

    with pytest.raises(UnknownShape):
        attention_of(AutoConfig.for_model(name), {64: 1})
