"""Of which matrix stored trials are: a record does not say so, but its block has a key that only some matrices make."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from harness.errors import MatrixError
from harness.judgement.asked import Asked, asked_by, read_asked
from harness.judgement.claims import Claims
from harness.judgement.judged import BlockResult
from harness.judgement.sentence import CHECK_STUDY
from harness.judgement.site import DEFAULT_MATRIX
from harness.results.load import read_runs
from harness.results.sharing import STUDY as SHARING

#: In a command, where no matrix at hand has the trials' studies.
UNKNOWN_MATRIX = "THE-MATRIX-OF-THESE-STUDIES.yaml"


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The matrices of a report's trials, as commands name them."""

    whole: str = DEFAULT_MATRIX
    """That of most blocks, and what is run where a report lacks something."""
    studies: frozenset[str] | None = None
    """Of that matrix; None: nobody looked."""
    by_block: Mapping[str, str] = field(default_factory=dict)
    by_study: Mapping[str, str] = field(default_factory=dict)
    """For blocks that no matrix at hand makes any more, such as those of a sweep point that was taken out."""
    otherwise: str = DEFAULT_MATRIX
    """For studies that are in no matrix at hand."""
    questions: Mapping[str, str] = field(default_factory=dict)
    """Study → what it asks, as its matrix says."""

    def of(self, study: str, block: str = "") -> str:
        """The matrix of a study that was run."""
        return self.by_block.get(block) or self.by_study.get(study) or self.otherwise

    def missing(self, what: str, lead: str, study: str = "") -> str:
        """What a report lacks, with the command that would bring it.

        Args:
            lead: before the command: `Run on a GPU:`.
            study: of the default matrix, where one of its studies is there for this; another matrix needs its own.
        """
        known = self.studies is None or study in self.studies
        if study and not known:
            own = "the matrix" if self.whole == UNKNOWN_MATRIX else self.whole
            return f"{what} Give {own} one to see it here."
        return f"{what} {lead} claimbench run --matrix {shlex.quote(self.whole)}{f' --study {study}' if study else ''}"


def matrices_at_hand(trials: Iterable[object], claims: Claims, matrix: Path | str | None = None) -> Iterator[Asked]:
    """The matrices that trials may be of: the one that is named; those that ran into their stores, the newest first, as
    they were then; the one of the claims; `matrix.yaml` of the working folder. One of these that cannot be read any
    more is passed over.

    Args:
        trials: paths among them are looked into.

    Raises:
        MatrixError: the one that is named is wrong, or not there.
    """
    if matrix is not None:
        yield read_asked(Path(matrix))
    runs = [run for path in trials if isinstance(path, Path | str) for run in read_runs(path)]
    known = {(name, run.matrix_text): None for run in reversed(runs) if (name := matrix_in(run.arguments))}
    for name, text in known:
        with suppress(MatrixError):
            yield asked_by(text, Path(name))
    if claims.asked is not None:
        yield claims.asked
        if claims.asked.file == DEFAULT_MATRIX:  # read already
            return
    if os.path.isfile(DEFAULT_MATRIX):
        with suppress(MatrixError):
            yield read_asked(Path(DEFAULT_MATRIX))


def matrix_in(arguments: Sequence[str]) -> str:
    """The matrix that `claimbench run`, or pytest, took with these arguments; empty for another command."""
    if not arguments or arguments[0] not in {"run", "pytest"}:
        return ""
    found = DEFAULT_MATRIX
    for word, following in zip(arguments, [*arguments[1:], ""], strict=True):
        if word == "--matrix":
            found = following
        elif word.startswith("--matrix="):
            found = word.removeprefix("--matrix=")
    return found


def origin_of(blocks: Sequence[BlockResult], matrices: Iterable[Asked]) -> Origin:
    """Look among matrices, of which the first that makes a block counts; no more are read than are needed."""
    left = [each for each in blocks if each.study != SHARING and not each.study.startswith(CHECK_STUDY)]
    by_block: dict[str, str] = {}
    by_study: dict[str, str] = {}
    questions: dict[str, str] = {}
    seen: dict[str, Asked] = {}
    counts: Counter[str] = Counter()
    for asked in matrices if left or not blocks else ():
        seen.setdefault(asked.file, asked)
        for block in (each for each in left if asked.same(each) or asked.looks_like(each)):
            by_block[block.block] = asked.file
            by_study.setdefault(block.study, asked.file)
            questions.setdefault(block.study, asked.studies[block.study].question)
            counts[asked.file] += 1
        left = [each for each in left if each.block not in by_block]
        if not left:
            break
    if not blocks:
        whole = next(iter(seen), DEFAULT_MATRIX)
        return Origin(whole=whole, studies=frozenset(seen[whole].studies) if seen else None)
    whole = counts.most_common(1)[0][0] if counts else UNKNOWN_MATRIX
    studies = frozenset(seen[whole].studies) if counts else frozenset[str]()
    return Origin(
        whole=whole,
        studies=studies,
        by_block=by_block,
        by_study=by_study,
        otherwise=UNKNOWN_MATRIX,
        questions=questions,
    )
