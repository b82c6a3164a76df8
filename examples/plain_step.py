"""A training step in plain PyTorch: a small language model on bytes, of a size that fits the device.

claimbench check 'checkpointing=full saves 30% to 60% peak memory' --workload examples/plain_step.py:build
claimbench check 'compile=default vs off 1.3x to 2x' --workload examples/plain_step.py:build
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """Attention, then two linear layers, each beside a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, length, width) to the same."""
        heads = self.qkv(self.norm(x)).unflatten(-1, (3, -1, x.shape[-1] // 8)).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(heads[0], heads[1], heads[2], is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.feed(x)


class Model(nn.Module):
    """Bytes in, logits of the next byte out."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(256, width), nn.Linear(width, 256)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """(batch, length) to (batch, length, 256)."""
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def build(device: torch.device, settings: Mapping[str, Any]) -> Any:
    width, layers = (768, 12) if device.type == "cuda" else (64, 4)
    model = Model(width, layers).to(device)
    batches = [torch.randint(0, 256, (settings["batch_size"], settings["sequence_length"])) for _ in range(32)]

    def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(model(batch)[:, :-1].flatten(0, 1), batch[:, 1:].flatten())

    return model, batches, loss
