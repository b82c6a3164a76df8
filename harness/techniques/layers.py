"""Where a model computes matrix products in the cell's own precision: for evidence that looks inside."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn


def product_layer(parts: Iterable[nn.Module]) -> Any:
    """The first layer in `parts` that multiplies by a matrix of the precision that the cell sets; None without one.

    Adapters are left out, which peft keeps in fp32 on weights in 16 bits, and so are packed 4-bit weights: the layers
    of bitsandbytes compute in a type of their own and cast back to that of their input.
    """
    for part in parts:
        for name, module in part.named_modules():
            if _is_matrix(getattr(module, "weight", None)) and "lora_" not in name and _is_plain(module):
                return module
    return None


def product_layers(model: nn.Module) -> list[Any]:
    """All such layers of any model, convolutions included."""
    from torch import nn

    return [
        module for name, module in model.named_modules()
        if (_is_matrix(getattr(module, "weight", None)) or isinstance(module, nn.modules.conv._ConvNd))
        and "lora_" not in name and not isinstance(module, nn.EmbeddingBag) and _is_plain(module)
    ]  # fmt: skip


def _is_matrix(weight: Any) -> bool:
    """Whether a weight is one of a matrix product; ZeRO-3 leaves an empty tensor and keeps the shape beside it."""
    import torch

    return isinstance(weight, torch.Tensor) and len(getattr(weight, "ds_shape", weight.shape)) == 2


def _is_plain(module: nn.Module) -> bool:
    """Neither an embedding, which only looks up, nor 4-bit, itself or inside peft's wrapper."""
    from torch import nn

    return not isinstance(module, nn.Embedding) and not any(hasattr(each, "compute_dtype") for each in module.modules())
