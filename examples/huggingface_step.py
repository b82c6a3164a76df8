"""A Hugging Face model, built from a configuration of a size that fits the device; nothing is downloaded.

claimbench check 'attention=sdpa vs eager >= 1.5x' --workload examples/huggingface_step.py:build
claimbench check 'lora=8 >= 90% fewer trainable parameters' --workload examples/huggingface_step.py:build
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM


def build(device: torch.device, settings: Mapping[str, Any]) -> Any:
    width, layers = (768, 12) if device.type == "cuda" else (64, 4)
    config = LlamaConfig(
        vocab_size=1024, hidden_size=width, intermediate_size=4 * width, num_hidden_layers=layers,
        num_attention_heads=width // 16 if device.type == "cpu" else width // 64,
    )  # fmt: skip
    model = LlamaForCausalLM(config).to(device)
    batches = [torch.randint(0, 1024, (settings["batch_size"], settings["sequence_length"])) for _ in range(32)]
    return model, batches, lambda model, batch: model(input_ids=batch, labels=batch, use_cache=False).loss
