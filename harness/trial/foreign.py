"""What the harness can do to a model that it does not know, and what only the user's `build` can do.

An axis that the question does not name is left as the user has it. One that it names is either put into effect here,
or declared in `honours`; everything else is refused in words, never passed over.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from harness.techniques import attention
from harness.techniques.base import Evidence, Inert, Technique
from harness.techniques.layers import product_layers
from harness.techniques.pruning import matrices
from harness.techniques.registry import axis_table
from harness.trial.own_baseline import uncompiled
from harness.trial.reach import DATA_AXES, OUT_OF_REACH, PART_OF, cannot_be_applied

if TYPE_CHECKING:
    from harness.trial.own_step import OwnStep
    from harness.trial.spec import TrialSpec
    from harness.trial.training import TrainingRun

#: Axes whose effect shows from outside, whoever put them into effect.
SHOWS_ITSELF = frozenset({
    "attention", "precision", "compile", "optimizer", "checkpointing", "sequence_length", "batch_size", "accumulation",
})  # fmt: skip
#: Of these, what only the harness's own doing shows: micro-batches inside a loss that honours them do not.
SHOWN_BY_BUILD = frozenset({"accumulation"})
#: Read by `build` without further ado: the size of a batch shows whether it did.
SIZES = frozenset({"sequence_length", "batch_size"})


def named_axes(spec: TrialSpec) -> frozenset[str]:
    """The axes that the question is about: named by its sentence, or away from their default in either arm.

    How the built-in data is read is no matter of the user's batches, unless that is what the arms differ in.
    """
    defaults = axis_table().defaults()
    moved = {
        axis
        for axis, default in defaults.items()
        if (spec.settings.get(axis, default), spec.baseline_settings.get(axis, default)) != (default, default)
        and not (axis in DATA_AXES and spec.settings.get(axis) == spec.baseline_settings.get(axis))
    }
    return frozenset({*spec.options.get("named", ()), *moved})


def left_to_apply(run: TrainingRun, own: OwnStep, techniques: Iterable[Technique]) -> list[Technique]:
    """The techniques that the harness puts into effect: those with a named axis that `build` does not honour.

    Raises:
        Inert: one cannot be applied to this model; how the user can do it themselves stands in the message.
    """
    kept = []
    for technique in techniques:
        axes = [axis.name for axis in technique.axes if axis.name in own.named and axis.name not in own.step.honours]
        for axis in axes:
            whole = PART_OF.get(axis)
            theirs = f"build honours {whole}, to which it belongs" if whole in own.step.honours else None
            reason = theirs or why_not(axis, run, own)
            if reason is not None:
                raise Inert(cannot_be_applied(axis, run.cell[axis], own.source, reason))
        if not OUT_OF_REACH.keys() >= set(axes):
            kept.append(technique)
    return kept


def why_not(axis: str, run: TrainingRun, own: OwnStep) -> str | None:
    """Why the setting of an axis cannot be put into effect on this model, or None."""
    setting = run.cell[axis]
    if axis in OUT_OF_REACH:
        return None if setting == axis_table()[axis].default else OUT_OF_REACH[axis]
    if axis == "attention" and not own.towers and setting in ("eager", "flash2"):
        return "it is no transformers model, whose attention can be exchanged"
    if axis == "precision" and setting == "ds-bf16":
        return "DeepSpeed's engine is not set up for it"
    if axis == "optimizer" and own.step.optimizer is not None:
        return "the step brings an optimizer of its own"
    if axis == "checkpointing" and setting != "off" and not own.towers and not own.blocks():
        return "no list of blocks (nn.ModuleList or nn.Sequential) was found in the model"
    pruned = axis == "pruning" and setting != "off"
    unfound = "no matrix was found in a list of blocks (nn.ModuleList or nn.Sequential) of the model"
    return unfound if pruned and not matrices(own.blocks()) else None


def adopt_attention(run: TrainingRun, own: OwnStep) -> None:
    """Exchange the attention of every transformers model in a step.

    Raises:
        Inert: transformers does not know the implementation for this model.
    """
    if "attention" not in own.applied:
        return
    try:
        for tower in own.towers:
            tower.set_attn_implementation(run.attention)
    except (ValueError, ImportError) as error:
        first = str(error).strip().splitlines()[0]
        raise Inert(f"attention={run.cell['attention']} cannot be set on {own.source}: {first}") from error
    if run.attention == attention.OWN:
        run.held.enter_context(attention.known_positions(own.towers))


def size_evidence(run: TrainingRun, own: OwnStep) -> Evidence:
    """Whether batches are as large as the named sizes ask for.

    The last one of a pass may be smaller. A collator may pad to less than the whole length, and ids that the loss
    shifts are one longer.
    """
    largest, tokens = max(own.samples), run.tokens / run.samples
    # an honoured accumulation takes the samples of a whole step in one batch
    samples = largest * run.accumulation / run.cell.number("accumulation")
    smaller = [each for each in own.samples if each < largest]
    last = {*own.ends, len(own.samples)}  # whether a pass ends with the latest batch is not known yet
    inside = [each for number, each in enumerate(own.samples, 1) if each < largest and number not in last]
    facts = {"samples_a_batch": samples, "tokens_a_sample": tokens}
    faults = []
    wanted = run.cell.number("batch_size")
    if "batch_size" in own.named and samples != wanted:
        faults.append(f"a batch holds {samples:g} samples, not batch_size={wanted}")
    elif "batch_size" in own.named and inside:
        faults.append(f"batches hold {min(inside)} to {largest} samples, not batch_size={wanted} throughout")
    length = run.cell.number("sequence_length")
    if "sequence_length" in own.named and not length / 2 < tokens <= length + 1:
        faults.append(f"a sample holds {tokens:g} tokens, not sequence_length={length}")
    remedy = "build must read it in settings"
    if tokens == 1 and own.step.tokens is None:  # samples are counted where a batch has no whole numbers
        remedy += ", and where its batches hold no token ids return a TrainingStep with tokens=…, which counts them"
    reason = f"{'; '.join(faults)}: {remedy}" if faults else ""
    rest = f", {min(smaller)} in the last batch of a pass" if smaller and not inside else ""
    return Evidence(
        holds=not faults, word=f"{samples:g} samples of {tokens:g} tokens{rest}", facts=facts, reason=reason
    )


def inner_dtypes(run: TrainingRun) -> tuple[Any, Any]:
    """Data type that a matrix product of one more step puts out, and that of its weights: the first product in a block,
    else the first at all. None in place of the former where no layer with such weights ran."""
    own = run.own
    assert own is not None
    blocks = {module for block in own.blocks() for module in block.modules()}
    seen: list[tuple[bool, Any, Any]] = []

    def note(layer: Any, inputs: Any, output: Any) -> None:
        looks_up = bool(inputs) and not any(is_float(each) for each in inputs)  # it takes whole numbers
        if isinstance(output, torch.Tensor) and not looks_up:
            seen.append((layer in blocks, output.dtype, weights[layer]))

    def is_float(value: Any) -> bool:
        return isinstance(value, torch.Tensor) and value.is_floating_point()

    weights = {layer: layer.weight.dtype for layer in product_layers(run.plain_model)}
    hooks = [layer.register_forward_hook(note) for layer in weights]
    called, run.call = run.call, run.model
    try:
        with uncompiled():
            run.step()
    finally:
        run.call = called
        for hook in hooks:
            hook.remove()
    _, inner, of_weights = next((each for each in seen if each[0]), seen[0] if seen else (False, None, None))
    return inner, of_weights or next(run.plain_model.parameters()).dtype
