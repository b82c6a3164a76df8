"""What can be varied: an axis, its settings, its default. The table itself is put together in `techniques.registry`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from harness.errors import suggestion

#: One value of an axis, as it stands in YAML and in JSON.
Setting = bool | int | float | str


def show_setting(value: object) -> str:
    """A setting as it is written in a matrix: `true`, not Python's `True`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def show_settings(settings: Mapping[str, object]) -> str:
    """`attention=flash2 precision=bf16`, or nothing where there are none."""
    return " ".join(f"{axis}={show_setting(value)}" for axis, value in settings.items())


class AxisError(ValueError):
    """A word is not an axis, or a value is not one of its settings. The reader of the matrix adds the place."""


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One thing that a cell fixes.

    `settings` are the words it knows; `number` says that numbers between `minimum` and `maximum` are settings as well.
    """

    name: str
    default: Setting
    settings: Mapping[Setting, str] = field(default_factory=dict)
    """Each known word with one line that says what it does."""
    number: type[int] | type[float] | None = None
    minimum: float = 0
    maximum: float = float("inf")
    free_text: bool = False
    """Any non-empty text is a setting (for example LoRA's comma-separated target modules)."""
    meaning: str = ""
    documents: tuple[str, ...] = ()
    """Ids of the documents that speak of it (D1..D4)."""

    def parse(self, value: object) -> Setting:
        """The setting that `value` stands for.

        Raises:
            AxisError: it is of the wrong type, out of range or no known word.
        """
        for word in self.settings:
            if type(word) is type(value) and word == value:
                return word
        if self.number is not None and isinstance(value, int | float) and not isinstance(value, bool):
            return self._parse_number(value)
        if self.free_text and isinstance(value, str) and value.strip():
            return value.strip()
        if isinstance(value, str) and (plain := self._unquoted(value)) is not None:
            raise AxisError(f"{self.name}: {value!r} is a text; write {show_setting(plain)}, without quotes")
        shown = show_setting(value) if isinstance(value, bool) else repr(value)
        raise AxisError(f"{self.name}: {shown} is not a setting ({self.describe()}){self._nearest(value)}")

    def _unquoted(self, text: str) -> Setting | None:
        """The setting that a text would be, were it not in quotes: a number, or true and false; None: it is none."""
        for word in self.settings:
            if not isinstance(word, str) and show_setting(word) == text:
                return word
        with suppress(ValueError):
            return self._parse_number(int(text) if self.number is int else float(text)) if self.number else None
        return None

    def describe(self) -> str:
        """The settings in words, default first: `off, or an integer from 1 to 512`."""
        words = [show_setting(word) for word in sorted(self.settings, key=lambda word: word != self.default)]
        if self.number is not None:
            kind = "an integer" if self.number is int else "a number"
            top = "" if self.maximum == float("inf") else f" to {self.maximum:.15g}"
            words.append(f"{kind} from {self.minimum:.15g}{top}")
        if self.free_text:
            words.append("text")
        return ", ".join(words)

    def _parse_number(self, value: int | float) -> Setting:
        if self.number is int and not isinstance(value, int):
            raise AxisError(f"{self.name}: {value!r} must be a whole number")
        if not self.minimum <= value <= self.maximum:
            raise AxisError(f"{self.name}: {value!r} is out of range ({self.describe()})")
        return self.number(value) if self.number else value

    def _nearest(self, value: object) -> str:
        """The nearest word as it is written in a matrix; nothing where none is near, since all of them stand there."""
        hint = suggestion(value, map(show_setting, self.settings)) if isinstance(value, str) else ""
        return hint if "did you mean" in hint else ""


class AxisTable(Mapping[str, Axis]):
    """All axes by name, in the order in which they are shown."""

    def __init__(self, axes: Iterable[Axis]) -> None:
        self._axes: dict[str, Axis] = {}
        for axis in axes:
            if axis.name in self._axes:
                raise AxisError(f"axis {axis.name!r} is defined twice; rename one of the two")
            self._axes[axis.name] = axis

    def __getitem__(self, name: str) -> Axis:
        return self._axes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._axes)

    def __len__(self) -> int:
        return len(self._axes)

    def parse(self, name: str, value: object) -> Setting:
        """The setting of axis `name` that `value` stands for.

        Raises:
            AxisError: unknown axis, or not one of its settings; the message suggests the nearest word.
        """
        if name not in self._axes:
            raise AxisError(f"unknown axis {name!r}{suggestion(name, self._axes, '`claimbench doctor`')}")
        return self._axes[name].parse(value)

    def defaults(self) -> dict[str, Setting]:
        """The default of every axis."""
        return {name: axis.default for name, axis in self._axes.items()}
