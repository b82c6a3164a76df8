"""What a claim can be about: one table of metrics, each with its unit, its direction and its formula."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from harness.errors import ClaimbenchError, suggestion
from harness.judgement import quantities as q
from harness.results.record import Record

#: Reads one number of one trial; the second argument is the memory view. None where the trial has none.
Quantity = Callable[[Record, str], float | None]


class Statistic(StrEnum):
    """How the trials of two arms become one figure."""

    PAIRED = "paired"
    """cell ÷ baseline within each round, Student's t on the logarithms."""
    MAXIMUM = "maximum"
    """Maximum over the trials of the cell ÷ maximum over those of the baseline; no interval (memory, counts)."""
    LEVEL = "level"
    """The cell alone: mean over rounds, Student's t on the plain scale."""
    WORST = "worst"
    """The cell alone: the largest value of any trial; no interval (peak memory, the compilation that is paid once,
    errors of arithmetic, which are looked at in one round)."""

    @property
    def of_the_cell_alone(self) -> bool:
        return self in (Statistic.LEVEL, Statistic.WORST)

    @property
    def has_interval(self) -> bool:
        return self in (Statistic.PAIRED, Statistic.LEVEL)


class Shape(StrEnum):
    """What is shown of r = cell ÷ baseline."""

    RATIO = "r"
    INVERSE = "1/r"
    SAVED = "1 - r"


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One row of the table."""

    name: str
    meaning: str
    unit: str
    """`x` (a ratio), `share` (shown as per cent), or a unit of its own; empty for a word or a truth value."""
    more_is_better: bool | None
    """None: neither is."""
    quantity: Quantity
    statistic: Statistic
    shape: Shape = Shape.RATIO
    gated: bool = True
    """A cell that fails parity confirms nothing on this metric."""
    per_device: bool = False
    """Divide r by the number of devices of the cell over that of the baseline."""
    uses_view: bool = False
    untimed: bool = False
    """It holds of trials as well whose timing is in doubt."""

    @property
    def is_peak(self) -> bool:
        """Of memory at its fullest, which a trial that runs out of it does not show."""
        return self.uses_view or _of_a_peak(self.name)

    @property
    def subject(self) -> str:
        """What becomes more or less: `speed`, `peak memory`, `busy time`."""
        if self.name in _SUBJECTS:
            return _SUBJECTS[self.name]
        name = self.name.partition(":")[2] or self.name
        suffix = next((each for each in _QUANTITIES if name.endswith(each)), "")
        words = name.removesuffix(suffix).replace("_", " ").replace(".", " ")
        return words + _QUANTITIES.get(suffix, "")

    @property
    def comparatives(self) -> tuple[str, str]:
        """What the cell's subject is where an inverse ratio is above 1, and where it is below."""
        subject = self.subject
        if subject.endswith(("time", "wait")):
            return "shorter", "longer"
        return ("smaller", "larger") if subject.endswith(("memory", "state")) else ("lower", "higher")

    @property
    def neutral(self) -> float | None:
        """The value that means "no difference"; None for a level, and where 1 is the ideal and not the baseline."""
        if self.statistic.of_the_cell_alone or self.per_device:
            return None
        return 0.0 if self.shape is Shape.SAVED else 1.0

    def shaped(self, ratio: float) -> float:
        """The value of the metric for r = cell ÷ baseline."""
        if self.shape is Shape.SAVED:
            return 1 - ratio
        if self.shape is Shape.INVERSE:
            return 1 / ratio if ratio else math.inf
        return ratio

    def unshaped(self, value: float) -> float:
        """r for a value of the metric: the inverse of `shaped`, which is its own."""
        return self.shaped(value)


class UnknownMetric(ClaimbenchError):  # noqa: N818 - read as a sentence
    """A claim names a metric that does not exist."""


def _paired(name: str, meaning: str, quantity: Quantity, *, better: bool | None, shape: Shape = Shape.RATIO,
            per_device: bool = False, unit: str = "x") -> Metric:  # fmt: skip
    return Metric(name=name, meaning=meaning, unit=unit, more_is_better=better, quantity=quantity,
                  statistic=Statistic.PAIRED, shape=shape, per_device=per_device)  # fmt: skip


