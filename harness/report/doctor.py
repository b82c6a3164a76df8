"""`claimbench doctor`: which settings can run on this machine, and what the others lack."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.environment import Environment
from harness.experiment.axes import Axis, AxisTable, Setting, show_settings
from harness.experiment.cell import Cell, Workload
from harness.report import formats
from harness.report.terminal import add_row, empty_table

if TYPE_CHECKING:
    from rich.table import Table

#: Why a cell cannot run here, with the remedy, or None.
Refuse = Callable[[Cell], str | None]

#: Settings that another one may need beside it. A setting that runs with one of these can run here.
COMPANIONS: tuple[Mapping[str, Setting], ...] = (
    {},
    {"precision": "bf16"},
    {"devices": 2},
    {"devices": 2, "precision": "bf16"},
    {"parallel": "ddp", "devices": 2},
    {"workers": 2},
    {"lora": 8},
    {"batching": "packed"},
    {"parallel": "pipeline", "devices": 2},
    {"precision": "ds-bf16"},
    {"zero": 1},
    {"zero": 2},
)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Whether one setting can run here."""

    axis: str
    setting: str
    default: bool
    runs: bool
    note: str
    """What it does when it runs (with what it needs beside it); otherwise what would make it run."""


def tables(axes: AxisTable, environment: Environment, refuse: Refuse) -> tuple[Table, Table]:
    """The machine, and every setting; an asterisk marks the default of an axis."""
    machine = empty_table(("this machine", ""))
    for name, value in facts(environment):
        add_row(machine, name, value)
    settings = empty_table(("axis", "setting (* default)", "runs here", "what it does, or what it lacks"))
    for each in answers(axes, refuse):
        marked = f"{each.setting}{' *' if each.default else ''}"
        add_row(settings, each.axis, marked, "yes" if each.runs else "no", each.note)
    return machine, settings


def answers(axes: AxisTable, refuse: Refuse) -> Iterator[Answer]:
    """Every setting of every axis, in the order of the table."""
    for axis in axes.values():
        for setting, meaning in _settings(axis):
            yield _answer(axes, axis, setting, meaning, refuse)


def facts(environment: Environment) -> list[tuple[str, str]]:
    """What is there, in pairs: GPUs with their memory and power cap, driver, versions that matter."""
    rows = [("GPU", "none found: runs are at smoke scale")] if not environment.devices else []
    for device in environment.devices:
        cap = f", power cap {device.power_limit_watts:g} W" if device.power_limit_watts else ""
        rows.append((f"GPU {device.index}", f"{device.name}, {formats.size(device.memory_bytes)}{cap}"))
    cuda = f", CUDA {environment.cuda_driver}" if environment.cuda_driver else ""
    rows.append(("driver", f"{environment.driver}{cuda}" if environment.driver else "none"))
    processor = environment.processor or "unknown processor"
    memory = formats.size(environment.memory_bytes)
    rows.append(("processor", f"{processor}, {formats.plural(environment.cores, 'core')}, {memory}"))
    rows.append(("Python", f"{environment.python} on {environment.system}"))
    for package in ("torch", "transformers", "peft", "bitsandbytes", "deepspeed", "flash-attn", "triton"):
        rows.append((package, environment.packages.get(package, "not installed")))
    rows.extend((name, where) for name, where in sorted(environment.tools.items()))
    return rows


def processes(environment: Environment) -> list[str]:
    """Processes that hold memory on a GPU here, one line each: they spoil every measurement."""
    from harness.trial.nvml import meters

    watched = zip(environment.devices, meters(device.uuid for device in environment.devices), strict=False)
    return [
        f"GPU {device.index}: process {pid} holds {formats.size(held)}"
        for device, meter in watched
        for pid, held in meter.read().processes.items()
    ]


def calibration(device: str) -> tuple[Table, Table]:
    """What this device achieves, measured now: rates of matrix products beside the published peak, and of copies."""
    from harness.trial.calibrate import FORMATS, in_child

    found = in_child(device)
    products = empty_table(("matrix products", "achieved", "published peak", "share"))
    for name in FORMATS:
        achieved, peak = found["matmul_flops"].get(name), found["published_flops"].get(name)
        why = found["missing"].get(f"matmul_flops.{name}") or found["missing"].get(f"published_flops.{name}", "")
        share = formats.share(found["share_of_published"].get(name))
        add_row(products, name, _flops(achieved), _flops(peak), why if share == formats.ABSENT else share)
    copies = empty_table(("copies", "achieved"))
    for name, rate in found["copy_bytes_per_second"].items():
        add_row(copies, name, f"{rate / 1e9:,.1f} GB/s")
    return products, copies


def _flops(value: float | None) -> str:
    if value is None:
        return formats.ABSENT
    return f"{value / 1e12:,.1f} TFLOP/s" if value >= 1e12 else f"{value / 1e9:,.1f} GFLOP/s"


def _settings(axis: Axis) -> Iterator[tuple[Setting, str]]:
    yield from axis.settings.items()
    if axis.number is not None:
        yield axis.default if _is_number(axis.default) else _example(axis), axis.meaning


def _is_number(value: Setting) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _example(axis: Axis) -> Setting:
    """A number that the axis takes, for an axis whose default is a word (`lora: off` or a rank).

    Not 1 where there are others: a batch in one part, or a device alone, divides nothing.
    """
    assert axis.number is not None
    return axis.number(min(max(axis.minimum, 2), axis.maximum))


def _answer(axes: AxisTable, axis: Axis, setting: Setting, meaning: str, refuse: Refuse) -> Answer:
    number = _is_number(setting) and axis.number is not None and setting not in axis.settings
    shown = _range(axis) if number else str(setting).lower()
    default = not number and setting == axis.default
    reasons = []
    for companion in COMPANIONS:
        if axis.name in companion or any(name not in axes for name in companion):
            continue
        reason = refuse(_cell(axes, {**companion, axis.name: setting}))
        if reason is None:
            note = " · ".join(filter(None, [meaning, f"with {formats.settings(companion)}" if companion else ""]))
            return Answer(axis=axis.name, setting=shown, default=default, runs=True, note=note)
        if not any(show_settings({name: value}) in reason for name, value in companion.items()):
            reasons.append(reason)  # else the two of them do not go together, which says nothing of this one
    return Answer(axis=axis.name, setting=shown, default=default, runs=False, note=_lacking(axis, setting, reasons))


def _lacking(axis: Axis, setting: Setting, reasons: list[str]) -> str:
    """What is in the way of a setting even with what it needs beside it; else what stood in its way alone."""
    begins = f"{show_settings({axis.name: setting})} "
    own = [reason for reason in dict.fromkeys(reasons) if reason.startswith(begins)]
    return own[-1] if own else reasons[0]


def _cell(axes: AxisTable, settings: Mapping[str, Setting]) -> Cell:
    defaults = axes.defaults()
    workload = Workload(name="doctor", model="gpt2-124m")
    return Cell(workload=workload, settings={**defaults, **settings}, defaults=defaults)


def _range(axis: Axis) -> str:
    """`1 to 65,536 (default 8)`."""
    top = "and up" if axis.maximum == float("inf") else f"to {_number(axis.maximum)}"
    default = f" (default {axis.default})" if _is_number(axis.default) else ""
    return f"{_number(axis.minimum)} {top}{default}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:g}"
