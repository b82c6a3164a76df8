"""`tables/*.csv`: the figures behind the pages, unrounded enough to compute with (seven significant digits)."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from harness.judgement.judged import ArmResult, BlockResult, Verdict
from harness.report.tables import VIEWS, figure_means, speed_unit
from harness.results.record import Record

Row = Mapping[str, object]


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """One file; the columns are those of all rows in order of first appearance."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([[_text(row.get(name)) for name in columns] for row in rows])


def claim_rows(verdicts: Iterable[Verdict]) -> list[Row]:
    """A row per claim."""
    return [
        {
            "claim": verdict.claim, "verdict": verdict.word.value, "helped": verdict.helped, "claimed": verdict.claimed,
            "measured": verdict.measured, "metric": verdict.metric, "value": verdict.value,
            "interval_low": verdict.interval[0] if verdict.interval else None,
            "interval_high": verdict.interval[1] if verdict.interval else None,
            "claimed_low": verdict.low, "claimed_high": verdict.high, "rounds": verdict.rounds,
            "rounds_needed": verdict.rounds_needed, "scope": verdict.scope, "study": verdict.study,
            "cell": verdict.arm, "device": verdict.device, "other_baseline": verdict.other_baseline,
            "reason": verdict.reason,
        }
        for verdict in verdicts
    ]  # fmt: skip


def cell_rows(blocks: Iterable[BlockResult]) -> list[Row]:
    """A row per arm of a block."""
    return [_cell_row(block, arm) for block in blocks for arm in block.arms]


def excluded_rows(records: Iterable[Record]) -> list[Row]:
    """A row per trial that no figure stands on."""
    return [
        {
            "study": record.study, "block": record.block, "cell": record.arm, "round": record.round,
            "attempt": record.attempt, "outcome": record.outcome.value, "superseded": record.superseded,
            "reason": record.reason, "started_at": record.started_at,
        }
        for record in records
    ]  # fmt: skip


def figure_rows(blocks: Iterable[BlockResult]) -> list[Row]:
    """A row per figure of an arm, for kinds that measure something of their own."""
    return [
        {"study": block.study, "block": block.block, **block.sweep, "cell": arm.name, "figure": name, "mean": value}
        for block in blocks for arm in block.arms for name, value in figure_means(arm).items()
    ]  # fmt: skip


def _cell_row(block: BlockResult, arm: ArmResult) -> Row:
    speedup = arm.speedup
    return {
        "study": block.study, "block": block.block, "device": block.device, "scale": block.scale,
        "sweep": " ".join(f"{axis}={value}" for axis, value in block.sweep.items()), "cell": arm.name, "role": arm.role,
        "outcomes": " ".join(f"{name}={number}" for name, number in arm.outcomes.items()),
        "tokens_per_second": arm.tokens_per_second, "spread": arm.spread, "noise": arm.noise,
        "speedup_of": speed_unit([block]),
        "speedup": speedup and speedup.value, "speedup_low": speedup and speedup.low,
        "speedup_high": speedup and speedup.high, "rounds": speedup and speedup.rounds,
        **{f"peak_{view}_bytes": arm.memory[view][0] if view in arm.memory else None for view in VIEWS},
        **{f"{view}_ratio": arm.memory_ratio.get(view) for view in VIEWS},
        "mfu": arm.mfu, "hfu": arm.hfu, "parity": arm.parity.word, "loss_gap": arm.parity.loss_gap,
        "worst_loss_gap": arm.parity.worst_gap,
        **{f"{phase}_seconds": seconds for phase, seconds in arm.phases.items()},
        "evidence": arm.evidence, "reason": arm.reason,
    }  # fmt: skip


def _text(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.7g}" if isinstance(value, float) else str(value)
