"""Where figures go: each is drawn once, written as SVG and PNG, and kept as themed SVG for the page."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from harness.report import formats
from harness.report.figures import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: No more figures than this in one report: a page stays readable, and a large store takes seconds, not minutes.
BUDGET = 80
#: A figure larger than this is not put into the page (it is in the folder).
INLINE_LIMIT_BYTES = 120_000


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A figure that was drawn. `file` is its name in the folder, without ending."""

    file: str
    caption: str
    svg: Markup


@dataclass(kw_only=True)
class Gallery:
    """Draws figures into a folder."""

    folder: Path
    left_out: list[str] = field(default_factory=list)
    """Captions of figures beyond the budget."""
    _drawn: dict[str, Picture] = field(default_factory=dict)

    def draw(
        self, name: str, caption: str, drawing: Callable[[Figure], None], *, size: tuple[float, float] = (6.6, 3.4)
    ) -> Picture | None:
        """Draw a figure of `size` inches, or return the one already drawn under this name; None beyond the budget."""
        file = formats.slug(name)
        if file in self._drawn:
            return self._drawn[file]
        if len(self._drawn) >= BUDGET:
            self.left_out.append(caption)
            return None
        svg = self._write(file, drawing, size)
        picture = Picture(file=file, caption=caption, svg=themed(svg, file, caption))
        self._drawn[file] = picture
        return picture

    def _write(self, file: str, drawing: Callable[[Figure], None], size: tuple[float, float]) -> str:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        with style.look(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing")  # names in scripts that the font lacks
            figure = Figure(figsize=size, layout="constrained")
            FigureCanvasAgg(figure)
            drawing(figure)
            buffer = io.StringIO()
            figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
            figure.savefig(self.folder / f"{file}.png", dpi=130, metadata={"Software": None})
        svg = _tidy(buffer.getvalue())
        (self.folder / f"{file}.svg").write_text(svg, encoding="utf-8")
        return svg


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
