"""What a kind of trial can be told under a study's `options`: each a number in a range, or a list of words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.errors import suggestion
from harness.experiment.problems import Problems, shown


@dataclass(frozen=True, kw_only=True)
class Option:
    """One of them."""

    number: type[int] | type[float] = float
    minimum: float = 0
    maximum: float = math.inf
    words: tuple[str, ...] = ()
    """In place of a number: a list of some of these."""

    def problem(self, value: object) -> str:
        """What is wrong with a value; empty where nothing is."""
        if self.words:
            return self._problem_of_words(value)
        whole = self.number is int
        if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
            return f"must be a {'whole ' if whole else ''}number, not {shown(value)}"
        if not self.minimum <= value <= self.maximum:
            return f"{shown(value)} is out of range; use {self._range()}"
        return ""

    def _problem_of_words(self, value: object) -> str:
        if not isinstance(value, list) or not value:
            return f"must be a list of some of {', '.join(self.words)}, not {shown(value) if value else 'an empty one'}"
        wrong = [each for each in value if each not in self.words]
        return f"{shown(wrong[0])} is not one of {', '.join(self.words)}" if wrong else ""

    def _range(self) -> str:
        return f"{self.minimum:g} or more" if self.maximum == math.inf else f"{self.minimum:g} to {self.maximum:g}"


#: Options by kind, then by name.
KindOptions = Mapping[str, Mapping[str, Option]]


def check_options(
    kind: str, given: Mapping[str, object], known: KindOptions, problems: Problems, path: Sequence[str | int]
) -> None:
    """Note what a kind does not take. One that has not declared its options takes any."""
    if kind not in known:
        return
    for name, value in given.items():
        option = known[kind].get(name)
        if option is None:
            hint = suggestion(name[:80], known[kind])
            problems.add(f"kind {kind!r} has no option {shown(name)}{hint}", [*path, name], key=True)
        elif problem := option.problem(value):
            problems.add(f"{name}: {problem}", [*path, name])
