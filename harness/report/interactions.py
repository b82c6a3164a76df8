"""Do gains multiply? Combinations measured together, against the product of the gains of their parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

from harness.judgement.blocks import speed_over_product
from harness.judgement.judged import ArmResult, BlockResult, Interval
from harness.report import formats
from harness.report.figures import bars
from harness.report.figures.gallery import Gallery, Picture
from harness.report.measure import changes, dot, faster, figure_name, timed_baseline_of
from harness.report.part import Part
from harness.report.tables import Table, interval, titled

MOST_COMBINATIONS = 16


@dataclass(frozen=True, kw_only=True)
class Combination:
    """A cell of several changes, and the gains of each change alone in the same block."""

    block: BlockResult
    arm: ArmResult
    product: float
    over: Interval | None
    """Measured ÷ product, by round; None where no round ran the combination and all its parts."""
    parts: tuple[str, ...]


def combinations_of(block: BlockResult) -> tuple[Combination, ...]:
    """Cells of two or more changes whose single changes were each measured in the same block."""
    baseline = timed_baseline_of(block)
    if baseline is None:
        return ()
    cells = {frozenset(changes(arm, baseline).items()): arm for arm in block.arms if arm.role == "cell"}
    found = []
    for changed, arm in cells.items():
        alone = (cells.get(frozenset([each])) for each in sorted(changed, key=str))
        parts = [single for single in alone if single and single.speedup]
        if len(changed) > 1 and len(parts) == len(changed) and arm.speedup:
            product = prod(single.speedup.value for single in parts if single.speedup)
            over = speed_over_product(arm, parts, baseline)
            names = tuple(single.name for single in parts)
            found.append(Combination(block=block, arm=arm, product=product, over=over, parts=names))
    return tuple(found)


def interactions_part(blocks: Sequence[BlockResult], gallery: Gallery) -> Part:
    """What combinations give, against what their parts promise."""
    groups = [(block, found) for block in blocks if (found := combinations_of(block))]
    title = "Do gains multiply?"
    if not groups:
        return Part(
            anchor="interactions",
            title=title,
            short="Interactions",
            missing="No study measures a combination together with each of its parts (design: factorial).",
            run="Run:",
            study="interactions",
        )
    named = titled(groups)
    pictures = [picture for each in named if (picture := _interaction_picture(*each, gallery))]
    return Part(
        anchor="interactions",
        title=title,
        short="Interactions",
        pictures=tuple(pictures),
        lead="If techniques did not act on each other, the gain of a combination would be the product of the gains of "
        "its parts. The last column is the one over the other, paired within rounds.",
        sentences=tuple(_interaction_sentence(name, found) for name, _, found in named),
        tables=tuple(_interaction_table(name, found) for name, _, found in named),
        rows=tuple(
            {
                "study": each.block.study,
                "block": each.block.block,
                "cell": each.arm.name,
                "measured": each.arm.speedup and each.arm.speedup.value,
                "product": each.product,
                "over_product": each.over and each.over.value,
                "over_product_low": each.over and each.over.low,
                "over_product_high": each.over and each.over.high,
            }
            for _, found in groups
            for each in found
        ),
    )


def _interaction_picture(
    title: str, block: BlockResult, found: Sequence[Combination], gallery: Gallery
) -> Picture | None:
    rows = [
        (dot(each.arm.name, gain), each.product) for each in found[:MOST_COMBINATIONS] if (gain := each.arm.speedup)
    ]
    caption = f"Study {title}: combinations measured together, against the product of their parts' gains."
    drawing = partial(bars.interactions, pairs=rows)
    size = (6.6, bars.height([each.name for each, _ in rows]))
    return gallery.draw(figure_name("interactions", block), caption, drawing, size=size)


def _interaction_sentence(title: str, found: Sequence[Combination]) -> str:
    known = [each.over for each in found if each.over and each.over.low is not None and each.over.high is not None]
    sides = [faster(over) for over in known]
    less, more = sides.count(False), sides.count(True)
    open_still = f", {len(found) - len(known)} not run together in two rounds" if len(known) < len(found) else ""
    return (
        f"Study {title}: of {formats.plural(len(found), 'combination')}, {less} gave less than the product of "
        f"the parts, {more} more, {len(known) - less - more} the same within the interval{open_still}; each taken by "
        "itself."
    )


def _interaction_table(title: str, found: Sequence[Combination]) -> Table:
    rows = [
        (
            each.arm.name,
            interval(each.arm.speedup),
            formats.ratio(each.product),
            interval(each.over),
        )
        for each in found
    ]
    return Table(
        caption=f"Combinations of study {title}",
        rows=tuple(rows),
        numeric=frozenset({1, 2, 3}),
        columns=("cell", "measured [95% interval]", "product of the parts", "measured ÷ product [95% interval]"),
    )
