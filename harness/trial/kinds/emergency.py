"""D1's training loop as printed, interrupted: is there a checkpoint afterwards?

The loop catches KeyboardInterrupt, prints a line and ends. `save_checkpoint` exists, and is called every so many steps
by configuration; the interrupt comes before that.
"""

from __future__ import annotations

import os
import select
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from harness.environment import Environment
from harness.trial.kinds import apart
from harness.trial.outcome import Outcome
from harness.trial.ranks import Ranks
from harness.trial.spec import TrialResult, TrialSpec

#: Steps from one regular checkpoint to the next, as scripts of this kind have it; far beyond the interrupt.
SAVE_STEPS = 500
EPOCHS = 3
#: For building the model and the first steps.
_PATIENCE_SECONDS = 300.0


def run(spec: TrialSpec, ranks: Ranks, environment: Environment) -> TrialResult:
    """Start the loop, send SIGINT after its first steps, look into its folder."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        reading, writing = os.pipe()
        process = apart.start(printed_loop, spec, folder, writing)
        os.close(writing)
        steps = _wait_for_steps(reading, max(1, spec.steps))
        assert process.pid is not None
        os.kill(process.pid, signal.SIGINT)
        process.join(_PATIENCE_SECONDS)
        os.close(reading)
        files = [path for path in folder.rglob("*") if path.is_file()]
        # a file that cannot be loaded is no checkpoint
        figures: dict[str, Any] = {
            "saved": any(_loads(path) for path in files), "files": len(files), "steps_before": steps,
            "exit_status": process.exitcode,
        }  # fmt: skip
    if process.exitcode is None or steps < max(1, spec.steps):
        reason = f"the loop was to be interrupted after {spec.steps} steps, and did {steps}; status {process.exitcode}"
        return TrialResult(outcome=Outcome.CRASH, reason=reason)
    result = TrialResult(outcome=Outcome.OK, window=(begun, time.monotonic()))
    result.measured["figures"] = figures
    return result


class Trainer:
    """What the printed loop stands in: a model that trains, checkpoints every `SAVE_STEPS` steps."""

    def __init__(self, spec: TrialSpec, folder: Path, progress: int) -> None:
        from harness.techniques.registry import techniques, this_machine
        from harness.trial.training import TrainingRun, build

        self.folder = folder
        self.progress = progress
        self.trial = TrainingRun(spec, Ranks(), this_machine())
        build(self.trial, techniques())

    def train(self, epochs: int) -> None:
        """The loop: its handling of errors is D1's."""
        try:
            for _ in range(epochs):
                self._train_epoch()
        except KeyboardInterrupt:
            print("training was interrupted by the user")
        except Exception as error:
            print(f"an error occurred in training: {error}")
            raise

    def _train_epoch(self) -> None:
        from harness.trial.training import make_batches

        make_batches(self.trial)
        for _ in range(len(self.trial.loader) // self.trial.accumulation):
            self.trial.step()
            os.write(self.progress, b".")
            if self.trial.steps_done % SAVE_STEPS == 0:
                self.save_checkpoint()
            time.sleep(0.05)  # so that the interrupt finds the loop at work, however small the model

    def save_checkpoint(self) -> None:
        """The regular checkpoint: model, optimizer, step."""
        import torch

        content = {
            "model": self.trial.model.state_dict(), "optimizer": self.trial.optimizer.state_dict(),
            "step": self.trial.steps_done,
        }  # fmt: skip
        torch.save(content, self.folder / f"checkpoint-{self.trial.steps_done}.pt")


def printed_loop(spec: TrialSpec, folder: Path, progress: int) -> None:
    """Train in this process until somebody interrupts."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    trainer = Trainer(spec, folder, progress)
    with trainer.trial.held:
        trainer.train(EPOCHS)


def _wait_for_steps(reading: int, steps: int) -> int:
    """Steps done, once there are so many, the loop has ended or patience has."""
    done, until = 0, time.monotonic() + _PATIENCE_SECONDS
    while done < steps and select.select([reading], [], [], max(0.0, until - time.monotonic()))[0]:
        dots = os.read(reading, 1024)
        if not dots:
            break
        done += len(dots)
    return done


def _loads(path: Path) -> bool:
    import pickle

    import torch

    try:
        return "model" in torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, OSError, pickle.UnpicklingError):
        return False
