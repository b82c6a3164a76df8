"""What is asked: a sentence and a workload, as a plan and as a claim."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import decode_source
from pathlib import Path

from harness.environment import Environment
from harness.errors import SentenceError, WorkloadError
from harness.experiment.axes import AxisError, AxisTable, Setting, show_setting
from harness.experiment.cell import Cell, Workload
from harness.experiment.matrix import Matrix
from harness.experiment.plan import make_plan
from harness.experiment.step_source import returns_a_tuple
from harness.experiment.study import Plan, Study, SweepPoint
from harness.experiment.workloads import BUILT_IN_DATA, BUILT_IN_MODELS, contents_of, is_step, model_problem
from harness.judgement.claims import Claim, Claims, Document
from harness.judgement.sentence import OWN_DOCUMENT, OWN_TITLE, Sentence
from harness.judgement.sentence_reader import read_sentence
from harness.judgement.sentence_words import typed
from harness.techniques.registry import axis_table
from harness.trial.kinds import refusal
from harness.trial.reach import OUT_OF_REACH, cannot_be_applied

#: What a step of the user's own says where a built-in workload names its data.
OWN_DATA = "own"
#: A range of a sweep is doubled through; more points than this are no use of a budget.
MOST_POINTS = 12


@dataclass(frozen=True, kw_only=True)
class Size:
    """How long trials are, and how many."""

    warmup_steps: int
    steps: int
    rounds: int


@dataclass(frozen=True, kw_only=True)
class Question:
    """A sentence about a workload."""

    sentence: Sentence
    workload: Workload
    points: tuple[SweepPoint, ...] = ({},)
    """The first is the one that the verdict speaks of."""
    source: str = ""
    """The text of the user's file; a changed file is another question."""

    @property
    def study(self) -> str:
        return self.sentence.study

    @property
    def hash(self) -> str:
        """SHA-256 of all that is asked."""
        work = (self.workload.model, self.source, *filter(None, [self.workload.contents]))
        content = [str(self.sentence), *work, [dict(point) for point in self.points]]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def plan(self, environment: Environment, size: Size, *, pilot: bool = False) -> Plan:
        """The trials; as a pilot those of the first point alone, without the gradient check."""
        table = axis_table()
        baseline = {**table.defaults(), **self.sentence.at, **self.sentence.baseline}
        options: dict[str, object] = {"named": sorted({*self.sentence.named, *self.points[0]})}
        if self.source:
            options["source_sha256"] = hashlib.sha256(self.source.encode()).hexdigest()[:16]
        study = Study(
            name=self.study, question=str(self.sentence), rounds=size.rounds, warmup_steps=size.warmup_steps,
            steps=size.steps, points=self.points[:1] if pilot else self.points, combinations=(self.sentence.changes,),
            baseline=Cell(workload=self.workload, settings=baseline, defaults=table.defaults()),
            options=options | ({"pilot": True} if pilot else {}),
        )  # fmt: skip
        matrix = Matrix(file=self.workload.model, hash=self.hash, studies=(study,))
        return make_plan(matrix, lambda cell, kind: refusal(environment, cell, kind), "full")

    def claims(self, environment: Environment) -> Claims:
        """The sentence as the one claim of a claims file. Without a GPU, memory is the host's."""
        claim: Claim = self.sentence.claim(
            study=self.study, name=self.study, at=dict(self.points[0]),
            view="reserved" if environment.has_gpu else "host",
        )  # fmt: skip
        documents = {OWN_DOCUMENT: Document(title=OWN_TITLE)}
        return Claims(schema=1, documents=documents, claims={claim.id: claim})

    def only(self, points: int) -> Question:
        """The same with fewer points of its sweep."""
        return replace(self, points=self.points[:points])


def ask(text: str, workload: str, sweep: str | None = None) -> Question:
    """Read the sentence, the workload and the sweep. The user's file is not run here.

    Raises:
        SentenceError: the sentence or the sweep does not parse.
        WorkloadError: there is no such workload.
    """
    table = axis_table()
    sentence = read_sentence(text, table)
    points = sweep_points(sweep, sentence, table) if sweep else ({},)
    if not is_step(workload):
        if problem := model_problem(workload, Path()):
            raise WorkloadError(f"--workload: {problem}")
        plain = workload in BUILT_IN_MODELS
        found = Workload(name=workload if plain else Path(workload).stem, model=workload, folder="" if plain else ".",
                         contents=contents_of(workload, BUILT_IN_DATA[0], Path()))  # fmt: skip
        return Question(sentence=sentence, workload=found, points=points)
    path, _, function = workload.rpartition(":")
    file = Path(path)
    name = f"{file.name}:{function}"
    if problem := model_problem(name, file.parent):
        raise WorkloadError(f"--workload: {problem}".replace(" beside the matrix", f" in {file.parent}"))
    try:
        content = file.read_bytes()
        source = decode_source(content)  # as Python reads it: in the encoding that its head may name
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        raise WorkloadError(f"--workload: {path} cannot be read ({error})") from None
    if returns_a_tuple(content, function):
        _refuse_out_of_reach(sentence, points, table, name)
    own = Workload(name=name, model=name, data=OWN_DATA, folder=str(file.parent))
    return Question(sentence=sentence, workload=own, points=points, source=source)


def _refuse_out_of_reach(sentence: Sentence, points: Sequence[SweepPoint], axes: AxisTable, source: str) -> None:
    """A step that is a bare tuple says of no setting that it honours it: what the harness cannot do, nobody does.

    Raises:
        WorkloadError: such a setting is named.
    """
    arms = (sentence.cell, sentence.baseline, sentence.at, *points)
    for axis, setting in (pair for arm in arms for pair in arm.items()):
        if axis in OUT_OF_REACH and setting != axes[axis].default:
            raise WorkloadError(
                f"--workload: {cannot_be_applied(axis, show_setting(setting), source, OUT_OF_REACH[axis])}"
            )


def sweep_points(text: str, sentence: Sentence, axes: AxisTable) -> tuple[SweepPoint, ...]:
    """`sequence_length=512..8192` (doubling), `batch_size=8,16,64`: the points in the order given.

    Raises:
        SentenceError: no axis, no range, or an axis that the sentence fixes.
    """
    axis, equals, values = text.replace(" ", "").partition("=")
    if not equals or not values:
        raise SentenceError(f"--sweep {text!r}: write an axis and its settings, as sequence_length=512..8192")
    if axis in sentence.named:
        raise SentenceError(f"--sweep {text!r}: the sentence fixes {axis} already; leave it out of one of the two")
    first, dots, last = values.partition("..")
    try:
        written: list[Setting] = [*_doubled(first, last)] if dots else [typed(each) for each in values.split(",")]
        settings = [axes.parse(axis, each) for each in written]
    except (AxisError, ValueError) as error:
        raise SentenceError(f"--sweep {text!r}: {error}") from None
    if len(settings) > MOST_POINTS or len(set(settings)) < len(settings):
        raise SentenceError(f"--sweep {text!r}: name up to {MOST_POINTS} different settings")
    return tuple({axis: setting} for setting in settings)


def _doubled(first: str, last: str) -> list[int]:
    """From one end to the other by factors of two, both ends among them; downwards where the first is the larger."""
    if not first.isdigit() or not last.isdigit() or not int(first) or not int(last):
        raise ValueError("a range has whole numbers at both ends, as 512..8192")
    low, high = sorted((int(first), int(last)))
    found = [low]
    while found[-1] * 2 <= high and len(found) <= MOST_POINTS:
        found.append(found[-1] * 2)
    found += [high] if found[-1] != high else []
    return found if int(first) <= int(last) else found[::-1]
