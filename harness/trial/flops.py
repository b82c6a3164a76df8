"""Floating-point operations of one training step, worked out from the shape.

Conventions (PaLM, arXiv 2204.02311, appendix B, with causal attention counted as half of the square):
a weight of a matrix product costs 2 operations a token forward and 4 backward (2 for the input's gradient, 2 for its
own); the output head counts, embedding look-ups, positions and norms do not; attention costs 2·2·T·H·Q a token and
layer forward over T keys, half of it under a causal mask, and twice that backward. Frozen weights have no gradient of
their own.
Model FLOPs are what training needs; hardware FLOPs add what the technique makes the device do again (recomputation).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Weights of matrix products by what happens to them in a step (counts of logical elements)."""

    trained_in_blocks: int = 0
    frozen_in_blocks: int = 0
    trained_head: int = 0
    frozen_head: int = 0


@dataclass(frozen=True, kw_only=True)
class Attention:
    """The attention's own products. `width` is heads times head size (H·Q)."""

    layers: int
    width: int
    length: int


def model_flops_per_token(weights: Weights, attention: Attention) -> float:
    """Operations that a step needs for each token."""
    trained = weights.trained_in_blocks + weights.trained_head
    frozen = weights.frozen_in_blocks + weights.frozen_head
    return 6.0 * trained + 4.0 * frozen + 3.0 * _attention_forward(attention)


def hardware_flops_per_token(weights: Weights, attention: Attention, *, recompute_blocks: bool) -> float:
    """Operations that the device does for each token: with `recompute_blocks`, every block's forward runs twice."""
    again = 2.0 * (weights.trained_in_blocks + weights.frozen_in_blocks) + _attention_forward(attention)
    return model_flops_per_token(weights, attention) + (again if recompute_blocks else 0.0)


def _attention_forward(attention: Attention) -> float:
    return 2.0 * attention.layers * attention.width * attention.length


def count_weights(model: nn.Module, head: nn.Module | None) -> Weights:
    """Count the weights of matrix products in a model: linear layers, transformers' Conv1D, packed 4-bit layers.

    A tied head is counted once as the head (its other use is a look-up).
    """
    counts = {"trained_in_blocks": 0, "frozen_in_blocks": 0, "trained_head": 0, "frozen_head": 0}
    for module in model.modules():
        size = _matrix_size(module)
        if size:
            trained = module.weight.requires_grad
            counts[f"{'trained' if trained else 'frozen'}_{'head' if module is head else 'in_blocks'}"] += size
    return Weights(**counts)


def logical_size(parameter: Any) -> int:
    """Elements that a parameter stands for: packed 4-bit weights hold two in a byte, ZeRO-3 keeps the whole's size."""
    state = getattr(parameter, "quant_state", None)
    if state is not None:
        return int(state.shape.numel())
    if hasattr(parameter, "ds_numel"):
        return int(parameter.ds_numel)
    return int(parameter.numel())


def count_parameters(model: nn.Module) -> dict[str, int]:
    """`total` and `trainable` parameters by logical size, a tied one once."""
    everything = list(model.parameters())
    return {
        "total": sum(logical_size(parameter) for parameter in everything),
        "trainable": sum(logical_size(parameter) for parameter in everything if parameter.requires_grad),
    }


def _matrix_size(module: Any) -> int:
    from torch import nn

    names = {type(module).__name__, *(base.__name__ for base in type(module).__mro__)}
    if isinstance(module, nn.Linear) or "Conv1D" in names:
        return logical_size(module.weight)
    return 0


def attention_of(config: Any, length: int) -> Attention:
    """The attention of a transformers configuration at a sequence length."""
    heads = int(config.num_attention_heads)
    head_size = getattr(config, "head_dim", None) or int(config.hidden_size) // heads
    return Attention(layers=int(config.num_hidden_layers), width=heads * int(head_size), length=length)
