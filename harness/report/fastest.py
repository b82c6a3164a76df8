"""The fastest cell of each model: how much of the device it uses, and where the time of its step still goes."""

from __future__ import annotations

from collections.abc import Sequence

from harness.experiment.study import FEWEST_ROUNDS
from harness.judgement.judged import ArmResult, BlockResult
from harness.judgement.why import TITLES, Why, why_of
from harness.report import formats
from harness.report.csvs import Row
from harness.report.part import Part
from harness.report.tables import Table
from harness.techniques.registry import axis_table
from harness.trial.outcome import Outcome

TITLE = "The fastest cell of each model"
#: Said of every cell; of other axes only what is away from the default.
ALWAYS = ("sequence_length", "batch_size")
#: Axes by which a cell, away from their defaults, trains less than the model, or something besides.
OTHER_TRAINING = ("lora", "quantization", "pruning", "distillation")
#: Parts of a step below this share are left out of the sentence; the table has them.
LEAST_SHARE = 0.01


def fastest_part(blocks: Sequence[BlockResult]) -> Part:
    """One row a model, device and number of devices."""
    found = fastest(blocks)
    if not found:
        return Part(
            anchor="fastest", title=TITLE, short="Fastest cells",
            missing="No training trial has tokens/s.", run="Run:",
        )  # fmt: skip
    whys = [_why(arm) for _, arm in found]
    shown = [name for name in TITLES if any(why and why.seconds[name] for why in whys)]
    table = Table(
        caption="Fastest cells: share of the device's peak (MFU) and of a profiled step",
        columns=("model", "on", "study", "cell", "rounds", "tokens/s", "MFU", "reserved",
                 *(TITLES[name] for name in shown)),
        rows=tuple(
            (block.model, _devices(block, arm), block.study, _settings(arm), _rounds(arm),
             formats.rate(arm.tokens_per_second),
             formats.share(arm.mfu), formats.size(arm.memory.get("reserved", (None,))[0]),
             *(formats.share(why.share(name)) if why else formats.ABSENT for name in shown))
            for (block, arm), why in zip(found, whys, strict=True)
        ),
        numeric=frozenset(range(5, 8 + len(shown))),
        notes=tuple(formats.sentence(f"no shares on {_devices(block, arm)}: {why.disagreement}")
                    for block, arm in found if (why := why_of(arm)) is not None and why.disagreement),
    )  # fmt: skip
    rows: list[Row] = [
        {"model": block.model, "device": _devices(block, arm), "study": block.study, "cell": _settings(arm),
         "tokens_per_second": arm.tokens_per_second, "mfu": arm.mfu,
         **{f"{name}_share": why.share(name) if why else None for name in shown}}
        for (block, arm), why in zip(found, whys, strict=True)
    ]  # fmt: skip
    return Part(
        anchor="fastest", title=TITLE, short="Fastest cells", tables=(table,), rows=tuple(rows),
        lead="Of all cells that train the whole model on the same devices the one with the most tokens/s, whatever its "
        "length and batch; a cell whose losses went elsewhere is left out. MFU is against the dense peak of the type "
        "it computes in; idle time, elementwise work and copies are what is left to gain.",
        sentences=tuple(f"{sentence(block, arm)}." for block, arm in found),
    )  # fmt: skip


def fastest(blocks: Sequence[BlockResult]) -> list[tuple[BlockResult, ArmResult]]:
    """The fastest training cell of each model, device and number of devices, in the order of the blocks."""
    best: dict[tuple[str, str], tuple[BlockResult, ArmResult]] = {}
    for block in (each for each in blocks if each.kind == "training"):
        for arm in filter(_trains_it_all, block.arms):
            key = (block.model, _devices(block, arm))
            if key not in best or speed(arm) > speed(best[key][1]):
                best[key] = (block, arm)
    return list(best.values())


def speed(arm: ArmResult) -> float:
    """Tokens/s; 0 where there are none."""
    return arm.tokens_per_second or 0.0


def _trains_it_all(arm: ArmResult) -> bool:
    """Whether its tokens/s are those of the model's own training."""
    usual = axis_table().defaults()
    whole = all(arm.cell[axis] == usual[axis] for axis in OTHER_TRAINING)
    return speed(arm) > 0 and arm.role != "control" and arm.parity.holds is not False and whole


def _why(arm: ArmResult) -> Why | None:
    """Where its step's time went; None where the profiled step was another than those that were measured."""
    why = why_of(arm)
    return why if why is not None and why.agrees else None


def _rounds(arm: ArmResult) -> str:
    return ", ".join(filter(None, [str(arm.outcomes.get(Outcome.OK, 0)), arm.noise]))


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
    why = _why(arm)
    used = f", {formats.share(arm.mfu)} of its peak" if arm.mfu is not None else ""
    said = f"{block.model} on {_devices(block, arm)}: {formats.rate(arm.tokens_per_second)} tokens/s{used}"
    rounds = arm.outcomes.get(Outcome.OK, 0)
    few = f"{formats.plural(rounds, 'round')} only" if rounds < FEWEST_ROUNDS else ""
    if few or arm.noise:
        said += f" ({', '.join(filter(None, [few, arm.noise]))})"
    if why is None:
        return said
    parts = sorted((name for name in TITLES if why.share(name) >= LEAST_SHARE), key=lambda name: -why.share(name))
    return f"{said}; of a step {', '.join(f'{formats.share(why.share(name))} {TITLES[name]}' for name in parts)}"