def _maximum(name: str, meaning: str, quantity: Quantity, *, shape: Shape, uses_view: bool = False,
             gated: bool = True) -> Metric:  # fmt: skip
    unit = "share" if shape is Shape.SAVED else "x"
    return Metric(name=name, meaning=meaning, unit=unit, more_is_better=shape is not Shape.RATIO, quantity=quantity,
                  statistic=Statistic.MAXIMUM, shape=shape, uses_view=uses_view, gated=gated)  # fmt: skip


def _level(name: str, meaning: str, quantity: Quantity, *, better: bool | None, unit: str = "share",
           uses_view: bool = False) -> Metric:  # fmt: skip
    return Metric(name=name, meaning=meaning, unit=unit, more_is_better=better, quantity=quantity,
                  statistic=Statistic.LEVEL, gated=False, uses_view=uses_view)  # fmt: skip


_TABLE = (
    _paired("speedup", "tokens/s of the cell over those of the baseline", q.tokens_per_second, better=True),
    _paired("samples_ratio", "samples/s of the cell over those of the baseline", q.samples_per_second, better=True),
    _paired("step_time_ratio", "mean time of a step, cell over baseline", q.step_seconds, better=False),
    _paired("busy_time_ratio", "time in a profiled step for which the device computes or copies, cell over baseline",
            q.busy_seconds, better=False),
    _paired("step_time_per_token_ratio", "time per token, cell over baseline", q.seconds_per_token, better=False),
    _paired("optimizer_speedup", "time of the optimizer's step alone, baseline over cell",
            q.phase("optimizer"), better=True, shape=Shape.INVERSE),
    _paired("forward_speedup", "time of the forward pass, baseline over cell",
            q.phase("forward"), better=True, shape=Shape.INVERSE),
    _paired("data_wait_speedup", "time spent waiting for data, baseline over cell",
            q.phase("data_wait"), better=True, shape=Shape.INVERSE),
    _paired("copy_speedup", "time of host-to-device copies, baseline over cell",
            q.phase("copy"), better=True, shape=Shape.INVERSE),
    _paired("useful_tokens_ratio", "tokens/s that are not padding, cell over baseline", q.useful_tokens, better=True),
    _paired("scaling_efficiency", "tokens/s of N devices over N times those of one (weak scaling)",
            q.tokens_per_second, better=True, per_device=True, unit="share"),
    _paired("energy_ratio", "energy per token, cell over baseline", q.energy, better=False),
    _maximum("peak_saved", "share of the peak memory saved", q.peak_bytes, shape=Shape.SAVED, uses_view=True),
    _maximum("peak_ratio", "peak memory, baseline over cell", q.peak_bytes, shape=Shape.INVERSE, uses_view=True),
    _maximum("activation_saved", "share of the activations' bytes saved", q.state("activations"), shape=Shape.SAVED),
    _maximum("parameter_bytes_saved", "share of the parameters' bytes saved", q.state("parameters"),
             shape=Shape.SAVED),
    _maximum("model_state_ratio", "model state per parameter and rank before the step, baseline over cell",
             q.state_per_parameter, shape=Shape.INVERSE),
    _maximum("trainable_share_saved", "share of the trainable parameters that is trained no more",
             q.trainable_parameters, shape=Shape.SAVED, gated=False),
    _level("data_wait_share", "share of a step spent waiting for data", q.data_wait_share, better=False),
    _level("utilisation", "mean GPU utilisation over the window", q.utilisation, better=True),
    _level("memory_used_share", "peak memory over the memory of the device", q.memory_share, better=None,
           uses_view=True),
    _level("mfu", "model FLOPs utilisation", q.mfu, better=True),
    _level("hfu", "hardware FLOPs utilisation", q.hfu, better=True),
    _level("prediction_ratio", "peak memory predicted by the document over the measured one", q.prediction_ratio,
           better=None, unit="x", uses_view=True),
    Metric(name="gradient_error_ratio", unit="x", more_is_better=False, quantity=q.gradient_error_ratio,
           meaning="error of the first gradient over eager attention's own at that precision",
           statistic=Statistic.WORST, gated=False, untimed=True),
    _level("tokens_per_second", "tokens/s", q.tokens_per_second_level, better=True, unit="tokens/s"),
    Metric(name="peak_bytes", meaning="peak memory", unit="bytes", more_is_better=False, quantity=q.peak_bytes,
           statistic=Statistic.WORST, gated=False, uses_view=True),
    # of the first trial of a cell, which compiles; the others read its cache
    Metric(name="compile_seconds", meaning="time of the compilation", unit="seconds", more_is_better=False,
           quantity=q.compile_seconds, statistic=Statistic.WORST, gated=False),
)  # fmt: skip

