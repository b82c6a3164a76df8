"""Floating-point operations of one training step, worked out from the shape.

Conventions (PaLM, arXiv 2204.02311, appendix B, with causal attention counted as half of the square):
a weight of a matrix product costs 2 operations a token forward and 4 backward (2 for the input's gradient, 2 for its
own); the output head counts, embedding look-ups, positions and norms do not; attention costs 2·2·T·H·Q a token and
layer forward over T keys, half of it under a causal mask, and twice that backward; a window narrows T. Frozen weights
have no gradient of their own. Of the experts of a layer those count that a token is sent to.
Model FLOPs are what training needs for each token that is not padding, at the documents' own lengths; hardware FLOPs
are those of each position that the device computes, padding included, and add what the technique makes it do again
(recomputation) or beside (a teacher's forward).
A shape that is not known here has no figure, and the reason why (`UnknownShape`): never one that leaves a part out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn


#: How many sequences there are of each length.
Lengths = Mapping[float, int]


class UnknownShape(Exception):  # noqa: N818 - a state of knowledge, not a fault
    """The operations of this model cannot be counted from its shape; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Weights of matrix products by what happens to them in a step (counts of logical elements)."""

    trained_in_blocks: int = 0
    frozen_in_blocks: int = 0
    trained_head: int = 0
    frozen_head: int = 0
    unknown: str = ""
    """Why this is not all: a part of the model whose products are not known."""


@dataclass(frozen=True, kw_only=True)
class Attention:
    """The attention's own products. `width` is heads times head size (H·Q)."""

    layers: int
    width: float
    length: float
    """Side of the causal square, mean over layers and tokens: the sequence's length where no window narrows it."""


def model_flops_per_token(weights: Weights, attention: Attention) -> float:
    """Operations that a step needs for each token."""
    trained = weights.trained_in_blocks + weights.trained_head
    frozen = weights.frozen_in_blocks + weights.frozen_head
    return 6.0 * trained + 4.0 * frozen + 3.0 * _attention_forward(attention)


def hardware_flops_per_token(weights: Weights, attention: Attention, *, recompute_blocks: bool) -> float:
    """Operations that the device does for each token: with `recompute_blocks`, every block's forward runs twice."""
    again = 2.0 * (weights.trained_in_blocks + weights.frozen_in_blocks) + _attention_forward(attention)
    return model_flops_per_token(weights, attention) + (again if recompute_blocks else 0.0)


def forward_flops_per_token(weights: Weights, attention: Attention) -> float:
    """Operations of a model that runs forward alone."""
    trained = weights.trained_in_blocks + weights.trained_head
    return 2.0 * (trained + weights.frozen_in_blocks + weights.frozen_head) + _attention_forward(attention)


def _attention_forward(attention: Attention) -> float:
    return 2.0 * attention.layers * attention.width * attention.length


def count_weights(model: nn.Module, head: nn.Module | None, config: Any) -> Weights:
    """Count the weights of matrix products in a model: linear layers, transformers' Conv1D, packed 4-bit layers, and
    of experts the share that a token is sent to.

    A tied head is counted once as the head (its other use is a look-up). `config` tells of experts; None: it has none.
    `unknown` names the first part that is none of these.
    """
    counts: Counter[str] = Counter()
    try:
        for module, weight, size in _products(model, config):
            kind = "trained" if weight.requires_grad else "frozen"
            counts[f"{kind}_{'head' if module is head else 'in_blocks'}"] += size
    except UnknownShape as reason:
        return Weights(unknown=str(reason))
    return Weights(**dict[str, Any](counts))


def _products(model: nn.Module, config: Any) -> Iterator[tuple[nn.Module, Any, int]]:
    """Module, weight and weights that act on a token, for every matrix product of a model."""
    for name, module in model.named_modules():
        if getattr(module, "is_causal", True) is False:
            raise UnknownShape(f"{name} attends to both sides, and attention is counted as causal")
        if _is_linear(module):
            yield module, module.weight, _active(name, logical_size(module.weight), config)
        elif not _is_look_up(module):
            for part, weight in module.named_parameters(recurse=False):
                if weight.ndim > 1 and not part.endswith("bias"):
                    yield module, weight, _of_experts(f"{name}.{part}", weight, config)


