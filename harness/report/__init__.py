"""The report: `render_report` writes it from a judgement.

    report.md        for a pull request or a terminal
    report.html      one file, no network, light and dark, prints
    tables/*.csv     the figures behind it
    figures/*.svg    and *.png

Needs no GPU and no torch. The same input gives the same bytes: times come from the records.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.judgement.claims import Claims
    from harness.judgement.judged import Judgement
    from harness.report.figures.studio import Studio
    from harness.report.origin import Origin
    from harness.results.record import Record


def render_report(
    judgement: Judgement,
    claims: Claims,
    records: Sequence[Record],
    folder: Path | str,
    *,
    name: str = "claimbench",
    figures: int | None = None,
    studio: Studio | None = None,
    origin: Origin | None = None,
) -> Path:
    """Write the whole report into `folder` and return the path of `report.html`.

    Files of an earlier report there are replaced; figures and tables that are no longer part of it are removed.

    Args:
        figures: draw at most so many; None: 90, or 12 for more than 5,000 trials, which then take under 10 s. The page
            says how many were left out; the tables hold their numbers.
        studio: draws the figures; it has been opened, and may have been so before there was a judgement. None: one of
            its own.
        origin: the matrices that the trials are of, for commands and questions (`report.origin`); None: nobody looked.

    Raises:
        ClaimbenchError: the folder cannot be written.
    """
    from harness.report.figures.studio import Studio
    from harness.report.render import write_report

    with nullcontext(studio) if studio else Studio() as at_hand:
        return write_report(judgement, claims, records, Path(folder), name=name, figures=figures, studio=at_hand,
                            origin=origin)  # fmt: skip
