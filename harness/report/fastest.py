"""The fastest cell of each model: how much of the device it uses, and where the time of its step still goes."""

from __future__ import annotations

from collections.abc import Sequence

from harness.judgement.judged import ArmResult, BlockResult
from harness.judgement.why import TITLES, why_of
from harness.report import formats
from harness.report.csvs import Row
from harness.report.part import Part
from harness.report.tables import Table
from harness.techniques.registry import axis_table

TITLE = "The fastest cell of each model"
#: Said of every cell; of other axes only what is away from the default.
ALWAYS = ("sequence_length", "batch_size")
#: Parts of a step below this share are left out of the sentence; the table has them.
LEAST_SHARE = 0.01


def fastest_part(blocks: Sequence[BlockResult]) -> Part:
    """One row a model, device and number of devices."""
    found = fastest(blocks)
    if not found:
        return Part(
            anchor="fastest", title=TITLE, short="Fastest cells",
            missing="No training trial has tokens/s. Run: claimbench run --matrix matrix.yaml",
        )  # fmt: skip
    whys = [why_of(arm) for _, arm in found]
    shown = [name for name in TITLES if any(why and why.seconds[name] for why in whys)]
    table = Table(
        caption="Fastest cells: share of the device's peak (MFU) and of a profiled step",
        columns=("model", "on", "study", "cell", "tokens/s", "MFU", "reserved", *(TITLES[name] for name in shown)),
        rows=tuple(
            (block.model, _devices(block, arm), block.study, _settings(arm), formats.rate(arm.tokens_per_second),
             formats.share(arm.mfu), formats.size(arm.memory.get("reserved", (None,))[0]),
             *(formats.share(why.share(name)) if why else formats.ABSENT for name in shown))
            for (block, arm), why in zip(found, whys, strict=True)
        ),
        numeric=frozenset(range(4, 7 + len(shown))),
    )  # fmt: skip
    rows: list[Row] = [
        {"model": block.model, "device": _devices(block, arm), "study": block.study, "cell": _settings(arm),
         "tokens_per_second": arm.tokens_per_second, "mfu": arm.mfu,
         **{f"{name}_share": why.share(name) if why else None for name in shown}}
        for (block, arm), why in zip(found, whys, strict=True)
    ]  # fmt: skip
    return Part(
        anchor="fastest", title=TITLE, short="Fastest cells", tables=(table,), rows=tuple(rows),
        lead="Of all training cells of a model on the same devices the one with the most tokens/s. MFU is against the "
        "dense peak of the type it computes in; what is no matrix product is left to gain. Communication may run "
        "beside the others, so that parts can add up to more than the step.",
        sentences=tuple(f"{sentence(block, arm)}." for block, arm in found),
    )  # fmt: skip


def fastest(blocks: Sequence[BlockResult]) -> list[tuple[BlockResult, ArmResult]]:
    """The fastest training cell of each model, device and number of devices, in the order of the blocks."""
    best: dict[tuple[str, str], tuple[BlockResult, ArmResult]] = {}
    for block in (each for each in blocks if each.kind == "training"):
        for arm in (each for each in block.arms if each.tokens_per_second and each.role != "control"):
            key = (block.model, _devices(block, arm))
            if key not in best or (arm.tokens_per_second or 0) > (best[key][1].tokens_per_second or 0):
                best[key] = (block, arm)
    return list(best.values())


def _devices(block: BlockResult, arm: ArmResult) -> str:
    return formats.devices(arm.cell.get("devices", 1), block.device)


def _settings(arm: ArmResult) -> str:
    """The whole cell, since its baseline is not beside it."""
    defaults = axis_table().defaults()
    said = {axis: arm.cell[axis] for axis in ALWAYS if axis in arm.cell}
    unusual = {axis: value for axis, value in arm.cell.items() if axis not in said and value != defaults.get(axis)}
    return formats.settings({**said, **unusual})


def sentence(block: BlockResult, arm: ArmResult) -> str:
    """`llama-1b on NVIDIA H200: 71,264 tokens/s, 56.3% of its peak; of a step 68.3% matrix products, ...`."""
    why = why_of(arm)
    used = f", {formats.share(arm.mfu)} of its peak" if arm.mfu is not None else ""
    said = f"{block.model} on {_devices(block, arm)}: {formats.rate(arm.tokens_per_second)} tokens/s{used}"
    if why is None:
        return said
    parts = sorted((name for name in TITLES if why.share(name) >= LEAST_SHARE), key=lambda name: -why.share(name))
    return f"{said}; of a step {', '.join(f'{formats.share(why.share(name))} {TITLES[name]}' for name in parts)}"
