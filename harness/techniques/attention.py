"""Which kernel computes attention."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.environment import Environment
from harness.experiment.axes import Axis
from harness.experiment.cell import Cell
from harness.experiment.workloads import is_step
from harness.techniques.base import Evidence, Stage, Technique

if TYPE_CHECKING:
    from harness.trial.training import TrainingRun

#: What a profile shows of each kernel: parts of names of operators (eager) and of GPU kernels (compiled too).
SIGNS: dict[str, tuple[str, ...]] = {
    "flash2": ("flash::flash_fwd", "flash_attn::_flash_attn", "_flash_attn_forward"),
    "sdpa-flash": ("pytorch_flash", "aten::_scaled_dot_product_flash_attention", "aten::_flash_attention_forward"),
    "sdpa-efficient": (
        "fmha_cutlassf",
        "aten::_scaled_dot_product_efficient_attention",
        "aten::_efficient_attention_forward",
    ),
    "sdpa-cudnn": (
        "sdpa_sm",
        "cudnn_generated",
        "aten::_scaled_dot_product_cudnn_attention",
        "aten::_cudnn_attention_forward",
    ),
    "sdpa-math": ("aten::_scaled_dot_product_attention_math",),
}
_BACKENDS = {
    "sdpa-flash": "FLASH_ATTENTION",
    "sdpa-efficient": "EFFICIENT_ATTENTION",
    "sdpa-cudnn": "CUDNN_ATTENTION",
    "sdpa-math": "MATH",
}
_FUSED = ("flash2", "sdpa-flash", "sdpa-efficient", "sdpa-cudnn")
#: transformers' name for `_register_own`.
OWN = "sdpa_own"
#: What stands in front of all of SDPA's kernels, and what attention by plain operations cannot do without.
_SDPA, _SOFTMAX = "aten::scaled_dot_product_attention", "aten::_softmax"


class Attention(Technique):
    """transformers' attention implementations, and torch's SDPA with its kernel chosen."""

    axes = (
        Axis(
            name="attention",
            default="sdpa",
            settings={
                "sdpa": "torch's scaled_dot_product_attention, which picks a kernel itself",
                "eager": "matrix product, softmax, matrix product, each written to memory",
                "sdpa-flash": "SDPA held to its FlashAttention kernel",
                "sdpa-efficient": "SDPA held to its memory-efficient kernel",
                "sdpa-cudnn": "SDPA held to cuDNN's kernel",
                "sdpa-math": "SDPA held to its reference in plain operations",
                "flash2": "the flash-attn package, version 2",
            },
            meaning="kernel that computes attention",
            documents=("D1", "D2"),
        ),
    )
    stage = Stage.PROCESS
    packages = ("flash-attn",)
    requirement = (
        "sdpa-efficient, sdpa-cudnn: a GPU; "
        "flash2: a GPU, flash-attn, bf16 (or fp16 where the build has it), not packed under dp"
    )
    proof = (
        "name of the attention kernel in a one-step profile; "
        "sdpa, eager, sdpa-math: operators that attention called, "
        "where compiled or under parallel=dp in a short forward of the uncompiled model"
    )
    revised = (
        "a mask of one's own step was dropped, or written out where it was compiled and had none, and of its "
        "transformers models one alone was exchanged"
    )

    def active(self, cell: Cell) -> bool:
        return True

    def uses(self, cell: Cell) -> tuple[str, ...]:
        return self.packages if cell["attention"] == "flash2" else ()

    def revision(self, cell: Cell) -> int:
        if not is_step(cell.workload.model) or cell["attention"] == "sdpa":
            return 1
        return 3 if cell["attention"] in _BACKENDS and cell["compile"] != "off" else 2

    def requires(self, environment: Environment, cell: Cell) -> str | None:
        setting = cell["attention"]
        # a step of the user's own may compute in 16 bits without saying so in `precision`
        half = cell["precision"] not in ("fp32", "tf32") or is_step(cell.workload.model)
        if setting in ("sdpa-efficient", "sdpa-cudnn") and not environment.has_gpu:
            return f"attention={setting} needs a GPU; on a CPU use sdpa, sdpa-flash, sdpa-math or eager"
        if setting in ("sdpa-flash", "sdpa-cudnn") and environment.has_gpu and not half:
            return _wants_16_bits(cell)
        if setting == "flash2":
            return _flash2_refusal(environment, cell, half=half)
        return None

    def apply(self, cell: Cell, run: TrainingRun) -> None:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        setting = str(cell["attention"])
        run.attention = {"eager": "eager", "flash2": "flash_attention_2"}.get(setting, "sdpa")
        if setting in _BACKENDS:
            if cell["batching"] == "fixed":
                run.attention = _register_maskless() if run.own is None else _register_own()
            # entered before the first call and held: a graph compiled under one choice must not serve another
            run.held.enter_context(sdpa_kernel(getattr(SDPBackend, _BACKENDS[setting])))
        if setting == "flash2" and cell["batching"] == "packed":
            run.prepare_batch = _as_one_row

    def evidence(self, cell: Cell, run: TrainingRun) -> Evidence | None:
        setting = str(cell["attention"])
        assert run.profile is not None
        seen = {kernel: run.profile.matching(*signs) for kernel, signs in SIGNS.items()}
        present = [kernel for kernel, names in seen.items() if names]
        word = _first_name(seen, present, run.profile.kernels) or "plain operations"
        facts: dict[str, Any] = {"kernels": {kernel: names for kernel, names in seen.items() if names}}
        operators = None
        if setting not in _FUSED:
            operators = _operators(cell, run)
            facts["sdpa_called"] = None if operators is None else _SDPA in operators
            if operators is None and not present:
                word += " (compiled: sdpa, eager and sdpa-math look alike)"
        fault = _fault(setting, present, operators)
        reason = f"attention={setting} was set, but {fault}"
        return Evidence(holds=fault is None, word=word, facts=facts, reason=reason)


def _operators(cell: Cell, run: TrainingRun) -> Collection[str] | None:
    """ATen operators that attention called in a step; of a compiled one, in a short forward of the model as it was.

    A compiler turns sdpa-math and eager into the same products, so only the code that it was given tells them apart.
    DataParallel runs its replicas in threads of its own, whose operators torch's profiler does not record; a batch of
    one it runs on one device, in the thread that calls. None where the model cannot be called by itself: a user's step
    may not fit into memory uncompiled.
    """
    assert run.profile is not None
    if cell["compile"] == "off" and cell["parallel"] != "dp":
        return run.profile.operators
    if run.own is not None:
        return None
    import torch
    from torch.profiler import ProfilerActivity, profile

    ids = torch.zeros((1, 8), dtype=torch.long, device=run.device)
    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU]) as profiler:
        run.forward_plain({"input_ids": ids, "labels": ids})
    return {event.key for event in profiler.key_averages()}


def _fault(setting: str, present: list[str], operators: Collection[str] | None) -> str | None:
    """What a profile shows in the place of the setting; None where the setting was in effect or cannot be seen."""
    others = ", ".join(kernel for kernel in present if kernel in _FUSED)
    fault = None
    if setting in _FUSED:
        if setting not in present:
            fault = f"its kernel is not in the profile, which shows {', '.join(present) or 'plain operations'}"
    elif setting != "sdpa" and others:
        fault = f"the profile shows the kernel of {others}"
    elif operators is not None:
        fault = _fault_of_plain(setting, operators)
    return fault


def _fault_of_plain(setting: str, operators: Collection[str]) -> str | None:
    """The same by the operators that were called, for settings that no kernel of their own tells."""
    called = _SDPA in operators
    if setting == "eager" and called:
        return "the model called scaled_dot_product_attention"
    if setting == "eager":
        return None if _SOFTMAX in operators else "the model called no softmax"
    if not called:
        return "the model did not call scaled_dot_product_attention"
    if setting == "sdpa-math" and SIGNS[setting][0] not in operators:
        return "its operator is not in the profile"
    return None


def _register_maskless() -> str:
    """transformers' SDPA without a written-out causal mask, for batches that need none.

    When transformers is traced by torch.compile it hands SDPA a mask of (batch, 1, length, length) in place of
    `is_causal` (seen in 5.17), and no flash kernel takes one: a cell that asks for a kernel must be able to get it.
    Plain `sdpa` stays as transformers has it.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    AttentionInterface.register("sdpa_maskless", sdpa_attention_forward)
    AttentionMaskInterface.register("sdpa_maskless", lambda *_, **__: None)
    return "sdpa_maskless"


