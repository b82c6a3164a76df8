"""Records from wherever they are kept: a store, JSON lines (plain or gzip), or a folder of them, subfolders included.

`read_records` gives them as they are, `load` as a pandas DataFrame with a row per trial.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import Place, RecordsError
from harness.results import gc_pause
from harness.results.connection import SQLITE_MAGIC, first_bytes
from harness.results.lines import read_lines
from harness.results.record import NAMES, Record
from harness.results.store import Run, Store

if TYPE_CHECKING:
    import pandas as pd

#: What counts as a file of records in a folder. A file named itself is told by its content.
PATTERNS = ("*.jsonl", "*.jsonl.gz", "*.sqlite")
#: Fields that become a column per name, `phases` → `phases.forward`.
FLATTENED = (
    "cell", "sweep", "phases", "model_state_bytes", "parameters", "peak_flops", "gradient_check", "clocks", "figures",
)  # fmt: skip
#: Fields that are a number or absent: a column of numbers even where all are absent.
FIGURES = frozenset(each.name for each in fields(Record) if each.type in {"float | None", "int | None"})


def read_records(path: Path | str, *, damaged: list[str] | None = None) -> list[Record]:
    """All records at `path`, one at least. One that stands in several files is read once, superseded if so in any.

    Args:
        damaged: gets a line for each trial of a store that cannot be read, which is then left out; None: the first
            that cannot is an error.

    Raises:
        RecordsError: nothing is there, no trial is in it, or a line is no record.
        StoreError: a store is damaged, or of a newer version.
    """
    with gc_pause.paused():
        return _read(Path(path), damaged)


def read_runs(path: Path | str) -> list[Run]:
    """The runs that wrote to the stores at `path`, oldest first of each store; JSON lines have none.

    Raises:
        StoreError: a store is damaged, or of a newer version.
    """
    path = Path(path)
    files = sorted(path.rglob("*.sqlite")) if path.is_dir() else [path]
    found: list[Run] = []
    for file in files:
        if file.is_file() and first_bytes(file) == SQLITE_MAGIC:
            with Store.open(file) as store:
                found += store.runs()
    return found


def import_records(path: Path | str, store: Store) -> tuple[int, int]:
    """Add all records at `path` to a store opened for writing, all or none: (new, there already).

    Raises:
        RecordsError, StoreError: as for `read_records`, or the store could not be written; it is unchanged.
    """
    records = read_records(path)
    new = store.add_all(records)
    return new, len(records) - new


def load(path: Path | str) -> pd.DataFrame:
    """A row per trial, see `frame`.

    Raises:
        RecordsError, StoreError: as for `read_records`.
    """
    return frame(read_records(path))


def frame(records: Iterable[Record]) -> pd.DataFrame:
    """A row per trial, superseded ones included, in the order given.

    Columns are the fields of a record; mappings become a column per name (`cell.attention`, `phases.forward`,
    `evidence.compile` with the fact in a word); `device` is the name of the first device, or `cpu`. Lists stay lists.
    """
    import pandas as pd

    records = list(records)
    columns: dict[str, list[Any]] = {}
    for name in NAMES:
        values = [getattr(record, name) for record in records]
        if name in FLATTENED:
            columns |= _flattened(name, values)
        elif name == "outcome":
            columns[name] = [str(value) for value in values]
        elif name in FIGURES:
            columns[name] = [math.nan if value is None else value for value in values]
        else:
            columns[name] = values
    columns |= _flattened("evidence", [_words(record) for record in records])
    columns["device"] = [device_name(record) for record in records]
    return pd.DataFrame(columns)


def device_name(record: Record) -> str:
    """The name of the first device of the trial's environment, or `cpu`."""
    devices = record.environment.get("devices") or ()
    return str(devices[0]["name"]) if devices else "cpu"


def _words(record: Record) -> dict[str, Any]:
    return {axis: fact.get("word") for axis, fact in record.evidence.items()}


def _flattened(name: str, values: Sequence[dict[str, Any] | None]) -> dict[str, list[Any]]:
    """A column for every name that any record has, in the order of first appearance."""
    rows = [value or {} for value in values]
    keys = dict.fromkeys(key for row in rows for key in row)
    return {f"{name}.{key}": [row.get(key) for row in rows] for key in keys}


def _read(path: Path, damaged: list[str] | None) -> list[Record]:
    if path.is_dir():
        files = sorted({file for pattern in PATTERNS for file in path.rglob(pattern) if file.is_file()})
        if not files:
            raise RecordsError(
                f"no records in this folder ({', '.join(PATTERNS)}); give another, or make some with `claimbench run`",
                place=Place(file=str(path)),
            )
        return _some(once(record for file in files for record in _read_file(file, damaged)), path, damaged)
    if not path.exists():
        raise RecordsError(
            "nothing is there; give a store, JSON lines or a folder of them, or make a store with `claimbench run`",
            place=Place(file=str(path)),
        )
    return _some(once(_read_file(path, damaged)), path, damaged)


def _some(records: list[Record], path: Path, damaged: list[str] | None) -> list[Record]:
    """What the user named and holds no trial is a mistake; an empty file beside others in a folder takes nothing away.

    Raises:
        RecordsError: there are none.
    """
    if not records and damaged:
        raise RecordsError("none of its trials can be read; give another", place=Place(file=str(path)))
    if not records:
        raise RecordsError(
            "it is empty: there is no trial in it; give another, or make some with `claimbench run`",
            place=Place(file=str(path)),
        )
    return records


def _read_file(path: Path, damaged: list[str] | None) -> Iterable[Record]:
    try:
        start = first_bytes(path)
    except OSError as error:
        raise RecordsError(f"cannot be read ({error.strerror})", place=Place(file=str(path))) from error
    if start and (start == SQLITE_MAGIC or path.suffix == ".sqlite"):
        with Store.open(path) as store:
            return list(store.records(damaged=damaged))
    return read_lines(path)


def once(records: Iterable[Record]) -> list[Record]:
    """Each trial once, in the order of first appearance; superseded if it is so anywhere."""
    seen: dict[tuple[Any, ...], Record] = {}
    for record in records:
        known = seen.setdefault(record.identity, record)
        if record.superseded and not known.superseded:
            seen[record.identity] = replace(known, superseded=True)
    return list(seen.values())
