"""torch.compile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.environment import Environment
from harness.experiment.axes import Axis
from harness.experiment.cell import Cell
from harness.experiment.workloads import is_step
from harness.techniques.base import Evidence, Stage, Technique

if TYPE_CHECKING:
    from harness.trial.profile import Profile
    from harness.trial.training import TrainingRun

#: What torch calls each run of compiled code in a profile, before the number of its frame and compilation.
_REGION = "Torch-Compiled Region"
#: Where the loss is the user's: what it may have done.
_CAPTURED = "; does loss call the model that it is given, and not one that it took from build?"
#: Modes with CUDA graphs.
WITH_GRAPHS = ("reduce-overhead", "max-autotune")
#: Key and name of our own count among torch's counters: CUDA graphs that were recorded.
RECORDED = ("claimbench", "cuda_graphs_recorded")


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
    requirement = (
        "default: a C++ compiler on a CPU; reduce-overhead, max-autotune: a GPU, accumulation=1, batches of one length"
    )
    proof = (
        "compiled regions that ran in a one-step profile, no compilation inside the window; frames that hit torch's "
        "recompile limit and ran eagerly are a warning; CUDA graphs launched where the mode has them"
    )
    revised = "the baseline of a step of one's own was shown to run no compiled code"

    def revision(self, cell: Cell) -> int:
        return 2 if is_step(cell.workload.model) and cell["compile"] != "off" else 1

    def requires(self, environment: Environment, cell: Cell) -> str | None:
        setting = cell["compile"]
        if setting in WITH_GRAPHS and not environment.has_gpu:
            return f"compile={setting} works through CUDA graphs and needs a GPU; use compile=default on a CPU"
        if setting in WITH_GRAPHS and cell.number("accumulation") > 1:
            return (
                f"compile={setting} with accumulation={cell['accumulation']}: torch's CUDA graphs write a micro-batch's"
                " gradients over those of the one before (pytorch#169545); use compile=default, or accumulation=1"
            )
        if setting in WITH_GRAPHS and cell["batching"] in ("padded", "token-budget"):
            return (
                f"compile={setting} with batching={cell['batching']}: a CUDA graph is of one shape, and each length of "
                "a batch would be recorded anew inside the window; use compile=default, or batching=packed"
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
        if setting in WITH_GRAPHS:
            _count_recordings()
        compiled: Any = torch.compile(run.call, mode=None if setting == "default" else setting)
        run.call = compiled
        if setting != "default" and run.own is not None:
            run.loss_of = _marking_steps(run.loss_of)
        elif setting != "default":
            run.call = _marking_steps(compiled)

    def evidence(self, cell: Cell, run: TrainingRun) -> Evidence | None:
        assert run.profile is not None
        setting = cell["compile"]
        facts: dict[str, Any] = {
            **run.facts["compiled"], "regions": regions_in(run.profile), "eager_frames": recompile_limit_hits(),
        }  # fmt: skip
        word, given_up = f"{facts['frames']} frames", _given_up(facts["eager_frames"])
        fault = None
        if facts["frames"] == 0:
            fault = "no frame was compiled" + (_CAPTURED if run.own is not None else "")
        elif facts["regions"] == 0:
            word += ", none ran"
            fault = f"a step ran no compiled code{f': {given_up}' if given_up else ''}"
        elif setting != "default":
            facts["graph_launches"] = launches = sum(run.profile.matching("cudaGraphLaunch").values())
            word += f", {launches} graphs"
            fault = None if launches else "no CUDA graph was launched in a step"
        part = f"a part of the model was not compiled: {given_up}; {facts['regions']} compiled regions ran in a step"
        return Evidence(
            holds=fault is None, word=word, facts=facts, reason=f"compile={setting} was set, but {fault}",
            warnings=(part,) if given_up and fault is None else (),
        )  # fmt: skip


def _count_recordings() -> None:
    """Have each recording of a CUDA graph counted in `RECORDED`. torch's own reset takes this back."""
    from torch._dynamo.callback import CallbackTrigger, callback_handler
    from torch._dynamo.utils import counters

    def count(begun: Any) -> None:
        if begun.callback_trigger is CallbackTrigger.CUDAGRAPH_RECORDING:
            counters[RECORDED[0]][RECORDED[1]] += 1

    callback_handler.register_start_callback(count)


def regions_in(profile: Profile) -> int:
    """How often compiled code ran in the profiled step: once a graph and micro-batch where all is well."""
    return sum(span.name.startswith(_REGION) for span in profile.spans if not span.on_device)


def recompile_limit_hits() -> int:
    """Frames that torch compiled so often that it gave up and runs them eagerly: nothing raises, and the count of
    compiled frames stays. By torch's own counters, whose key holds the name of the limit (`recompile_limit`, or
    `accumulated_recompile_limit`) in every release from 2.9 on."""
    from torch._dynamo.utils import counters

    return sum(
        count for reasons in counters.values() for reason, count in reasons.items() if "recompile_limit" in str(reason)
    )


def _given_up(frames: int) -> str:
    """What became of frames that hit the limit, in words; empty where there are none."""
    if not frames:
        return ""
    number = "1 frame" if frames == 1 else f"{frames} frames"
    return f"{number} hit torch's recompile limit (torch._dynamo.config.recompile_limit) and ran eagerly"


def _marking_steps(compiled: Any) -> Any:
    """Tell CUDA graphs where an iteration begins, so that they may reuse the memory of the last one's outputs."""
    import torch

    def call(*batch: Any, **named: Any) -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        return compiled(*batch, **named)

    return call