def _register_own() -> str:
    """transformers' SDPA for batches of a user's own: without a mask where there is nothing but the causal one.

    A mask that the step passes stays, and so do windows, documents laid end to end and whatever else a model adds.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask

    def mask(*args: Any, **said: Any) -> Any:
        window, skips = said.get("local_size"), ("allow_is_causal_skip", "allow_is_bidirectional_skip")
        whole = said.get("q_length") == said.get("kv_length") and (window is None or said["kv_length"] < window)
        plain = whole and said.get("attention_mask") is None and any(said.get(skip) for skip in skips)
        return None if plain else sdpa_mask(*args, **said)

    AttentionInterface.register(OWN, sdpa_attention_forward)
    AttentionMaskInterface.register(OWN, mask)
    return OWN


class _ByStep:
    """A class of Python's own, whose attribute torch.compile sets within a graph and not between two."""

    def __init__(self) -> None:
        self.positions = False


@contextmanager
def known_positions(towers: Iterable[Any]) -> Iterator[None]:
    """Let transformers know that positions which a step does not give are those of one document.

    Traced by torch.compile it cannot read positions, takes them for those of documents laid end to end, also the ones
    that it counts itself, and writes out the mask between them (seen in 5.17 and 5.24), which no flash kernel takes.

    Args:
        towers: transformers models, whose attention is `OWN`.
    """
    import torch
    from transformers import masking_utils

    documents_in = masking_utils.find_packed_sequence_indices
    by_step = _ByStep()

    def look(names: Sequence[str], _: Any, args: Sequence[Any], said: Mapping[str, Any]) -> None:
        by_step.positions = {**dict(zip(names, args, strict=False)), **said}.get("position_ids") is not None

    def documents(positions: Any, *more: Any) -> Any:
        unread = torch.compiler.is_compiling() and not by_step.positions
        return None if unread else documents_in(positions, *more)

    with ExitStack() as hooks:
        for module in {
            each for tower in towers for each in tower.modules() if hasattr(each, "set_attn_implementation")
        }:
            names = tuple(inspect.signature(module.forward).parameters)
            hooks.callback(module.register_forward_pre_hook(partial(look, names), with_kwargs=True).remove)
        masking_utils.find_packed_sequence_indices = documents
        try:
            yield
        finally:
            masking_utils.find_packed_sequence_indices = documents_in


