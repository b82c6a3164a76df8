"""What must hold of any bytes that stand in a file of the user's: it is taken, or refused with one clear error.

Each function returns what came of the content, and raises (AssertionError, or whatever the reader let through) when
neither was the case. Shared by the property tests, by the coverage-guided fuzzers beside this file and by the replay of
their corpus.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from harness.errors import ClaimsError, InputError, MatrixError
from harness.experiment.describe import summarise
from harness.experiment.matrix import read_matrix
from harness.experiment.plan import make_plan
from harness.experiment.scale import FULL, SMOKE
from harness.experiment.study import Block
from harness.judgement.blocks import compare
from harness.judgement.claims_file import read_claims
from harness.judgement.judge import judge, judge_claim
from harness.judgement.judged import BlockResult
from tests.experiment.conftest import COMPARING_NOTHING, KINDS, make_axes
from tests.records import make_records

AXES = make_axes()
#: What the trials that claims are judged on are of (`tests.records`).
MATRIX = """\
schema: 1
workloads: {w: {model: tiny}}
studies:
  precision: {workload: w, axes: {precision: [tf32, amp-bf16, bf16]}}
  checkpointing: {workload: w, axes: {checkpointing: full}}
  attention: {workload: w, baseline: {attention: eager}, axes: {attention: [sdpa-flash, flash2]},
    sweep: {sequence_length: [512, 1024, 2048]}}
"""

Oracle = Callable[[bytes], str]


def matrix(content: bytes) -> str:
    """`planned`, at both scales, or the message of the one error."""
    path = _written("matrix.yaml", content)
    try:
        found = read_matrix(path, AXES, KINDS, COMPARING_NOTHING)
    except MatrixError as error:
        return _message(error, path)
    for scale in (FULL, SMOKE):
        summarise(make_plan(found, lambda cell, kind: None, scale))
    return "planned"


def claims(content: bytes) -> str:
    """`judged`, if need be with `not run`, or the message of the one error; also where there is a matrix beside it."""
    path = _written("claims.yaml", content)
    try:
        found = read_claims(path)
    except ClaimsError as error:
        return _message(error, path)
    verdicts = [judge_claim(claim, _measured()).claim for claim in found.all()]
    assert verdicts == [verdict.claim for verdict in judge([], found).verdicts] == [claim.id for claim in found.all()]
    try:
        read_claims(path, blocks=_blocks())
    except ClaimsError as error:
        _message(error, path)
    return "judged"


def _message(error: InputError, path: Path) -> str:
    """The error without its folder: at most as many lines as are shown, each with its place and nothing hidden."""
    message = str(error).replace(f"{path.parent}/", "")
    lines = message.split("\n")
    assert 1 <= len(lines) <= 31, message
    for line in lines:
        assert re.match(rf"{re.escape(path.name)}(:\d+:\d+)?: \S", line), message
        assert line.isprintable(), message
    return message


def _written(name: str, content: bytes) -> Path:
    path = _folder() / name
    path.write_bytes(content)
    return path


@cache
def _measured() -> dict[str, list[BlockResult]]:
    """Compared once: that takes far longer than judging a claim."""
    by_study: dict[str, list[BlockResult]] = {}
    for block in compare(make_records(rounds=3)).blocks:
        by_study.setdefault(block.study, []).append(block)
    return by_study


@cache
def _blocks() -> tuple[Block, ...]:
    return tuple(read_matrix(_written("matrix.yaml", MATRIX.encode()), AXES).blocks())


@cache
def _folder() -> Path:
    """One for the process: a fuzzer writes a file many times a second."""
    folder = tempfile.TemporaryDirectory(prefix="claimbench-fuzz-")
    _kept.append(folder)
    return Path(folder.name)


_kept: list[tempfile.TemporaryDirectory[str]] = []
