"""Batches of a user's own step: endless, moved to the device whatever their shape, counted, and known by a hash."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from harness.errors import WorkloadError
from harness.trial.custom import blamed

#: Tokens (padding included), samples, and tokens that are not padding: a tensor where a mask on the device says so.
Sizes = tuple[int, int, int | torch.Tensor]
#: Token ids and the like.
_WHOLE = (torch.int64, torch.int32, torch.int16, torch.uint8)


def endless(
    batches: Iterable[Any] | Callable[[], Iterable[Any]], source: str, file: Path, ends: list[int] | None = None
) -> Iterator[Any]:
    """The batches, over and over.

    Args:
        batches: what the user returned; source, file: for words.
        ends: gets the number of batches up to the end of each pass, as soon as it is known.

    Raises:
        WorkloadError: there are none, they cannot be gone through again, or drawing one raises.
    """
    passes = 0
    while True:
        count = 0
        for batch in _one_pass(batches, source, file):
            count += 1
            yield batch
        if not count:
            raise WorkloadError(
                f"{source}: the batches ended after one pass and cannot begin again; return a list, a DataLoader, or a "
                "function that begins anew" if passes else f"{source}: there is no batch"
            )  # fmt: skip
        passes += 1
        if ends is not None:
            ends.append(ends[-1] + count if ends else count)


def _one_pass(batches: Iterable[Any] | Callable[[], Iterable[Any]], source: str, file: Path) -> Iterator[Any]:
    with blamed(f"the batches of {source}", file):
        made = batches() if callable(batches) else batches
        if not isinstance(made, Iterable) and not hasattr(made, "__getitem__"):
            kind = type(made).__name__
            raise WorkloadError(f"{source}: the function of batches returned a {kind}; it must return an iterable")
        yield from made


def moved(batch: Any, device: torch.device, *, non_blocking: bool) -> Any:
    """The batch on the device: a tensor, or tensors in mappings and sequences; what is none stays."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=non_blocking)
    if isinstance(batch, Mapping):
        return {name: moved(part, device, non_blocking=non_blocking) for name, part in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(moved(part, device, non_blocking=non_blocking) for part in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(moved(part, device, non_blocking=non_blocking) for part in batch)
    return batch


def tensors(batch: Any) -> list[tuple[str, torch.Tensor]]:
    """The tensors of a batch with their names, in its own order."""
    if isinstance(batch, torch.Tensor):
        return [("", batch)]
    parts: Iterable[tuple[Any, Any]] = ()
    if isinstance(batch, Mapping):
        parts = batch.items()
    elif isinstance(batch, list | tuple):
        parts = enumerate(batch)
    return [(f"{name}.{below}" if below else str(name), each) for name, part in parts for below, each in tensors(part)]


def sizes_of(batch: Any) -> Sizes:
    """Of a batch as the built-in workloads have it."""
    ids = batch["input_ids"]
    mask = batch.get("attention_mask")
    return ids.numel(), len(ids), ids.numel() if mask is None else mask.sum()


def sizes(batch: Any, tokens: Callable[[Any], int] | None) -> Sizes:
    """Of any batch; `tokens` counts them where the user says how.

    Where a batch holds no whole numbers (pictures) its samples count in place of tokens.
    """
    parts = tensors(batch)
    ids = _named(parts, "input_ids")
    if ids is None:
        ids = next((part for _, part in parts if part.dtype in _WHOLE and part.ndim > 1), None)
    first = ids if ids is not None else parts[0][1] if parts else None
    samples = len(first) if first is not None and first.ndim else 1
    if tokens is not None:
        count = int(tokens(batch))
        return count, samples, count
    count = ids.numel() if ids is not None else samples
    mask = _named(parts, "attention_mask")
    return count, samples, count if mask is None or mask.shape != getattr(ids, "shape", None) else mask.sum()


def _named(parts: Iterable[tuple[str, torch.Tensor]], wanted: str) -> torch.Tensor | None:
    """The first tensor of that name, wherever it lies in the batch; None where there is none."""
    return next((part for name, part in parts if name.rpartition(".")[2] == wanted), None)


def batch_hash(batch: Any) -> str:
    """16 hexadecimal digits over names, shapes and values."""
    digest = hashlib.sha256()
    for name, part in tensors(batch):
        plain = part.detach().cpu().contiguous()
        digest.update(f"{name} {tuple(plain.shape)} {plain.dtype}".encode())
        digest.update(plain.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def weights_hash(model: nn.Module) -> str:
    """16 hexadecimal digits over sums of every parameter: other weights have other sums."""
    digest = hashlib.sha256()
    sums = [torch.stack([part.detach().double().sum(), part.detach().double().square().sum()])
            for part in model.parameters() if part.numel()]  # fmt: skip
    names = " ".join(f"{name}{tuple(part.shape)}" for name, part in model.named_parameters())
    digest.update(names.encode())
    # nine digits: sums over the same numbers may differ in the last ones between libraries, not between trials
    for first, second in torch.stack(sums).tolist():
        digest.update(f"{first:.9e} {second:.9e}".encode())
    return digest.hexdigest()[:16]
