"""One stage of a divided model. Imported only where a model is divided: torch is needed from the first line on."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from harness.errors import EnvironmentProblem
from harness.trial.model import blocks_of

#: What stands beside the blocks in transformers' inner models (GPT-2's names, then those of Llama and Qwen2).
_POSITIONS, _DROPOUT = "wpe", "drop"
_NORMS = ("ln_f", "norm")


class StageModule(nn.Module):
    """Some consecutive blocks, with the embeddings in the first stage and norm and head in the last."""

    def __init__(
        self, model: Any, *, index: int, stages: int, contexts: Callable[[], AbstractContextManager[Any]]
    ) -> None:
        """Take stage `index` out of a causal language model of transformers, which is no more use afterwards."""
        super().__init__()
        self.first, self.last = index == 0, index == stages - 1
        self.config = model.config
        self.tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
        self.ends: Any = None
        """The group of first and last stage, where they share a weight."""
        self._contexts, self._loss = contexts, model.loss_function
        self.passes = 0
        """Forwards so far: one a micro-batch."""
        self.layers = _own_layers(model, index=index, stages=stages)
        """Numbers of the blocks that are in this stage."""
        self.inner = _inner_model(model, self.layers, first=self.first, last=self.last)
        self.head = model.get_output_embeddings() if self.last else None

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """Token ids (batch, length) to the first stage, hidden vectors to the others; logits out of the last."""
        self.passes += 1
        named = {"input_ids": given} if self.first else {"inputs_embeds": given}
        with self._contexts():
            hidden: torch.Tensor = self.inner(**named, use_cache=False).last_hidden_state
            return hidden if self.head is None else self.head(hidden)

    def loss(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """transformers' own loss of a causal language model."""
        with self._contexts():
            value: torch.Tensor = self._loss(logits=logits, labels=labels, vocab_size=self.config.vocab_size)
            return value

    def alone(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """This stage without the others, for looking inside: later ones are given zeros. Returns a scalar."""
        ids = batch["input_ids"]
        weight = next(self.parameters())
        zeros = torch.zeros((*ids.shape, int(self.config.hidden_size)), device=weight.device, dtype=weight.dtype)
        output: torch.Tensor = self(ids if self.first else zeros)
        return output.float().mean()

    @property
    def tied_copy(self) -> nn.Parameter | None:
        """This stage's copy of the weight that embedding and head share."""
        if not self.tied or not (self.first or self.last):
            return None
        module: Any = self.inner.get_input_embeddings() if self.first else self.head
        copy: nn.Parameter = module.weight
        return copy

    def add_up_tied_gradients(self) -> None:
        """Both copies get the sum of both gradients. First and last stage call it at the same point."""
        copy = self.tied_copy
        if copy is not None and copy.grad is not None:
            dist.all_reduce(copy.grad, group=self.ends)

    def own_gradients(self) -> list[torch.Tensor]:
        """This stage's gradients; that of a weight in two stages is the first's."""
        other = self.tied_copy if self.last and not self.first else None
        return [each.grad for each in self.parameters() if each.grad is not None and each is not other]


def layers_of(layers: int, stages: int, head: float = 0.0) -> list[range]:
    """The blocks of each stage: as little work for the busiest as can be, first stages one more where it is uneven.

    Args:
        layers: at least as many as stages.
        head: what the output layer, which the last stage has besides, costs in blocks.

    >>> layers_of(5, 2), layers_of(16, 2, head=4.3)
    ([range(0, 3), range(3, 5)], [range(0, 10), range(10, 16)])
    """
    if stages == 1:
        return [range(layers)]

    def load(sizes: list[int]) -> tuple[float, float, int]:
        work = [*sizes[:-1], sizes[-1] + head]
        return max(work), sum(each * each for each in work), sizes[-1]

    sizes = min(([*_equal(layers - last, stages - 1), last] for last in range(1, layers - stages + 2)), key=load)
    starts = [0, *itertools.accumulate(sizes)]
    return [range(start, end) for start, end in itertools.pairwise(starts)]


def _equal(layers: int, stages: int) -> list[int]:
    size, more = divmod(layers, stages)
    return [size + (stage < more) for stage in range(stages)]


def head_in_blocks(model: Any) -> float:
    """The output layer's products over those of a block: both go over every token. The embedding only looks up.

    What attention computes besides (little up to lengths of some thousand) and recomputation are left out.
    """
    block = sum(each.numel() for each in blocks_of(model)[0].parameters() if each.ndim > 1)
    return float(model.get_output_embeddings().weight.numel() / max(block, 1))


def _own_layers(model: Any, *, index: int, stages: int) -> list[int]:
    """The numbers of a stage's blocks.

    Raises:
        EnvironmentProblem: the model is not built as expected, or has fewer blocks than there are stages.
    """
    blocks = blocks_of(model)
    if model.base_model is model or _list_of_blocks(model.base_model) is None or len(blocks) < stages:
        raise EnvironmentProblem(
            f"parallel=pipeline cannot divide {type(model).__name__} with {len(blocks)} blocks into {stages} stages; "
            "use fewer devices, or ddp"
        )
    return list(layers_of(len(blocks), stages, head_in_blocks(model))[index])


def _list_of_blocks(inner: Any) -> str | None:
    return next((name for name, child in inner.named_children() if isinstance(child, nn.ModuleList)), None)


def _inner_model(model: Any, layers: list[int], *, first: bool, last: bool) -> Any:
    """transformers' inner model with the layers of other stages taken out."""
    inner, blocks = model.base_model, blocks_of(model)
    setattr(inner, str(_list_of_blocks(inner)), nn.ModuleList(blocks[number] for number in layers))
    if not first:
        _replace(inner, _POSITIONS, _Nothing())
        _replace(inner, _DROPOUT, nn.Identity())
        inner.set_input_embeddings(nn.Identity())
    if not last:
        for name in _NORMS:
            _replace(inner, name, nn.Identity())
    return inner


def _replace(inner: nn.Module, name: str, other: nn.Module) -> None:
    if hasattr(inner, name):
        setattr(inner, name, other)


class _Nothing(nn.Module):
    """In the place of GPT-2's positions, which it would add once more in every stage."""

    def forward(self, positions: torch.Tensor) -> torch.Tensor:
        return positions.new_zeros(())
