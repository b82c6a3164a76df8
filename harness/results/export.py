"""Records out of claimbench, in the format that the file's name asks for: JSON lines, CSV or parquet."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import EnvironmentProblem, InputError, Place, suggestion
from harness.results.lines import ordered, write_lines, write_whole
from harness.results.load import frame
from harness.results.record import Record
from harness.trial.numbers import encode

if TYPE_CHECKING:
    import pandas as pd


def export(records: Iterable[Record], path: Path | str) -> int:
    """Write `records` to `path`, whole or not at all; the number written. Only JSON lines can be imported again.

    Raises:
        InputError: the name ends in no known format, or the file cannot be written (RecordsError).
        EnvironmentProblem: parquet was asked for and pyarrow is not installed.
    """
    path = Path(path)
    for ending, write in FORMATS.items():
        if path.name.endswith(ending) and path.name != ending:
            return write(records, path)
    raise InputError(
        f"the format is taken from the name's ending{suggestion(''.join(path.suffixes), FORMATS)}",
        place=Place(file=str(path)),
    )


def write_csv(records: Iterable[Record], path: Path) -> int:
    """A row per trial, the columns of `load`; lists and mappings as JSON."""
    table = _flat(records)
    write_whole(path, table.to_csv(index=False, lineterminator="\n").encode())
    return len(table)


def write_parquet(records: Iterable[Record], path: Path) -> int:
    """As `write_csv`; columns in which words and numbers mix (`cell.lora`: off, 8) are text.

    Raises:
        EnvironmentProblem: pyarrow is not installed.
    """
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise EnvironmentProblem(
            f"{path}: parquet needs pyarrow; pip install pyarrow, or export to .csv or .jsonl"
        ) from error
    table = _flat(records)
    for name in table.columns:
        kinds = {type(value) for value in table[name].dropna()}
        if not kinds:
            table[name] = table[name].astype("float64")  # an empty column has no type of its own
        elif len(kinds) > 1 and not kinds <= {int, float}:
            table[name] = [None if value is None else str(value) for value in table[name]]
    buffer = io.BytesIO()
    table.to_parquet(buffer, index=False)
    write_whole(path, buffer.getvalue())
    return len(table)


FORMATS: dict[str, Callable[[Iterable[Record], Path], int]] = {
    ".jsonl": write_lines,
    ".jsonl.gz": write_lines,
    ".csv": write_csv,
    ".parquet": write_parquet,
}


def _flat(records: Iterable[Record]) -> pd.DataFrame:
    table = frame(ordered(records))
    for name in table.columns:
        if any(isinstance(value, list | tuple | dict) for value in table[name]):
            table[name] = [_json(value) for value in table[name]]
    return table


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(encode(value), sort_keys=True, separators=(",", ":"))
