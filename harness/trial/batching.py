"""How samples become a batch. Every function takes (stream, settings, random) and returns a `Batch` on the CPU.

`fixed` cuts the corpus anywhere, so that no token is padding. The others keep documents whole (cut at the sequence
length): `padded` fills each up to the longest of the batch; `packed` lays them end to end in rows of full length, with
positions that start anew and no attention across; `token-budget` takes documents until their unpadded tokens reach the
budget of batch size times length and then pads them, as D3 does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from harness.experiment.axes import Setting

Tokens = np.ndarray[Any, Any]
#: A batch as the model is called with it: `input_ids`, `labels` (-100 where nothing is learnt), `attention_mask` or
#: `position_ids` where the batching needs one. Shapes (batch, length), int64.
Batch = dict[str, torch.Tensor]
IGNORED = -100


@dataclass(frozen=True, kw_only=True)
class LoaderSettings:
    """The axes of data loading, read from a cell."""

    batching: str
    sequence_length: int
    batch_size: int
    stream: str
    workers: int
    prefetch: int
    pin_memory: bool
    persistent: bool
    start: str
    cost_per_sample_seconds: float

    @classmethod
    def of(cls, settings: Mapping[str, Setting]) -> LoaderSettings:
        names = (
            "batching", "sequence_length", "batch_size", "stream", "workers", "prefetch", "pin_memory", "persistent",
            "start",
        )  # fmt: skip
        cost = float(settings["cost_per_sample_ms"]) / 1e3
        return cls(**{name: settings[name] for name in names}, cost_per_sample_seconds=cost)  # type: ignore[arg-type]


def fixed(stream: Any, settings: LoaderSettings, random: np.random.Generator) -> Batch:
    """`batch_size` windows of `sequence_length` tokens, cut anywhere."""
    length = settings.sequence_length
    starts = random.integers(0, stream.about.tokens - length, settings.batch_size)
    rows = np.stack([np.asarray(stream.tokens(int(start), length), dtype=np.int64) for start in starts])
    ids = torch.from_numpy(rows)
    return {"input_ids": ids, "labels": ids}


def padded(stream: Any, settings: LoaderSettings, random: np.random.Generator) -> Batch:
    """`batch_size` documents, each filled up to the longest."""
    return _pad([_document(stream, settings, random) for _ in range(settings.batch_size)])


def token_budget(stream: Any, settings: LoaderSettings, random: np.random.Generator) -> Batch:
    """Documents until their unpadded tokens would pass batch size times length, then padded."""
    budget = settings.batch_size * settings.sequence_length
    documents: list[Tokens] = []
    while True:
        document = _document(stream, settings, random)
        if documents and sum(map(len, documents)) + len(document) > budget:
            return _pad(documents)
        documents.append(document)


def packed(stream: Any, settings: LoaderSettings, random: np.random.Generator) -> Batch:
    """`batch_size` rows of exactly `sequence_length` tokens: documents end to end, the last one of a row cut."""
    rows = [_packed_row(stream, settings, random) for _ in range(settings.batch_size)]
    ids, labels, positions = (torch.from_numpy(np.stack(parts)) for parts in zip(*rows, strict=True))
    return {"input_ids": ids, "labels": labels, "position_ids": positions}


def _packed_row(stream: Any, settings: LoaderSettings, random: np.random.Generator) -> tuple[Tokens, Tokens, Tokens]:
    length = settings.sequence_length
    pieces: list[Tokens] = []
    while sum(map(len, pieces)) < length:
        pieces.append(_document(stream, settings, random))
    ids = np.concatenate(pieces)[:length]
    positions = np.concatenate([np.arange(len(piece), dtype=np.int64) for piece in pieces])[:length]
    # the first token of a document must not be learnt from the last of another
    return ids, np.where(positions == 0, IGNORED, ids), positions


def _document(stream: Any, settings: LoaderSettings, random: np.random.Generator) -> Tokens:
    index = int(random.integers(0, stream.about.documents))
    start, end = int(stream.documents[index]), int(stream.documents[index + 1])
    length = min(max(end - start, 2), settings.sequence_length)
    start = min(start, stream.about.tokens - length)
    return np.asarray(stream.tokens(start, length), dtype=np.int64)


def _pad(documents: list[Tokens]) -> Batch:
    longest = max(map(len, documents))
    ids = np.zeros((len(documents), longest), dtype=np.int64)
    mask = np.zeros_like(ids)
    for row, document in enumerate(documents):
        ids[row, : len(document)] = document
        mask[row, : len(document)] = 1
    labels = np.where(mask == 1, ids, IGNORED)
    parts = {"input_ids": ids, "labels": labels, "attention_mask": mask}
    return {name: torch.from_numpy(part) for name, part in parts.items()}


BATCHINGS: Mapping[str, Callable[[Any, LoaderSettings, np.random.Generator], Batch]] = {
    "fixed": fixed,
    "padded": padded,
    "packed": packed,
    "token-budget": token_budget,
}
