"""A trial of a user's own step: from `build` to a run that techniques can work on, and what proves it afterwards."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from harness.errors import WorkloadError
from harness.techniques.base import Evidence, Technique
from harness.trial import custom, foreign, own_batches, own_blocks, own_parts
from harness.trial.custom import TrainingStep
from harness.trial.outcome import Outcome
from harness.trial.own_baseline import evidence_of_off, uncompiled

if TYPE_CHECKING:
    from harness.trial.spec import TrialResult
    from harness.trial.training import TrainingRun


#: Figures by which trials of one seed are held together.
BATCH, WEIGHTS = "first_batch_sha256", "first_weights_sha256"
#: Figure: of the batches of the warm-up, this many at most: a loader's workers take turns.
BATCHES, MOST_HASHED = "warmup_batches_sha256", 16
#: Figure: whether the first loss drew from torch's random numbers.
DRAWS = "draws"


@dataclass(kw_only=True)
class OwnStep:
    """A user's step in its trial."""

    source: str
    """`my.py:build`, its folder left out."""
    build: custom.Build
    step: TrainingStep
    named: frozenset[str]
    """Axes that the question is about."""
    towers: list[Any]
    """The transformers models in the step's model that are not part of another one."""
    file: Path
    applied: frozenset[str] = frozenset()
    """Named axes that the harness itself puts into effect."""
    figures: dict[str, Any] = field(default_factory=dict)
    began: bool = False
    """Whether its loss was called."""
    samples: list[int] = field(default_factory=list)
    """Of each batch that a step took, in order."""
    halved: str = ""
    """Of weights that the setting put into 16 bits: what to do where inputs do not fit to them."""
    ends: list[int] = field(default_factory=list)
    """Number of batches up to the end of each pass through them."""

    def blocks(self) -> list[nn.Module]:
        """The model's repeated blocks, each once; none where none are found."""
        return [block for row in own_blocks.rows(self.step.model) for block in row]

    def checkpoint(self, setting: str, *, input_gradients: bool) -> None:
        """As `own_blocks.checkpoint_all`."""
        own_blocks.checkpoint_all(self, setting=setting, input_gradients=input_gradients)

    def watch(self, block: nn.Module, seen: Callable[..., None]) -> own_blocks.Watch | None:
        """Have each forward of a block told whose checkpointing is the harness's; None: it is another's."""
        return own_blocks.Watch(block, seen) if own_blocks.is_checkpointed_here(block) else None

    def share_of(self, blocks: Iterable[nn.Module]) -> float:
        """As `own_blocks.share_of`, of the step's model."""
        return own_blocks.share_of(self.step.model, blocks)

    def rows_with(self, blocks: Collection[nn.Module]) -> list[nn.Module]:
        """All blocks of the lists that one of the given ones stands in."""
        held = set(map(id, blocks))
        return [block for row in own_blocks.rows(self.step.model) if held & set(map(id, row)) for block in row]

    uncompiled = staticmethod(uncompiled)

    @staticmethod
    def is_pinned(batch: Any) -> bool:
        """Whether all of a batch lies in page-locked memory."""
        return all(part.is_pinned() for _, part in own_batches.tensors(batch))

    def let_go(self) -> None:
        """Hold on to nothing that lies on the device."""
        self.step = TrainingStep(model=nn.Module(), batches=(), loss=_gone)
        self.towers = []

    def inner_dtypes(self, run: TrainingRun) -> tuple[Any, Any]:
        """As `foreign.inner_dtypes`."""
        return foreign.inner_dtypes(run)

    def size_evidence(self, run: TrainingRun) -> Evidence:
        """As `foreign.size_evidence`."""
        return foreign.size_evidence(run, self)


