"""Whether `off` is off in a user's own step: `build` may compile or checkpoint by itself, whatever the cell says."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from harness.techniques.base import Evidence
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
        count, word, seen = forwards_in_backward(run), "nothing recomputed", "backward ran {} again"
        done, what = "recomputes", "forward"
    number = f"{count} {what}{'' if count == 1 else 's'}"
    return Evidence(
        holds=count == 0, word=number if count else word, facts={f"{what}s": count},
        reason=f"{axis}=off was set, but {seen.format(number)}: the step {done} by itself; let build do so only where "
        f"settings[{axis!r}] asks for it and add {axis!r} to honours of the TrainingStep, or leave it to the harness",
    )  # fmt: skip


def forwards_in_backward(run: TrainingRun) -> int:
    """Forwards of modules inside backward in one more step, where nothing but recomputation runs one."""
    inside: list[Any] = []

    def seen(module: Any, _inputs: Any) -> None:
        # torch.utils.checkpoint asks the same way which backward it is called by
        if torch._C._current_graph_task_id() != -1:
            inside.append(module)

    hook = register_module_forward_pre_hook(seen)
    try:
        with uncompiled():
            run.step()
    finally:
        hook.remove()
    return len(inside)


@contextlib.contextmanager
def uncompiled() -> Iterator[None]:
    """Operators one by one, whatever was compiled by whom: compiled code calls no hooks of modules."""
    # where nothing has imported it nothing was compiled, and it need not be paid for
    with torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else contextlib.nullcontext():
        yield
