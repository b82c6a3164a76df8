"""Whether `off` is off in a user's own step: `build` may compile or checkpoint by itself, whatever the cell says."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode

from harness.techniques.base import Evidence
from harness.techniques.checkpointing import inside_backward
from harness.techniques.compilation import regions_in

if TYPE_CHECKING:
    from harness.trial.training import TrainingRun


def evidence_of_off(axis: str, run: TrainingRun) -> Evidence | None:
    """What shows that nothing was compiled or recomputed; None where the cell asks for it, and of other axes."""
    if axis not in ("compile", "checkpointing") or run.cell[axis] != "off":
        return None
    assert run.profile is not None
    if axis == "compile":
        count, word, seen = regions_in(run.profile), "nothing compiled", "a step ran {} of compiled code"
        done, what = "compiles", "region"
    else:
        (count, what), word, seen = recomputed(run), "nothing recomputed", "backward ran {} again"
        done = "recomputes"
    number = f"{count} {what}{'' if count == 1 else 's'}"
    return Evidence(
        holds=count == 0, word=number if count else word, facts={f"{what}s": count},
        reason=f"{axis}=off was set, but {seen.format(number)}: the step {done} by itself; let build do so only where "
        f"settings[{axis!r}] asks for it and add {axis!r} to honours of the TrainingStep, or leave it to the harness",
    )  # fmt: skip


def recomputed(run: TrainingRun) -> tuple[int, str]:
    """How much one more step runs forward inside backward, and of what: forwards of modules, or operators where what is
    recomputed holds no module."""
    forwards: list[Any] = []
    operators = OperatorsWithGradients()
    plain = run.backward

    def seen(module: Any, _inputs: Any) -> None:
        if inside_backward():
            forwards.append(module)

    def watched(loss: torch.Tensor) -> None:
        with operators:
            plain(loss)

    hook = register_module_forward_pre_hook(seen)
    run.backward = watched
    try:
        with uncompiled():
            run.step()
    finally:
        run.backward = plain
        hook.remove()
    return (len(forwards), "forward") if forwards or not operators.count else (operators.count, "operator")


class OperatorsWithGradients(TorchDispatchMode):
    """Counts operators inside backward that run with gradients turned on. Backward turns them off, for hooks and for
    functions with a backward of their own too; what runs forward again turns them on, since it goes backward itself."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += inside_backward() and torch.is_grad_enabled()
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def uncompiled() -> Iterator[None]:
    """Operators one by one, whatever was compiled by whom: compiled code calls no hooks of modules."""
    # where nothing has imported it nothing was compiled, and it need not be paid for
    with torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else contextlib.nullcontext():
        yield
