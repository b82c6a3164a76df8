"""Where figures go: asked for one by one, drawn meanwhile, put into the page."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from harness.report import formats
from harness.report.figures import style
from harness.report.figures.drawing import Job
from harness.report.figures.studio import Studio

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Figures of one report: the default matrix with all its trials has 94. A figure takes about 0.3 s of a core.
BUDGET = 120
#: A figure larger than this is not put into the page (it is in the folder).
INLINE_LIMIT_BYTES = 120_000


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A figure of the report. `file` is its name in the folder, without ending."""

    file: str
    caption: str


@dataclass(kw_only=True)
class Gallery:
    """Has the figures of a report drawn, each once, and keeps them for the page."""

    folder: Path
    studio: Studio
    budget: int = BUDGET
    left_out: dict[str, str] = field(default_factory=dict)
    """File name → caption of figures beyond the budget."""
    _files: list[str] = field(default_factory=list)
    _drawn: dict[str, str] = field(default_factory=dict)

    def draw(
        self, name: str, caption: str, drawing: Callable[[Figure], None], *, size: tuple[float, float] = (6.6, 3.4)
    ) -> Picture | None:
        """Ask for a figure of `size` inches; one that was asked for under this name already is not drawn again.

        None beyond the budget.
        """
        file = formats.slug(name)
        if file not in self._files:
            if len(self._files) >= self.budget:
                self.left_out[file] = caption
                return None
            self.studio.ask(Job(path=self.folder / file, drawing=drawing, size=size))
            self._files.append(file)
        return Picture(file=file, caption=caption)

    def finish(self) -> None:
        """Wait until everything that was asked for is drawn."""
        self._drawn = dict(zip(self._files, self.studio.finish(), strict=True))

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


def _opening(box: str, caption: str) -> str:
    width = round(float(box.split()[2]) * 4 / 3)  # points to CSS pixels
    return (
        f'<svg xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="{box}" style="width:{width}px" role="img" '
        f'aria-label="{escape(caption)}">'
    )
