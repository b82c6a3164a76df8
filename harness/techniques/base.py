"""What a technique is: the file to read before adding one.

A technique is a class with the axes it owns and three answers: may it run here (`requires`), do it (`apply`), and prove
that it was in effect (`evidence`). Modules of techniques import torch inside these methods only, so that planning and
reporting work where there is no torch.

    class Clip(Technique):
        axes = (Axis(name="clip", default="off", settings={"off": "gradients are not clipped"}, number=float),)
        stage = Stage.STEP

        def apply(self, cell, run):
            if cell["clip"] == "off":  # called for the default too
                return
            run.before_optimizer.append(lambda: clip_grad_norm_(run.model.parameters(), cell["clip"]))

        def evidence(self, cell, run):
            norm = norm_after_a_step_with_a_large_gradient(run)
            said = f"norm {norm:.3g}"
            return Evidence(holds=norm <= cell["clip"], word=said, reason=f"the gradient had {said} after clipping")
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from harness.environment import Environment
from harness.experiment.axes import Axis
from harness.experiment.cell import Cell

if TYPE_CHECKING:
    from harness.trial.training import TrainingRun


class Stage(IntEnum):
    """When `apply` is called. Techniques of one stage run in the order of the registry."""

    PROCESS = 0
    """Nothing exists yet: process-wide flags, data types, the attention implementation, forward contexts."""
    MODEL = 10
    """`run.model` exists, on its device, in train mode: replace layers, add adapters, wrap blocks."""
    PARALLEL = 20
    """Ranks are connected: shard or replicate `run.model`."""
    COMPILE = 30
    """`run.model` is what will be called."""
    OPTIMIZER = 40
    """What is trained is final: `run.make_optimizer` may be replaced; engines that own both take over."""
    STEP = 50
    """Everything exists: hooks around the step."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Facts that show whether a setting was in effect."""

    holds: bool
    word: str
    """The fact in a word or two for tables: `flash_fwd_kernel`, `forwards doubled`, `bf16 inside`."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What was seen, JSON-ready, kept in the record."""
    reason: str = ""
    """When it does not hold: one sentence with what was expected and what was seen. The trial becomes `inert`."""
    warnings: tuple[str, ...] = ()
    """What a reader of the figures must know although it holds: it was in effect for a part of the model only."""


class Inert(Exception):  # noqa: N818 - named for the outcome that it becomes
    """Raised by a technique in a trial that it cannot take effect in. The message is the outcome's reason."""


class Technique:
    """Base of all techniques. Every method has a default, so that a subclass states only what is special to it."""

    axes: tuple[Axis, ...] = ()
    stage: Stage = Stage.PROCESS
    requirement: str = ""
    """What `requires` asks for, in words, for the table of techniques."""
    packages: tuple[str, ...] = ()
    """Distributions that do the work (`peft`, `flash-attn`): a trial that used another version is not comparable, so
    they are part of the fingerprint wherever the technique is active. torch, triton and transformers always are."""
    distribution: str = ""
    """The one that brings the class, where it is an outside technique: the registry sets it. It counts as `packages`
    do, whatever `uses` says."""
    revised: str = ""
    """What its latest `revision` changed, for "measured before ...": `a fault was mended`."""
    proof: str = ""
    """What `evidence` looks at, in words, for the table of techniques."""

    def active(self, cell: Cell) -> bool:
        """Whether the cell asks for it: any of its axes away from the default."""
        return any(cell.settings.get(axis.name, axis.default) != axis.default for axis in self.axes)

    def uses(self, cell: Cell) -> tuple[str, ...]:
        """The distributions in `packages` that this cell runs on: another version of one makes it another trial."""
        return self.packages if self.active(cell) else ()

    def revision(self, cell: Cell) -> int:
        """Raised when the technique changed what a trial of this cell does: older trials are then other trials."""
        return 1

    def requires(self, environment: Environment, cell: Cell) -> str | None:
        """Why the cell cannot run here, with the remedy, in one sentence; None when it can. No torch, no launch."""
        return None

    def apply(self, cell: Cell, run: TrainingRun) -> None:
        """Put the setting into effect. Called once in every trial, defaults included, at `stage`."""

    def evidence(self, cell: Cell, run: TrainingRun) -> Evidence | None:
        """Called after the window, and only when `active`. None: nothing to prove for this setting.

        Of a technique in another package, None for a setting that is not the default makes the trial `inert`.
        """
        return None
