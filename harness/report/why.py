"""Where the time of a step went, as a table: a row a cell, a column a kind of work."""

from __future__ import annotations

from collections.abc import Sequence

from harness.judgement.judged import ArmResult
from harness.judgement.why import TITLES, Why, why_of
from harness.report import formats
from harness.report.tables import Table


def why_table(arms: Sequence[ArmResult]) -> Table | None:
    """From the profiled step of every trial; columns in which no cell spends anything are left out."""
    rows = [why for arm in arms if (why := why_of(arm)) is not None]
    shown = [name for name in TITLES if any(why.seconds[name] for why in rows)]
    if not shown:
        return None
    return Table(
        caption="Where a step's time went, mean of one profiled step a trial",
        columns=("cell", "step", *(TITLES[name] for name in shown), "parts ÷ step"),
        rows=tuple((why.arm, formats.milliseconds(why.step_seconds), *(_part(why, name) for name in shown),
                    formats.share(why.sum_over_step)) for why in rows),
        numeric=frozenset(range(1, len(shown) + 3)),
        strong=frozenset(index for index, why in enumerate(rows) if why.arm == "baseline"),
    )  # fmt: skip


def _part(why: Why, name: str) -> str:
    return f"{formats.milliseconds(why.seconds[name])} ({formats.share(why.share(name))})"
