"""One figure from plain data to its SVG and PNG."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.report.figures import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PIXELS_PER_INCH = 130


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a drawing process is told; `drawing` must be picklable: a module's function with its data."""

    path: Path
    """Of the files, without ending."""
    drawing: Callable[[Figure], None]
    size: tuple[float, float]
    """Inches."""


def bring_libraries() -> None:
    """Import what drawing needs, for the processes that are forked afterwards."""
    import matplotlib.backends.backend_agg
    import matplotlib.backends.backend_svg  # noqa: F401
    import seaborn  # noqa: F401


def write(job: Job) -> str:
    """Draw one figure and write both files; the SVG.

    Raises:
        OSError: a file cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with style.look(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # names in scripts that the font lacks
        figure = Figure(figsize=job.size, layout="constrained", dpi=PIXELS_PER_INCH)
        png = FigureCanvasAgg(figure)
        job.drawing(figure)
        # `savefig` lays out and draws twice for each file, which would double the time of a report.
        if engine := figure.get_layout_engine():
            engine.execute(figure)
        figure.set_layout_engine("none")
        png.print_png(job.path.with_suffix(".png"), metadata={"Software": None})  # type: ignore[no-untyped-call]
        buffer = io.StringIO()
        FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None, "Creator": None})  # type: ignore[no-untyped-call]
    svg = _tidy(buffer.getvalue())
    job.path.with_suffix(".svg").write_text(svg, encoding="utf-8")
    return svg


def _tidy(svg: str) -> str:
    """Without metadata, comments and trailing spaces, so that files are small and diffs are clean."""
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"\s*<!--.*?-->", "", svg, flags=re.DOTALL)
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"
