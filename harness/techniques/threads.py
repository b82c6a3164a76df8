"""The modules around DataParallel, which runs its replicas in threads. Imported only where a model is trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from torch import nn


class Entering(nn.Module):
    """A model that enters contexts by itself around each forward, in whatever thread that runs."""

    def __init__(self, model: nn.Module, contexts: Sequence[Callable[[], AbstractContextManager[Any]]]) -> None:
        super().__init__()
        self.model = model
        self.contexts = contexts

    def forward(self, **batch: Any) -> Any:
        with ExitStack() as stack:
            for context in self.contexts:
                stack.enter_context(context())
            return self.model(**batch)


class MeanLoss(nn.DataParallel):
    """torch's, and the mean of the losses that it gathers from the devices."""

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        output = super().forward(*inputs, **kwargs)
        output.loss = output.loss.mean()
        return output