_SUBJECTS = {
    "speedup": "speed", "samples_ratio": "samples/s", "step_time_ratio": "step time", "energy_ratio": "energy",
    "busy_time_ratio": "busy time", "step_time_per_token_ratio": "time per token",
    "optimizer_speedup": "optimizer time", "forward_speedup": "forward time",
    "data_wait_speedup": "data wait", "copy_speedup": "copy time",
    "useful_tokens_ratio": "useful tokens/s", "scaling_efficiency": "speed", "peak_saved": "peak memory",
    "peak_ratio": "peak memory", "activation_saved": "activations", "parameter_bytes_saved": "parameter bytes",
    "model_state_ratio": "model state", "trainable_share_saved": "trainable parameters",
}  # fmt: skip
METRICS: Mapping[str, Metric] = {metric.name: metric for metric in _TABLE}
#: A kind's own figure, whose name follows the colon: of the cell alone, paired with the baseline's, or saved of it.
FACT = "figure:"
FIGURE_PREFIXES = (FACT, "figure_ratio:", "figure_inverse:", "figure_saved:")
#: Units live in names.
_QUANTITIES = {"_bytes": " memory", "_milliseconds": " time", "_per_second": "/s", "_seconds": " time"}
_UNITS = {"_bytes": "bytes", "_seconds": "seconds", "_share": "share", "_milliseconds": "ms"}


def metric_named(name: str) -> Metric:
    """The metric of that name; `figure:loss_gap` and the like are made as they are named.

    Raises:
        UnknownMetric: there is none; the message suggests the nearest.
    """
    if name in METRICS:
        return METRICS[name]
    prefix, colon, figure = name.partition(":")
    if colon and figure and f"{prefix}:" in FIGURE_PREFIXES:
        return _figure_metric(prefix, figure)
    known = [*METRICS, *(f"{each}<name>" for each in FIGURE_PREFIXES)]
    raise UnknownMetric(f"unknown metric {name!r}{suggestion(name, known, 'docs/claims.md')}")


def _figure_metric(prefix: str, figure: str) -> Metric:
    shown = figure.replace("_", " ").replace(".", " ")
    quantity = q.figure(figure)
    peak = _of_a_peak(figure)
    if prefix == "figure":
        unit = next((unit for suffix, unit in _UNITS.items() if figure.endswith(suffix)), "")
        return Metric(name=f"figure:{figure}", meaning=shown, unit=unit, more_is_better=None, quantity=quantity,
                      statistic=Statistic.WORST if peak else Statistic.LEVEL, gated=False)  # fmt: skip
    shape = {"figure_ratio": Shape.RATIO, "figure_inverse": Shape.INVERSE, "figure_saved": Shape.SAVED}[prefix]
    words = {Shape.RATIO: "cell over baseline", Shape.INVERSE: "baseline over cell", Shape.SAVED: "share saved"}[shape]
    return Metric(name=f"{prefix}:{figure}", meaning=f"{shown}, {words}", unit="share" if shape is Shape.SAVED else "x",
                  more_is_better=_direction(figure, shape), quantity=quantity,
                  statistic=Statistic.MAXIMUM if peak else Statistic.PAIRED, shape=shape)  # fmt: skip


def _of_a_peak(figure: str) -> bool:
    """Whether a kind's own figure is peak memory (`layer_peak_bytes`), and judged as all peaks are."""
    return figure.endswith("_bytes") and "peak" in re.split(r"[._:]", figure)


def _direction(figure: str, shape: Shape) -> bool | None:
    """Rates are better when there is more of them, times and bytes when there is less; of others nothing is known."""
    if figure.endswith("_per_second"):
        return shape is Shape.RATIO
    return shape is not Shape.RATIO if figure.endswith(("_seconds", "_bytes")) else None
