"""Activation checkpointing: keep only each block's input and run its forward again in backward."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.experiment.axes import Axis
from harness.experiment.cell import Cell
from harness.techniques.attention import SIGNS
from harness.techniques.base import Evidence, Stage, Technique

if TYPE_CHECKING:
    from harness.trial.training import TrainingRun

#: With a block's input alone kept, a layer holds about 1 to 4 hidden vectors a token; without, 14 or more.
_VECTORS_KEPT_AT_MOST = 8.0


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
    proof = "forwards of a block's first layer a step, doubled; compiled: attention kernels doubled or activations gone"

    def active(self, cell: Cell) -> bool:
        return cell["checkpointing"] != "off"

    def apply(self, cell: Cell, run: TrainingRun) -> None:
        if cell["checkpointing"] == "off":
            return
        model: Any = run.model
        reentrant = cell["checkpointing"] == "reentrant"
        if run.own is not None and run.own.transformers is None:
            run.own.checkpoint(reentrant=reentrant)
            return
        enable_checkpointing(model if run.own is None else run.own.transformers, reentrant=reentrant)
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
        counts = count_block_forwards(run)
        once = run.accumulation * run.forwards_a_micro_step
        wanted = 2 * once
        reason = f"a block's first layer ran {counts} times a step, not {wanted}: nothing was recomputed"
        return Evidence(
            holds=counts == wanted, word=f"{counts / once:g} forwards a block",
            facts={"forwards_of_first_layer": counts, "micro_batches": run.accumulation}, reason=reason,
        )  # fmt: skip

    @staticmethod
    def _by_kernels(run: TrainingRun) -> Evidence | None:
        assert run.profile is not None
        for kernel in ("flash2", "sdpa-flash", "sdpa-efficient", "sdpa-cudnn"):
            names = run.profile.matching(*SIGNS[kernel])
            forwards = max((n for name, n in names.items() if not _is_backward(name)), default=0)
            if forwards:
                layers = len(run.blocks()) * run.accumulation
                reason = f"{forwards} attention forwards in a step of {layers} layers: nothing was recomputed"
                return Evidence(
                    holds=forwards >= 2 * layers, word=f"{forwards / layers:g} attention forwards a layer",
                    facts={"attention_forwards": forwards, "layers": layers}, reason=reason,
                )  # fmt: skip
        return None

    @staticmethod
    def _by_activations(run: TrainingRun) -> Evidence:
        if not hasattr(run.config, "hidden_size"):
            reason = "a compiled model of an unknown shape shows no recomputation from outside; use compile=off"
            return Evidence(holds=False, word="not shown", reason=reason)
        kept = float(run.facts.get("activation_bytes", 0))
        size = run.parameter_dtype.itemsize
        a_layer = int(run.config.num_hidden_layers) * int(run.config.hidden_size) * size
        tokens = run.facts["tokens_a_step"] // run.accumulation
        logits = tokens * int(run.config.vocab_size) * 4
        vectors = max(kept - logits, 0) / (a_layer * tokens)
        reason = f"backward keeps {vectors:.1f} hidden vectors a token and layer, as if nothing were recomputed"
        return Evidence(
            holds=kept > 0 and vectors <= _VECTORS_KEPT_AT_MOST, word=f"{vectors:.1f} vectors kept",
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


def count_block_forwards(run: TrainingRun) -> int:
    """Forwards of the first block's first layer in a step; a hook on the block itself counts once in some releases."""
    block = run.blocks()[0]
    first = next(iter(block.children()))
    count = 0

    def seen(*_: Any) -> None:
        nonlocal count
        count += 1

    hook = first.register_forward_hook(seen)
    try:
        run.step()
    finally:
        hook.remove()
    return count


def _is_backward(name: str) -> bool:
    return any(part in name.lower() for part in ("bwd", "backward", "bprop"))