def start(run: TrainingRun, techniques: Iterable[Technique]) -> list[Technique]:
    """Call `build` and hang what it returns into the run. Gives the techniques that are left to apply.

    Raises:
        WorkloadError: `build` raises or returns the wrong thing.
        Inert: a named setting cannot be applied to this model.
    """
    source = Path(run.spec.model).name
    file = Path(run.spec.model.rpartition(":")[0]).resolve()
    build = custom.load(run.spec.model)
    step = custom.call(build, source, run.device, run.spec.settings, run.spec.seed)
    custom.seed_everything(run.spec.seed + 1)
    ends: list[int] = []
    batches = own_batches.endless(step.batches, source, file, ends)
    first = next(batches)
    own = OwnStep(
        source=source, file=file, build=build, step=step, named=foreign.named_axes(run.spec),
        towers=own_blocks.towers(step.model), ends=ends,
    )  # fmt: skip
    own.figures.update({BATCH: own_batches.batch_hash(first), WEIGHTS: own_batches.weights_hash(step.model)})
    run.own = own
    if "accumulation" in step.honours:
        run.accumulation = 1  # the loss goes over its own micro-batches: a call is a whole step
    left = foreign.left_to_apply(run, own, techniques)
    axes = {axis.name for technique in left for axis in technique.axes}
    own.applied = frozenset(axes & own.named - set(step.honours))
    _hang_in(run, own, itertools.chain([first], batches))
    return left


def _hang_in(run: TrainingRun, own: OwnStep, batches: Any) -> None:
    step = own.step
    run.model = run.plain_model = step.model
    # that of one of several says nothing of the whole
    run.config = getattr(own.towers[0] if len(own.towers) == 1 else step.model, "config", None)
    run.batches = batches
    at_once = "non_blocking" in own.applied and bool(run.cell["non_blocking"])
    run.copy = lambda batch: own_batches.moved(batch, run.device, non_blocking=at_once)
    run.sizes = _counter(run, own)
    run.loss_of = lambda batch: loss_of(own, own.step, run.call, batch)
    run.backward = own_parts.backward(own, run.backward)
    run.make_optimizer = own_parts.optimizer(own, run) or run.make_optimizer
    run.update = own_parts.update(own, run.update) if step.optimizer is not None else run.update


def _counter(run: TrainingRun, own: OwnStep) -> Callable[[Any], own_batches.Sizes]:
    """Counts a batch, and notes what shows its size and, in the warm-up, its values."""
    tokens = own_parts.tokens(own)
    hashed = min(run.spec.warmup_steps * run.accumulation, MOST_HASHED)
    digest = hashlib.sha256()

    def counted(batch: Any) -> own_batches.Sizes:
        found = own_batches.sizes(batch, tokens)
        if len(own.samples) < hashed:
            digest.update(own_batches.batch_hash(batch).encode())
            own.figures[BATCHES] = digest.hexdigest()[:16]
        own.samples.append(found[1])
        return found

    return counted


def after_process(run: TrainingRun) -> None:
    """What the techniques of the first stage decided, done to a model that exists already."""
    assert run.own is not None
    foreign.adopt_attention(run, run.own)
    if "precision" in run.own.applied and run.parameter_dtype is not torch.float32:
        run.model.to(run.parameter_dtype)
        dtype = str(run.parameter_dtype).removeprefix("torch.")
        run.own.halved = (
            f"precision={run.cell['precision']} has put the weights into {dtype}: cast floating inputs to "
            "next(model.parameters()).dtype in loss, or ask for precision=amp-bf16"
        )
    else:
        run.parameter_dtype = next(run.model.parameters()).dtype


def loss_of(own: OwnStep, step: TrainingStep, model: Any, batch: Any) -> torch.Tensor:
    """The user's loss, held to be one.

    Raises:
        WorkloadError: it raises, or gives no scalar with gradient.
    """
    name = partial(own_parts.named, "loss", step.loss, own)  # called where there is a fault: this is in every step
    fresh, own.began = not own.began, True
    first, before = fresh and not _has_gradients(own.step.model), random_state() if fresh else ()
    with custom.blamed(f"the loss of {own.source}", own.file):
        try:
            loss = step.loss(model, batch)
        except RuntimeError as error:
            if "No available kernel" in str(error):
                raise WorkloadError(_no_kernel(own)) from error
            if own.halved and "type" in str(error).lower():
                told = custom.told(error, f"the loss of {own.source} raised", own.file)
                raise WorkloadError(f"{told}; {own.halved}") from error
            raise
    if fresh:
        own.figures[DRAWS] = random_state() != before
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        shape = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
        raise WorkloadError(f"{name()} returned {shape}; it must return a scalar tensor")
    if first and _has_gradients(own.step.model):
        raise WorkloadError(f"{name()} {own_parts.BACKWARD}")
    if not loss.requires_grad:
        raise WorkloadError(
            f"{name()} has no gradient: it was detached or computed under no_grad, or reentrant "
            "checkpointing met inputs without one"
        )
    return loss


