"""A training trial, from nothing to a result. `TrainingRun` is what techniques work on; `run_training` is the trial.

prepare   ranks, device; process-wide techniques (PROCESS); model, data; MODEL, PARALLEL, COMPILE; optimizer; STEP
warm up   untimed steps: losses, gradient norms, bytes of model state, compilation
window    timed steps: marks only
after     peaks, figures; one step under the profiler; each technique's evidence; the gradient check
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsInt

import torch
from torch import nn

from harness.environment import Environment
from harness.experiment.cell import Cell, Workload
from harness.experiment.workloads import is_step
from harness.techniques.base import Stage, Technique
from harness.techniques.kept import entries_of
from harness.trial import ranks as group
from harness.trial.batching import Batch, LoaderSettings
from harness.trial.clock import STEP, Timeline, clock_for
from harness.trial.corpus import prepare
from harness.trial.data import make_loader
from harness.trial.flops import Weights, count_parameters, count_weights
from harness.trial.model import blocks_of, head_of, make_config, make_model
from harness.trial.own_batches import Sizes, sizes_of
from harness.trial.profile import Profile
from harness.trial.ranks import Ranks
from harness.trial.spec import TrialSpec

if TYPE_CHECKING:
    from harness.trial.own_step import OwnStep

#: AdamW as everywhere in these documents: learning rate of GPT-2-sized models, torch's default betas.
LEARNING_RATE = 3e-4
WEIGHT_DECAY = 0.01


class TrainingRun:
    """Everything about one trial that a technique may look at or change, filled in the order of `Stage`."""

    def __init__(self, spec: TrialSpec, ranks: Ranks, environment: Environment) -> None:
        self.spec = spec
        self.ranks = ranks
        self.environment = environment
        self.cell = Cell(workload=Workload(name="", model=spec.model, data=spec.data), settings=spec.settings)
        self.device = torch.device(spec.device, ranks.local_rank) if spec.device == "cuda" else torch.device("cpu")
        self.held = ExitStack()
        """Contexts entered before the first call and held to the end (the choice of an attention kernel)."""
        self._start_process_stage()
        self._start_model_stage()
        self._start_step()
        self._start_loop()

    def _start_process_stage(self) -> None:
        """What techniques of `Stage.PROCESS` set."""
        self.parameter_dtype = torch.float32
        self.attention: str | None = "sdpa"
        """transformers' word for the attention implementation; None: what it chooses itself."""
        self.forward_contexts: list[Callable[[], AbstractContextManager[Any]]] = []
        """Entered around each forward (autocast)."""
        self.scaler: Any = None
        """A GradScaler, for fp16."""
        self.loss_scale: Callable[[], float] = lambda: (
            float(self.scaler.get_scale()) if self.scaler is not None else 1.0
        )
        """What the loss, and so `gradient_tensors`, is multiplied by."""
        self.prepare_batch: Callable[[Batch], Batch] = lambda batch: batch
        """Applied to a batch on the device before the model sees it."""

    def _start_model_stage(self) -> None:
        """What is there from `Stage.MODEL` on."""
        self.own: OwnStep | None = None
        """A user's own step, where the workload is one: `config` may then be None, and settings that the question does
        not name are the user's."""
        self.config: Any = None
        self.model: nn.Module = nn.Module()
        self.plain_model: nn.Module = nn.Module()
        """The model without wrappers of parallelism or compilation: where blocks and layers are found."""
        self.weights = Weights()
        """Weights of matrix products of the whole model, also where this rank will hold a part of it only."""
        self.forward_only: list[nn.Module] = []
        """Models of the same configuration that see each micro-batch too and are not trained (a teacher)."""
        self.parameter_counts: dict[str, int] = {}
        """`total` and `trainable` of the whole model, by logical size."""
        self.accumulation = int(self.spec.settings["accumulation"])
        self.last_micro_step = True
        """False in all but the last micro-batch of a step (data parallel gradients are exchanged only then)."""
        self.call: Callable[..., Any] = lambda **_: None
        """What is called with a batch; `model`, or its compiled form."""
        self.loss_of: Callable[[Batch], torch.Tensor] = lambda batch: self.call(**batch, use_cache=False).loss
        """The loss of a batch on the device; called under the forward contexts."""
        self.make_optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer] = self._adamw
        self.optimizer_options: dict[str, Any] = {}
        self.optimizer: Any = None

    def _start_step(self) -> None:
        self._start_parts()
        self._start_division()
        self._start_state()

    def _start_parts(self) -> None:
        """The parts of a step, which an engine may take over, and the hooks around it."""
        self.micro_step: Callable[[Batch], torch.Tensor] = self._micro_step
        self.backward: Callable[[torch.Tensor], None] = self._backward
        self.update: Callable[[], None] = self._update
        self.before_optimizer: list[Callable[[], None]] = []
        """Between backward and the optimizer's step, gradients unscaled (clipping)."""
        self.after_step: list[Callable[[int], None]] = []
        """After each step, with its number from 0."""
        self.around_window: list[Callable[[], AbstractContextManager[Any]]] = []
        """Held from before the warm-up to the end of the window (background monitors)."""
        self.copy: Callable[[Batch], Batch] = self._copy
        self.wrap_batches: Callable[[Iterator[Batch]], Iterator[Batch]] = lambda batches: batches
        """Around the loader's iterator (copying ahead on a side stream)."""

    def _start_division(self) -> None:
        """Several devices: what a way of dividing the work changes about this rank."""
        self.data_rank = self.ranks.rank
        """Whose samples this rank sees: its own, or another's where ranks share a batch (stages of a pipeline)."""
        self.devices_fed = 1
        """Devices whose batches this process loads (DataParallel feeds several)."""
        self.reports_work = True
        """False where another rank speaks for the same batches: tokens and losses must not count twice."""
        self.forwards_a_micro_step = 1
        """How often a block runs forward for one micro-batch, recomputation aside."""
        self.split_gradients = False
        """True where each rank holds another part of the gradient."""
        self.own_gradients = False
        """True where an engine keeps gradients in buffers of its own, away from `parameter.grad`."""

    def _start_state(self) -> None:
        """Where gradients and state lie, and what is noted of them."""
        self.gradient_tensors: Callable[[], Iterable[Any]] = self._gradients
        """This rank's gradients between backward and the optimizer's step: no copies, so scaled as the loss is."""
        self.state_parts: Callable[[], dict[str, Iterable[Any]]] = dict
        """Tensors of model state by kind, where an engine keeps some that the model and the optimizer do not show."""
        self.bucket_bytes: Callable[[], int] = int
        """Bytes of communication buffers that are no tensors of Python's."""
        self.facts: dict[str, Any] = {}
        """Notes of techniques to their own `evidence`."""
        self.profile: Profile | None = None
        """One step after the window; there when `evidence` is asked."""

    def _start_loop(self) -> None:
        """The loader, the timeline and the counters."""
        self.sizes: Callable[[Batch], Sizes] = sizes_of
        """What counts as tokens and samples in a batch."""
        self.loader: Any = None
        self.loader_iterator: Any = None
        """torch's own iterator over the loader: it knows the worker processes."""
        self.batches: Iterator[Batch] = iter(())
        self.timeline = Timeline(clock_for(self.device))
        self.losses: list[torch.Tensor] = []
        self._tokens: list[SupportsInt] = []
        self._useful: list[SupportsInt] = []
        self.samples = 0
        self.steps_done = 0

    def let_go(self) -> None:
        """Hold on to nothing that lies on the device: model, optimizer, and what techniques hung around the step."""
        self.model = self.plain_model = nn.Module()
        self.call = lambda **_: None
        self.optimizer = self.loader_iterator = None
        self.batches = iter(())
        self._start_parts()
        self._start_state()
        if self.own is not None:
            self.own.let_go()

    # -- the step -----------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """One optimizer step: `accumulation` micro-batches, then the update."""
        self.timeline(STEP)
        loss: torch.Tensor | None = None
        for micro in range(self.accumulation):
            self.last_micro_step = micro == self.accumulation - 1
            batch = next(self.batches)
            self._count(batch)
            self.timeline("data_wait")
            batch = self.prepare_batch(self.copy(batch))
            self.timeline("copy")
            part = self.micro_step(batch)
            loss = part if loss is None else loss + part
        for hook in self.before_optimizer:
            hook()
        self.update()
        self.timeline("optimizer")
        assert loss is not None
        # a copy: CUDA graphs overwrite their outputs at the next replay (pytorch#169545)
        self.losses.append(loss / self.accumulation if self.accumulation > 1 else loss.clone())
        for after in self.after_step:
            after(self.steps_done)
        self.steps_done += 1

    def forward(self, batch: Batch) -> torch.Tensor:
        """The loss of a batch, under the forward contexts. Scalar tensor with gradient."""
        with contextlib.ExitStack() as stack:
            for context in self.forward_contexts:
                stack.enter_context(context())
            return self.loss_of(batch)

    def forward_plain(self, batch: Batch) -> torch.Tensor:
        """The loss of a batch from the model as it is before compilation: for looking inside, outside the window."""
        called, self.call = self.call, self.model
        try:
            return self.forward(batch)
        finally:
            self.call = called

    def _micro_step(self, batch: Batch) -> torch.Tensor:
        loss = self.forward(batch)
        self.timeline("forward")
        self.backward(loss / self.accumulation if self.accumulation > 1 else loss)
        self.timeline("backward")
        return loss.detach()

    def _backward(self, loss: torch.Tensor) -> None:
        (self.scaler.scale(loss) if self.scaler is not None else loss).backward()

    def _update(self) -> None:
        if self.scaler is None:
            self.optimizer.step()
        else:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)

    def _copy(self, batch: Batch) -> Batch:
        at_once = bool(self.cell["non_blocking"])
        return {name: part.to(self.device, non_blocking=at_once) for name, part in batch.items()}

    def _count(self, batch: Batch) -> None:
        tokens, samples, useful = self.sizes(batch)
        self._tokens.append(tokens)
        self.samples += samples
        self._useful.append(useful)

    @property
    def tokens(self) -> int:
        """Positions computed by this rank since `restart`, padding included. Waits for the device where they are
        counted there."""
        return sum(int(part) for part in self._tokens)

    def useful_tokens(self) -> int:
        """Positions since `restart` that are not padding. Waits for the device when masks lie there."""
        return sum(int(part) for part in self._useful)

    def restart(self) -> None:
        """Begin a new window: a fresh timeline and counters at zero."""
        self.timeline = Timeline(clock_for(self.device))
        self.samples = 0
        self._tokens.clear()
        self._useful.clear()

    def _adamw(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, **self.optimizer_options)

    # -- what others ask ----------------------------------------------------------------------------------------------

    def blocks(self) -> list[nn.Module]:
        """The model's repeated blocks."""
        return self.own.blocks() if self.own is not None else blocks_of(self.plain_model)

    def trainable(self) -> list[nn.Parameter]:
        """Parameters that are trained."""
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    def loader_settings(self) -> LoaderSettings:
        """The cell's, with a batch for every device that this process feeds."""
        settings = LoaderSettings.of(self.spec.settings)
        return replace(settings, batch_size=settings.batch_size * self.devices_fed)

    def _gradients(self) -> list[Any]:
        return [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]

    def gradient_norm(self) -> float:
        """Global L2 norm of the gradient, unscaled; of this rank's own where ranks have not averaged theirs yet."""
        parts = [entries_of(part) for part in self.gradient_tensors()]
        norm = float(torch.nn.utils.get_total_norm([part.float() for part in parts])) if parts else 0.0
        if self.split_gradients:
            norm = math.sqrt(sum(each * each for each in group.gather(norm, self.ranks)))
        return norm / self.loss_scale()

    def optimizer_tensors(self) -> list[Any]:
        """Tensors of the optimizer's state on this rank."""
        states = self.optimizer.state.values() if self.optimizer is not None else ()
        return [value for state in states for value in state.values() if hasattr(value, "untyped_storage")]


