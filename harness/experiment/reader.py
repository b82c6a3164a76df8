"""Reads a YAML file and remembers where everything stands, so that an error names file, line and column.

YAML 1.2: `off` is text. Nothing is constructed but text, numbers, truth values, null, lists and mappings; what a
hostile or careless file can do (tags, anchors that explode, endless nesting, a huge file) is one error. ruamel.yaml
scans and resolves (imported on use only); `composer` makes nodes with places of its events.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import InputError, MatrixError, Place
from harness.experiment.nodes import Node

#: A matrix of 10,000 cells, each written out, is about half of this.
LARGEST_FILE_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Document:
    """A file whose root is a mapping."""

    file: str
    hash: str
    """SHA-256 of its bytes, hexadecimal."""
    root: Node

    def plain(self) -> dict[str, Any]:
        """The content as plain Python values."""
        content: dict[str, Any] = self.root.plain()
        return content

    def place(self, path: Sequence[str | int], *, key: bool = False) -> Place:
        """Where the value at `path` stands, or with `key` the key that leads to it.

        Steps that lead nowhere are passed over, so that the place is that of the nearest thing that exists.
        """
        node, line, column = self.root, self.root.line, self.root.column
        for step in path:
            child = node.child(step)
            if child is None:
                continue
            line, column = node.keys.get(str(step), (child.line, child.column)) if key else (child.line, child.column)
            node = child
        return Place(file=self.file, line=line, column=column)


def read_document(path: Path | str, error: type[InputError] = MatrixError) -> Document:
    """Read a YAML file.

    Raises:
        error: there is no such file, it is too large, no UTF-8, no YAML, or no mapping; with the place.
    """
    file = str(path)
    try:
        with Path(path).open("rb") as stream:
            content = stream.read(LARGEST_FILE_BYTES + 1)
    except FileNotFoundError:
        raise error("there is no such file; check the path", place=Place(file=file)) from None
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise error(f"the file cannot be read ({reason})", place=Place(file=file)) from None
    return parse_document(content, file, error)


def parse_document(content: bytes, file: str, error: type[InputError] = MatrixError) -> Document:
    """Parse the bytes of a YAML file; `file` is what messages call it.

    Raises:
        error: as `read_document`.
    """
    from harness.experiment.composer import compose

    if len(content) > LARGEST_FILE_BYTES:
        limit = LARGEST_FILE_BYTES >> 20
        raise error(f"the file is larger than {limit} MiB; write lists as axes or sweeps", place=Place(file=file))
    root = compose(_decode(content, file, error), file, error)
    if not isinstance(root.value, dict):
        kind = "a list" if isinstance(root.value, list) else "a single value"
        place = Place(file=file, line=root.line, column=root.column)
        raise error(f"the file must be a mapping (`key: value` lines), not {kind}", place=place)
    return Document(file=file, hash=hashlib.sha256(content).hexdigest(), root=root)


def _decode(content: bytes, file: str, error: type[InputError]) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        before = problem.object[: problem.start]
        place = Place(file=file, line=before.count(b"\n") + 1, column=len(before) - before.rfind(b"\n"))
        raise error("the file is not UTF-8; save it as UTF-8", place=place) from None
