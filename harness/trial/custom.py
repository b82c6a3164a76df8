"""A training step of the user's own as a workload: `check --workload my.py:build`, or `model: my.py:build`.

    def build(device, settings):
        model = MyModel().to(device)
        batches = [torch.randint(0, 100, (8, 128)) for _ in range(20)]

        def loss(model, batch):
            return model(batch).mean()

        return model, batches, loss

`build` is called once in every trial, in a process of its own, with every source of random numbers seeded alike in all
arms of a round. It gets a `torch.device` and the settings, one for every axis. What it returns is a `TrainingStep`, or
the tuple (model, batches, loss) that stands for one. The harness trains it with AdamW; docs/check.md has the rest.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from harness.errors import WorkloadError, suggestion
from harness.trial.outcome import is_out_of_memory

if TYPE_CHECKING:
    import torch
    from torch import nn

    from harness.experiment.axes import Setting

#: What proves a setting: whether it was in effect, or that with a fact in a few words.
Proof = bool | tuple[bool, str]


class Loss(Protocol):
    """The loss of one batch."""

    def __call__(self, model: Any, batch: Any) -> torch.Tensor:
        """A scalar with gradient. `model` is the one that `build` returned, compiled or wrapped where a setting asks
        for it, so call what is passed; `batch` is on the device."""


class Build(Protocol):
    """The user's function."""

    def __call__(self, device: torch.device, settings: Mapping[str, Setting]) -> Any:
        """A `TrainingStep`, or the tuple (model, batches, loss)."""


@dataclass(kw_only=True)
class TrainingStep:
    """What `build` returns."""

    model: nn.Module
    """On the device, in train mode."""
    batches: Iterable[Any] | Callable[[], Iterable[Any]]
    """A list, a DataLoader, or a function that begins anew. The same seed must give the same batches; when they end
    they begin again. A batch is a tensor, tensors in a mapping, sequence or dataclass, or an object with
    `.to(device)`; the harness moves it to the device."""
    loss: Loss
    honours: Collection[str] = ()
    """Axes that `build` itself puts into effect, reading `settings[axis]`. The harness leaves these alone."""
    evidence: Callable[[], Mapping[str, Proof]] | None = None
    """Asked after the window: axis → what shows that its setting was in effect."""
    tokens: Callable[[Any], int] | None = None
    """Tokens in a batch; None: the size of `input_ids`, else of the batch's first tensor of whole numbers."""
    optimizer: Callable[[Iterable[nn.Parameter]], Any] | None = None
    """A `torch.optim.Optimizer`, or any object with `step()` and `zero_grad()`. None: torch's AdamW, as the axis
    `optimizer` has it."""


