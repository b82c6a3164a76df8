"""The built-in models as shapes: no weights, no downloads. Sizes are those of the configurations named beside each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import WorkloadError, suggestion
from harness.experiment.workloads import read_config


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What transformers needs to build a causal language model: a model type and its configuration's values."""

    model_type: str
    values: Mapping[str, Any] = field(default_factory=dict)


# Dropout is 0 everywhere: the loss of a cell is compared with its baseline's step by step, and a random mask that
# depends on the kernel's own random numbers would hide a real difference.
_GPT2 = {"vocab_size": 50257, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}

SHAPES: Mapping[str, Shape] = {
    # For a CPU and for tests: every code path of a Llama (grouped key/value heads, gate) in a fraction of a megabyte.
    "tiny": Shape(
        model_type="llama",
        values={
            "vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": True,
        },
    ),
    "tiny-gpt2": Shape(
        model_type="gpt2",
        values={
            **_GPT2, "vocab_size": 512, "n_embd": 64, "n_layer": 2, "n_head": 4, "bos_token_id": 0, "eos_token_id": 0,
        },
    ),
    # openai-community/gpt2 and gpt2-medium
    "gpt2-124m": Shape(model_type="gpt2", values={**_GPT2, "n_embd": 768, "n_layer": 12, "n_head": 12}),
    # The same with its vocabulary padded to a multiple of 64, as training scripts do: with 50257 columns the head's
    # products miss the tensor cores' fast kernels (on an H100 in bf16 a third of the step's time).
    "gpt2-124m-padded": Shape(
        model_type="gpt2", values={**_GPT2, "vocab_size": 50304, "n_embd": 768, "n_layer": 12, "n_head": 12}
    ),
    "gpt2-350m": Shape(model_type="gpt2", values={**_GPT2, "n_embd": 1024, "n_layer": 24, "n_head": 16}),
    # Qwen/Qwen2-0.5B
    "qwen2-0.5b": Shape(
        model_type="qwen2",
        values={
            "vocab_size": 151936, "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
            "num_attention_heads": 14, "num_key_value_heads": 2, "tie_word_embeddings": True,
        },
    ),
    # meta-llama/Llama-3.2-1B
    "llama-1b": Shape(
        model_type="llama",
        values={
            "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
            "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "tie_word_embeddings": True,
        },
    ),
}  # fmt: skip


def read_shape(model: str) -> Shape:
    """The shape of a built-in name, a `config.json` or a local model folder.

    Raises:
        WorkloadError: unknown name, unreadable file, no `model_type`, or a configuration that wants to run code.
    """
    if model in SHAPES:
        return SHAPES[model]
    path = Path(model)
    path = path / "config.json" if path.is_dir() else path
    if path.suffix != ".json":
        raise WorkloadError(f"unknown model {model!r}{suggestion(model, SHAPES)}, or give the path of a config.json")
    if not path.is_file():
        raise WorkloadError(f"model {model!r}: there is no file {path}; give the path of a config.json")
    values, problem = read_config(path)
    if problem is not None:
        raise WorkloadError(f"model {model!r}: {path}: {problem}")
    return Shape(model_type=values["model_type"], values={k: v for k, v in values.items() if k != "model_type"})