def random_state() -> tuple[bytes, ...]:
    """Of torch's generators: it moves where something is drawn, as dropout and noise are."""
    states = [torch.get_rng_state()]
    if torch.cuda.is_initialized():
        states.append(torch.cuda.get_rng_state())
    return tuple(state.numpy().tobytes() for state in states)


def _has_gradients(model: nn.Module) -> bool:
    return any(parameter.grad is not None for parameter in model.parameters())


def _no_kernel(own: OwnStep) -> str:
    return (
        "the attention kernel that was asked for does not take what the model hands to scaled_dot_product_attention: a "
        "written-out attention mask (compiled, transformers writes one out for a mask of ones or position_ids too), or "
        "a data type or head size that it does not support. Flash takes no mask but the causal one (is_causal=True); "
        f"drop the mask in {own.source}, or the position_ids, or ask for attention=sdpa"
    )


def _gone(model: Any, batch: Any) -> torch.Tensor:
    raise WorkloadError("the step was let go at the end of its trial")


def provable(run: TrainingRun, techniques: Iterable[Technique]) -> list[Technique]:
    """The techniques whose own evidence can be asked: applied here, or of a kind that shows from outside."""
    assert run.own is not None
    hidden = foreign.SHOWN_BY_BUILD & set(run.own.step.honours)
    shown = run.own.applied | (run.own.named & foreign.SHOWS_ITSELF - hidden)
    return [each for each in techniques if any(axis.name in shown for axis in each.axes)]


def prove(run: TrainingRun, result: TrialResult) -> None:
    """The user's own evidence into the result, and a word on what nobody proves."""
    own = run.own
    assert own is not None
    given = own_parts.evidence(own)
    faults = []
    offs = {axis: evidence_of_off(axis, run) for axis in own.named - set(given)}
    for axis in sorted(own.named & {*own.step.honours, *given, *(axis for axis, off in offs.items() if off)}):
        if axis in given:
            holds, word = _read(given[axis])
            reason = f"{axis}={run.cell[axis]} was set, but the evidence of {own.source} says otherwise ({word})"
            proof = Evidence(holds=holds, word=word, reason=reason)
        elif (off := offs[axis]) is not None:
            proof = off
        elif axis in foreign.SHOWS_ITSELF - foreign.SHOWN_BY_BUILD:
            continue
        else:
            proof = Evidence(holds=False, word="not proven", reason=(
                f"{own.source} says that it honours {axis}, and nothing shows it; let evidence() return {{{axis!r}: …}}"
            ))  # fmt: skip
        result.evidence.setdefault(axis, {
            "holds": proof.holds, "word": proof.word, "facts": proof.facts or {"reported_by": own.source},
            "reason": "" if proof.holds else proof.reason,
        })  # fmt: skip
        faults += [] if proof.holds else [proof.reason]
    if faults and result.outcome is Outcome.OK:
        result.outcome, result.reason = Outcome.INERT, "; ".join(faults)


def judge(run: TrainingRun, result: TrialResult) -> None:
    """What spoils a trial of a user's step, and the figures by which trials of one round are held together."""
    own = run.own
    assert own is not None
    assert run.profile is not None
    parameters = [(name, str(part.dtype), list(part.shape)) for name, part in run.plain_model.named_parameters()]
    work = [sorted(run.profile.operators.items()), sorted(run.profile.kernels.items()), parameters]
    own.figures["work_sha256"] = hashlib.sha256(json.dumps(work).encode()).hexdigest()[:16]
    result.measured.setdefault("figures", {}).update(own.figures)
    if not run.plain_model.training and result.outcome in (Outcome.OK, Outcome.INERT):
        result.outcome = Outcome.INVALID
        result.reason = f"{own.source}: the model was put into eval mode while it trained; call model.train()"


def _read(proof: custom.Proof) -> tuple[bool, str]:
    if isinstance(proof, tuple):
        return bool(proof[0]), str(proof[1])
    return bool(proof), "as reported" if proof else "not in effect"
