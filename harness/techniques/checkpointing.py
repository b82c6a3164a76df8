"""Activation checkpointing: keep only each block's input and run its forward again in backward."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.experiment.axes import Axis
from harness.experiment.cell import Cell
from harness.experiment.workloads import is_step
from harness.techniques.attention import SIGNS
from harness.techniques.base import Evidence, Stage, Technique
from harness.techniques.kept import SavedActivations

if TYPE_CHECKING:
    import torch
    from torch import nn

    from harness.trial.own_step import OwnStep
    from harness.trial.profile import Profile
    from harness.trial.training import TrainingRun

#: With a block's input alone kept, a layer holds about 1 to 4 hidden vectors a token; without, 14 or more.
_VECTORS_KEPT_AT_MOST = 8.0
#: Kernels and operators of attention's backward, each once a layer.
_ATTENTION_BACKWARD = ("flash_bwd", "fmha_cutlassB", "bprop", "attention_backward", "attention_for_cpu_backward")
#: Of a user's model: below, most of it is not in the blocks that are recomputed.
_SMALL_SHARE = 0.5


class Checkpointing(Technique):
    """transformers' own gradient checkpointing, over every block."""

    axes = (
        Axis(
            name="checkpointing",
            default="off",
            settings={
                "off": "all activations are kept",
                "full": "every block is recomputed in backward (torch.utils.checkpoint, non-reentrant)",
                "reentrant": "the same with the older reentrant implementation",
            },
            meaning="recompute activations in backward",
            documents=("D1", "D3", "D4"),
        ),
        Axis(
            name="input_gradients",
            default="on",
            settings={
                "on": "the embedding's output asks for a gradient where weights before the blocks are frozen",
                "off": "it does not: reentrant checkpointing then trains nothing under LoRA",
            },
            meaning="gradient through the input of checkpointed blocks",
            documents=("D3",),
        ),
    )
    stage = Stage.MODEL
    requirement = "nothing"
    proof = (
        "the layer that begins each block runs forward in backward again; "
        "compiled: attention kernels doubled, the second between those of backward, or activations gone"
    )
    revised = "a step of one's own was checkpointed in the blocks of all its lists"

    def active(self, cell: Cell) -> bool:
        return cell["checkpointing"] != "off"

    def revision(self, cell: Cell) -> int:
        return 2 if is_step(cell.workload.model) and cell["checkpointing"] != "off" else 1

    def apply(self, cell: Cell, run: TrainingRun) -> None:
        if cell["checkpointing"] == "off":
            return
        model: Any = run.model
        reentrant = cell["checkpointing"] == "reentrant"
        if run.own is not None:
            run.own.checkpoint(str(cell["checkpointing"]), input_gradients=cell["input_gradients"] == "on")
        else:
            enable_checkpointing(model, reentrant=reentrant)
        # transformers and peft turn input gradients on by themselves in places; here the setting decides
        if cell["lora"] != "off" and hasattr(model, "enable_input_require_grads"):
            if getattr(model, "_require_grads_hook", None) is not None:
                model.disable_input_require_grads()
            if cell["input_gradients"] == "on":
                model.enable_input_require_grads()

    def evidence(self, cell: Cell, run: TrainingRun) -> Evidence | None:
        if not run.plain_model.training:
            reason = "the model is in eval mode, in which transformers checkpoints nothing"
            return Evidence(holds=False, word="eval mode", reason=reason)
        if cell["compile"] == "off":
            return self._by_hooks(run)
        return self._by_kernels(run) or self._by_activations(run)

    @staticmethod
    def _by_hooks(run: TrainingRun) -> Evidence:
        blocks = [forwards for forwards in count_forwards(run) if forwards.first]
        if run.own is not None:
            blocks = _judged(blocks, run.own)
        once = run.accumulation * run.forwards_a_micro_step
        recomputed = sum(forwards.again >= once for forwards in blocks)
        facts: dict[str, Any] = {
            "blocks": len(blocks), "recomputed_blocks": recomputed, "micro_batches": run.accumulation,
            "forwards_of_first_layer": blocks[0].first + blocks[0].again if blocks else 0,
            "in_backward": blocks[0].again if blocks else 0,
        }  # fmt: skip
        end = ", not all" if recomputed else ": nothing was recomputed"
        reason = f"backward ran {recomputed} of {len(blocks)} blocks forward again{end}"
        # a layer may be used several times in a block
        word = f"{1 + min(each.again / each.first for each in blocks):g} forwards a block" if blocks else "no forwards"
        warnings: tuple[str, ...] = ()
        if run.own is not None:
            facts["share_of_parameters"] = share = run.own.share_of(each.block for each in blocks if each.again)
            if 0 < share < _SMALL_SHARE:
                word += f", {100 * share:.2g}% of the parameters"
                warnings = (f"the blocks that are recomputed hold {100 * share:.2g}% of the parameters alone",)
        return Evidence(
            holds=0 < recomputed == len(blocks), word=word, facts=facts, reason=reason, warnings=warnings
        )  # fmt: skip

    @staticmethod
    def _by_kernels(run: TrainingRun) -> Evidence | None:
        """By the forwards of attention, and where they lie: those of a second model (a teacher, a reference) are more
        of them too, but run before all backwards. None where these do not tell."""
        assert run.profile is not None
        for kernel in ("flash2", "sdpa-flash", "sdpa-efficient", "sdpa-cudnn"):
            names = run.profile.matching(*SIGNS[kernel])
            forwards = max((n for name, n in names.items() if not _is_backward(name)), default=0)
            if forwards:
                layers = len(run.blocks()) * run.accumulation
                if run.own is not None:  # how often a block of the user's attends only backward says
                    layers = max(run.profile.matching(*_ATTENTION_BACKWARD).values(), default=layers)
                holds = shows_recomputation(attention_order(run.profile, kernel), run.accumulation)
                if forwards >= 2 * layers and not holds:
                    return None
                reason = f"{forwards} attention forwards in a step of {layers} layers: nothing was recomputed"
                return Evidence(
                    holds=forwards >= 2 * layers, word=f"{forwards / layers:g} attention forwards a layer",
                    facts={"attention_forwards": forwards, "layers": layers}, reason=reason,
                )  # fmt: skip
        return None

    @staticmethod
    def _by_activations(run: TrainingRun) -> Evidence:
        if not all(hasattr(run.config, name) for name in ("hidden_size", "num_hidden_layers", "vocab_size")):
            reason = "a compiled model of an unknown shape shows no recomputation from outside; use compile=off"
            return Evidence(holds=False, word="not shown", reason=reason)
        kept, tokens = saved_in_a_step(run)
        a_layer = int(run.config.num_hidden_layers) * int(run.config.hidden_size) * run.parameter_dtype.itemsize
        vectors = kept / (a_layer * tokens)
        reason = f"backward keeps {vectors:.1f} hidden vectors a token and layer, as if nothing were recomputed"
        return Evidence(
            holds=0 < vectors <= _VECTORS_KEPT_AT_MOST, word=f"{vectors:.1f} vectors kept",
            facts={"activation_bytes": kept, "hidden_vectors_a_token_and_layer": vectors}, reason=reason,
        )  # fmt: skip


