"""What every setting of the axis `monitor` is: a watch, which counts its own calls and keeps what it saw last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from harness.trial.training import TrainingRun


class Watch:
    """One way of watching a run."""

    beside = False
    """It watches from a thread, so the number of its calls depends on time."""

    def __init__(self, run: TrainingRun) -> None:
        self.run = run
        self.calls = 0
        self.last: Any = None

    def attach(self) -> None:
        """Hook into the run; by default, `look` after every step."""
        self.run.after_step.append(self._after)

    def look(self, step: int) -> Any:
        """Look once, after step `step`; what is returned is what was seen."""

    def expected_calls(self) -> int:
        """Calls that steps done so far should have made."""
        return self.run.steps_done

    def saw(self) -> bool:
        """Whether the last call saw anything."""
        return self.last is not None

    def noted(self, seen: Any) -> None:
        """Count a call."""
        self.calls += 1
        self.last = seen

    def _after(self, step: int) -> None:
        self.noted(self.look(step))

    def _synchronise(self) -> None:
        if self.run.device.type == "cuda":
            torch.cuda.synchronize(self.run.device)
