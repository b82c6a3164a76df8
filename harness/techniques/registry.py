"""All techniques, in the order in which they are shown and applied, and the table of axes that they make up.

An outside package adds its own through the entry point group `claimbench.techniques` (a `Technique` subclass each).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from harness.environment import Environment, detect
from harness.errors import EnvironmentProblem
from harness.experiment.axes import Axis, AxisError, AxisTable
from harness.experiment.cell import Cell
from harness.techniques.attention import Attention
from harness.techniques.base import Technique
from harness.techniques.batching import Batching
from harness.techniques.checkpointing import Checkpointing
from harness.techniques.clip import Clip
from harness.techniques.compilation import Compilation
from harness.techniques.copying import Copying
from harness.techniques.deepspeed_options import DeepSpeedOptions
from harness.techniques.distillation import Distillation
from harness.techniques.empty_cache import EmptyCache
from harness.techniques.loading import Loading
from harness.techniques.lora import Lora
from harness.techniques.monitor import Monitor
from harness.techniques.optimizer import Optimizer
from harness.techniques.parallel import Parallel
from harness.techniques.precision import Precision
from harness.techniques.pruning import Pruning
from harness.techniques.quantization import Quantization
from harness.techniques.schedule import Schedule
from harness.techniques.size import Size
from harness.techniques.zero import Zero

ENTRY_POINTS = "claimbench.techniques"

BUILT_IN: tuple[type[Technique], ...] = (
    Precision,
    DeepSpeedOptions,
    Attention,
    # weights change before adapters are put on them, and adapters are there before blocks are wrapped: peft would
    # otherwise turn input gradients on by itself, whatever the cell says
    Quantization,
    Lora,
    Pruning,
    Checkpointing,
    Compilation,
    Optimizer,
    Size,
    Loading,
    Batching,
    Copying,
    Parallel,
    Zero,
    EmptyCache,
    Clip,
    Schedule,
    Monitor,
    Distillation,
)


@cache
def techniques() -> tuple[Technique, ...]:
    """One instance of every technique, outside ones last.

    Raises:
        EnvironmentProblem: an outside technique cannot be loaded or is none.
    """
    found = [each() for each in BUILT_IN]
    for point in entry_points(group=ENTRY_POINTS):
        try:
            technique = point.load()()
        except Exception as error:
            # whatever a stranger's module raises, the user needs its name
            message = f"technique {point.name!r} of {point.value} cannot be loaded ({error}); mend or uninstall it"
            raise EnvironmentProblem(message) from error
        if not isinstance(technique, Technique):
            message = f"technique {point.name!r} of {point.value} is no harness.techniques.base.Technique; mend it"
            raise EnvironmentProblem(message)
        if wrong := _wrong_axes(technique):
            raise EnvironmentProblem(f"technique {point.name!r} of {point.value}: {wrong}")
        technique.distribution = _distribution(point)
        found.append(technique)
    return tuple(found)


def _wrong_axes(technique: Technique) -> str:
    """What is wrong with a stranger's axes, and what to write; empty where nothing is."""
    axes: object = technique.axes
    if not isinstance(axes, tuple) or not all(isinstance(each, Axis) for each in axes):
        return "its `axes` must be a tuple of harness.experiment.axes.Axis; of a single one write axes = (Axis(…),)"
    for axis in axes:
        try:
            axis.parse(axis.default)
        except AxisError as error:
            return f"the default of an axis must be one of its settings: {error}"
    return ""


def _distribution(point: EntryPoint) -> str:
    """The distribution that brings an outside technique; "" where its metadata do not name it."""
    try:
        return str(point.dist.name or "") if point.dist else ""
    except (TypeError, KeyError):  # a folder of metadata with an entry point and nothing else
        return ""


def this_machine() -> Environment:
    """As `environment.detect`, with the versions of all distributions that techniques stand on.

    Raises:
        EnvironmentProblem: as for `techniques`.
    """
    return detect(also=[name for each in techniques() for name in (*each.packages, each.distribution) if name])


@cache
def axis_table() -> AxisTable:
    """Every axis, in the order of the techniques.

    Raises:
        EnvironmentProblem: two techniques define the same axis.
    """
    try:
        return AxisTable(axis for technique in techniques() for axis in technique.axes)
    except AxisError as error:
        owners = [type(each) for each in techniques() if type(each) not in BUILT_IN]
        outside = ", ".join(f"{each.__module__}.{each.__qualname__}" for each in owners)
        raise EnvironmentProblem(f"{error}, or uninstall it (outside techniques here: {outside})") from None


def owner_of(axis: str, among: Iterable[Technique] | None = None) -> Technique:
    """The technique that owns an axis."""
    return next(each for each in among or techniques() if any(own.name == axis for own in each.axes))


def refusal(environment: Environment, cell: Cell, kind: str = "training") -> str | None:
    """Why a cell cannot run here, with the remedy, or None. The first technique that refuses speaks.

    Raises:
        EnvironmentProblem: an outside technique raises in place of an answer.
    """
    for technique in techniques():
        try:
            reason = technique.requires(environment, cell)
        except Exception as error:
            if type(technique) in BUILT_IN:
                raise
            raise EnvironmentProblem(_raised(technique, error)) from error
        if reason is not None:
            return reason
    return None


def _raised(technique: Technique, error: Exception) -> str:
    """Of a stranger's `requires`; where it comes from is what can be mended or uninstalled."""
    kind = type(technique)
    words = str(error).strip().partition("\n")[0]
    return (
        f"technique {kind.__name__} of the package {kind.__module__.partition('.')[0]} raised in requires "
        f"({type(error).__name__}: {words or 'no message'}); mend or uninstall it"
    )
