"""The parts of a user's own step, called so that a fault names the part, where it stands and what it should give."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsInt

import torch
from torch import nn

from harness.errors import WorkloadError, suggestion
from harness.techniques.base import Inert
from harness.techniques.registry import axis_table
from harness.trial import custom
from harness.trial.custom import blamed
from harness.trial.reach import cannot_be_applied

if TYPE_CHECKING:
    from harness.trial.own_step import OwnStep
    from harness.trial.training import TrainingRun

#: torch's words where a graph is gone through again.
_SECOND_TIME = "backward through the graph a second time"
BACKWARD = (
    "calls backward itself, or holds on to the graph of an earlier step; return the loss alone, detach what is kept "
    "from step to step, and leave backward and the optimizer's step to the harness"
)


def named(part: str, function: object, own: OwnStep) -> str:
    """`the tokens of my.py:build (line 12)`."""
    code = getattr(function, "__code__", None)
    here = code is not None and Path(code.co_filename) == own.file
    return f"the {part} of {own.source}" + (f" (line {code.co_firstlineno})" if code is not None and here else "")


def evidence(own: OwnStep) -> Mapping[str, custom.Proof]:
    """What the user's evidence says, by axis; nothing where there is none.

    Raises:
        WorkloadError: it raises, or gives something else.
    """
    if own.step.evidence is None:
        return {}
    name = named("evidence", own.step.evidence, own)
    with blamed(f"the evidence of {own.source}", own.file):
        given = own.step.evidence()
    wanted = "it must return a mapping, axis: True or False, or axis: (True or False, what shows it)"
    if not isinstance(given, Mapping):
        raise WorkloadError(f"{name} returned {_kind(given)}; {wanted}")
    for axis, proof in given.items():
        if axis not in axis_table():
            known = suggestion(axis, axis_table(), listed_by="claimbench doctor")
            raise WorkloadError(f"{name} speaks of {axis!r}, which is no axis{known}")
        if not (_truth(proof) or (isinstance(proof, tuple) and len(proof) == 2 and _truth(proof[0]))):
            raise WorkloadError(f"{name} says {proof!r} of {axis}; {wanted}")
    return given


def tokens(own: OwnStep) -> Callable[[Any], SupportsInt] | None:
    """The user's count of a batch's tokens, held to be one; None where the harness counts.

    A tensor is held to it when it is read: in a timed step that would wait for the device.
    """
    count = own.step.tokens
    if count is None:
        return None

    def counted(batch: Any) -> SupportsInt:
        with blamed(f"the tokens of {own.source}", own.file):
            found: Any = count(batch)
        if isinstance(found, torch.Tensor) and found.numel() == 1:
            # a copy: it may be a part of the batch, which is not to be kept, or be written over
            return Unread(found.detach().clone(), read)
        return read(found)

    def read(found: Any) -> int:
        if isinstance(found, bool) or not isinstance(found, Real) or not math.isfinite(found) or found < 1:
            shown = repr(found) if isinstance(found, Real | str) else _kind(found)
            raise WorkloadError(
                f"{named('tokens', count, own)} returned {shown}; it must return how many tokens a batch has, 1 or more"
            )
        return int(float(found))

    return counted


@dataclass(frozen=True, slots=True)
class Unread:
    """A number that may still be on its way on the device."""

    value: torch.Tensor
    read: Callable[[Any], int]

    def __int__(self) -> int:
        """Waits for it.

        Raises:
            WorkloadError: it is no count of tokens.
        """
        return self.read(self.value.item())


def optimizer(own: OwnStep, run: TrainingRun) -> Callable[[Iterable[nn.Parameter]], Any] | None:
    """The user's maker of an optimizer, held to make one; None where the harness brings AdamW."""
    make = own.step.optimizer
    if make is None:
        return None

    def made(parameters: Iterable[nn.Parameter]) -> Any:
        with blamed(f"the optimizer of {own.source}", own.file):
            found: Any = make(parameters)
        if not all(callable(getattr(found, name, None)) for name in ("step", "zero_grad")):
            wanted = "it must return a torch.optim.Optimizer of the parameters that it is given"
            raise WorkloadError(f"{named('optimizer', make, own)} returned {_kind(found)}; {wanted}")
        needs = next((f"{name} needs {part!r}" for name in ("step", "zero_grad") for part in _needed(found, name)), "")
        if needs:
            raise WorkloadError(
                f"{named('optimizer', make, own)} returned {_kind(found)}, whose {needs}: the harness calls step() "
                "after backward, and then zero_grad(); return an optimizer that needs no more than the gradients"
            )
        if run.scaler is not None and not hasattr(found, "param_groups"):
            reason = f"a GradScaler finds the gradients in param_groups, which {_kind(found)} does not have"
            raise Inert(cannot_be_applied("precision", run.cell["precision"], own.source, reason))
        return found if isinstance(found, torch.optim.Optimizer) else OtherOptimizer(found)

    return made


def update(own: OwnStep, inner: Callable[[], None]) -> Callable[[], None]:
    """The user's optimizer stepped, so that what it raises is told as its own."""

    def told() -> None:
        with blamed(f"the optimizer of {own.source}", own.file):
            inner()

    return told


class OtherOptimizer:
    """An optimizer that is none of torch's: any class with `step` and `zero_grad`, several of torch's in one say."""

    def __init__(self, inner: Any) -> None:
        """Around the user's own."""
        self._inner = inner
        self._takes_none = "set_to_none" in _parameters(inner.zero_grad)

    def __getattr__(self, name: str) -> Any:
        """What else it has."""
        return getattr(self._inner, name)

    def step(self) -> None:
        """In a profile by the name that torch gives to its own."""
        with torch.profiler.record_function(f"Optimizer.step#{type(self._inner).__name__}.step"):
            self._inner.step()

    def zero_grad(self, *, set_to_none: bool = True) -> None:
        """As it does it, where it does not take the word."""
        self._inner.zero_grad(**({"set_to_none": set_to_none} if self._takes_none else {}))

    @property
    def state(self) -> dict[Any, Any]:
        """That of torch's optimizers that it holds, alone or in lists; of any other nothing is known."""
        parts = [part if isinstance(part, list) else [part] for part in getattr(self._inner, "__dict__", {}).values()]
        held = [each for part in parts for each in part if isinstance(each, torch.optim.Optimizer)]
        return {key: state for each in held for key, state in each.state.items()}


def _needed(found: object, name: str) -> list[str]:
    """What a method cannot be called without."""
    return [
        part.name for part in _parameters(getattr(found, name)).values()
        if part.default is part.empty and part.kind not in (part.VAR_POSITIONAL, part.VAR_KEYWORD)
    ]  # fmt: skip


def _parameters(method: Callable[..., object]) -> Mapping[str, inspect.Parameter]:
    """Those that a method declares; none of one that is compiled and does not say."""
    try:
        return inspect.signature(method).parameters
    except ValueError:
        return {}


def backward(own: OwnStep, inner: Callable[[torch.Tensor], None]) -> Callable[[torch.Tensor], None]:
    """Backward that says what it means where the loss has been there already."""

    def told(loss: torch.Tensor) -> None:
        try:
            inner(loss)
        except RuntimeError as error:
            if _SECOND_TIME not in str(error):
                raise
            raise WorkloadError(f"{named('loss', own.step.loss, own)} {BACKWARD}") from error

    return told


def _truth(value: object) -> bool:
    """A truth value: Python's, or numpy's, whose class has either name."""
    return isinstance(value, bool) or type(value).__name__ in ("bool", "bool_")


def _kind(value: object) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
