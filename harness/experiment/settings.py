"""Holds the settings that stand in a matrix against the table of axes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from harness.errors import suggestion
from harness.experiment.axes import AxisError, AxisTable, Setting
from harness.experiment.problems import Problems, shown
from harness.experiment.study import MODEL

#: Keys and indices that lead to a value.
Steps = Sequence[str | int]


class SettingsReader:
    """Parses settings and notes each that is wrong, at its place."""

    def __init__(self, axes: AxisTable, problems: Problems) -> None:
        self._axes = axes
        self._problems = problems

    def mapping(self, written: Mapping[str, object], path: Steps, *, besides: Iterable[str] = ()) -> dict[str, Setting]:
        """`{attention: eager, batch_size: 8}`. `besides` are words that may stand there too, for suggestions."""
        read: dict[str, Setting] = {}
        for axis, value in written.items():
            if self._knows(axis, path, besides):
                setting = self._one(axis, value, [*path, axis])
                if setting is not None:
                    read[axis] = setting
        return read

    def lists(self, written: Mapping[str, object], path: Steps) -> dict[str, tuple[Setting, ...]]:
        """`{attention: [sdpa, flash2], compile: default}`: a single value is a list of one."""
        read: dict[str, tuple[Setting, ...]] = {}
        for axis, value in written.items():
            if not self._knows(axis, path):
                continue
            settings = self._several(axis, value, [*path, axis])
            if settings:
                read[axis] = settings
        return read

    def _several(self, axis: str, value: object, path: Steps) -> tuple[Setting, ...]:
        if not isinstance(value, list):
            setting = self._one(axis, value, path)
            return () if setting is None else (setting,)
        if not value:
            self._problems.add(f"{axis}: the list is empty; name a setting", path)
        read: dict[Setting, None] = {}  # a dict keeps the order and finds a repetition at once
        for index, each in enumerate(value):
            setting = self._one(axis, each, [*path, index])
            if setting is not None and setting in read:
                self._problems.add(f"{axis}: {shown(setting)} stands in the list twice; remove one", [*path, index])
            elif setting is not None:
                read[setting] = None
        return tuple(read)

    def _one(self, axis: str, value: object, path: Steps) -> Setting | None:
        if value is None or isinstance(value, list | dict):
            self._problems.add(f"{axis}: must be one setting ({self._axes[axis].describe()}), not {shown(value)}", path)
            return None
        try:
            return self._axes.parse(axis, value)
        except AxisError as error:
            self._problems.add(str(error), path)
            return None

    def _knows(self, axis: str, path: Steps, besides: Iterable[str] = ()) -> bool:
        if axis in self._axes:
            return True
        hint = suggestion(axis[:80], [*besides, *self._axes], "`claimbench doctor`")
        message = f"unknown axis {axis!r}{hint}"
        if axis == MODEL:  # two models are no technique that is compared with another
            message = "the model is no axis: name it in the workload, or several in the study's sweep or points"
        self._problems.add(message, [*path, axis], key=True)
        return False
