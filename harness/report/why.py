"""Where the time of a step went, as a table: a row a cell, a column a kind of work."""

from __future__ import annotations

from collections.abc import Sequence

from harness.judgement.judged import ArmResult
from harness.judgement.why import TITLES, Why, why_of
from harness.report import formats
from harness.report.tables import Table

#: Idle shares of two trials further apart than this are told.
APART = 0.2


def why_table(arms: Sequence[ArmResult]) -> Table | None:
    """From the profiled step of every trial; idle time first, columns in which no cell spends anything left out."""
    rows = [why for arm in arms if (why := why_of(arm)) is not None]
    shown = [name for name in ("idle", *(each for each in TITLES if each != "idle"))
             if any(why.seconds[name] for why in rows)]  # fmt: skip
    if not shown:
        return None
    return Table(
        caption="Where a step's time went, mean of one profiled step a trial",
        columns=("cell", "step", "parts ÷ step", *(TITLES[name] for name in shown)),
        rows=tuple((why.arm, formats.milliseconds(why.step_seconds), formats.share(why.sum_over_step),
                    *(_part(why, name) for name in shown)) for why in rows),
        numeric=frozenset(range(1, len(shown) + 3)),
        strong=frozenset(index for index, why in enumerate(rows) if why.arm == "baseline"),
        notes=tuple(formats.sentence(why.disagreement) for why in rows if why.disagreement),
    )  # fmt: skip


def _part(why: Why, name: str) -> str:
    """Mean over the trials; of idle the share of the trials with the least and the most where they are far apart."""
    share, (least, most) = formats.share(why.share(name)), why.idle
    if name == "idle" and most - least > APART:
        share += f"; {formats.share(least)} to {formats.share(most)} by trial"
    return f"{formats.milliseconds(why.seconds[name])} ({share})"
