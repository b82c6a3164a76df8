"""Training steps whose batches are of all kinds: each function is a `build`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

ROWS, LENGTH = 4, 16


def padded_ids(*, full: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and their mask; padding in every row unless the batch is full."""
    kept = torch.full((ROWS,), LENGTH) if full else torch.randint(4, LENGTH, (ROWS,))
    mask = (torch.arange(LENGTH)[None] < kept[:, None]).long()
    return torch.randint(1, 64, (ROWS, LENGTH)) * mask, mask


def classifier() -> nn.Module:
    """A small BERT without dropout."""
    from transformers import BertConfig, BertForSequenceClassification

    return BertForSequenceClassification(BertConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, num_labels=3,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )).train()  # fmt: skip


def language_model() -> nn.Module:
    """A small Llama."""
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2,
    ))  # fmt: skip


def padded_later(device: Any, settings: Mapping[str, Any]) -> Any:
    """The first batch happens to be full."""
    made = []
    for index in range(6):
        ids, mask = padded_ids(full=index == 0)
        made.append({"input_ids": ids, "attention_mask": mask, "labels": torch.randint(0, 3, (ROWS,))})
    return classifier(), made, lambda model, batch: model(**batch).loss


def padded_inside(device: Any, settings: Mapping[str, Any]) -> Any:
    """The mask lies in a mapping in a tuple."""
    made = []
    for _ in range(6):
        ids, mask = padded_ids(full=False)
        made.append(({"input_ids": ids, "attention_mask": mask}, torch.randint(0, 3, (ROWS,))))
    return classifier(), made, lambda model, batch: model(**batch[0], labels=batch[1]).loss


def masked_by_the_loss(device: Any, settings: Mapping[str, Any]) -> Any:
    """No batch has a mask: the loss makes it."""
    made = [(padded_ids(full=False)[0], torch.randint(0, 3, (ROWS,))) for _ in range(6)]
    return classifier(), made, lambda model, batch: model(batch[0], attention_mask=(batch[0] > 0), labels=batch[1]).loss


def end_to_end(device: Any, settings: Mapping[str, Any]) -> Any:
    """Two documents in a row, told apart by their positions."""
    positions = torch.cat([torch.arange(6), torch.arange(LENGTH - 6)])[None]
    made = [torch.randint(0, 64, (1, LENGTH)) for _ in range(6)]

    def loss(model: nn.Module, ids: torch.Tensor) -> torch.Tensor:
        return model(ids, labels=ids, position_ids=positions.to(ids.device), use_cache=False).loss

    return language_model(), made, loss


def unmasked(device: Any, settings: Mapping[str, Any]) -> Any:
    made = [torch.randint(0, 64, (ROWS, LENGTH)) for _ in range(6)]
    return language_model(), made, lambda model, ids: model(ids, labels=ids, use_cache=False).loss
