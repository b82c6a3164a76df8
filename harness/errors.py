"""Everything that claimbench tells a user when it cannot go on.

    ClaimbenchError
    ├── InputError            a file or an option of the user's is wrong; nothing was launched
    │   ├── MatrixError       matrix.yaml
    │   ├── ClaimsError       claims.yaml
    │   ├── SentenceError     a claim written as a sentence (`claimbench check`)
    │   ├── WorkloadError     a model, data file or training step that cannot be used
    │   │   └── DataTooShortError  data that holds no sample of the length that is asked for
    │   └── RecordsError      JSON lines or a store that cannot be read as records
    ├── StoreError            the store cannot be opened or written
    │   ├── StoreLockedError  another run holds it
    │   └── StoreSchemaError  it was written by a newer claimbench
    ├── EnvironmentProblem    this machine lacks what was asked for
    └── LaunchError           a trial process could not be started at all

Each message is one sentence that says what is wrong and what to do; the command line prints it without a traceback.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass

#: So many known words stand in a message; of more it says how many, and what lists them.
MOST_LISTED = 30


class ClaimbenchError(Exception):
    """Base of every error that is meant for the user. Exit code of the command line: 2."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where in a file something stands. `line` and `column` count from 1; 0 means "the file as a whole"."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


class InputError(ClaimbenchError):
    """Something the user wrote is wrong. `place` says where, where there is a place."""

    def __init__(self, message: str, *, place: Place | None = None) -> None:
        self.place = place
        self.message = message
        super().__init__(f"{place}: {message}" if place else message)


class MatrixError(InputError):
    """matrix.yaml is wrong."""


class ClaimsError(InputError):
    """claims.yaml is wrong."""


class SentenceError(InputError):
    """A claim written as a sentence does not parse."""

    def __init__(self, message: str, *, place: Place | None = None) -> None:
        """Words of the sentence in the message are written out where a terminal would obey them."""
        super().__init__(printable(message), place=place)


class WorkloadError(InputError):
    """A model, a data file or a user's training step cannot be used."""


class DataTooShortError(WorkloadError):
    """Data holds no sample of the length that is asked for."""


class RecordsError(InputError):
    """A path does not hold records that can be read."""


class StoreError(ClaimbenchError):
    """The store cannot be opened, read or written."""


class StoreLockedError(StoreError):
    """Another run is writing to the store."""


class StoreSchemaError(StoreError):
    """The store was written by a newer claimbench."""


class EnvironmentProblem(ClaimbenchError):  # noqa: N818 - a fact about the machine
    """This machine lacks something that was asked for explicitly."""


class LaunchError(ClaimbenchError):
    """No trial process could be started."""


def joined(errors: Iterable[InputError]) -> InputError:
    """Several errors of one file as one: a line each, in the order of the file."""
    first, *rest = sorted(errors, key=lambda each: (each.place.line, each.place.column) if each.place else (0, 0))
    return type(first)("\n".join([first.message, *map(str, rest)]), place=first.place)


def printable(text: str) -> str:
    """The text with what a terminal would obey or hide (control and direction characters, line breaks) written out.

    >>> printable("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def suggestion(word: object, known: Iterable[object], listed_by: str = "") -> str:
    """`; did you mean 'x'?` for the nearest known words, or the list of what is known when nothing is near.

    `listed_by`: the command that lists them all, for a list that is too long for a message.

    >>> suggestion("atention", ["attention", "compile"])
    "; did you mean 'attention'?"
    >>> suggestion("flash-3", ["flash-by-import", "flash-in-a-step", "loader"])
    "; did you mean 'flash-by-import' or 'flash-in-a-step'?"
    >>> suggestion("x", ["attention", "compile"])
    '; known: attention, compile'
    """
    words = [str(each) for each in known]
    near = difflib.get_close_matches(str(word), words, n=1, cutoff=0.6) or _with_a_part_of(str(word), words)
    if near:
        return f"; did you mean {' or '.join(map(repr, near))}?"
    more = len(words) - MOST_LISTED
    rest = f", and {more} more{f': {listed_by} lists them' if listed_by else ''}" if more > 0 else ""
    return f"; known: {', '.join(words[:MOST_LISTED])}{rest}" if words else ""


def _with_a_part_of(word: str, known: Iterable[str]) -> list[str]:
    """Up to three words that begin with the same part, `flash` of `flash-x`: long enough to mean something."""
    part = re.split(r"[^a-z0-9]", word.lower(), maxsplit=1)[0]
    return [each for each in known if each.lower().startswith(part)][:3] if len(part) > 3 else []