def enable_checkpointing(model: Any, *, reentrant: bool) -> None:
    """Turn transformers' checkpointing on, by its new name where there is one (renamed between 5.17 and 5.24)."""
    new = getattr(model, "activation_checkpointing_enable", None)
    old = model.gradient_checkpointing_enable
    if new is None:
        old(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
        return
    import inspect

    name = next(name for name in inspect.signature(new).parameters if name.endswith("checkpointing_kwargs"))
    new(**{name: {"use_reentrant": reentrant}})


def _judged(blocks: list[Forwards], own: OwnStep) -> list[Forwards]:
    """The blocks of a user's model that recomputation must show in.

    Without a weight that is trained in or before a block there is no backward through it; and a `build` that sees to
    it by itself chooses its lists.
    """
    blocks = [each for each in blocks if each.again or any(part.requires_grad for part in each.block.parameters())]
    chosen = own.rows_with([each.block for each in blocks if each.again])
    if "checkpointing" in own.applied or not chosen:
        return blocks
    return [each for each in blocks if each.block in chosen]


@dataclass(slots=True)
class Forwards:
    """How often the layer that begins a block ran forward in a step."""

    block: nn.Module
    layer: nn.Module | None = None
    """The first to run in the block, whatever was registered first: recomputation begins there, and stops at the last
    tensor that backward needs, so that later layers may be left out of it."""
    first: int = 0
    """Outside backward."""
    again: int = 0
    """Inside backward, where nothing but recomputation runs a forward."""


def count_forwards(run: TrainingRun) -> list[Forwards]:
    """Of each block in one more step.

    By hooks on the layers inside: one on the block itself is called once a step in some releases of transformers
    (5.24), and twice in others (5.17).
    """
    counts: list[Forwards] = []
    hooks: list[Any] = []

    def counting(block: Forwards, layer: nn.Module) -> Callable[..., None]:
        # by the layer itself, not the hook's argument: DataParallel calls copies of it
        def seen(*_: Any) -> None:
            block.layer = block.layer or layer
            if layer is block.layer:
                inside = inside_backward()
                block.again += inside
                block.first += not inside

        return seen

    for block in run.blocks():
        counts.append(Forwards(block))
        watch = None if run.own is None else run.own.watch(block, counting(counts[-1], block))
        if watch is not None:
            hooks.append(watch)
            continue
        # a block without layers is one
        for layer in [each for each in block.modules() if each is not block] or [block]:
            hooks.append(layer.register_forward_pre_hook(counting(counts[-1], layer)))
    try:
        with contextlib.nullcontext() if run.own is None else run.own.uncompiled():
            run.step()
    finally:
        for hook in hooks:
            hook.remove()
    return counts


def inside_backward() -> bool:
    """Whether this thread is going backward, as torch.utils.checkpoint asks which backward it is called by."""
    import torch

    return bool(torch._C._current_graph_task_id() != -1)


def saved_in_a_step(run: TrainingRun) -> tuple[float, float]:
    """Bytes that the forwards of one more step keep for backward, output layer apart, and tokens of that step.

    In a small model the logits alone are more than all else, and whether a compiled graph keeps them in 16 bits or in
    32 is its own decision: they are told by their shape, as a 16-bit copy of the weight that makes them.
    """
    vocabulary, hidden = int(run.config.vocab_size), int(run.config.hidden_size)

    def of_the_output_layer(tensor: torch.Tensor) -> bool:
        shape = tuple(tensor.shape)
        return shape[-1:] == (vocabulary,) or shape == (vocabulary, hidden)

    saved: list[int] = []
    plain, before = run.forward, run.tokens

    def counted(batch: Any) -> torch.Tensor:
        with SavedActivations(run.model.parameters(), leaving_out=of_the_output_layer) as activations:
            loss = plain(batch)
        saved.append(activations.bytes)
        return loss

    # an instance attribute hides the method for this one step
    run.forward = counted  # type: ignore[method-assign]
    try:
        run.step()
    finally:
        del run.forward
    return float(sum(saved)), float(run.tokens - before)


def attention_order(profile: Profile, kernel: str) -> list[tuple[int, int]]:
    """Attention's forwards and the backwards that follow them, by number, in a step's order.

    Of the names that stand for one attention (an operator, what it calls, its kernels) the one seen most is counted.
    """
    signs = profile.matching(*SIGNS[kernel], *_ATTENTION_BACKWARD)
    on_device = any(name in profile.kernels for name in signs)
    names = [name for name in signs if not on_device or name in profile.kernels]
    forward, backward = (
        max((name for name in names if _is_backward(name) is back), key=signs.__getitem__, default="")
        for back in (False, True)
    )
    runs: list[tuple[int, int]] = []
    for span in profile.spans:
        if span.on_device is on_device and span.name == forward:
            before, after = runs.pop() if runs and not runs[-1][1] else (0, 0)
            runs.append((before + 1, after))
        elif span.on_device is on_device and span.name == backward:
            before, after = runs.pop() if runs else (0, 0)
            runs.append((before, after + 1))
    return runs


def shows_recomputation(runs: Iterable[tuple[int, int]], micro_batches: int) -> bool:
    """Whether every block runs forward again right before its backward, by `attention_order`.

    What lies before the first backward of a micro-batch may be a model's forward as well; what lies between two of its
    backwards is recomputed. A block may attend several times: the first to go backward no oftener than another.
    """
    runs = list(runs)
    each, rest = divmod(sum(back for _, back in runs), micro_batches)
    if rest or not each:
        return False
    done, first, largest = 0, 0, 0
    for forwards, backwards in runs:
        if done % each == 0:
            first, largest = backwards, 0
        elif forwards < backwards:
            return False
        else:
            largest = max(largest, backwards)
        done += backwards
        if done % each == 0 and first > largest:
            return False
    return True


def _is_backward(name: str) -> bool:
    return any(part in name.lower() for part in ("bwd", "backward", "bprop"))
