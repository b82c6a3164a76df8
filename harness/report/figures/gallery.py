"""Where figures go: asked for one by one, drawn together in a few processes, written as SVG and PNG."""

from __future__ import annotations

import io
import multiprocessing
import os
import re
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from harness.report import formats
from harness.report.figures import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Figures of one report: beyond it a page is no longer read. A figure takes about 0.3 s of a core.
BUDGET = 90
#: A figure larger than this is not put into the page (it is in the folder).
INLINE_LIMIT_BYTES = 120_000
PIXELS_PER_INCH = 130
#: More processes than this wait for each other's imports.
MOST_PROCESSES = 8


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A figure of the report. `file` is its name in the folder, without ending."""

    file: str
    caption: str


@dataclass(frozen=True, kw_only=True)
class _Job:
    """What a drawing process is told; `drawing` must be picklable: a module's function with its data."""

    path: Path
    drawing: Callable[[Figure], None]
    size: tuple[float, float]


@dataclass(kw_only=True)
class Gallery:
    """Collects the figures of a report, then draws them all."""

    folder: Path
    budget: int = BUDGET
    left_out: list[str] = field(default_factory=list)
    """Captions of figures beyond the budget."""
    _jobs: dict[str, _Job] = field(default_factory=dict)
    _drawn: dict[str, str] = field(default_factory=dict)

    def draw(
        self, name: str, caption: str, drawing: Callable[[Figure], None], *, size: tuple[float, float] = (6.6, 3.4)
    ) -> Picture | None:
        """Ask for a figure of `size` inches; one that was asked for under this name already is not drawn again.

        None beyond the budget.
        """
        file = formats.slug(name)
        if file not in self._jobs:
            if len(self._jobs) >= self.budget:
                self.left_out.append(caption)
                return None
            self._jobs[file] = _Job(path=self.folder / file, drawing=drawing, size=size)
        return Picture(file=file, caption=caption)

    def finish(self) -> None:
        """Draw everything that was asked for."""
        jobs = list(self._jobs.values())
        processes = min(os.cpu_count() or 1, MOST_PROCESSES, len(jobs) // 2)
        if processes < 2 or "fork" not in multiprocessing.get_all_start_methods():
            drawn = [_write(job) for job in jobs]
        else:
            import matplotlib.backends.backend_svg  # noqa: F401 - before the fork, so that each child has it
            import seaborn  # noqa: F401

            context = multiprocessing.get_context("fork")
            with ProcessPoolExecutor(processes, mp_context=context) as pool:
                drawn = list(pool.map(_write, jobs, chunksize=2))
        self._drawn = dict(zip(self._jobs, drawn, strict=True))

    def inline(self, picture: Picture) -> Markup:
        """The figure as a part of the page; after `finish`."""
        return themed(self._drawn[picture.file], picture.file, picture.caption)


def themed(svg: str, file: str, caption: str) -> Markup:
    """The SVG as a part of the page: colours as CSS variables, ids of its own, a name for screen readers."""
    body = svg[svg.index("<svg") :]
    if len(body) > INLINE_LIMIT_BYTES:
        return Markup(f'<p class="note">This figure is large; it is in <code>figures/{file}.svg</code>.</p>')
    for colour, variable in style.VARIABLES.items():
        body = body.replace(colour, variable)
    body = re.sub(r'(?<= id=")', f"{file}-", body)
    body = re.sub(r'(?<=href="#)|(?<=url\(#)', f"{file}-", body)
    body = re.sub(r'<svg [^>]*?viewBox="([^"]+)"[^>]*>', lambda found: _opening(found[1], caption), body, count=1)
    return Markup(body.strip())


def _write(job: _Job) -> str:
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


def _opening(box: str, caption: str) -> str:
    width = round(float(box.split()[2]) * 4 / 3)  # points to CSS pixels
    return (
        f'<svg xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="{box}" style="width:{width}px" role="img" '
        f'aria-label="{escape(caption)}">'
    )


def _tidy(svg: str) -> str:
    """Without metadata, comments and trailing spaces, so that files are small and diffs are clean."""
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"\s*<!--.*?-->", "", svg, flags=re.DOTALL)
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"
