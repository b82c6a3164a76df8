"""From the document of matrix.yaml to studies: shape first, then the meaning of every word, all problems noted."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from harness.errors import MatrixError, suggestion
from harness.experiment import checks
from harness.experiment.axes import Axis, AxisTable, Setting
from harness.experiment.cell import Cell, Workload
from harness.experiment.designs import sweep_points, swept_settings
from harness.experiment.kind_options import KindOptions, check_options
from harness.experiment.problems import Problems, shown, validate
from harness.experiment.reader import Document
from harness.experiment.schema import MOST_ROUNDS, MatrixShape, StudyShape, WorkloadShape
from harness.experiment.settings import SettingsReader
from harness.experiment.study import FEWEST_ROUNDS, MODEL, Design, Study
from harness.experiment.workloads import contents_of, data_problem, model_problem

#: Names go into file names, tables and pages.
_NAME = re.compile(r"\w[\w.+-]{0,79}")


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """A workload as the matrix writes it, with the axes that it fixes."""

    workload: Workload
    settings: Mapping[str, Setting]


class MatrixReader:
    """Reads one document once."""

    def __init__(
        self,
        document: Document,
        folder: Path,
        axes: AxisTable,
        *,
        kinds: Collection[str],
        comparing_nothing: Collection[str],
        options: KindOptions,
    ) -> None:
        self._content = document.plain()
        self._folder = folder
        self._axes = axes
        self._kinds = kinds
        self._comparing_nothing = comparing_nothing
        self._options = options
        self._problems = Problems(document, MatrixError)
        self._settings = SettingsReader(axes, self._problems)
        swept = AxisTable([*axes.values(), Axis(name=MODEL, default="", free_text=True)])
        self._swept = SettingsReader(swept, self._problems)
        """Of sweeps and points."""
        self._baseline: dict[str, Setting] = {}
        self._workloads: dict[str, _Entry | None] = {}
        """None: it is there, but something is wrong with it."""
        self._rounds = 0
        self.retries = 0
        """As the matrix states it, once it has been read."""
        self._trials = 0

    def read(self) -> tuple[Study, ...]:
        """The studies.

        Raises:
            MatrixError: everything that is wrong with the matrix.
        """
        shape, _ = validate(MatrixShape, self._content, self._problems)
        self._rounds = shape.rounds if shape else FEWEST_ROUNDS
        self.retries = shape.retries if shape else 0
        self._baseline = self._settings.mapping(self._section("baseline"), ["baseline"])
        for name, written in self._section("workloads").items():
            self._workloads[name] = self._workload(name, written)
        studies = [self._study(name, written) for name, written in self._section("studies").items()]
        self._problems.raise_if_any()
        return tuple(study for study in studies if study)

    def _section(self, name: str) -> Mapping[str, object]:
        section = self._content.get(name)
        return section if isinstance(section, dict) else {}

    def _workload(self, name: str, written: object) -> _Entry | None:
        path = ["workloads", name]
        before = len(self._problems)
        self._check_name(name, path)
        shape, _ = validate(WorkloadShape, written, self._problems, path)
        content = written if isinstance(written, dict) else {}
        fixed = {key: value for key, value in content.items() if key not in WorkloadShape.model_fields}
        settings = self._settings.mapping(fixed, path, besides=WorkloadShape.model_fields)
        for axis in settings.keys() & self._baseline.keys():
            line = self._problems.line(["baseline", axis])
            message = f"{axis} stands in the matrix' baseline too (line {line}); leave it in one place"
            self._problems.add(message, [*path, axis], key=True)
        if shape is None:
            return None
        self._check_files(shape, path)
        if len(self._problems) > before:
            return None
        contents = contents_of(shape.model, shape.data, self._folder)
        workload = Workload(name=name, model=shape.model, data=shape.data, folder=str(self._folder), contents=contents)
        return _Entry(workload=workload, settings=settings)

    def _check_files(self, shape: WorkloadShape, path: list[str]) -> None:
        if problem := model_problem(shape.model, self._folder):
            self._problems.add(problem, [*path, "model"])
        if problem := data_problem(shape.data, self._folder):
            self._problems.add(problem, [*path, "data"])

    def _study(self, name: str, written: object) -> Study | None:
        path = ("studies", name)
        before = len(self._problems)
        self._check_name(name, path)
        shape, wrong = validate(StudyShape, written, self._problems, path)
        content = written if isinstance(written, dict) else {}
        parts = self._parts(path, content, wrong)
        rounds = shape.rounds if shape and shape.rounds is not None else self._rounds
        if shape:
            self._check_shape(shape, parts, rounds)
        entry = self._entry(content.get("workload"), path)
        if entry is None:
            return None
        baseline = self._cell(entry, parts)
        self._check_parts(parts, entry, baseline, rounds, whole=len(self._problems) == before)
        if shape is None or len(self._problems) > before:
            return None
        return replace(_made(name, shape, parts, baseline, rounds), models=self._models(parts, entry.workload))

    def _entry(self, name: object, path: tuple[str, str]) -> _Entry | None:
        """The workload that a study names; what is no text is a matter of the shape."""
        if not isinstance(name, str):
            return None
        if name not in self._workloads:
            hint = suggestion(name[:80], self._workloads)
            self._problems.add(f"unknown workload {shown(name)}{hint}", [*path, "workload"])
        return self._workloads.get(name)

    def _parts(self, path: tuple[str, str], written: Mapping[str, object], wrong: Collection[str]) -> checks.StudyParts:
        """The settings of a study, read also where another part of it is wrong, so that all is said at once."""

        def section(name: str) -> dict[str, object]:
            value = written.get(name)
            return value if isinstance(value, dict) and name not in wrong else {}

        def rows(name: str, reader: SettingsReader) -> list[dict[str, Setting]]:
            value = written.get(name)
            listed = value if isinstance(value, list) and name not in wrong else []
            return [reader.mapping(row, [*path, name, at]) for at, row in enumerate(listed)]

        design = written.get("design")
        sweep, listed = self._swept.lists(section("sweep"), [*path, "sweep"]), rows("points", self._swept)
        self._check_models(path, section("sweep").get(MODEL), listed)
        if sweep and listed:
            self._problems.add("a study has either sweep or points; remove one of them", [*path, "points"], key=True)
        return checks.StudyParts(
            path=path,
            design=Design(design) if isinstance(design, str) and design in list(Design) else Design.ONE_AT_A_TIME,
            baseline=self._settings.mapping(section("baseline"), [*path, "baseline"]),
            axes=self._settings.lists(section("axes"), [*path, "axes"]),
            sweep=sweep or swept_settings(listed),
            listed=listed,
            combinations=rows("combinations", self._settings),
        )

    def _check_models(self, path: tuple[str, str], swept: object, listed: Collection[Mapping[str, Setting]]) -> None:
        """Whether each model that the sweep or its points name can be used."""
        named: list[tuple[object, list[str | int]]] = [(swept, [*path, "sweep", MODEL])]
        if isinstance(swept, list):
            named = [(model, [*path, "sweep", MODEL, at]) for at, model in enumerate(swept)]
        named += [(point.get(MODEL), [*path, "points", at, MODEL]) for at, point in enumerate(listed)]
        for model, place in named:
            if isinstance(model, str) and model.strip() and (problem := model_problem(model.strip(), self._folder)):
                self._problems.add(problem, place)

    def _models(self, parts: checks.StudyParts, workload: Workload) -> dict[str, Workload]:
        """The workload with each model that is swept."""
        return {
            model: replace(workload, model=model, contents=contents_of(model, workload.data, self._folder))
            for model in map(str, parts.sweep.get(MODEL, ()))
        }

    def _cell(self, entry: _Entry, parts: checks.StudyParts) -> Cell:
        defaults = self._axes.defaults()
        shared = {**defaults, **self._baseline, **entry.settings}
        settings = {**shared, **parts.baseline}
        return Cell(workload=entry.workload, settings=settings, defaults=defaults, shared=shared)

    def _check_shape(self, shape: StudyShape, parts: checks.StudyParts, rounds: int) -> None:
        """What can be said without the workload."""
        path = parts.path
        if shape.kind not in self._kinds:
            hint = suggestion(shape.kind[:80], self._kinds)
            self._problems.add(f"unknown kind {shown(shape.kind)}{hint}", [*path, "kind"])
        check_options(shape.kind, shape.options, self._options, self._problems, [*path, "options"])
        compares = bool(shape.axes or shape.combinations)
        may_be_empty = shape.kind in self._comparing_nothing or shape.kind not in self._kinds
        fewest = 1 if may_be_empty and not compares else FEWEST_ROUNDS
        if not fewest <= rounds <= MOST_ROUNDS:
            self._problems.add(f"rounds: {rounds} is out of range; use {fewest} to {MOST_ROUNDS}", [*path, "rounds"])
        if not compares and not may_be_empty:
            self._problems.add(f"study {path[1]!r} compares nothing; give it axes or combinations", path, key=True)

    def _check_parts(
        self, parts: checks.StudyParts, entry: _Entry, baseline: Cell, rounds: int, *, whole: bool
    ) -> None:
        """`whole`: nothing was wrong so far; else a row that lacks its misspelt axis would look like another row."""
        checks.check_places(parts, entry.settings, entry.workload.name, self._problems)
        checks.check_levels(parts, baseline, self._problems)
        checks.check_design(parts, self._problems)
        if whole:
            checks.check_points(parts, self._problems)
            checks.check_combinations(parts, baseline, self._problems)
        self._trials += checks.check_size(parts, rounds, self._trials, self._problems)

    def _check_name(self, name: str, path: Collection[str]) -> None:
        if not _NAME.fullmatch(name):
            message = f"the name {shown(name)} will not do; use letters, digits, '.', '_', '+' and '-' (80 at most)"
            self._problems.add(message, list(path), key=True)


def _made(name: str, shape: StudyShape, parts: checks.StudyParts, baseline: Cell, rounds: int) -> Study:
    return Study(
        name=name,
        baseline=baseline,
        kind=shape.kind,
        design=parts.design,
        axes=parts.axes,
        points=tuple(parts.listed) or sweep_points(parts.sweep),
        combinations=tuple(parts.combinations),
        rounds=rounds,
        warmup_steps=shape.warmup_steps,
        steps=shape.steps,
        options=shape.options,
        smoke=shape.smoke,
        question=shape.question,
    )