def build(run: TrainingRun, techniques: Iterable[Technique]) -> None:
    """Everything up to the first step."""
    ordered = list(techniques)

    def apply(stage: Stage) -> None:
        for technique in ordered:
            # of one stage, in the order of the registry
            if technique.stage == stage:
                technique.apply(run.cell, run)

    if run.device.type == "cuda":
        torch.cuda.set_device(run.device)
    if group.needs_group(run.spec.settings):
        group.connect(run.ranks, run.device)
    if is_step(run.spec.model):
        from harness.trial import own_step

        ordered = own_step.start(run, ordered)
        apply(Stage.PROCESS)
        own_step.after_process(run)
    else:
        apply(Stage.PROCESS)
        make_built_in(run)
    apply(Stage.MODEL)
    run.weights = count_weights(run.plain_model, head_of(run.plain_model), run.config)
    run.parameter_counts = count_parameters(run.plain_model)
    apply(Stage.PARALLEL)
    run.call = run.model
    apply(Stage.COMPILE)
    apply(Stage.OPTIMIZER)
    if run.optimizer is None:
        run.optimizer = run.make_optimizer(run.trainable())
    if run.own is None:
        make_batches(run)
    apply(Stage.STEP)
    run.batches = run.wrap_batches(run.batches)


def make_built_in(run: TrainingRun) -> None:
    """The model of a shape."""
    run.config = make_config(run.spec.model, int(run.spec.settings["sequence_length"]))
    run.model = run.plain_model = make_model(
        run.config, attention=run.attention, dtype=run.parameter_dtype, device=run.device, seed=run.spec.seed
    )


def make_batches(run: TrainingRun) -> None:
    """The loader and its iterator: as many batches as warm-up, window and probing can use."""
    folder = prepare(run.spec.data, int(run.config.vocab_size), Path(run.spec.data_directory))
    steps = run.spec.warmup_steps + run.spec.steps + PROBING_STEPS
    run.loader = make_loader(
        folder, run.loader_settings(), seed=run.spec.seed, rank=run.data_rank, batches=steps * run.accumulation
    )
    run.loader_iterator = iter(run.loader)
    run.batches = run.loader_iterator


#: Steps after the window: some techniques want one of their own besides the profiled one.
PROBING_STEPS = 8