def _flash2_refusal(environment: Environment, cell: Cell, *, half: bool) -> str | None:
    if not environment.has_gpu:
        return "attention=flash2 needs a GPU of compute capability 8.0 or later"
    if not environment.has("flash-attn"):
        return "attention=flash2 needs the package flash-attn; pip install flash-attn --no-build-isolation"
    if not half:
        return _wants_16_bits(cell)
    if cell["batching"] == "packed" and cell.settings.get("parallel") == "dp":
        return (
            "attention=flash2 with batching=packed lays a batch end to end in one row, which parallel=dp cannot divide "
            "between devices; use ddp, or attention=sdpa"
        )
    if cell["precision"] == "amp-fp16" and not _has_fp16_kernels(environment):
        return "attention=flash2 with amp-fp16: this build of flash-attn holds bf16 kernels only; use amp-bf16 or bf16"
    return None


def _wants_16_bits(cell: Cell) -> str:
    kernel, precision = cell["attention"], cell["precision"]
    return f"attention={kernel} takes 16-bit inputs only and precision is {precision}; use amp-bf16 or bf16"


def _has_fp16_kernels(environment: Environment) -> bool:
    """A build for bf16 alone would run fp16 calls wrong, so fp16 is refused unless the library shows kernels for it."""
    from importlib.metadata import PackageNotFoundError, files

    try:
        libraries = [file for file in files("flash-attn") or [] if file.name.startswith("flash_attn_2_cuda")]
    except PackageNotFoundError:
        return False
    # kernel symbols carry cutlass::half_t in their mangled names
    return any(b"cutlass6half_t" in Path(str(library.locate())).read_bytes() for library in libraries)


def _as_one_row(batch: dict[str, Any]) -> dict[str, Any]:
    """Rows end to end: the variable-length kernel finds documents by positions that start anew, in a batch of one."""
    return {name: part.reshape(1, -1) for name, part in batch.items()}


def _first_name(seen: dict[str, dict[str, int]], present: list[str], kernels: Container[str]) -> str:
    """A kernel's name for tables, its namespace kept and its template arguments dropped; an operator's on a CPU."""
    if not present:
        return ""
    names = seen[present[0]]
    name = next((name for name in names if name in kernels), next(iter(names)))
    return name.removeprefix("void ").split("<")[0].split("(")[0]
