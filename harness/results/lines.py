"""Records as JSON lines: one a line, names sorted, in a fixed order, plain or gzip. The form that is committed.

Equal records give equal bytes, whenever and wherever they are written, so that a changed figure is a changed line in a
diff and nothing else is.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import Place, RecordsError, printable
from harness.results.as_now import as_now
from harness.results.paths import folder_problem
from harness.results.record import RECORD_SCHEMA, TEXTS, Record
from harness.results.sense import fault_in
from harness.trial.numbers import decode
from harness.trial.spec import misfit

if TYPE_CHECKING:
    from pydantic import TypeAdapter

GZIP_MAGIC = b"\x1f\x8b"
_YAML = ": a matrix goes to --matrix, claims go to --claims"
_EXPORT = ": what was exported so cannot be read back, what was exported as .jsonl can"
#: Ending of a file that holds no trials → what it is for.
_OTHER_KINDS = {
    ".yaml": _YAML, ".yml": _YAML, ".csv": _EXPORT, ".parquet": _EXPORT,
    ".json": ": pytest-benchmark's JSON goes to `claimbench compare`",
}  # fmt: skip


def ordered(records: Iterable[Record]) -> list[Record]:
    """Study by study, block by block, round by round, in the order in which they ran."""
    return sorted(records, key=lambda each: (each.study, each.block, each.round, each.position, each.identity))


def write_lines(records: Iterable[Record], path: Path) -> int:
    """Write all or nothing (a temporary name, then a rename); gzip if `path` ends in .gz. The number written.

    Raises:
        RecordsError: the file cannot be written.
    """
    lines = [record.as_text() for record in ordered(records)]
    content = "".join(f"{line}\n" for line in lines).encode()
    if path.suffix == ".gz":
        # no name and no time in the header: the same records are the same bytes
        content = gzip.compress(content, compresslevel=9, mtime=0)
    write_whole(path, content)
    return len(lines)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file whole or not at all; its folder is made, but none above that.

    Raises:
        RecordsError: it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        if problem := folder_problem(path):
            raise RecordsError(problem, place=Place(file=str(path)))
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise RecordsError(
            f"cannot be written ({error.strerror}); choose another path or free some space", place=Place(file=str(path))
        ) from error


def read_lines(path: Path) -> list[Record]:
    """Every record of a JSON-lines file, checked field by field.

    Raises:
        RecordsError: the first line that is no record of this version or an older one, with its number.
    """
    return [_checked(path, number, line) for number, line in _numbered(path)]


def _numbered(path: Path) -> Iterator[tuple[int, str]]:
    """Lines that are not blank, with their numbers, counting from 1."""
    number = 0
    try:
        with path.open("rb") as raw:
            packed = raw.peek(2)[:2] == GZIP_MAGIC
            opened: Any = gzip.GzipFile(fileobj=raw) if packed else raw
            for number, line in enumerate(io.TextIOWrapper(opened, encoding="utf-8", newline="\n"), start=1):
                if line.strip():
                    yield number, line
    except UnicodeDecodeError as error:
        raise _wrong(path, number + 1, "not text in UTF-8; give JSON lines or a store") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _wrong(path, number + 1, f"the gzip file is damaged or cut short ({error}); copy it again") from error
    except OSError as error:
        raise RecordsError(f"cannot be read ({error.strerror})", place=Place(file=str(path))) from error


def _checked(path: Path, number: int, line: str) -> Record:
    from pydantic import ValidationError

    try:
        record = _reader().validate_json(_with_numbers(line), strict=True)
    except (ValidationError, RecursionError) as error:
        if number == 1 and ".jsonl" not in path.suffixes and _begins_no_record(line):
            raise RecordsError(_no_trials(path), place=Place(file=str(path))) from error
        raise _wrong(path, number, _why(line, error)) from error
    if record.schema > RECORD_SCHEMA:
        raise _wrong(path, number, _newer(record.schema))
    if fault := fault_in(record):
        raise _wrong(path, number, _no_record(fault))
    return as_now(record)


def _begins_no_record(line: str) -> bool:
    """Whether a first line is that of a file of another kind: no JSON at all, or JSON over several lines."""
    return not line.lstrip().startswith("{") or line.strip() == "{"


def _no_trials(path: Path) -> str:
    """What to do with a file of another kind, told by its name."""
    remedy = _OTHER_KINDS.get(path.suffix, "")
    return f"it is no file of trials{remedy}; give a store, JSON lines, or a folder of them"


@cache
def _reader() -> TypeAdapter[Record]:
    """Reads and checks a line: every field there, of its type (no text for a number, no number for a text)."""
    from pydantic import TypeAdapter

    return TypeAdapter(Record)


def _with_numbers(line: str) -> str:
    """The line with the words for NaN and infinity as the bare names that the reader takes for numbers."""
    if '"nan"' not in line and 'inf"' not in line:
        return line
    try:
        content = json.loads(line)
        return json.dumps({name: value if name in TEXTS else decode(value) for name, value in content.items()})
    except (ValueError, AttributeError):
        return line  # no JSON object: the reader says so


def _why(line: str, error: Exception) -> str:
    """A reason in words for a line that is no record."""
    from pydantic import ValidationError

    try:
        content = json.loads(line)
    except json.JSONDecodeError as fault:
        cut = "" if line.endswith("\n") else " and the file ends there: it was cut short"
        return f"not JSON at column {fault.colno}{cut}; remove the line or export again"
    except RecursionError:
        return "nested too deeply for a record; remove the line"
    if not isinstance(content, dict):
        return f"a record is a JSON object, not {type(content).__name__}; remove the line or export again"
    schema = content.get("schema")
    if isinstance(schema, int) and schema > RECORD_SCHEMA:
        return _newer(schema)
    if not isinstance(error, ValidationError):
        return "not a record; remove the line"
    return _no_record(misfit(error))


def as_read_back(record: Record) -> Record:
    """A record that was just put together as it will come back from a file: a 0 where a figure stands is 0.0.

    Raises:
        ValueError: it would not come back; what does not fit, in a few words.
    """
    from pydantic import ValidationError

    try:
        found = _reader().validate_json(_with_numbers(record.as_text()), strict=True)
    except ValidationError as error:
        raise ValueError(misfit(error)) from error
    if fault := fault_in(found):
        raise ValueError(printable(fault))
    return found


def _no_record(fault: str) -> str:
    return printable(f"no record of claimbench: {fault}; remove the line or export again")


def _newer(schema: int) -> str:
    return f"a newer claimbench wrote it (schema {schema}, this one knows {RECORD_SCHEMA}); upgrade claimbench"


def _wrong(path: Path, number: int, message: str) -> RecordsError:
    return RecordsError(message, place=Place(file=str(path), line=number, column=1))
