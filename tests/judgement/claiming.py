"""Claims and judgements for tests: a claim in one line, judged on synthetic records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from harness.experiment.matrix import Matrix
from harness.experiment.plan import make_plan
from harness.judgement.claims import Claim, Claims, Document
from harness.judgement.judge import judge
from harness.judgement.judged import Verdict
from harness.results.record import Record
from tests.records import CellShape, StudyShape, make_records

#: The study that most tests judge on.
STUDY = "precision"
CELL = {"precision": "bf16"}
#: A claims file of one claim on study `precision` of `matrix.yaml`.
ONE_CLAIM = """\
schema: 1
matrix: matrix.yaml
documents: {N: {title: Notes}}
claims:
  faster:
    statement: bf16 is faster.
    sources: [{document: N, quote: faster}]
    form: at-least
    metric: speedup
    bound: 1.5
    study: precision
    cell: {precision: bf16}
"""


def make_claim(**fields: Any) -> Claim:
    """A claim that bf16 is 1.5x to 2x faster; `fields` replace parts of it, None takes one away."""
    given = {
        "id": "it", "statement": "It is faster.", "sources": [{"document": "D1", "quote": "a few words"}],
        "form": "range", "metric": "speedup", "range": [1.5, 2], "study": STUDY, "cell": CELL, **fields,
    }  # fmt: skip
    return Claim(**{name: value for name, value in given.items() if value is not None})


def make_claims(*claims: Claim) -> Claims:
    return Claims(schema=1, documents={"D1": Document(title="A text")}, claims={each.id: each for each in claims})


def verdict_on(claim: Claim, records: Iterable[Record]) -> Verdict:
    return judge(records, make_claims(claim)).verdicts[0]


def made(records: Iterable[Record], fingerprint: str = "", **how: Any) -> list[Record]:
    """The records as trials that were made in some way (`version`, `revisions`), under a fingerprint of their own."""
    return [
        replace(each, measuring={"version": 1, "revisions": {}, **how}, fingerprint=fingerprint or each.fingerprint)
        for each in records
    ]


def study(*cells: CellShape, **fields: Any) -> StudyShape:
    """The study of the claim, by default with one cell that is truly 1.75 times as fast."""
    return StudyShape(**{"name": STUDY, "cells": cells or (CellShape(settings=CELL, ratio=1.75),), **fields})


def trials_of(matrix: Matrix, scale: str = "full") -> Iterator[Record]:
    """Records of a run of the matrix, in which every cell is truly twice as fast."""
    (like, *_) = make_records([StudyShape(name="x", cells=(CellShape(settings={"precision": "bf16"}),))])
    for trial in make_plan(matrix, lambda cell, kind: None, scale).trials:
        block, arm = trial.block, trial.arm
        speed = 2000.0 if arm.role == "cell" else 1000.0
        workload = arm.cell.workload
        yield replace(
            like, study=block.study, workload=workload.name, model=workload.model, data=workload.data, kind=block.kind,
            cell=dict(arm.cell.settings), cell_key=arm.cell.key, arm=arm.name, baseline=arm.role != "cell",
            control=arm.role == "control", sweep=dict(block.sweep) or None, block=block.key, round=trial.round,
            position=trial.position, seed=trial.seed, warmup_steps=block.warmup_steps, steps=block.steps, scale=scale,
            tokens_per_second=speed * (1 + trial.round / 1000),
        )  # fmt: skip
