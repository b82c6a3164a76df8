"""The page as a browser's parser sees it, and figures before they are drawn."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from harness.report.figures.drawing import Job
from harness.report.figures.gallery import Gallery
from harness.report.figures.studio import Studio

#: Elements without an end tag.
VOID = frozenset({"meta", "link", "br", "hr", "img", "input"})


@dataclass(kw_only=True)
class Seen(HTMLParser):
    """Tags, ids, links and the text outside of styles and scripts."""

    tags: Counter[str] = field(default_factory=Counter)
    ids: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    text: str = ""
    open: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """End tags that close something else than what is open."""

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            elif name == "href":
                self.links.append(value or "")
            elif name in {"src", "xlink:href", "action", "srcset"}:
                self.sources.append(value or "")
            elif name.startswith("on"):
                self.wrong.append(f"handler {name}")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open[-1] != tag:
            self.wrong.append(tag)
        else:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.open):
            self.text += data


def see(html: str) -> Seen:
    seen = Seen()
    seen.feed(html)
    return seen


class Sketches(Studio):
    """Draws nothing, and keeps what it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs: dict[str, Job] = {}

    def ask(self, job: Job) -> None:
        self.jobs[job.path.name] = job

    def gallery(self) -> Gallery:
        return Gallery(folder=Path(), studio=self)

    def data(self, begins: str) -> dict[str, Any]:
        """What the only figure is drawn from whose name begins so."""
        (job,) = (job for name, job in self.jobs.items() if name.startswith(begins))
        assert isinstance(job.drawing, partial)
        return dict(job.drawing.keywords)


def legend_of(figure: Figure) -> list[str]:
    """The words of a figure's only legend."""
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]
