"""The repeated blocks of a user's model, where its transformers models are, and checkpointing for what these leave."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from harness.techniques.base import Inert
from harness.techniques.checkpointing import enable_checkpointing
from harness.trial.model import blocks_of

if TYPE_CHECKING:
    from harness.trial.own_step import OwnStep

Row = list[nn.Module]
_LISTS = (nn.ModuleList, nn.ModuleDict)
#: They keep nothing that would be worth a second look-up, and take no gradient at their input.
_LOOK_UPS = (nn.Embedding, nn.EmbeddingBag)


def towers(model: nn.Module) -> list[Any]:
    """The transformers models in a model, itself included, that are not part of another one."""
    if hasattr(model, "set_attn_implementation"):
        return [model]
    return _once(tower for child in model.children() for tower in towers(child))


def rows(model: nn.Module) -> list[Row]:
    """The repeated blocks by the list that they stand in, each module once: the layers of each transformers model, and
    outside these every list that is not part of another one. Empty where there are none."""
    inside = [_layers_of(tower) for tower in towers(model)]
    outside = _lists(model)
    if not inside and not outside:
        outside = _longest_sequentials(model)
    place = {id(part): number for number, row in reversed([*enumerate((*inside, *outside))]) for part in row}
    found = (
        [part for part in _once(row) if place[id(part)] == number] for number, row in enumerate((*inside, *outside))
    )
    return [row for row in found if row]


def _layers_of(tower: Any) -> Row:
    """The layers that transformers itself checkpoints; of a model that does not say which, its longest list."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    def outermost(module: nn.Module) -> Iterator[nn.Module]:
        if isinstance(module, GradientCheckpointingLayer):
            yield module
        else:
            for child in module.children():
                yield from outermost(child)

    return list(outermost(tower)) or blocks_of(tower)


def _lists(module: nn.Module) -> list[Row]:
    """What stands in lists that are not part of another one, nor of a transformers model."""
    if hasattr(module, "set_attn_implementation"):
        return []
    if (isinstance(module, nn.ModuleList) or _repeats(module)) and not towers(module):
        return [list(_opened(module.children()))]
    return [row for child in module.children() for row in _lists(child)]


def _opened(parts: Iterable[nn.Module]) -> Iterator[nn.Module]:
    """A list in a list is never called itself: what stands in it is."""
    for part in parts:
        if isinstance(part, _LISTS):
            yield from _opened(part.children())
        elif not isinstance(part, _LOOK_UPS):
            yield part


def _repeats(module: nn.Module) -> bool:
    """Whether it is a Sequential of blocks of one class."""
    classes = {type(part) for part in module.children()}
    if not isinstance(module, nn.Sequential) or len(module) < 2 or len(classes) != 1 or nn.Sequential in classes:
        return False
    return all(_has_parts(part) for part in module)


def _longest_sequentials(model: nn.Module) -> list[Row]:
    """Every Sequential of modules that have parts, the longest first, without those in or around a longer one."""
    found = [each for each in model.modules() if isinstance(each, nn.Sequential) and all(map(_has_parts, each))]
    taken: list[nn.Sequential] = []
    for row in sorted(found, key=len, reverse=True):
        below = {id(module) for module in row.modules()}
        if len(row) and not any(id(row) in map(id, other.modules()) or id(other) in below for other in taken):
            taken.append(row)
    return [list(row.children()) for row in taken]


def _has_parts(module: nn.Module) -> bool:
    return next(module.children(), None) is not None


def _once(modules: Iterable[Any]) -> list[Any]:
    return list({id(module): module for module in modules}.values())


def checkpoint_all(own: OwnStep, *, setting: str, input_gradients: bool) -> None:
    """Recompute the forward of every block in backward: by transformers where it knows the model, else by torch.

    Args:
        own: the step.
        setting: `full` or `reentrant`.
        input_gradients: the reentrant implementation trains a block also where none of its inputs has a gradient.

    Raises:
        Inert: transformers cannot do it for one of the models.
    """
    reentrant = setting == "reentrant"
    inside = set()
    for tower in own.towers:
        inside |= {id(module) for module in tower.modules()}
        try:
            enable_checkpointing(tower, reentrant=reentrant)
        except ValueError as error:
            first = str(error).strip().splitlines()[0]
            raise Inert(f"checkpointing={setting} cannot be set on {own.source}: {first}") from error
    for block in own.blocks():
        if id(block) not in inside:
            again = (_again_with_gradient if input_gradients else _again_reentrant) if reentrant else _again
            block.forward = functools.partial(again, block.forward)


def _again(forward: Callable[..., Any], *inputs: Any, **named: Any) -> Any:
    return checkpoint(forward, *inputs, use_reentrant=False, **named)


def _again_reentrant(forward: Callable[..., Any], *inputs: Any, **named: Any) -> Any:
    """The reentrant implementation takes arguments by position alone, and cuts only those from the graph."""
    count, names = len(inputs), list(named)

    def by_position(*values: Any) -> Any:
        return forward(*values[:count], **dict(zip(names, values[count:], strict=True)))

    return checkpoint(by_position, *inputs, *named.values(), use_reentrant=True)


def _again_with_gradient(forward: Callable[..., Any], *inputs: Any, **named: Any) -> Any:
    """The same with one more input, empty, that asks for a gradient: without any the block would learn nothing."""

    def without(_empty: torch.Tensor, *inputs: Any, **named: Any) -> Any:
        return forward(*inputs, **named)

    return _again_reentrant(without, torch.empty(0, requires_grad=True), *inputs, **named)


_WAYS = (_again, _again_reentrant, _again_with_gradient)


class Watch:
    """Tells of each forward of a block that is checkpointed here, until `remove`."""

    def __init__(self, block: nn.Module, seen: Callable[..., None]) -> None:
        """`seen` is called before each."""
        self._block, self._before = block, block.forward
        wrapped: Any = block.forward

        def watched(*inputs: Any, **named: Any) -> Any:
            seen()
            return wrapped.args[0](*inputs, **named)

        block.forward = functools.partial(wrapped.func, watched)

    def remove(self) -> None:
        """Leave the block as it was."""
        self._block.forward = self._before


def is_checkpointed_here(block: nn.Module) -> bool:
    """Whether its forward is recomputed by what `checkpoint_all` has put around it."""
    forward = vars(block).get("forward")
    return isinstance(forward, functools.partial) and forward.func in _WAYS


def share_of(model: nn.Module, blocks: Iterable[nn.Module]) -> float:
    """Share of the model's parameters that lie in the blocks, each counted once."""
    inside = {part: part.numel() for block in blocks for part in block.parameters()}
    total = sum(part.numel() for part in model.parameters())
    return sum(inside.values()) / total if total else 0.0
