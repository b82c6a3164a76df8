"""Speed against memory for every cell, with the cells that no other beats on both."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from harness.judgement.judged import BlockResult
from harness.report import formats
from harness.report.csvs import Row
from harness.report.figures import scatter
from harness.report.figures.gallery import Gallery, Picture
from harness.report.figures.scatter import Spot
from harness.report.part import Part
from harness.report.tables import Table, telling_apart

#: Models that get a figure of their own.
MOST_MODELS = 6


def frontier_part(blocks: Sequence[BlockResult], gallery: Gallery) -> Part:
    """One figure a model, device and number of devices: tokens/s of others, and of a part of a step, are another
    quantity."""
    groups: dict[tuple[str, str], list[tuple[Spot, str]]] = {}
    training = [each for each in blocks if each.kind == "training"]
    apart = telling_apart(training)
    for block in training:
        for arm in block.arms:
            if arm.tokens_per_second and "reserved" in arm.memory and arm.role != "control":
                spot = Spot(group=block.study, x=arm.memory["reserved"][0] / 2**30, y=arm.tokens_per_second)
                where = f" at {formats.settings(block.sweep)}" if block.sweep else ""
                devices = formats.devices(arm.cell.get("devices", 1), block.device)
                groups.setdefault((block.model, devices), []).append((spot, f"{arm.name}{where}{apart(block)}"))
    if not groups:
        return Part(
            anchor="pareto", title="Speed against memory", short="Speed and memory",
            missing="No cell has both tokens/s and device memory: that needs a GPU and trials that end ok.",
            run="Run:",
        )  # fmt: skip
    shown = [_one(model, device, cells, gallery) for (model, device), cells in list(groups.items())[:MOST_MODELS]]
    return Part(
        anchor="pareto", title="Speed against memory", short="Speed and memory",
        lead="Every cell of a model on the same devices; memory is that of the fullest. The numbered cells form the "
        "Pareto front: no other cell is both faster and smaller. Cells of different batch size or length do different "
        "work a step.",
        pictures=tuple(picture for picture, _, _ in shown if picture), tables=tuple(table for _, table, _ in shown),
        rows=tuple(row for _, _, rows in shown for row in rows),
    )  # fmt: skip


def front(spots: Sequence[Spot]) -> list[int]:
    """Indices of the spots that no other beats on both, by rising memory."""
    best, kept = float("-inf"), []
    for index in sorted(range(len(spots)), key=lambda each: (spots[each].x, -spots[each].y)):
        if spots[index].y > best:
            best = spots[index].y
            kept.append(index)
    return kept


def _one(
    model: str, device: str, cells: Sequence[tuple[Spot, str]], gallery: Gallery
) -> tuple[Picture | None, Table, list[Row]]:
    spots = [spot for spot, _ in cells]
    kept = front(spots)
    numbered = [
        Spot(group=spots[index].group, x=spots[index].x, y=spots[index].y, label=str(place))
        for place, index in enumerate(kept, 1)
    ]
    caption = f"{model} on {device}: {formats.plural(len(spots), 'cell')}, {len(kept)} of them on the Pareto front."
    drawing = partial(scatter.pareto, spots=spots, front=numbered)
    picture = gallery.draw(f"pareto-{model}-{device}", caption, drawing, size=(6.6, 4.4))
    rows = [
        (
            str(place),
            spots[index].group,
            cells[index][1],
            formats.rate(spots[index].y),
            formats.size(spots[index].x * 2**30),
        )
        for place, index in enumerate(kept, 1)
    ]
    table = Table(
        caption=f"Pareto front of {model} on {device}", columns=("", "study", "cell", "tokens/s", "peak reserved"),
        rows=tuple(rows), numeric=frozenset({0, 3, 4}),
    )  # fmt: skip
    data: list[Row] = [
        {"model": model, "device": device, "study": spot.group, "cell": name, "tokens_per_second": spot.y,
         "peak_reserved_gib": spot.x, "front": index in kept}
        for index, (spot, name) in enumerate(cells)
    ]  # fmt: skip
    return picture, table, data