def _of_experts(name: str, weight: Any, config: Any) -> int:
    """Of a weight that stands in no layer: experts in one tensor (experts, rows, columns), or what chooses them.

    Raises:
        UnknownShape: it is neither.
    """
    experts, chosen = _experts(config)
    if experts and len(weight) == experts:
        if weight.ndim == 3:
            return logical_size(weight) * chosen // experts
        if weight.ndim == 2 and weight.shape[1] == getattr(config, "hidden_size", None):
            return logical_size(weight)
    raise UnknownShape(f"what is computed with {name} {tuple(weight.shape)} is not known")


def _active(name: str, size: int, config: Any) -> int:
    """The share of a layer that acts on a token: of one among experts, those chosen over all."""
    if "experts" not in name.split("."):
        return size
    experts, chosen = _experts(config)
    if not experts:
        raise UnknownShape(f"how many experts a token is sent to is not known, of which {name} is one")
    return size * chosen // experts


def _experts(config: Any) -> tuple[int, int]:
    """Experts of a layer, and how many of them a token is sent to, by transformers' names; (0, 0): not told."""
    names = ("num_local_experts", "num_experts", "n_routed_experts")
    experts = next((found for name in names if (found := getattr(config, name, None))), 0)
    chosen = getattr(config, "num_experts_per_tok", None)
    return (int(experts), int(chosen)) if experts and chosen else (0, 0)


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


def _is_linear(module: Any) -> bool:
    from torch import nn

    return isinstance(module, nn.Linear) or any(base.__name__ == "Conv1D" for base in type(module).__mro__)


def _is_look_up(module: Any) -> bool:
    from torch import nn

    return isinstance(module, nn.Embedding)


def attention_of(config: Any, lengths: Lengths) -> Attention:
    """The attention of a transformers configuration over sequences of these lengths.

    Raises:
        UnknownShape: it does not tell heads, layers and hidden size, or a layer's kind is not known.
    """
    try:
        heads, layers = int(config.num_attention_heads), int(config.num_hidden_layers)
        width = heads * _head_size(config, heads)
    except (AttributeError, TypeError):
        raise UnknownShape("it has no configuration with heads, layers and hidden size") from None
    sides = [_side(config, kind, lengths) for kind in _kinds(config, layers)]
    return Attention(layers=layers, width=width, length=sum(sides) / layers)


def _head_size(config: Any, heads: int) -> float:
    """Mean of a head's size in the product with the keys and in that with the values."""
    if hasattr(config, "qk_nope_head_dim"):  # multi-head latent attention, DeepSeek-V2 (arXiv 2405.04434)
        return float(config.qk_nope_head_dim + config.qk_rope_head_dim + config.v_head_dim) / 2
    return float(getattr(config, "head_dim", None) or int(config.hidden_size) // heads)


def _kinds(config: Any, layers: int) -> list[str]:
    """What each layer attends to, in transformers' words."""
    named = getattr(config, "layer_types", None) or getattr(config, "attention_layers", None)
    if named:
        return [str(kind) for kind in named]
    narrow = getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", None) is not False
    return ["sliding_attention" if narrow else "full_attention"] * layers


def _side(config: Any, kind: str, lengths: Lengths) -> float:
    """Side of the causal square of a layer, mean over tokens."""
    tokens = sum(length * count for length, count in lengths.items())
    return sum(count * length * _seen(config, kind, length) for length, count in lengths.items()) / tokens


def _seen(config: Any, kind: str, length: float) -> float:
    """Twice the keys that a token of a sequence of `length` sees on average: `length` where it sees all before it."""
    if kind in ("full_attention", "global"):
        return length
    if kind == "chunked_attention":
        chunks, rest = divmod(length, config.attention_chunk_size)
        return float(chunks * config.attention_chunk_size**2 + rest**2) / length
    if kind in ("sliding_attention", "local"):
        window = min(config.sliding_window if kind == "sliding_attention" else config.window_size, length)
        return float(window * (2 - window / length))
    raise UnknownShape(f"a layer of {kind} does something whose operations are not counted here")
