"""A parameter's value and gradient, wherever sharding or an engine keeps them. For evidence: outside the window."""

from __future__ import annotations

from typing import Any


def gradient_of(parameter: Any) -> Any:
    """The gradient between backward and the optimizer's step, or None.

    Under DeepSpeed it is gathered: every rank must ask for the same parameters in the same order.
    """
    if parameter.grad is not None or not (hasattr(parameter, "ds_id") or hasattr(parameter, "_hp_mapping")):
        return parameter.grad
    from deepspeed.utils import safe_get_full_grad

    return safe_get_full_grad(parameter)


def shard_of(tensor: Any) -> Any:
    """This rank's part of a tensor that FSDP divides; any other tensor as it is."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def value_of(parameter: Any) -> Any:
    """The weights that this rank holds: all of them, or its shard."""
    if hasattr(parameter, "ds_tensor"):
        return parameter.ds_tensor
    return shard_of(parameter)
