"""From YAML events to nodes with places: the part of the reader that stands against hostile files."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError, YAMLStreamError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.reader import ReaderError

from harness.errors import InputError, Place, joined, printable
from harness.experiment.nodes import Node, Scalar

LARGEST_DEPTH = 40
#: Values of a file, those that aliases repeat included. A matrix of 10,000 cells, each written out, has about half.
LARGEST_NUMBER = 100_000

#: What ruamel.yaml's scanner raises on some malformed input beside its own errors (found by fuzzing).
_STRAY_ERRORS = (ValueError, TypeError, AttributeError, LookupError, AssertionError, ArithmeticError)
#: What a terminal would obey, and what cannot be written as UTF-8.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_LARGEST_INTEGER = 1 << 63
_PLAIN_TAGS = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "bool", "null"))


def compose(text: str, file: str, error: type[InputError]) -> Node:
    """The root node of the one document in `text`.

    Raises:
        error: with the place of what is wrong.
    """
    composer = _Composer(file, error)
    for event in _events(text, file, error, composer.yaml):
        composer.take(event)
    return composer.finish()


def _events(text: str, file: str, error: type[InputError], yaml: YAML) -> Iterator[Event]:
    place = Place(file=file)  # of the event before, for errors that come without one
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for event in yaml.parse(text):
                place = Place(file=file, line=event.end_mark.line + 1, column=event.end_mark.column + 1)
                yield event
    except ReaderError as problem:
        before = text[: problem.position]
        place = Place(file=file, line=before.count("\n") + 1, column=len(before) - before.rfind("\n"))
        raise error(f"character #x{problem.character:04x} may not stand in YAML; remove it", place=place) from None
    except MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        place = Place(file=file, line=mark.line + 1, column=mark.column + 1) if mark else Place(file=file)
        what = " ".join(f"{problem.context or ''} {problem.problem or ''}".split())
        message = f"this is not YAML: {printable(what)}; check indentation, quotes and brackets here"
        raise error(message, place=place) from None
    except (YAMLError, YAMLStreamError, *_STRAY_ERRORS) as problem:
        what = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        raise error(f"this is not YAML: {printable(what)}; check what follows here", place=place) from None


@dataclass(kw_only=True)
class _Frame:
    """A list or mapping that is still open."""

    event: Event
    items: list[Node] = field(default_factory=list)
    entries: dict[str, Node] = field(default_factory=dict)
    keys: dict[str, tuple[int, int]] = field(default_factory=dict)
    key: str | None = None


class _Composer:
    def __init__(self, file: str, error: type[InputError]) -> None:
        self.yaml = YAML(typ="safe", pure=True)
        self._file = file
        self._error = error
        self._stack: list[_Frame] = []
        self._anchors: dict[str, Node | None] = {}
        self._root: Node | None = None
        self._documents = 0
        self._number = 0
        self._words: dict[str, Scalar] = {}
        """Plain scalars and what they stand for: most words of a matrix come again and again."""
        self._duplicates: list[InputError] = []

    def take(self, event: Event) -> None:
        if isinstance(event, DocumentStartEvent):
            self._start_document(event)
        elif isinstance(event, AliasEvent):
            self._add(event, self._alias(event))
        elif isinstance(event, NodeEvent):
            self._start_node(event)
        elif isinstance(event, MappingEndEvent | SequenceEndEvent):
            self._close()

    def finish(self) -> Node:
        if self._duplicates:
            raise joined(self._duplicates)
        if self._root is None:
            raise self._error("the file is empty", place=Place(file=self._file))
        return self._root

    def _start_document(self, event: Any) -> None:
        self._documents += 1
        if self._documents > 1:
            self._fail(event, "a second document begins here (`---`); one file holds one document")
        if event.version not in {None, (1, 2)}:
            self._fail(event, "only YAML 1.2 is read; remove the %YAML line")

    def _start_node(self, event: Any) -> None:
        if event.tag is not None:
            self._fail(event, f"the tag {str(event.tag)!r} is not read here; write the plain value")
        if event.anchor is not None:
            self._anchors[event.anchor] = None  # open: an alias to it would refer to itself
        if isinstance(event, MappingStartEvent | SequenceStartEvent):
            if self._stack:
                self._expect_no_key(event)
            self._stack.append(_Frame(event=event))
            if len(self._stack) > LARGEST_DEPTH:
                self._fail(event, f"nested more than {LARGEST_DEPTH} levels deep; flatten it")
        elif isinstance(event, ScalarEvent):
            self._add(event, self._scalar(event))

    def _expect_no_key(self, event: Event) -> None:
        frame = self._stack[-1]
        if isinstance(frame.event, MappingStartEvent) and frame.key is None:
            self._fail(event, "a key must be a word, not a list or a mapping")

    def _close(self) -> None:
        frame = self._stack.pop()
        is_mapping = isinstance(frame.event, MappingStartEvent)
        children = list(frame.entries.values()) if is_mapping else frame.items
        node = Node(
            value=frame.entries if is_mapping else frame.items,
            line=frame.event.start_mark.line + 1,
            column=frame.event.start_mark.column + 1,
            keys=frame.keys,
            size=1 + sum(child.size for child in children),
            height=1 + max((child.height for child in children), default=0),
        )
        if node.height > LARGEST_DEPTH:
            self._fail(frame.event, f"aliases nest this more than {LARGEST_DEPTH} levels deep; write it out")
        self._add(frame.event, node)

    def _add(self, event: Any, node: Node) -> None:
        if event.anchor is not None and not isinstance(event, AliasEvent):
            self._anchors[event.anchor] = node
        if not self._stack:
            self._root = node
            return
        frame = self._stack[-1]
        if not isinstance(frame.event, MappingStartEvent):
            frame.items.append(node)
        elif frame.key is None:
            self._open_key(frame, event)
        else:
            frame.entries[frame.key] = node if _is_written(event) else _at_key(node, *frame.keys[frame.key])
            frame.key = None

    def _open_key(self, frame: _Frame, event: Any) -> None:
        if not isinstance(event, ScalarEvent):
            self._fail(event, "a key must be written out, not be an alias")
        key = str(event.value)
        if key == "<<":
            self._fail(event, "merge keys (`<<`) are not read here; write the settings out")
        frame.key = key
        if key in frame.keys:
            first = frame.keys[key][0]
            message = f"duplicate key {key!r} (first on line {first}); one of the two must go"
            self._duplicates.append(self._error(message, place=self._place(event)))
        else:
            frame.keys[key] = (event.start_mark.line + 1, event.start_mark.column + 1)

    def _alias(self, event: Any) -> Node:
        if event.anchor not in self._anchors:
            self._fail(event, f"the alias *{event.anchor} has no anchor; write the value out")
        node = self._anchors[event.anchor]
        if node is None:
            self._fail(event, f"the alias *{event.anchor} stands inside its own anchor; write the value out")
        self._count(event, node.size)
        return node

    def _count(self, event: Event, more: int) -> None:
        self._number += more
        if self._number > LARGEST_NUMBER:
            message = f"more than {LARGEST_NUMBER:,} values, those that aliases repeat included; write fewer"
            self._fail(event, message)

    def _scalar(self, event: Any) -> Node:
        self._count(event, 1)
        value: Scalar = event.value
        if _CONTROL.search(event.value):
            self._fail(event, "control characters are not read; remove the escape")
        if event.implicit[0]:
            if event.value not in self._words:
                tag = str(self.yaml.resolver.resolve(ScalarNode, event.value, (True, False)))
                self._words[event.value] = self._construct(event, tag) if tag in _PLAIN_TAGS else event.value
            value = self._words[event.value]
        return Node(value=value, line=event.start_mark.line + 1, column=event.start_mark.column + 1)

    def _construct(self, event: Any, tag: str) -> Scalar:
        constructor = self.yaml.constructor
        construct = constructor.yaml_constructors[tag]
        try:
            value: Scalar = construct(constructor, ScalarNode(tag, event.value, event.start_mark, event.end_mark))
        except (YAMLError, *_STRAY_ERRORS):
            self._fail(event, "this number cannot be read; check its digits")
        if isinstance(value, float) and not math.isfinite(value):
            self._fail(event, "infinity and not-a-number are no values here; write a number")
        if isinstance(value, int) and abs(value) >= _LARGEST_INTEGER:
            self._fail(event, "this number is too large; it must fit 64 bits")
        return value

    def _place(self, event: Event) -> Place:
        return Place(file=self._file, line=event.start_mark.line + 1, column=event.start_mark.column + 1)

    def _fail(self, event: Event, message: str) -> NoReturn:
        raise self._error(printable(message), place=self._place(event))


def _is_written(event: Any) -> bool:
    """Whether anything stands there: the place of `key:` without a value would be where the next line begins."""
    return not isinstance(event, ScalarEvent) or event.start_mark.index != event.end_mark.index


def _at_key(node: Node, line: int, column: int) -> Node:
    return replace(node, line=line, column=column)
