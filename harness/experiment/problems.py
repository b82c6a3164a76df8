"""Collects everything that is wrong with a file, so that one run of a command shows all of it, a line each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from harness.errors import InputError, joined, printable, suggestion
from harness.experiment.reader import Document

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic_core import ErrorDetails

    Shape = TypeVar("Shape", bound=BaseModel)

#: More than anyone mends in one go.
LARGEST_NUMBER = 30
LONGEST_MESSAGE = 500

_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "dict_type": "a mapping (`key: value` lines)",
    "model_type": "a mapping (`key: value` lines)",
    "list_type": "a list",
    "tuple_type": "a list",
    "date_type": "a date such as 2026-11-28",
    "date_from_datetime_parsing": "a date such as 2026-11-28",
    "date_from_datetime_inexact": "a date such as 2026-11-28",
    "date_parsing": "a date such as 2026-11-28",
}


class Problems:
    """The problems of one document."""

    def __init__(self, document: Document, error: type[InputError]) -> None:
        self._document = document
        self._error = error
        self._found: list[InputError] = []

    def __len__(self) -> int:
        return len(self._found)

    def add(self, message: str, path: Sequence[str | int], *, key: bool = False) -> None:
        """Note a problem at `path` (with `key`: at the key itself).

        Raises:
            the document's error: there are as many problems as one shows.
        """
        message = printable(message)
        if len(message) > LONGEST_MESSAGE:
            message = f"{message[: LONGEST_MESSAGE // 2]} … {message[-LONGEST_MESSAGE // 4 :]}"
        self._found.append(self._error(message, place=self._document.place(path, key=key)))
        if len(self._found) >= LARGEST_NUMBER:
            self._found.append(self._error("and perhaps more; mend these first", place=self._document.place(path)))
            self.raise_if_any()

    def line(self, path: Sequence[str | int]) -> int:
        """The line of the key at `path`, for a message that points to two places."""
        return self._document.place(path, key=True).line

    def raise_if_any(self) -> None:
        """Raise everything found as one error, a line each, in the order of the file.

        Raises:
            the document's error.
        """
        if not self._found:
            return
        raise joined(self._found)


def validate(
    shape: type[Shape], content: object, problems: Problems, path: Sequence[str | int] = ()
) -> tuple[Shape | None, frozenset[str]]:
    """Hold `content` against a pydantic model and note what does not fit.

    Returns the model, or None and the names of the fields that are wrong.
    """
    from pydantic import ValidationError

    try:
        return shape.model_validate(content), frozenset()
    except ValidationError as error:
        known = [field.alias or name for name, field in shape.model_fields.items()]
        details = error.errors(include_url=False)
        for detail in details:
            at = [*path, *detail["loc"]]
            is_key = detail["type"] in {"extra_forbidden", "missing"}
            problems.add(sentence(detail, at, known if len(detail["loc"]) == 1 else ()), at, key=is_key)
        return None, frozenset(str(detail["loc"][0]) for detail in details if detail["loc"])


def sentence(detail: ErrorDetails, at: Sequence[str | int], known: Iterable[str] = ()) -> str:
    """One of pydantic's errors, `at` a path, in words; `known` are the keys that could have been meant."""
    kind, value = detail["type"], detail["input"]
    context: Mapping[str, Any] = detail.get("ctx", {})
    name = next((str(step) for step in reversed(at) if isinstance(step, str)), "the file")
    if kind == "extra_forbidden":
        return f"unknown key {name!r}{suggestion(name[:80], known)}"
    if kind == "missing":
        return f"{name!r} is missing; add it"
    if kind == "value_error":
        return str(context.get("error", detail["msg"]))
    return f"{name}: {_complaint(kind, value, context) or detail['msg']}"


def _complaint(kind: str, value: object, context: Mapping[str, Any]) -> str | None:
    if kind in _EXPECTED:
        return f"must be {_EXPECTED[kind]}, not {shown(value)}"
    if kind == "literal_error":
        words = re.findall(r"'([^']*)'", context["expected"]) or [str(context["expected"])]
        return f"{shown(value)} is not one of {', '.join(words)}{_nearest(value, words)}"
    if kind in {"greater_than_equal", "less_than_equal"}:
        limit = f"{context['ge']} or more" if "ge" in context else f"{context['le']} or less"
        return f"{shown(value)} is out of range; use {limit}"
    if kind in {"too_short", "string_too_short"}:
        return "is empty; add an entry"
    return None


def _nearest(value: object, words: list[str]) -> str:
    hint = suggestion(value[:80], words) if isinstance(value, str) else ""
    return hint if "did you mean" in hint else ""


def shown(value: object) -> str:
    """A value as the user wrote it, short."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
