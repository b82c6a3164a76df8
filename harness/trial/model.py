"""Build the model of a trial: real model code from transformers, from a shape, seeded, on the device."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from harness.errors import WorkloadError
from harness.trial.shapes import read_shape

#: In names of a configuration: of heads that the model need not have, and that drop by modules where it has them.
_OF_HEADS = ("summary", "classif", "qa_")


def make_config(model: str, sequence_length: int) -> Any:
    """The transformers configuration of a model, with room for `sequence_length` positions.

    Raises:
        WorkloadError: transformers does not know the model type, or refuses the values.
    """
    from transformers import AutoConfig

    shape = read_shape(model)
    try:
        config = AutoConfig.for_model(shape.model_type, **shape.values)
    except (ValueError, TypeError, KeyError) as error:
        raise WorkloadError(f"model {model!r}: transformers does not accept this configuration ({error})") from None
    if sequence_length > int(config.max_position_embeddings):
        config.max_position_embeddings = sequence_length
    config.use_cache = False
    return config


def make_model(config: Any, *, attention: str | None, dtype: torch.dtype, device: torch.device, seed: int) -> nn.Module:
    """A causal language model with weights drawn from `seed`, in train mode.

    Weights are drawn in fp32 and then rounded, so that a bf16 cell starts from the rounded weights of its fp32 baseline
    and not from other random numbers.
    """
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    with torch.device(device):
        model: nn.Module = AutoModelForCausalLM.from_config(config, attn_implementation=attention, dtype=torch.float32)
    # Said outright: where transformers must guess, it warns at the first loss, and the warning breaks a compiled graph.
    model.loss_type = "ForCausalLM"
    return model.to(dtype).train()


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """The model's repeated blocks (the layers that checkpointing wraps), found as its longest list of modules."""
    lists = [list(module) for module in model.modules() if isinstance(module, nn.ModuleList)]
    return max(lists, key=len, default=[])


def head_of(model: nn.Module) -> nn.Module | None:
    """The output head, where the model says which module it is."""
    find = getattr(model, "get_output_embeddings", None)
    return find() if callable(find) else None


def dropout_of(model: nn.Module) -> str:
    """The first dropout above zero, by its place in the model or in the configuration."""
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0 and module.training:
            return f"{name or 'Dropout'}: p={module.p:g}"
    config = getattr(model, "config", None)
    values = vars(config) if config is not None else {}
    return next(
        (f"{name}={value:g}" for name, value in values.items()
         if ("dropout" in name or "pdrop" in name) and not any(head in name for head in _OF_HEADS)
         and isinstance(value, float) and value > 0), "",
    )  # fmt: skip
