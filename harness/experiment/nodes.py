"""A value of a YAML file with its place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Scalar = str | int | float | bool | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """A value with its place. Lines and columns count from 1."""

    value: Scalar | list[Node] | dict[str, Node]
    line: int
    column: int
    keys: dict[str, tuple[int, int]] = field(default_factory=dict)
    """For a mapping: line and column of every key."""
    size: int = 1
    """Nodes in it, aliases expanded."""
    height: int = 1
    """Levels in it, aliases expanded."""

    def child(self, step: str | int) -> Node | None:
        """The value under a key or an index, if there is one."""
        if isinstance(self.value, dict):
            return self.value.get(str(step))
        if isinstance(self.value, list) and isinstance(step, int) and 0 <= step < len(self.value):
            return self.value[step]
        return None

    def plain(self) -> Any:
        """The value without places. Depth is bounded (`composer.LARGEST_DEPTH`)."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value
