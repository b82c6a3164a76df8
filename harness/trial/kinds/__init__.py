"""What a trial can be. Each kind is a module of this folder with `run(spec, ranks, environment) -> TrialResult`.

This table imports none of them: it is read where there is no torch. docs/claims.md lists options and figures.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from harness.environment import Environment
from harness.errors import InputError, suggestion
from harness.experiment.cell import Cell
from harness.techniques import registry

if TYPE_CHECKING:
    from harness.trial.spec import TrialResult

#: Kind → (module of this folder, what it does in a line).
KINDS: dict[str, tuple[str, str]] = {
    "training": ("training", "train for a window of steps"),
    "loader-only": ("loader_only", "draw batches from the loader and do nothing with them"),
    "attention-only": ("attention_only", "forward and backward of one attention layer"),
    "optimizer-only": ("optimizer_only", "the optimizer's step by itself"),
    "copy-only": ("copy_only", "copies from the host to the device"),
    "epoch-turnaround": ("epoch_turnaround", "from the end of an epoch to the start of the next"),
    "throughput-recipe": ("throughput_recipe", "the printed throughput of forward passes beside that of training"),
    "samples-metric": ("samples_metric", "steps over elapsed time beside samples a second"),
    "flash-by-import": ("flash_by_import", "the attention in use before and after an import"),
    "workers-late": ("workers_late", "workers set on a loader that exists already"),
    "batch-finder": ("batch_finder", "the printed search for a batch size beside the largest that trains"),
    "emergency": ("emergency", "the printed training loop, interrupted"),
    "resume": ("resume", "a run of a small matrix, killed and started again"),
    "opt-levels": ("opt_levels", "training at each of apex's levels"),
    "apex-fused": ("apex_fused", "apex's fused optimizer beside torch's"),
    "flash-stable": ("flash_stable", "first gradients of flash attention and of xformers"),
}

#: Kinds whose studies need no cells beside their baseline.
ALONE: frozenset[str] = frozenset({
    "throughput-recipe", "samples-metric", "flash-by-import", "workers-late", "batch-finder", "emergency", "resume",
    "opt-levels", "apex-fused", "flash-stable",
})  # fmt: skip

_NO_APEX = "apex is not installed and has no release to install from; torch's own `precision` and `optimizer` stand in"
#: Kind → packages that it is about, and why it cannot run without one.
_PACKAGES: Mapping[str, tuple[str, str]] = {
    "opt-levels": ("apex", _NO_APEX),
    "apex-fused": ("apex", _NO_APEX),
    "flash-stable": ("xformers", "xformers is not installed; pip install xformers, in the version made for this torch"),
}


def runner(kind: str) -> Callable[..., TrialResult]:
    """The function that runs trials of a kind.

    Raises:
        InputError: no such kind.
    """
    if kind not in KINDS:
        raise InputError(f"unknown kind of trial {kind!r}{suggestion(kind, KINDS)}")
    module: Any = importlib.import_module(f"{__name__}.{KINDS[kind][0]}")
    run: Callable[..., TrialResult] = module.run
    return run


def refusal(environment: Environment, cell: Cell, kind: str) -> str | None:
    """Why a cell of a kind cannot run here, with the remedy, or None."""
    if kind in _PACKAGES:
        package, reason = _PACKAGES[kind]
        if not environment.has(package):
            return f"kind {kind}: {reason}"
        if not environment.has_gpu:
            return f"kind {kind}: {package} computes on a GPU, and there is none here"
    return registry.refusal(environment, cell, kind)
