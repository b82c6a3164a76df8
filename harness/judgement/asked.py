"""Whether trials are of the studies that a claims file is about: two matrices may call different studies alike."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from harness.experiment.axes import show_setting
from harness.experiment.designs import blocks_of
from harness.experiment.matrix import Matrix, matrix_of, read_matrix
from harness.experiment.reader import parse_document
from harness.experiment.scale import COMPILE, LARGEST, MOST, SMOKE, shrink
from harness.experiment.study import Block, Study
from harness.judgement.judged import BlockResult
from harness.techniques.registry import axis_table
from harness.trial.kinds import ALONE, KINDS, OPTIONS

#: Differences that a reason names; more of them say nothing new.
MOST_NAMED = 3
#: What the smoke scale cuts down, by what else is in the study and in the run.
CUT_DOWN = frozenset({*LARGEST, *MOST, COMPILE})


class Asked:
    """The studies of one matrix, as stored blocks are held against them.

    A block is one of a study's where its key is: kind and options, sweep point, model, data and what their files hold,
    and every setting of the baseline. Rounds and steps may be others, and so may the cells. In the smoke scale, where
    sizes depend on the study's other cells, what it leaves as it is must be the same.
    """

    def __init__(self, matrix: Matrix, file: str) -> None:
        self.matrix = matrix
        self.file = file
        """As messages and commands name it."""
        self._planned: dict[tuple[str, str], Sequence[Block]] = {}

    @cached_property
    def studies(self) -> Mapping[str, Study]:
        """By name."""
        return {study.name: study for study in self.matrix.studies}

    def same(self, block: BlockResult) -> Block | None:
        """The planned block that it is; None where it is none of the matrix' study of that name."""
        if block.scale == SMOKE:
            return self._alike(block)
        trial, planned = block.arms[0].trials[0], self.planned(block.study, block.scale)
        made = (replace(each, warmup_steps=trial.warmup_steps, steps=trial.steps) for each in planned)
        return next((each for each in made if each.key == block.block), None)

    def looks_like(self, block: BlockResult) -> bool:
        """Whether nothing of the block differs that its trials tell: options and files may be others."""
        return self._alike(block) is not None

    def _alike(self, block: BlockResult) -> Block | None:
        planned = self.planned(block.study, block.scale)
        return next((each for each in planned if not _differences(block, each)), None)

    def another(self, block: BlockResult) -> str:
        """Why a block that is not the `same` as any is none of the matrix' study of that name, in words."""
        if block.study not in self.studies:
            return f"study {block.study!r} of these trials is none of {self.file}, which has no study of that name"
        return f"study {block.study!r} of these trials is another one than that of {self.file} ({self._told(block)})"

    def planned(self, study: str, scale: str) -> Sequence[Block]:
        """The study's blocks at a scale; none where the matrix has no such study."""
        if (study, scale) not in self._planned:
            found = self.studies.get(study)
            blocks = [] if found is None else shrink(found) if scale == SMOKE else list(blocks_of(found))
            self._planned[study, scale] = blocks
        return self._planned[study, scale]

    def _told(self, block: BlockResult) -> str:
        """The differences from the planned block that is most like it."""
        named = min((_differences(block, each) for each in self.planned(block.study, block.scale)), key=len, default=[])
        more = [f"and {len(named) - MOST_NAMED} more"] if len(named) > MOST_NAMED else []
        return ", ".join([*named[:MOST_NAMED], *more]) or "its options, or what its workload's files hold, are others"


def _differences(block: BlockResult, planned: Block) -> list[str]:
    """`model tiny instead of gpt2-124m`, one for each thing that differs."""
    trial, cell = block.arms[0].trials[0], planned.baseline.cell
    smoke = block.scale == SMOKE
    baseline = (block.baseline or block.arms[0]).cell
    pairs: list[tuple[str, object, object]] = [
        ("kind", trial.kind, planned.kind),
        ("model", trial.model, cell.workload.model),
        ("data", trial.data, cell.workload.data),
    ]
    pairs += [(axis, baseline[axis], setting) for axis, setting in cell.settings.items()
              if axis in baseline and not (smoke and axis in CUT_DOWN)]  # fmt: skip
    if not smoke and block.sweep.keys() != planned.sweep.keys():
        pairs.append(("swept:", ", ".join(block.sweep) or "nothing", ", ".join(planned.sweep) or "nothing"))
    return [f"{name} {show_setting(here)} instead of {show_setting(there)}" for name, here, there in pairs
            if here != there]  # fmt: skip


def read_asked(path: Path) -> Asked:
    """The studies of a matrix.

    Raises:
        MatrixError: it is wrong.
    """
    file = shown(path)
    return Asked(read_matrix(file, axis_table(), KINDS, ALONE, OPTIONS), file)


def asked_by(text: str, path: Path) -> Asked:
    """The studies of a matrix as it was, with its files as they are.

    Raises:
        MatrixError: it is wrong by now.
    """
    file = shown(path)
    document = parse_document(text.encode(), file)
    matrix = matrix_of(document, path.parent, axis_table(), kinds=KINDS, comparing_nothing=ALONE, options=OPTIONS)
    return Asked(matrix, file)


def shown(path: Path) -> str:
    """A path as a command in the working folder names it: from there, where it lies below."""
    near = os.path.relpath(path)
    return str(path) if near.startswith(os.pardir) else near