def load(source: str) -> Build:
    """The function behind `path.py:name`; its file is run, with its folder on the path for what it imports.

    Raises:
        WorkloadError: the file cannot be run, or has no such function.
    """
    path, _, name = source.rpartition(":")
    file = Path(path).resolve()
    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(_module_name(file), file)
    if spec is None or spec.loader is None or not file.is_file():
        raise WorkloadError(f"{path}: there is no such Python file; give --workload FILE.py:{name}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise told(error, f"{path} cannot be imported", file) from error
    build = getattr(module, name, None)
    if build is not None and not callable(build):
        kind = type(build).__name__
        raise WorkloadError(
            f"{name!r} in {path} is of type {kind}; name the function that returns model, batches and loss"
        )
    if build is None:
        raise WorkloadError(f"{path} has no function {name!r}; name the function that returns model, batches and loss")
    found: Build = build
    return found


def _module_name(file: Path) -> str:
    """The file's own name where that is free: a spawned loader worker, which has our `sys.path`, imports it by that."""
    importlib.invalidate_caches()
    name = file.stem
    if "." not in name and name not in sys.modules:
        found = importlib.util.find_spec(name)
        if found is not None and found.origin == str(file):
            return name
    return f"claimbench_step_{name}"


def call(build: Build, source: str, device: torch.device, settings: Mapping[str, Setting], seed: int) -> TrainingStep:
    """What `build` returns, seeded and checked.

    Raises:
        WorkloadError: it raises, or returns something else.
    """
    seed_everything(seed)
    code = getattr(build, "__code__", None)
    with blamed(source, Path(getattr(code, "co_filename", ""))):
        made = build(device, dict(settings))
    return checked(made, source, device)


def checked(made: object, source: str, device: torch.device) -> TrainingStep:
    """The step in what `build` returned.

    Raises:
        WorkloadError: it is none, in one sentence that says what it should be.
    """
    from torch import nn

    if isinstance(made, TrainingStep):
        step = made
    elif isinstance(made, tuple) and len(made) == 3:
        step = TrainingStep(model=made[0], batches=made[1], loss=made[2])
    else:
        parts = f"a tuple of {len(made)}" if isinstance(made, tuple) else f"a {type(made).__name__}"
        raise WorkloadError(f"{source} returned {parts}; it must return (model, batches, loss) or a TrainingStep")
    problem = None
    if not isinstance(step.model, nn.Module):
        problem = f"the model is a {type(step.model).__name__}, and must be a torch.nn.Module"
    elif not callable(step.loss):
        problem = f"the loss is a {type(step.loss).__name__}, and must be a function of (model, batch)"
    else:
        problem = _batches_problem(step.batches) or _options_problem(step) or _model_problem(step.model, device)
    if problem is not None:
        raise WorkloadError(f"{source}: {problem}")
    return step


def _batches_problem(batches: object) -> str | None:
    """A few steps would not show that they end and cannot begin again: that is looked at here."""
    kind = type(batches).__name__
    if not callable(batches) and not isinstance(batches, Iterable):
        return f"the batches are a {kind}, and must be iterable"
    if isinstance(batches, Iterator):
        return (
            f"the batches are a {kind}, which ends after one pass and cannot begin again; return a list, a DataLoader, "
            "or a function that begins anew, such as the generator function itself, not called"
        )
    return None


def _options_problem(step: TrainingStep) -> str | None:
    from harness.techniques.registry import axis_table

    for name, taken in (("evidence", "nothing"), ("tokens", "a batch"), ("optimizer", "parameters")):
        part = getattr(step, name)
        if part is not None and not callable(part):
            return f"{name} is a {type(part).__name__}, and must be a function of {taken}"
    if isinstance(step.honours, str) or not isinstance(step.honours, Collection):
        return f"honours is {step.honours!r}, and must be a set of axes, as {{'workers'}}"
    unknown = next((each for each in step.honours if each not in axis_table()), None)
    if unknown is not None:
        return f"honours names {unknown!r}, which is no axis{suggestion(unknown, axis_table(), 'claimbench doctor')}"
    return None


def _model_problem(model: nn.Module, device: torch.device) -> str | None:
    from torch.nn.parameter import is_lazy

    unshaped = next((name for name, part in model.named_parameters() if is_lazy(part)), None)
    if unshaped is not None:
        return (
            f"the shape of the parameter {unshaped} is not known yet, as in an nn.LazyLinear; run one batch through "
            "the model in build"
        )
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trained:
        return "the model has no parameter that is trained (requires_grad)"
    elsewhere = {str(parameter.device) for parameter in model.parameters() if parameter.device.type != device.type}
    if elsewhere:
        return f"the model lies on {', '.join(sorted(elsewhere))}, not on {device}; call .to(device) in build"
    if not model.training:
        return (
            "the model is in eval mode, in which dropout is off and transformers checkpoints nothing: that is no "
            "training step; call model.train() in build"
        )
    return None


def seed_everything(seed: int) -> None:
    """Python's, numpy's and torch's random numbers."""
    import random

    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


@contextmanager
def blamed(part: str, file: Path) -> Iterator[None]:
    """An exception in here is told as one of `part`, with the line of the user's file. Out of memory stays that.

    `sys.exit` in a step is one too: it would end the trial without a result.

    Raises:
        WorkloadError: in place of any other exception.
    """
    try:
        yield
    except WorkloadError:
        raise
    except (Exception, SystemExit) as error:
        if is_out_of_memory(error):
            raise
        raise told(error, f"{part} raised", file) from error


def told(error: Exception | SystemExit, what: str, file: Path) -> WorkloadError:
    """An exception of the user's code as one sentence, with the line of their file that it came through."""
    traceback.print_exception(error)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == file]
    line = lines[-1] if lines else error.lineno if isinstance(error, SyntaxError) else None
    place = f" at line {line}" if line else ""
    first = next(iter(str(error).strip().splitlines()), "no message")
    return WorkloadError(f"{what}{place}: {type(error).__name__}: {first}")
