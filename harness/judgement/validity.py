"""Before any statistics: can the numbers of a trial be trusted? The rules stand in one table in `docs/statistics.md`.

What spoils a trial makes it `invalid`: it is stored, shown, and no figure stands on it. What only shades it is a
warning beside the figure. In the smoke scale and on a CPU neither is looked for: only the noise labels are given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from statistics import fmean, median
from typing import Any

from harness.judgement.quantities import figure_value, numeric
from harness.results.record import Record
from harness.trial.outcome import Outcome

#: Medians of the two halves of the window further apart than this: the window was not steady.
UNSTEADY = 0.02
#: SM clocks of two arms further apart than this: part of their ratio is the clock's.
CLOCK_GAP = 0.02
#: A step that takes more than so many medians is an outlier, and said where such steps took this share of the window.
OUTLIER, OUTLIERS = 5.0, 0.02
#: Kinds of which steps are batches of a loader: prefetched ones come together.
IN_BURSTS = frozenset({"loader-only", "workers-late", "epoch-turnaround"})
#: A device that idles for more than this share of a step waits for the host, or for data.
IDLE = 0.2
IDLED = "the device idled"
HELD_UP = "single steps of over five times the median"
#: A half of the window needs this many steps for its median to say something.
FEWEST_STEPS = 4
#: A card at its power cap is at its normal working point under training loads; the other reasons are faults.
POWER_CAP = "power_cap"
HARMLESS = frozenset({"", "none", "gpu_idle", "applications_clocks_setting", "sync_boost", "display_clock_setting"})

Check = Callable[[Record], str]


def checked(record: Record) -> Record:
    """The record, or where something spoils it the same one as `invalid` with the reason."""
    if record.outcome is not Outcome.OK or not on_gpu(record):
        return record
    faults = [fault for check in SPOILING if (fault := check(record))]
    return replace(record, outcome=Outcome.INVALID, reason="; ".join(faults)) if faults else record


def warnings(record: Record) -> list[str]:
    """What shades the trial's figures, its own warnings first."""
    if record.outcome is not Outcome.OK or not on_gpu(record):
        return list(record.warnings)
    return [*record.warnings, *(fault for check in SHADING if (fault := check(record)))]


def on_gpu(record: Record) -> bool:
    """Whether the trial's figures speak of a GPU at full scale."""
    return record.scale == "full" and bool(record.environment.get("devices"))


def impossible_mfu(record: Record) -> str:
    """More than the peak: the denominator or the clock is wrong."""
    over = [(name, value) for name in ("mfu", "hfu") if (value := getattr(record, name)) is not None and value > 1]
    return f"{over[0][0].upper()} is {over[0][1]:.2f}, above 1: the peak or the time is wrong" if over else ""


def foreign_process(record: Record) -> str:
    """Another process on the device takes time and memory that nobody can subtract."""
    foreign = record.clocks.get("foreign") or ()
    return f"{len(foreign)} foreign process(es) ran on the device: {', '.join(map(_who, foreign))}" if foreign else ""


def throttled(record: Record) -> str:
    """Slowed down by heat or by the power brake."""
    reasons = [reason for reason in _throttle_reasons(record) if POWER_CAP not in reason]
    if not reasons:
        return ""
    lowest, celsius = (numeric(record.clocks.get(name)) for name in ("sm_mhz_min", "temperature"))
    seen = [f"down to {lowest:.0f} MHz"] if lowest is not None else []
    seen += [f"at {celsius:.0f} °C"] if celsius is not None else []
    figures = f" ({', '.join(seen)})" if seen else ""
    return f"the device was throttled: {', '.join(reasons)}{figures}"


def power_capped(record: Record) -> str:
    """At the power cap the clock depends on the work: normal, and said."""
    capped = any(POWER_CAP in reason for reason in _throttle_reasons(record))
    limit = numeric(record.clocks.get("power_limit_watts"))
    return f"at its power cap{f' of {limit:.0f} W' if limit else ''}" if capped else ""


def unsteady(record: Record) -> str:
    """The second half of the window is faster or slower than the first: warm-up was too short, or the card slowed."""
    steps = record.step_seconds
    half = len(steps) // 2
    if half < FEWEST_STEPS:
        return ""
    first, second = median(steps[:half]), median(steps[-half:])
    gap = second / first - 1 if first else 0.0
    return f"median step time changed by {gap:+.1%} between the halves of the window" if abs(gap) > UNSTEADY else ""


def outliers(record: Record) -> str:
    """Single steps that held the window up: something waited, mostly the host. They stay in the trial's mean."""
    steps = record.step_seconds
    if record.kind in IN_BURSTS or len(steps) < 2 * FEWEST_STEPS:
        return ""
    usual, whole = median(steps), math.fsum(steps)
    lost = math.fsum(step - usual for step in steps if step > OUTLIER * usual)
    share = lost / whole if whole else 0.0
    return f"{HELD_UP} cost {share:.0%} of the window" if share > OUTLIERS else ""


def idle(record: Record) -> str:
    """The device waits: what the trial measures is the host that launches its work, or the data, on this machine."""
    if figure_value(record, "breakdown.measured_on") != "gpu":
        return ""
    waited = numeric(figure_value(record, "breakdown.seconds.idle"))
    step = numeric(figure_value(record, "breakdown.step_seconds"))
    share = waited / step if waited is not None and step else 0.0
    return f"{IDLED} for {share:.0%} of a step: host or data set the pace" if share > IDLE else ""


def clock_gap(cell: Iterable[Record], baseline: Iterable[Record]) -> str:
    """A warning where the mean SM clocks of two arms differ."""
    means = []
    for trials in (cell, baseline):
        clocks = [clock for trial in trials if on_gpu(trial) and (clock := numeric(trial.clocks.get("sm_mhz")))]
        if not clocks:
            return ""
        means.append(fmean(clocks))
    gap = means[0] / means[1] - 1
    if abs(gap) <= CLOCK_GAP:
        return ""
    return f"SM clock {means[0]:.0f} MHz against {means[1]:.0f} MHz for the baseline ({gap:+.1%})"


def _who(process: Mapping[str, Any]) -> str:
    """A process of someone else's, as the record has it: `pid 4711 with 3.0 GiB`."""
    pid, used = process.get("pid"), numeric(process.get("bytes"))
    memory = f" with {used / 2**30:.1f} GiB" if used else ""
    return f"{'one that the driver does not name' if pid is None else f'pid {pid}'}{memory}"


def _throttle_reasons(record: Record) -> list[str]:
    reasons = record.clocks.get("throttle_reasons") or []
    words = [reasons] if isinstance(reasons, str) else list(reasons)
    return [word for word in (str(each).lower() for each in words) if word not in HARMLESS]


#: What makes a trial invalid, beside what it says of itself (a compilation inside the window).
SPOILING: tuple[Check, ...] = (impossible_mfu, foreign_process, throttled)
#: What puts a warning beside its figures.
SHADING: tuple[Check, ...] = (unsteady, outliers, idle, power_capped)
