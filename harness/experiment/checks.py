"""What makes no sense in a study although every word of it is known: one thing has one place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from harness.experiment.axes import Setting
from harness.experiment.cell import Cell
from harness.experiment.designs import DESIGNS, count
from harness.experiment.problems import Problems, shown
from harness.experiment.study import Design

#: Of a whole matrix. More than a machine runs in a year, and as much as fits a plan in memory.
MOST_TRIALS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class StudyParts:
    """The settings of a study by where they stand, parsed."""

    path: tuple[str, str]
    """`("studies", name)`."""
    design: Design
    baseline: Mapping[str, Setting]
    axes: Mapping[str, tuple[Setting, ...]]
    sweep: Mapping[str, tuple[Setting, ...]]
    """The settings of each swept axis, those of `listed` included."""
    listed: Sequence[Mapping[str, Setting]]
    """Sweep points that are written out; without any, every combination of `sweep` is one."""
    combinations: Sequence[Mapping[str, Setting]]

    @property
    def cells(self) -> int:
        """Cells of a block beside the baseline and its control."""
        return count(self.design, self.axes) + len(self.combinations)

    @property
    def points(self) -> int:
        return len(self.listed) or prod(len(settings) for settings in self.sweep.values())


def check_places(parts: StudyParts, workload: Mapping[str, Setting], name: str, problems: Problems) -> None:
    """An axis stands in one place: the study's baseline, axes or sweep. The last two may replace the workload's."""
    for axis in parts.baseline:
        place = [*parts.path, "baseline", axis]
        if axis in parts.sweep:
            problems.add(f"{axis} is swept in this study; leave it out of the baseline", place, key=True)
        elif axis in workload:
            line = problems.line(["workloads", name, axis])
            message = f"{axis} is part of the workload {name!r} (line {line}); change it there or make another workload"
            problems.add(message, place, key=True)
    for axis in parts.axes:
        if axis in parts.sweep:
            message = f"{axis} stands in axes and in sweep; leave it in one of them"
            problems.add(message, [*parts.path, "axes", axis], key=True)


def check_levels(parts: StudyParts, baseline: Cell, problems: Problems) -> None:
    """No setting of an axis is the baseline's own: the cell would be the baseline again."""
    for axis, settings in parts.axes.items():
        for index, setting in enumerate(settings):
            if axis not in parts.sweep and setting == baseline[axis]:
                problems.add(_is_baseline(axis, setting), [*parts.path, "axes", axis, index])


def check_design(parts: StudyParts, problems: Problems) -> None:
    """A stack from which something can be left out has two axes or more, with one setting each."""
    if parts.design is not Design.LEAVE_ONE_OUT or not parts.axes:
        return
    place = [*parts.path, "axes"]
    if len(parts.axes) < 2:
        problems.add("leave-one-out needs two axes or more; use one-at-a-time for a single one", place, key=True)
    for axis, settings in parts.axes.items():
        if len(settings) > 1:
            problems.add(f"{axis}: leave-one-out takes one setting an axis; keep one of them", [*place, axis], key=True)


def check_points(parts: StudyParts, problems: Problems) -> None:
    """Points that are written out name the same axes, each once."""
    seen: set[frozenset[tuple[str, Setting]]] = set()
    for index, point in enumerate(parts.listed):
        settings = frozenset(point.items())
        place: list[str | int] = [*parts.path, "points", index]
        if point.keys() != parts.sweep.keys():
            problems.add(f"each point must name the same axes ({', '.join(parts.sweep)})", place)
        elif settings in seen:
            problems.add("this point stands in the list twice; remove one", place)
        seen.add(settings)


def check_combinations(parts: StudyParts, baseline: Cell, problems: Problems) -> None:
    """Each names a cell that is neither the baseline nor one that the study has already."""
    if not parts.combinations or count(parts.design, parts.axes) > MOST_TRIALS:
        return
    seen = {frozenset(changes.items()) for _, changes in (DESIGNS[parts.design](parts.axes) if parts.axes else ())}
    for index, combination in enumerate(parts.combinations):
        place: list[str | int] = [*parts.path, "combinations", index]
        for axis, setting in combination.items():
            if axis in parts.sweep:
                problems.add(f"{axis} is swept in this study; leave it out here", [*place, axis], key=True)
            elif setting == baseline[axis]:
                problems.add(_is_baseline(axis, setting), [*place, axis])
        changes = frozenset(combination.items())
        if not changes:
            problems.add("an empty combination is the baseline itself; name settings or remove it", place)
        elif changes in seen:
            problems.add("the study has this cell already; remove the combination", place)
        seen.add(changes)


def check_size(parts: StudyParts, rounds: int, so_far: int, problems: Problems) -> int:
    """Trials of this study, noted as a problem when they are too many together with those `so_far`."""
    trials = (2 + parts.cells) * parts.points * rounds
    if so_far + trials > MOST_TRIALS:
        message = f"with this study the matrix has more than {MOST_TRIALS:,} trials; name fewer settings"
        problems.add(message, parts.path, key=True)
    return trials


def _is_baseline(axis: str, setting: Setting) -> str:
    return f"{axis}: {shown(setting)} is the baseline's own setting, which every cell is compared with; leave it out"
