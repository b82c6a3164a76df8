"""The parts of a user's own step, called so that a fault names the part, where it stands and what it should give."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from harness.errors import WorkloadError, suggestion
from harness.techniques.registry import axis_table
from harness.trial import custom
from harness.trial.custom import blamed

if TYPE_CHECKING:
    from harness.trial.own_step import OwnStep

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


def tokens(own: OwnStep) -> Callable[[Any], int] | None:
    """The user's count of a batch's tokens, held to be one; None where the harness counts."""
    count = own.step.tokens
    if count is None:
        return None

    def counted(batch: Any) -> int:
        with blamed(f"the tokens of {own.source}", own.file):
            found: Any = count(batch)
            if isinstance(found, torch.Tensor) and found.numel() == 1:
                found = found.item()
        if isinstance(found, bool) or not isinstance(found, Real) or not math.isfinite(found) or found <= 0:
            shown = repr(found) if isinstance(found, Real | str) else _kind(found)
            raise WorkloadError(
                f"{named('tokens', count, own)} returned {shown}; it must return how many tokens a batch has, a number "
                "above 0"
            )
        return int(float(found))

    return counted


def optimizer(own: OwnStep) -> Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer] | None:
    """The user's maker of an optimizer, held to make one; None where the harness brings AdamW."""
    make = own.step.optimizer
    if make is None:
        return None

    def made(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        with blamed(f"the optimizer of {own.source}", own.file):
            found = make(parameters)
        if not all(callable(getattr(found, name, None)) for name in ("step", "zero_grad")):
            wanted = "it must return a torch.optim.Optimizer of the parameters that it is given"
            raise WorkloadError(f"{named('optimizer', make, own)} returned {_kind(found)}; {wanted}")
        return found

    return made


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
