"""Batches of a user's own step: endless, moved to the device whatever their shape, counted, and known by a hash."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, SupportsInt

import torch
from torch import nn

from harness.errors import WorkloadError
from harness.trial.custom import blamed
from harness.trial.parameters import parameters_of

#: Tokens (padding included), samples, and tokens that are not padding. Tokens may lie on the device, where a mask there
#: says so or the user counts there: to read them is to wait for it.
Sizes = tuple[SupportsInt, int, SupportsInt]
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
        WorkloadError: there are none, the first holds no tensor, they cannot be gone through again, or drawing one
            raises.
    """
    passes = 0
    while True:
        count = 0
        for batch in _one_pass(batches, source, file):
            count += 1
            if not passes and count == 1:
                _hold_tensors(batch, source)
            yield batch
        if not count:
            raise WorkloadError(
                f"{source}: the batches ended after one pass and cannot begin again; return a list, a DataLoader, or a "
                "function that begins anew" if passes else f"{source}: there is no batch"
            )  # fmt: skip
        passes += 1
        if ends is not None:
            ends.append(ends[-1] + count if ends else count)


def _hold_tensors(batch: Any, source: str) -> None:
    """Raises where nothing in a batch could be moved, counted or compared between trials."""
    if not tensors(batch):
        raise WorkloadError(
            f"{source}: no tensor was found in the first batch, a {type(batch).__name__}; a batch is a tensor, or "
            "tensors in a mapping, a sequence or a dataclass, or an object with a method to(device); turn numbers and "
            "arrays into tensors in batches, not in loss"
        )


def _one_pass(batches: Iterable[Any] | Callable[[], Iterable[Any]], source: str, file: Path) -> Iterator[Any]:
    with blamed(f"the batches of {source}", file):
        made = batches() if callable(batches) else batches
        if not isinstance(made, Iterable) and not hasattr(made, "__getitem__"):
            kind = type(made).__name__
            raise WorkloadError(f"{source}: the function of batches returned a {kind}; it must return an iterable")
        yield from made


def moved(batch: Any, device: torch.device, *, non_blocking: bool) -> Any:
    """The batch on the device, of the kind that it was; what holds no tensor stays. The user's own is left alone."""

    def move(part: Any) -> Any:
        return moved(part, device, non_blocking=non_blocking)

    if isinstance(batch, torch.Tensor):
        found: Any = batch.to(device, non_blocking=non_blocking)
    elif _stays_on_its_device(batch):
        found = _moved_by_itself(batch, device, non_blocking=non_blocking)
    elif isinstance(batch, Mapping):
        found = _same_kind(batch, {name: move(part) for name, part in batch.items()})
    elif _moves_itself(batch):
        found = _moved_by_itself(batch, device, non_blocking=non_blocking)
    elif dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        found = copy.copy(batch)
        for name, part in _fields(batch):
            object.__setattr__(found, name, move(part))  # a frozen one too
    elif isinstance(batch, list | tuple):
        found = type(batch)(*map(move, batch)) if hasattr(batch, "_fields") else type(batch)(map(move, batch))
    else:
        found = batch
    return found


def _moved_by_itself(batch: Any, device: torch.device, *, non_blocking: bool) -> Any:
    """Some move in place, as PyTorch Geometric's batches do, and may return nothing."""
    made = copy.copy(batch)
    found = made.to(device, non_blocking=True) if non_blocking else made.to(device)
    return made if found is None else found


def _stays_on_its_device(batch: Any) -> bool:
    """Whether it takes what is put into it to a device of its own, as a TensorDict does that was made on one."""
    return _moves_itself(batch) and isinstance(getattr(batch, "device", None), torch.device)


def _same_kind(batch: Mapping[Any, Any], parts: dict[Any, Any]) -> Any:
    """A mapping of the same type, such as a tokenizer's BatchEncoding, whose values are attributes too."""
    if type(batch) is dict or not isinstance(batch, MutableMapping):
        return parts
    made = copy.copy(batch)
    for name, part in parts.items():
        made[name] = part
    return made


def _moves_itself(batch: Any) -> bool:
    """Whether it is of a class of its own that knows how: a PackedSequence, a graph."""
    return callable(getattr(batch, "to", None)) and not isinstance(batch, type)


def _fields(batch: Any) -> list[tuple[str, Any]]:
    return [(each.name, getattr(batch, each.name)) for each in dataclasses.fields(batch) if hasattr(batch, each.name)]


def tensors(batch: Any) -> list[tuple[str, torch.Tensor]]:
    """The tensors of a batch with their names, in its own order."""
    if isinstance(batch, torch.Tensor):
        return [("", batch)]
    found = [(str(name), below, each) for name, part in _parts(batch) for below, each in tensors(part)]
    return [(f"{name}.{below}" if below else name, each) for name, below, each in found]


def _parts(batch: Any) -> Iterable[tuple[Any, Any]]:
    """What a batch is made of, by name."""
    if isinstance(batch, Mapping):
        return batch.items()
    if isinstance(batch, list | tuple):
        return enumerate(batch)
    if isinstance(batch, type):
        return ()
    if dataclasses.is_dataclass(batch):
        return _fields(batch)
    if not _moves_itself(batch):
        return ()
    as_mapping = getattr(batch, "to_dict", None)
    found = as_mapping() if callable(as_mapping) else getattr(batch, "__dict__", {})
    return [(name, part) for name, part in found.items() if isinstance(part, torch.Tensor | Mapping | list | tuple)]


def sizes_of(batch: Any) -> Sizes:
    """Of a batch as the built-in workloads have it."""
    ids = batch["input_ids"]
    mask = batch.get("attention_mask")
    return ids.numel(), len(ids), ids.numel() if mask is None else mask.sum()


def sizes(batch: Any, tokens: Callable[[Any], SupportsInt] | None) -> Sizes:
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
        counted = tokens(batch)
        return counted, samples, counted
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
        digest.update(f"{name} {tuple(part.shape)} {part.dtype}".encode() if not part.is_nested else name.encode())
        for plain in _strided(part.detach().cpu()):
            digest.update(plain.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def _strided(part: torch.Tensor) -> Sequence[torch.Tensor]:
    """A tensor as plain ones: of a sparse one its places and values, of a nested one its parts."""
    if part.is_nested:
        return list(part.unbind())
    if part.layout is torch.strided:
        return (part,)
    placed = part.to_sparse_coo().coalesce()
    return placed.indices(), placed.values()


def weights_hash(model: nn.Module) -> str:
    """16 hexadecimal digits over sums of every parameter: other weights have other sums, wrappers or not."""
    digest = hashlib.sha256()
    named = parameters_of(model)
    sums = [torch.stack([part.detach().double().sum(), part.detach().double().square().sum()])
            for part in named.values() if part.numel()]  # fmt: skip
    names = " ".join(f"{name}{tuple(part.shape)}" for name, part in named.items())
    digest.update(names.encode())
    # nine digits: sums over the same numbers may differ in the last ones between libraries, not between trials
    for first, second in torch.stack(sums).tolist():
        digest.update(f"{first:.9e} {second:.9e}".encode())
    return digest.hexdigest()[:16]
