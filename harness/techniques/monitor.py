"""Ways of watching a run, each as its document prints it, and what each costs. Everywhere else they are off."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.environment import Environment
from harness.experiment.axes import Axis
from harness.experiment.cell import Cell
from harness.techniques.base import Evidence, Stage, Technique

if TYPE_CHECKING:
    from harness.techniques.watch import Watch
    from harness.trial.training import TrainingRun


class Monitor(Technique):
    """One way of watching, in every step or beside the run."""

    axes = (
        Axis(
            name="monitor",
            default="off",
            settings={
                "off": "nothing is watched while the window runs",
                "phases-synchronised": "each phase timed with a synchronise before and after (D3's benchmark)",
                "item": "the loss read as a number in every step",
                "gradient-norms": "norm, NaN and infinity of each gradient, one by one (D3's monitor_gradients)",
                "nvml": "a thread that reads utilisation and memory through NVML ten times a second",
                "nvidia-smi": "the program nvidia-smi started in every step (D3's monitor_gpu_utilization)",
                "cpu-percent": "psutil.cpu_percent(interval=1) and memory in every step (D3's monitor_resources)",
                "flops-profile": "operations counted in every 50th step (D1)",
                "profiler": "torch.profiler over two of every five steps, with shapes, memory and stacks (D3)",
                "tensorboard": "loss, memory and speed written to TensorBoard in every step (D3's TrainingMonitor)",
            },
            meaning="what watches the run",
            documents=("D1", "D3"),
        ),
    )
    stage = Stage.STEP
    requirement = "nvml, nvidia-smi: a GPU; tensorboard: the package; flops-profile: compile=off, not parallel=dp"
    proof = "calls counted against steps, and what the last one saw"

    def requires(self, environment: Environment, cell: Cell) -> str | None:
        setting = cell["monitor"]
        if setting in ("nvml", "nvidia-smi") and not environment.has_gpu:
            return f"monitor={setting} reads a GPU, and there is none here"
        if setting == "nvidia-smi" and "nvidia-smi" not in environment.tools:
            return "monitor=nvidia-smi needs the program nvidia-smi on the PATH; it comes with the driver"
        if setting == "tensorboard" and not environment.has("tensorboard"):
            return "monitor=tensorboard needs tensorboard; pip install tensorboard"
        if setting == "flops-profile" and cell["compile"] != "off":
            return "monitor=flops-profile counts operators, of which a compiled graph calls none; use compile=off"
        if setting == "flops-profile" and cell["parallel"] == "dp":
            return "monitor=flops-profile counts in the thread that trains, and dp runs forward in others; use ddp"
        return None

    def apply(self, cell: Cell, run: TrainingRun) -> None:
        if cell["monitor"] == "off":
            return
        from harness.techniques.monitors import WATCHES

        watch = WATCHES[str(cell["monitor"])](run)
        run.facts["monitor"] = watch
        watch.attach()

    def evidence(self, cell: Cell, run: TrainingRun) -> Evidence | None:
        setting = cell["monitor"]
        watch: Watch | None = run.facts.get("monitor")
        if watch is None:
            reason = f"monitor={setting} was set, but nothing watched the run"
            return Evidence(holds=False, word="0 calls", reason=reason)
        expected = watch.expected_calls()
        facts = {"calls": watch.calls, "expected_calls": expected, "steps": run.steps_done, "last": watch.last}
        reason = f"monitor={setting} was called {watch.calls} times in {run.steps_done} steps, not {expected} times"
        # a thread's calls depend on the time that the window took: at least so many
        holds = watch.calls >= expected if watch.beside else watch.calls == expected
        if holds and not watch.saw():
            holds, reason = False, f"monitor={setting} was called {watch.calls} times and saw nothing ({watch.last})"
        return Evidence(holds=holds, word=f"{watch.calls} calls", facts=facts, reason=reason)
