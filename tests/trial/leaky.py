"""A training step that keeps one tensor of a mebibyte from each step of a batch of two, and nothing from others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional

KEPT_BYTES = 1 << 20
kept: list[torch.Tensor] = []


def build(device: torch.device, settings: Mapping[str, Any]) -> Any:
    model = nn.Linear(16, 16, device=device)
    batches = [torch.randn(settings["batch_size"], 16) for _ in range(8)]

    def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        if settings["batch_size"] == 2:
            kept.append(torch.zeros(KEPT_BYTES, dtype=torch.uint8, device=device))
        return functional.mse_loss(model(batch), batch)

    return model, batches, loss
