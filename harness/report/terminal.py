"""What the command line prints: plans, the state of a store, claims and verdicts. Data in, text or tables out.

Long lists are plain aligned lines (ten thousand of them take no time); short tables are drawn by rich.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from harness.errors import printable
from harness.experiment.describe import PlanRow, plan_rows, summarise
from harness.experiment.scale import NOTE, SMOKE
from harness.experiment.study import Plan, PlannedTrial, SweepPoint
from harness.judgement.judged import Verdict
from harness.report import formats
from harness.report.status import BlockStatus

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

#: Longer names of arms push their own line out, not everybody's.
WIDEST = 48


def console() -> Console:
    """Standard output for tables and bars. A pipe or a log gets wide lines, so that no word of a table is cut."""
    from rich.console import Console

    return Console(width=None if sys.stdout is not None and sys.stdout.isatty() else 200, highlight=False)


def write_lines(lines: Iterable[str]) -> None:
    """Names in them may come from anywhere: what a terminal would obey is written out."""
    sys.stdout.writelines(f"{printable(part)}\n" for line in lines for part in line.split("\n"))


def write_json(content: object) -> None:
    write_lines([json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)])


def plan_lines(plan: Plan) -> Iterator[str]:
    """Each block with its cells, how many trials each takes, and why one cannot run."""
    yield plan_summary(plan)
    yield from scale_note(plan)
    for (study, _), group in groupby(plan_rows(plan), key=lambda row: (row.study, tuple(row.sweep.items()))):
        rows = list(group)
        yield ""
        yield f"{block_name(study, rows[0].sweep)} · {_workload(rows[0])}"
        width = min(WIDEST, max(len(row.arm) for row in rows))
        for row in rows:
            yield f"  {row.arm:<{width}}  {_what_happens(row)}"


def trial_lines(plan: Plan) -> Iterator[str]:
    """Each trial, in the order in which they run."""
    yield plan_summary(plan)
    yield from scale_note(plan)
    for _, group in groupby(plan.trials, key=lambda trial: (trial.block.key, trial.round)):
        trials = list(group)
        block = trials[0].block
        yield ""
        yield f"{block_name(block.study, block.sweep)} · round {trials[0].round} · seed {trials[0].seed}"
        width = min(WIDEST, max(len(trial.arm.name) for trial in trials))
        yield from (_trial_line(trial, width) for trial in trials)


def plan_summary(plan: Plan) -> str:
    """`matrix.yaml: 12 studies, 40 blocks, 212 cells, 1,060 trials at scale full; 30 of them cannot run here`."""
    counts = summarise(plan)
    studies = f"{counts.studies:,} {'study' if counts.studies == 1 else 'studies'}"
    rest = [(counts.blocks, "block"), (counts.cells, "cell"), (counts.trials, "trial")]
    parts = ", ".join([studies, *(formats.plural(number, noun) for number, noun in rest)])
    refused = counts.trials - counts.to_run
    refusals = f"; {refused:,} of them cannot run here" if refused else ""
    return f"{plan.matrix_file}: {parts} at scale {plan.scale}{refusals}"


def scale_note(plan: Plan) -> Iterator[str]:
    """What the smoke scale does to a matrix; nothing at full scale."""
    if plan.scale == SMOKE:
        yield from (NOTE, plan.left_out) if plan.left_out else (NOTE,)


def block_name(study: str, sweep: SweepPoint | None) -> str:
    """`attention at sequence_length=2048`, or the study alone where there is no sweep."""
    return f"{study} at {formats.settings(sweep)}" if sweep else study


def status_table(blocks: Iterable[BlockStatus]) -> Table:
    """What a store holds of a matrix: a row a block."""
    table = empty_table(("block", "rounds", "trials", "outcomes", "missing"))
    for block in blocks:
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in block.outcomes.items())
        rounds = f"{block.complete} of {block.rounds}" if block.rounds is not None else str(block.complete)
        missing = "" if block.missing is None else str(block.missing or "")
        name = block_name(block.study, block.sweep)
        add_row(table, name, rounds, sum(block.outcomes.values()), outcomes or formats.ABSENT, missing)
    return table


def verdicts_table(verdicts: Iterable[Verdict]) -> Table:
    """The answer: a row a claim."""
    table = empty_table(("claim", "claimed", "measured", "verdict", "helped", "why"))
    for each in verdicts:
        measured, helped = each.measured or formats.ABSENT, each.helped or formats.ABSENT
        add_row(table, each.claim, each.claimed, measured, each.word.value, helped, each.reason)
    return table


def verdict_counts(verdicts: Iterable[Verdict]) -> str:
    """`3 confirmed · 2 refuted, below · …`, the most frequent first."""
    counts = Counter(verdict.word.value for verdict in verdicts)
    return " · ".join(f"{number} {word}" for word, number in counts.most_common()) or "no claims"


def rows_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Rows of equal keys; the keys are the heads."""
    table = empty_table(tuple(rows[0]) if rows else ())
    for row in rows:
        add_row(table, *row.values())
    return table


def empty_table(columns: Sequence[str]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column.replace("_", " "), overflow="fold")
    return table


def add_row(table: Table, *values: object) -> None:
    """Values as they stand: the square brackets of an interval are no markup."""
    from rich.text import Text

    table.add_row(*(Text(formats.ABSENT if value is None else printable(str(value))) for value in values))


def _workload(row: PlanRow) -> str:
    model = f" ({row.model})" if row.model != row.workload else ""
    kind = "" if row.kind == "training" else f"{row.kind} · "
    return f"{kind}{row.workload}{model} · {formats.settings(row.settings) or 'every axis at its default'}"


def _what_happens(row: PlanRow) -> str:
    return f"unsupported: {row.refusal}" if row.refusal else formats.plural(row.trials, "trial")


def _trial_line(trial: PlannedTrial, width: int) -> str:
    refusal = f"  unsupported: {trial.refusal}" if trial.refusal else ""
    return f"  {trial.position:>3}  {trial.arm.name:<{width}}{refusal}".rstrip()
