"""What a trial can be. Each kind is a module of this folder with `run(spec, ranks, environment) -> TrialResult`.

This table imports none of them: it is read where there is no torch. docs/claims.md explains options and figures.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.environment import Environment
from harness.errors import InputError, suggestion
from harness.experiment.axes import Setting, show_setting
from harness.experiment.cell import Cell
from harness.experiment.kind_options import KindOptions, Option
from harness.experiment.workloads import is_step
from harness.techniques import registry

if TYPE_CHECKING:
    from harness.trial.spec import TrialResult


#: Axes, each with those of its settings that are meant; None: every one.
Some = Mapping[str, Collection[Setting] | None]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One of them, as it is known where there is no torch."""

    module: str
    """In this folder."""
    does: str
    """In a line."""
    figures: tuple[str, ...] = ()
    """What it can leave under `figures` in a record, beside `SEEN`."""
    options: Mapping[str, Option] = field(default_factory=dict)
    """What a study can tell it, beside `COMMON`."""
    alone: bool = False
    """Its studies need no cells beside their baseline."""
    own_step: bool = False
    """It can be done with a training step of the user's own: the others build their model or data themselves."""
    only: Some | None = None
    """What holds in it, beside the defaults; None: all that `idle` does not name, axes of outside techniques too."""
    idle: Some = field(default_factory=dict)
    """What does not hold in it, of a kind that trains."""

    def applies(self, axis: str, setting: Setting) -> bool:
        """Whether a setting other than the default does something in it."""
        if self.only is not None:
            return axis in self.only and _among(setting, self.only[axis])
        return not (axis in self.idle and _among(setting, self.idle[axis]))


#: Of every kind.
COMMON: Mapping[str, Option] = {"wall_limit_seconds": Option(minimum=1)}
#: What is read from outside of any trial.
SEEN = ("peak_loader_bytes",)

_TRAINING = (
    "allocated_growth_bytes", "allocator_retries", "bad_gradients", "breakdown", "bytes_per_parameter",
    "bytes_per_parameter_after_step", "data_sha256", "data_tokeniser", "draws", "first_batch_sha256",
    "first_step_seconds", "first_weights_sha256", "host", "predicted_bytes", "published_bytes", "useful_share",
    "useful_tokens_per_second", "warmup_batches_sha256", "warmup_seconds", "work_sha256", "zero_gradients",
)  # fmt: skip
#: Precisions of what computes with the weights, and of what has the weights alone.
_INSIDE: Some = {"precision": ("tf32", "amp-bf16", "amp-fp16", "bf16")}
_WEIGHTS: Some = {"precision": ("bf16",)}
_LENGTH: Some = {"sequence_length": None}
_SIZES: Some = {**_LENGTH, "batch_size": None}
#: What the loader reads.
_SAMPLES: Some = {**_SIZES, **dict.fromkeys(("stream", "pin_memory", "cost_per_sample_ms", "batching"))}
_LOADER: Some = {**_SAMPLES, **dict.fromkeys(("workers", "prefetch", "persistent", "start"))}
#: Of a kind whose trials, or what they start, are of one rank.
_DIVISION: Some = dict.fromkeys(("parallel", "devices", "micro_batches"))
_LEVELS = ("O0", "O1", "O2", "O3")

