"""The matrix: the whole experiment, read from one YAML file."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import MatrixError, Place, suggestion
from harness.experiment.axes import AxisTable
from harness.experiment.designs import blocks_of
from harness.experiment.kind_options import KindOptions
from harness.experiment.study import Block, Study

if TYPE_CHECKING:
    from harness.experiment.reader import Document

#: What a study's trials do when it does not say.
TRAINING = "training"


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """Studies, in the order in which they will run."""

    file: str
    """As messages name it."""
    hash: str
    """SHA-256 of the file."""
    studies: tuple[Study, ...]
    retries: int = 0
    """Tries again, at once, after a crash or a timeout."""

    def blocks(self) -> Iterator[Block]:
        """Study by study, sweep point by sweep point."""
        for study in self.studies:
            yield from blocks_of(study)

    def only(self, names: Sequence[str]) -> Matrix:
        """The matrix with the named studies alone, in its own order. No name: all of them.

        Raises:
            MatrixError: a name is no study of it.
        """
        known = [study.name for study in self.studies]
        for name in names:
            if name not in known:
                hint = suggestion(name, known, "`claimbench plan`")
                raise MatrixError(f"unknown study {name!r}{hint}", place=Place(file=self.file))
        return replace(self, studies=tuple(study for study in self.studies if not names or study.name in names))

    def with_rounds(self, rounds: int) -> Matrix:
        """The matrix with another number of rounds in every study.

        Whoever asks for one or two wants to see that all runs: nothing is judged by so few, and verdicts say so.

        Raises:
            MatrixError: none, or too many.
        """
        from harness.experiment.schema import MOST_ROUNDS

        if not 1 <= rounds <= MOST_ROUNDS:
            raise MatrixError(f"{rounds} rounds: use 1 to {MOST_ROUNDS}", place=Place(file=self.file))
        return replace(self, studies=tuple(replace(study, rounds=rounds) for study in self.studies))


def read_matrix(
    path: Path | str,
    axes: AxisTable,
    kinds: Collection[str] = (TRAINING,),
    comparing_nothing: Collection[str] = (),
    options: KindOptions | None = None,
) -> Matrix:
    """Read and check a matrix.

    Args:
        path: the YAML file; paths in it count from its folder.
        axes: every axis there is.
        kinds: what a study's trials can do.
        comparing_nothing: those of them whose study needs no cell beside its baseline.
        options: what each of them can be told; one that is not there takes anything.

    Raises:
        MatrixError: anything in it is wrong: all of it at once, a line each with file, line and column.
    """
    from harness.experiment.reader import read_document

    document = read_document(path, MatrixError)
    return matrix_of(
        document, Path(path).parent, axes, kinds=kinds, comparing_nothing=comparing_nothing, options=options
    )


def matrix_of(
    document: Document,
    folder: Path,
    axes: AxisTable,
    *,
    kinds: Collection[str] = (TRAINING,),
    comparing_nothing: Collection[str] = (),
    options: KindOptions | None = None,
) -> Matrix:
    """Check a matrix that was read; paths in it count from `folder`, the rest is as for `read_matrix`.

    Raises:
        MatrixError: as for `read_matrix`.
    """
    from harness.experiment.matrix_reader import MatrixReader

    reader = MatrixReader(
        document, folder, axes, kinds=kinds, comparing_nothing=comparing_nothing, options=options or {}
    )
    return Matrix(file=document.file, hash=document.hash, studies=reader.read(), retries=reader.retries)
