"""Records as this version of the code would have made them, for what one version can make of another's trials.

What it cannot make of them is told apart by `trial.spec.MEASURING_VERSION` and by the revisions of techniques.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from harness.results.first_step import FIRST_STEP, without_first_step
from harness.results.record import Record
from harness.techniques.kept import GATHERED
from harness.trial.device import LOOKS_BACK_SECONDS, METERED, too_short

PADDED = "it counted padding as useful when this was measured; a trial that is made now counts useful tokens"
WITH_WEIGHTS = "weights that forward gathered from shards counted with them when this was measured; run it again"
DOUBLED = "gradients counted twice, with their unscaled copies, when this was measured; run it again"
MISSED = "the peak fell between two looks at the device: less was seen there than PyTorch had reserved"
UNSEEN = "the allocator saw none when this was measured: CUDA graphs keep them in memory of their own"


def as_now(record: Record) -> Record:
    """The same record where nothing is to be changed."""
    as_timed = _without_missed_peak(_without_short_looks(without_first_step(record)))
    return _without_doubled_gradients(_without_wrong_activations(_without_padded_mfu(as_timed)))


def _without_short_looks(record: Record) -> Record:
    """No utilisation and no energy of a window that is shorter than what the device tells of at one look."""
    first = record.figures.get(FIRST_STEP)
    seconds = math.fsum(record.step_seconds) + (first if isinstance(first, int | float) else 0.0)
    told = [name for name in METERED if getattr(record, name) is not None]
    if not told or not 0 < seconds < LOOKS_BACK_SECONDS:
        return record
    clocks = {**record.clocks, "power_watts": None} if "power_watts" in record.clocks else record.clocks
    missing = {**record.missing, **dict.fromkeys(told, too_short(seconds))}
    return replace(record, utilisation=None, energy_joules_per_token=None, clocks=clocks, missing=missing)


def _without_missed_peak(record: Record) -> Record:
    """No peak of the device where a part of it, what PyTorch reserved, was higher: memory that is given back at once
    is not seen by ten looks a second."""
    seen, reserved = record.peak_device_bytes, record.peak_reserved_bytes
    if seen is None or reserved is None or seen >= reserved:
        return record
    return replace(record, peak_device_bytes=None, missing={**record.missing, "peak_device_bytes": MISSED})


def _without_padded_mfu(record: Record) -> Record:
    """No MFU where padding counted in it: it equals HFU then, which counts every position that the device computes."""
    share = record.figures.get("useful_share")
    padded = isinstance(share, int | float) and share < 1 and record.cell.get("batching", "fixed") != "fixed"
    if not padded or record.mfu is None or record.mfu != record.hfu:
        return record
    return replace(record, mfu=None, missing={**record.missing, "mfu": PADDED})


def _without_wrong_activations(record: Record) -> Record:
    """No activations where forward did not make the allocator grow (a replay of a CUDA graph allocates nothing), nor
    where weights that it gathered were counted with them."""
    held = record.model_state_bytes.get("activations")
    if not isinstance(held, int | float):
        return record
    why = UNSEEN if held <= 0 else WITH_WEIGHTS if _gathers(record) and GATHERED not in record.model_state_bytes else ""
    if not why:
        return record
    states = {name: size for name, size in record.model_state_bytes.items() if name != "activations"}
    return replace(record, model_state_bytes=states, missing={**record.missing, "activations": why})


def _gathers(record: Record) -> bool:
    """Whether forward gathers weights on GPUs: FSDP's root does on one device too."""
    cell = record.cell
    sharded = cell.get("parallel") == "fsdp" or (cell.get("zero") == 3 and cell.get("devices", 1) != 1)
    return sharded and bool(record.environment.get("devices"))


def _without_doubled_gradients(record: Record) -> Record:
    """No bytes of gradients, nor sums with them, of an engine with a loss scale: copies of them counted beside them."""
    printed = record.cell.get("deepspeed_config") == "as-printed"
    if not printed or GATHERED in record.model_state_bytes or "gradients" not in record.model_state_bytes:
        return record
    figures = {name: value for name, value in record.figures.items() if name != "bytes_per_parameter"}
    ranks = [
        {**rank, "model_state_bytes": _without_gradients(states)}
        if isinstance(states := rank.get("model_state_bytes"), dict) else rank
        for rank in record.ranks
    ]  # fmt: skip
    return replace(
        record, model_state_bytes=_without_gradients(record.model_state_bytes), ranks=ranks, figures=figures,
        missing={**record.missing, "model_state_ratio": DOUBLED, "bytes_per_parameter": DOUBLED},
    )  # fmt: skip


def _without_gradients(states: dict[str, Any]) -> dict[str, Any]:
    return {name: size for name, size in states.items() if name not in ("gradients", "before_step")}
