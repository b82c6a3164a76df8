"""One number of one trial: what the metrics are made of. Each takes a record and a memory view, and gives None where
the record has no such figure."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

from harness.results.first_step import FIRST_STEP
from harness.results.record import Record

#: Kinds of model state in `model_state_bytes` that make up the state where no total is recorded.
STATE_KINDS = ("parameters", "gradients", "optimizer", "buckets")
#: The moment at which ZeRO's state is judged: gradients exist, the optimizer has not stepped.
MOMENT = "before_step"


def tokens_per_second(record: Record, _view: str = "") -> float | None:
    return record.tokens_per_second or None


def tokens_per_second_level(record: Record, _view: str = "") -> float | None:
    return record.tokens_per_second


def samples_per_second(record: Record, _view: str = "") -> float | None:
    return record.samples_per_second or None


def step_seconds(record: Record, _view: str = "") -> float | None:
    """Mean of the window: outliers count, they are time that was spent."""
    return math.fsum(record.step_seconds) / len(record.step_seconds) if record.step_seconds else None


def busy_seconds(record: Record, _view: str = "") -> float | None:
    """For which the device computes or copies in a step, from a profiled one: however slowly the host launches that, it
    takes as long. None where no device was profiled, and of several devices: kernels that communicate are busy while
    they wait for others, and slow down what computes beside them."""
    several = (numeric(record.cell.get("devices", 1)) or 1) > 1
    if several or figure_value(record, "breakdown.measured_on") != "gpu":
        return None
    return numeric(figure_value(record, "breakdown.profiled_seconds")) or None


def seconds_per_token(record: Record, _view: str = "") -> float | None:
    return 1 / record.tokens_per_second if record.tokens_per_second else None


def energy(record: Record, _view: str = "") -> float | None:
    return record.energy_joules_per_token or None


def phase(name: str) -> Callable[[Record, str], float | None]:
    """Mean seconds a step of one phase; a phase that took no time has no ratio."""

    def read(record: Record, _view: str = "") -> float | None:
        return record.phases.get(name) or None

    return read


def data_wait_share(record: Record, _view: str = "") -> float | None:
    """Waiting for data over the whole step; over the sum of the phases where step times are missing.

    Phases are means over all steps of the window, so the first one, which no speed counts, is in both.
    """
    wait, first = record.phases.get("data_wait"), numeric(record.figures.get(FIRST_STEP))
    steps = [*record.step_seconds, *([first] if first is not None else [])]
    whole = math.fsum(steps) / len(steps) if record.step_seconds else math.fsum(record.phases.values())
    return wait / whole if wait is not None and whole else None


def useful_tokens(record: Record, _view: str = "") -> float | None:
    """Tokens/s that are not padding: measured as such, or all tokens/s times the share that is useful."""
    measured = numeric(record.figures.get("useful_tokens_per_second"))
    if measured is not None:
        return measured or None
    share = numeric(record.figures.get("useful_share"))
    if share is None or record.tokens_per_second is None:
        return None
    return share * record.tokens_per_second or None


def peak_bytes(record: Record, view: str) -> float | None:
    """Peak memory on one of the views allocated, reserved, device, host."""
    return numeric(getattr(record, f"peak_{view}_bytes"))


def memory_share(record: Record, view: str) -> float | None:
    """Peak memory over the memory of the device; the host view has no device to be a share of."""
    devices = record.environment.get("devices") or []
    total = numeric(devices[0].get("memory_bytes")) if devices else None
    peak = peak_bytes(record, view)
    return peak / total if peak is not None and total and view != "host" else None


def state(kind: str) -> Callable[[Record, str], float | None]:
    """Bytes of one kind of model state (`parameters`, `activations`, …); none at all are no figure."""

    def read(record: Record, _view: str = "") -> float | None:
        held = numeric(record.model_state_bytes.get(kind))
        return held if held is not None and held > 0 else None

    return read


def state_per_parameter(record: Record, _view: str = "") -> float | None:
    """Resident bytes of model state per parameter on the fullest rank, before the optimizer's step."""
    total = record.parameters.get("total")
    states = [rank["model_state_bytes"] for rank in record.ranks if rank.get("model_state_bytes")]
    resident = [bytes_ for each in (states or [record.model_state_bytes]) if (bytes_ := _resident(each)) is not None]
    return max(resident) / total if total and resident else None


def _resident(states: dict[str, Any]) -> float | None:
    if MOMENT in states:
        return numeric(states[MOMENT])
    if "gradients" not in states:  # without them the others are no state before the step
        return None
    parts = [numeric(states[kind]) for kind in STATE_KINDS if kind in states]
    return math.fsum(part for part in parts if part is not None) if parts else None


def trainable_parameters(record: Record, _view: str = "") -> float | None:
    return numeric(record.parameters.get("trainable"))


def utilisation(record: Record, _view: str = "") -> float | None:
    return record.utilisation


def mfu(record: Record, _view: str = "") -> float | None:
    return record.mfu


def hfu(record: Record, _view: str = "") -> float | None:
    return record.hfu


def compile_seconds(record: Record, _view: str = "") -> float | None:
    return record.compile_seconds


def prediction_ratio(record: Record, view: str) -> float | None:
    """The document's estimate of the peak over the measured one."""
    predicted, peak = numeric(record.figures.get("predicted_bytes")), peak_bytes(record, view)
    return predicted / peak if predicted is not None and peak else None


def gradient_error_ratio(record: Record, _view: str = "") -> float | None:
    """Error of the first gradient over that of eager attention at the same precision; not where that one is exact."""
    error, eager = gradient_error(record), numeric(record.gradient_check.get("eager_error"))
    return error / eager if error is not None and eager else None


def gradient_error(record: Record) -> float | None:
    """Of the first gradient against fp32 eager; infinite where it is no number, which a record keeps as null.

    Not under a scaled loss: there the first step may overflow, and is skipped for that.
    """
    error = numeric(record.gradient_check.get("error"))
    overflowed = error is None and "error" in record.gradient_check and record.cell.get("precision") != "amp-fp16"
    return math.inf if overflowed else error


@cache
def figure(name: str) -> Callable[[Record, str], float | None]:
    """A kind's own figure; truth values count as 1 and 0; dots step into mappings (`pinned.seconds`).

    One reader for each name, so that metrics of one figure can be told by it.
    """

    def read(record: Record, _view: str = "") -> float | None:
        value = figure_value(record, name)
        return float(value) if isinstance(value, bool) else numeric(value)

    return read


def figure_value(record: Record, name: str) -> Any:
    """The figure as it stands in the record, whatever its type; None where it is missing."""
    if name in record.figures:
        return record.figures[name]
    value: Any = record.figures
    for part in name.split("."):
        if not isinstance(value, dict) or part not in value:
            return None
        value = value[part]
    return value


def numeric(value: Any) -> float | None:
    """A finite number, or None: text, truth values, NaN and infinities are no figures."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
