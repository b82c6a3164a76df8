"""torch.compile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.environment import Environment
from harness.experiment.axes import Axis
from harness.experiment.cell import Cell
from harness.techniques.base import Evidence, Stage, Technique

if TYPE_CHECKING:
    from harness.trial.training import TrainingRun

_WITH_GRAPHS = ("reduce-overhead", "max-autotune")


class Compilation(Technique):
    """The whole model through torch.compile, in one of its modes."""

    axes = (
        Axis(
            name="compile",
            default="off",
            settings={
                "off": "operators one by one",
                "default": "torch.compile in its default mode",
                "reduce-overhead": "with CUDA graphs",
                "max-autotune": "with CUDA graphs and kernels chosen by trying them",
            },
            meaning="compile the model's forward and backward",
            documents=("D3", "D4"),
        ),
    )
    stage = Stage.COMPILE
    requirement = "default: a C++ compiler on a CPU; reduce-overhead, max-autotune: a GPU, accumulation=1"
    proof = "frames compiled, no compilation inside the window; CUDA graphs launched where the mode has them"

    def requires(self, environment: Environment, cell: Cell) -> str | None:
        setting = cell["compile"]
        if setting in _WITH_GRAPHS and not environment.has_gpu:
            return f"compile={setting} works through CUDA graphs and needs a GPU; use compile=default on a CPU"
        if setting in _WITH_GRAPHS and cell.number("accumulation") > 1:
            return (
                f"compile={setting} with accumulation={cell['accumulation']}: torch's CUDA graphs write a micro-batch's"
                " gradients over those of the one before (pytorch#169545); use compile=default, or accumulation=1"
            )
        if setting == "default" and not environment.has_gpu and not {"c++", "g++", "clang++"} & set(environment.tools):
            return "compile=default needs a C++ compiler on a CPU; install g++"
        return None

    def apply(self, cell: Cell, run: TrainingRun) -> None:
        import torch

        setting = str(cell["compile"])
        if setting == "off":
            return
        torch._dynamo.reset()
        compiled: Any = torch.compile(run.call, mode=None if setting == "default" else setting)
        run.call = compiled
        if setting != "default" and run.own is not None:
            run.loss_of = _marking_steps(run.loss_of)
        elif setting != "default":
            run.call = _marking_steps(compiled)

    def evidence(self, cell: Cell, run: TrainingRun) -> Evidence | None:
        compiled = dict(run.facts["compiled"])
        setting = cell["compile"]
        if compiled["frames"] == 0:
            reason = f"compile={setting} was set, but no frame was compiled"
            return Evidence(holds=False, word="0 frames", facts=compiled, reason=reason)
        word = f"{compiled['frames']} frames"
        if setting != "default":
            assert run.profile is not None
            launches = sum(run.profile.matching("cudaGraphLaunch").values())
            compiled["graph_launches"] = launches
            reason = f"compile={setting} was set, but no CUDA graph was launched in a step"
            return Evidence(holds=launches > 0, word=f"{word}, {launches} graphs", facts=compiled, reason=reason)
        return Evidence(holds=True, word=word, facts=compiled)


def _marking_steps(compiled: Any) -> Any:
    """Tell CUDA graphs where an iteration begins, so that they may reuse the memory of the last one's outputs."""
    import torch

    def call(*batch: Any, **named: Any) -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        return compiled(*batch, **named)

    return call
