"""Training steps whose batches are of all kinds: each function is a `build`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from harness import TrainingStep

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


def in_windows(device: Any, settings: Mapping[str, Any]) -> Any:
    """Each token sees the four before it alone, by the model's own configuration."""
    from transformers import MistralConfig, MistralForCausalLM

    model = MistralForCausalLM(MistralConfig(
        vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, sliding_window=4,
    ))  # fmt: skip
    made = [torch.randint(0, 64, (ROWS, LENGTH)) for _ in range(6)]
    return model, made, lambda model, ids: model(ids, labels=ids, use_cache=False).loss


def unmasked(device: Any, settings: Mapping[str, Any]) -> Any:
    made = [torch.randint(0, 64, (ROWS, LENGTH)) for _ in range(6)]
    return language_model(), made, lambda model, ids: model(ids, labels=ids, use_cache=False).loss


# -- that have no fp32 gradient to be held against ---------------------------------------------------------------------


def vectors(count: int = 6) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(torch.randn(8, 16), torch.randn(8, 1)) for _ in range(count)]


def squares(model: nn.Module, batch: Any) -> torch.Tensor:
    return functional.mse_loss(model(batch[0]), batch[1])


def regression() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 1))


def plain(device: Any, settings: Mapping[str, Any]) -> Any:
    return regression(), vectors(), squares


def casts_by_itself(device: Any, settings: Mapping[str, Any]) -> Any:
    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        with torch.autocast(device.type, torch.bfloat16):
            return squares(model, batch).float()

    return regression(), vectors(), loss


def draws_noise(device: Any, settings: Mapping[str, Any]) -> Any:
    return (
        regression(),
        vectors(),
        lambda model, batch: squares(model, (batch[0] + torch.randn_like(batch[0]), batch[1])),
    )


def drops_by_function(device: Any, settings: Mapping[str, Any]) -> Any:
    return regression(), vectors(), lambda model, batch: squares(model, (functional.dropout(batch[0]), batch[1]))


KEPT: list[Any] = []


def keeps_its_model(device: Any, settings: Mapping[str, Any]) -> Any:
    """As one that is made at module level: the second call gives what the first has trained."""
    if not KEPT:
        KEPT.append(regression())
    return KEPT[0], vectors(), squares


def draws_on(device: Any, settings: Mapping[str, Any]) -> Any:
    """As from a generator at module level: its second call goes on where the first ended."""
    KEPT.append(None)
    return regression(), [(x + len(KEPT), y) for x, y in vectors()], squares


def rounds_its_weights(device: Any, settings: Mapping[str, Any]) -> Any:
    """Honours precision, so that its weights round otherwise where it is to be fp32."""
    dtype = torch.bfloat16 if settings["precision"] == "bf16" else torch.float32

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        weight = next(model.parameters()).dtype
        return squares(model, (batch[0].to(weight), batch[1].to(weight))).float()

    return TrainingStep(model=regression().to(dtype), batches=vectors(), loss=loss, honours={"precision"})


# -- of uneven size ----------------------------------------------------------------------------------------------------


def loader_that_drops_nothing(device: Any, settings: Mapping[str, Any]) -> Any:
    """20 samples: with batches of 8 the last one of a pass has 4."""
    samples = TensorDataset(torch.randn(20, 16), torch.randn(20, 1))
    return regression(), DataLoader(samples, batch_size=settings["batch_size"]), squares


def uneven_everywhere(device: Any, settings: Mapping[str, Any]) -> Any:
    made = [(torch.randn(rows, 16), torch.randn(rows, 1)) for rows in (8, 5, 8, 3, 7, 8)]
    return regression(), made, squares


def ids_to_shift(device: Any, settings: Mapping[str, Any]) -> Any:
    """One id more than the length: inputs are all but the last, targets all but the first."""
    made = [torch.randint(0, 64, (ROWS, settings["sequence_length"] + 1)) for _ in range(6)]
    model = nn.Sequential(nn.Embedding(64, 16), nn.Linear(16, 64))
    return model, made, lambda model, ids: functional.cross_entropy(model(ids[:, :-1]).mT, ids[:, 1:])


# -- of other kinds ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """A batch with names."""

    x: torch.Tensor
    y: torch.Tensor


class Moving:
    """A batch that knows how to move, in place."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self.x, self.y = x, y

    def to(self, device: torch.device) -> None:
        """Gives nothing back, as some do."""
        self.x, self.y = self.x.to(device), self.y.to(device)


def named_squares(model: nn.Module, batch: Any) -> torch.Tensor:
    return squares(model, (batch.x, batch.y))


def of_a_dataclass(device: Any, settings: Mapping[str, Any]) -> Any:
    return regression(), [Pair(*each) for each in vectors()], named_squares


def that_move_themselves(device: Any, settings: Mapping[str, Any]) -> Any:
    return regression(), [Moving(*each) for each in vectors()], named_squares


def of_a_tokenizer(device: Any, settings: Mapping[str, Any]) -> Any:
    """The loss reads attributes of a BatchEncoding."""
    from transformers import BatchEncoding

    made = [BatchEncoding({"input_ids": torch.randint(0, 64, (ROWS, LENGTH))}) for _ in range(6)]
    return language_model(), made, lambda model, batch: model(batch.input_ids, labels=batch.input_ids).loss


def graph(device: Any, settings: Mapping[str, Any]) -> Any:
    made = [((torch.rand(8, 8) < 0.3).float().to_sparse(), *each) for each in vectors()]
    return regression(), made, lambda model, batch: functional.mse_loss(model(batch[0] @ batch[1]), batch[2])


def without_tensors(device: Any, settings: Mapping[str, Any]) -> Any:
    return regression(), [["a text", 3]] * 6, squares


# -- of the model ------------------------------------------------------------------------------------------------------


def without_a_shape(device: Any, settings: Mapping[str, Any]) -> Any:
    return nn.Sequential(nn.LazyLinear(8), nn.Linear(8, 1)), vectors(), squares


def sparse_gradients(device: Any, settings: Mapping[str, Any]) -> Any:
    made = [torch.randint(0, 64, (ROWS, LENGTH)) for _ in range(6)]
    return TrainingStep(
        model=nn.EmbeddingBag(64, 8, sparse=True), batches=made,
        loss=lambda model, ids: model(ids).square().mean(),
        optimizer=lambda parameters: torch.optim.SparseAdam(list(parameters)),
    )  # fmt: skip
