"""How much memory training should need: the documents' formula, and the published one, beside what is measured.

D3 (`estimate_memory_usage`): GB = params·bytes·(1 + 1 + 2) + batch·length·params·0.001, params in billions: weights,
gradients and two optimizer states in the same precision, and an activation term that knows no model.

Published (Korthikanti et al., arXiv 2205.05198, table 2): a layer keeps 34·s·b·h bytes of 16-bit activations, and
5·a·s²·b where attention writes its matrices out; recomputed whole, it keeps its input, 2·s·b·h. Logits in fp32 come on
top.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from harness.experiment.axes import Setting

if TYPE_CHECKING:
    from harness.trial.training import TrainingRun

GB = 1e9
#: D3's bytes a parameter. Autocast is what its `precision` names in the Trainer that it configures.
_PRINTED_BYTES: Mapping[str, float] = {"fp32": 4, "tf32": 4}
_HALF = 2
_FOUR_BITS = 0.5
#: Attention implementations that write the matrix of scores to memory.
_WRITTEN_OUT = ("eager", "sdpa-math")
_SIZES = ("hidden_size", "num_attention_heads", "num_hidden_layers")
#: DeepSpeed keeps fp32 master weights and moments beside 16-bit weights and gradients: 16 bytes, as under autocast.
_ENGINE_ITEMSIZE = 4
#: Weights, gradients, two moments of Adam.
_STATES_TRAINED = 4


def printed_bytes(settings: Mapping[str, Setting], parameters: int) -> float:
    """D3's estimate for a cell, in bytes."""
    size = _PRINTED_BYTES.get(str(settings["precision"]), _HALF)
    if settings.get("quantization", "none") == "nf4":
        size = _FOUR_BITS
    billions = parameters / 1e9
    activations = int(settings["batch_size"]) * int(settings["sequence_length"]) * billions * 0.001
    return (billions * size * (1 + 1 + 2) + activations) * GB


def published_bytes(
    settings: Mapping[str, Setting], config: Any, parameters: Mapping[str, int], itemsize: int
) -> float:
    """State, activations by the published formula, and logits, in bytes.

    Args:
        settings: of the cell.
        config: transformers' configuration of the model.
        parameters: `total` and `trainable`.
        itemsize: bytes that a weight is stored in.
    """
    length, batch = int(settings["sequence_length"]), int(settings["batch_size"])
    hidden, heads, layers = (int(getattr(config, name)) for name in _SIZES)
    in_half_precision = str(settings["precision"]) not in _PRINTED_BYTES
    scale = 1 if in_half_precision else 2
    if settings.get("checkpointing", "off") != "off":
        a_layer = 2 * length * batch * hidden
    else:
        a_layer = 34 * length * batch * hidden
        if settings["attention"] in _WRITTEN_OUT:
            a_layer += 5 * heads * length * length * batch
    state = itemsize * (parameters["total"] + (_STATES_TRAINED - 1) * parameters["trainable"])
    logits = 4 * length * batch * int(config.vocab_size)
    return float(state + scale * a_layer * layers + logits)


def estimates(run: TrainingRun) -> dict[str, float]:
    """Both, as figures of a training trial."""
    settings, counts = run.spec.settings, run.parameter_counts
    itemsize = _ENGINE_ITEMSIZE if settings["precision"] == "ds-bf16" else run.parameter_dtype.itemsize
    return {
        "predicted_bytes": printed_bytes(settings, counts["total"]),
        "published_bytes": published_bytes(settings, run.config, counts, itemsize),
    }