KINDS: dict[str, Kind] = {
    "training": Kind(module="training", does="train for a window of steps", figures=_TRAINING, own_step=True),
    "loader-only": Kind(
        module="loader_only", does="draw batches from the loader and do nothing with them",
        figures=("batches", "first_batch_seconds"), options={"seconds": Option(maximum=86_400)},
        only=_LOADER,
    ),
    "attention-only": Kind(
        module="attention_only", does="forward and backward of one attention layer",
        figures=("backward_seconds", "busy_seconds", "forward_seconds", "layer_peak_bytes", "layer_seconds"),
        only={**_INSIDE, "attention": None, **_SIZES},
    ),
    "optimizer-only": Kind(
        module="optimizer_only", does="the optimizer's step by itself",
        figures=("optimizer_seconds", "parameters_per_second"), only={**_WEIGHTS, "optimizer": None, **_LENGTH},
    ),
    "copy-only": Kind(
        module="copy_only", does="copies from the host to the device",
        figures=("batch_copy_seconds", "copy_seconds", "gigabytes_per_second", "host_seconds"),
        options={"mebibytes": Option(number=int, minimum=1, maximum=1 << 16)}, own_step=True,
        only={"pin_memory": None, "non_blocking": None, **_SIZES},
    ),
    "epoch-turnaround": Kind(
        module="epoch_turnaround", does="from the end of an epoch to the start of the next",
        figures=("first_epoch_seconds", "turnaround_seconds"),
        # two epochs have one turnaround
        options={"epochs": Option(number=int, minimum=2), "batches": Option(number=int, minimum=1)},
        only=_LOADER,
    ),
    "throughput-recipe": Kind(
        module="throughput_recipe", does="the printed throughput of forward passes beside that of training",
        figures=(*_TRAINING, "recipe_over_training", "recipe_samples_per_second", "training_samples_per_second"),
        # a stage of a pipeline has no forward pass of its own
        alone=True, idle={"parallel": ("pipeline",), "micro_batches": None},
    ),
    "samples-metric": Kind(
        module="samples_metric", does="steps over elapsed time beside samples a second",
        figures=(*_TRAINING, "reported_over_true", "reported_samples_per_second", "true_samples_per_second"),
        alone=True, own_step=True,
    ),
    "flash-by-import": Kind(
        module="flash_by_import", does="the attention in use before and after an import",
        figures=("flash_attn_installed", "flash_kernel", "flash_kernel_before", "implementation_after",
                 "implementation_before", "import_succeeded", "kernels", "turned_on"),
        alone=True, only={**_INSIDE, **_SIZES},
    ),
    "workers-late": Kind(
        module="workers_late", does="workers set on a loader that exists already",
        figures=("error", "took_effect", "workers_alive", "workers_wanted"),
        options={"workers": Option(number=int, minimum=1), "prefetch": Option(number=int, minimum=1)},
        alone=True, only=_SAMPLES,
    ),
    "batch-finder": Kind(
        module="batch_finder", does="the printed search for a batch size beside the largest that trains",
        figures=("found_batch", "found_is_largest", "found_over_largest", "found_trains", "largest_batch",
                 "largest_batch_emptying", "log", "tries"),
        options={
            "max_batch_size": Option(number=int, minimum=1), "ceiling": Option(number=int, minimum=1),
            "resolution": Option(maximum=1),
        },
        alone=True, idle={**_DIVISION, "batch_size": None},
    ),
    "emergency": Kind(
        module="emergency", does="the printed training loop, interrupted",
        figures=("exit_status", "files", "saved", "steps_before"), alone=True, idle=_DIVISION,
    ),
    "resume": Kind(
        module="resume", does="a run of a small matrix, killed and started again",
        figures=("complete", "second_run_status", "stored_when_killed", "trials_doubled", "trials_lost",
                 "trials_planned"),
        alone=True, own_step=True, only={},
    ),
    "opt-levels": Kind(
        module="opt_levels", does="training at each of apex's levels",
        figures=("fastest_level", "levels_available", *(f"{level}_tokens_per_second" for level in _LEVELS)),
        options={"levels": Option(words=_LEVELS)}, alone=True, own_step=True,
        # it begins anew at each level, and a process joins a group once
        idle={
            **_DIVISION, "precision": ("ds-bf16",),
            **dict.fromkeys(("zero", "overlap_comm", "deepspeed_config", "autocast_outside")),
        },
    ),
    "apex-fused": Kind(
        module="apex_fused", does="apex's fused optimizer beside torch's",
        figures=("apex_seconds", "apex_speedup", "torch_fused_seconds"), alone=True, only={**_WEIGHTS, **_LENGTH},
    ),
    "flash-stable": Kind(
        module="flash_stable", does="first gradients of flash attention and of xformers",
        figures=("flash_error", "flash_error_over_xformers", "xformers_error"), alone=True,
        only={**_WEIGHTS, **_SIZES},
    ),
}  # fmt: skip

#: Kinds whose studies need no cells beside their baseline.
ALONE: frozenset[str] = frozenset(name for name, kind in KINDS.items() if kind.alone)
#: What a matrix may tell each of them.
OPTIONS: KindOptions = {name: {**kind.options, **COMMON} for name, kind in KINDS.items()}

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
    module: Any = importlib.import_module(f"{__name__}.{KINDS[kind].module}")
    run: Callable[..., TrialResult] = module.run
    return run


def figures_of(kinds: Iterable[str]) -> frozenset[str]:
    """What trials of these kinds can leave under `figures`; of a figure with parts (`host.wall_seconds`) the first."""
    return frozenset({*SEEN, *(figure for kind in kinds for figure in KINDS[kind].figures)})


def refusal(environment: Environment, cell: Cell, kind: str) -> str | None:
    """Why a cell of a kind cannot run here, with the remedy, or None."""
    if is_step(cell.workload.model) and kind in KINDS and not KINDS[kind].own_step:
        return f"kind {kind} builds its model itself; give its study a workload with a built-in model or a config.json"
    if kind in _PACKAGES:
        package, reason = _PACKAGES[kind]
        if not environment.has(package):
            return f"kind {kind}: {reason}"
        if not environment.has_gpu:
            return f"kind {kind}: {package} computes on a GPU, and there is none here"
    if kind in KINDS and (unused := _not_applied(cell, kind)):
        return unused
    return registry.refusal(environment, cell, kind)


def _not_applied(cell: Cell, kind: str) -> str | None:
    """Why a cell would be its baseline again: it asks for what trials of this kind do not put into effect.

    What all studies of a matrix share is left alone, whatever the kind; but so many processes are started as there are
    devices, whoever asks for them.
    """
    several = {"parallel", "devices"} if cell.settings.get("devices", 1) != 1 else set()
    for axis, setting in cell.settings.items():
        asked = setting != cell.shared.get(axis, registry.axis_table()[axis].default)
        if (asked or axis in several) and not KINDS[kind].applies(axis, setting):
            return f"kind {kind} does not apply {axis}={show_setting(setting)}; {_applied(KINDS[kind])}"
    return None


def _applied(kind: Kind) -> str:
    """What can be asked for in its place, in words."""
    if kind.only is None:
        return "leave it out, or ask for it in a study that trains"
    axes = ", ".join(f"{axis} ({', '.join(map(str, some))})" if some else axis for axis, some in kind.only.items())
    return f"leave it out, or ask for it in a study that trains; settings that hold here: {axes or 'none'}"


def _among(setting: Setting, some: Collection[Setting] | None) -> bool:
    return some is None or setting in some
