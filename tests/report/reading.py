"""The page as a browser's parser sees it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from html.parser import HTMLParser

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
