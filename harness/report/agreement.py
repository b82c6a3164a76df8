"""Do other devices of the same kind give the same ratios? Only rounds of several machines can say."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from harness.judgement.agreement import Agreement, agreements
from harness.judgement.judged import BlockResult
from harness.judgement.stats import holm
from harness.report import formats
from harness.report.csvs import Row
from harness.report.part import Part
from harness.report.tables import Table, places

TITLE = "Other devices of the same kind"
#: A cell whose devices differ by more than its rounds.
APART = 0.05
#: Cells in the table; `tables/devices.csv` has all.
SHOWN = 12


def agreement_part(blocks: Sequence[BlockResult]) -> Part:
    """Ratios that two devices or more gave, held against each other."""
    found = agreements(blocks)
    if not found:
        return Part(
            anchor="devices", title=TITLE, short="Other devices",
            missing="No cell has two rounds on each of two devices of a kind: what another machine would give is not "
            "known from these trials. Rounds add up in one store: run the same command on another machine with it.",
        )  # fmt: skip
    return Part(
        anchor="devices", title=TITLE, short="Other devices",
        lead="Intervals speak of the rounds that were run. Where several devices of a kind ran two rounds or more "
        "of a cell each, their ratios can be held against each other.",
        sentences=(_sentence(found),), tables=(_table(found),), rows=tuple(_row(each) for each in found),
    )  # fmt: skip


def _sentence(found: Sequence[Agreement]) -> str:
    apart = sum(each.p < APART for each in found)
    corrected = sum(p < APART for p in holm([each.p for each in found]))
    moved = [each.moved for each in found]
    return (
        f"{formats.plural(len(found), 'ratio')}: from the device with the least to the one with the most they move by "
        f"{formats.share(median(moved))} in the median and by {formats.share(max(moved))} at most. "
        f"Those that differ between devices by more than their rounds explain (p < {APART}): {apart}, where chance "
        f"alone gives {APART * len(found):.1f}; after Holm's correction: {corrected}."
    )


def _table(found: Sequence[Agreement]) -> Table:
    worst = sorted(found, key=lambda each: each.p)[:SHOWN]
    place = places(list({id(each.block): each.block for each in found}.values()))
    rows = [
        (place(each.block), each.arm.name,
         ", ".join(formats.ratio(mean) for mean in each.means),
         ", ".join(map(str, each.rounds)), formats.share(each.moved), f"{each.p:.2g}")
        for each in worst
    ]  # fmt: skip
    return Table(
        caption=f"The {len(rows)} whose devices differ most, by chance or not", rows=tuple(rows),
        numeric=frozenset({4, 5}),
        columns=("block", "cell", "ratio on each device", "rounds on each", "most over least", "p"),
    )  # fmt: skip


def _row(each: Agreement) -> Row:
    return {
        "study": each.block.study, "block": each.block.block, "cell": each.arm.name,
        "ratios": " ".join(f"{mean:.7g}" for mean in each.means), "rounds": " ".join(map(str, each.rounds)),
        "moved": each.moved, "p": each.p,
    }  # fmt: skip
