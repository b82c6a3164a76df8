"""What a trial can be. Each kind is a module of this folder with `run(spec, ranks, environment) -> TrialResult`.

This table imports none of them: it is read where there is no torch.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from harness.errors import InputError, suggestion

if TYPE_CHECKING:
    from harness.trial.spec import TrialResult

#: Kind → (module of this folder, what it does in a line).
KINDS: dict[str, tuple[str, str]] = {
    "training": ("training", "train for a window of steps"),
}

#: Kinds whose studies need no cells beside their baseline.
ALONE: frozenset[str] = frozenset()


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
