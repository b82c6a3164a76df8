"""What a trial process is told, and what it says back: two JSON files, one each way."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import printable
from harness.experiment.axes import Setting
from harness.trial.numbers import encode
from harness.trial.outcome import Outcome

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

#: Version of the code that measures. Part of a record's fingerprint: raise it when a change could move a figure.
MEASURING_VERSION = 1
#: Of kinds that have changed by themselves since.
MEASURING_VERSIONS: Mapping[str, int] = {"attention-only": 2}


@dataclass(frozen=True, kw_only=True)
class TrialSpec:
    """Everything that one trial needs to run, on any machine that has the packages. Read by every rank."""

    trial_id: str
    kind: str
    model: str
    data: str
    settings: Mapping[str, Setting]
    """One for every axis."""
    baseline_settings: Mapping[str, Setting]
    """Those of the block's baseline: evidence is owed for what differs from the defaults, parity against these."""
    seed: int
    warmup_steps: int
    steps: int
    device: str
    """`cuda` or `cpu`."""
    record_path: str
    """Where the result goes (rank 0); written to a temporary name beside it and renamed."""
    cache_directory: str
    """Compilation caches of this cell; no other cell uses it."""
    data_directory: str
    """Where prepared data lies."""
    gradient_check: bool = False
    """Compare the first step's gradient with fp32 eager (once a cell: in the first of its rounds that ends ok)."""
    options: Mapping[str, Any] = field(default_factory=dict)
    contents: str = ""
    """`workloads.contents_of` model and data, as the plan found them: what has been edited since is not run."""

    def write(self, path: Path) -> None:
        write_json(path, asdict(self))

    @classmethod
    def read(cls, path: Path) -> TrialSpec:
        return cls(**json.loads(path.read_text(encoding="utf-8")))


@dataclass(kw_only=True)
class TrialResult:
    """What a trial process reports: the child's part of a record (`results.record` has every field with its unit)."""

    outcome: Outcome
    reason: str = ""
    measured: dict[str, Any] = field(default_factory=dict)
    """Fields of the record by name. What could not be had is absent here and named in `missing`."""
    missing: dict[str, str] = field(default_factory=dict)
    """Field → why it has no value."""
    evidence: dict[str, dict[str, Any]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    ranks: list[dict[str, Any]] = field(default_factory=list)
    window: tuple[float, float] | None = None
    """`time.monotonic()` at the first and last synchronise: the parent reads the device's meters between the two."""

    def write(self, path: Path) -> None:
        write_json(path, asdict(self))

    @classmethod
    def read(cls, path: Path) -> TrialResult:
        """
        Raises:
            OSError: there is none.
            ValueError: it is no result, in a few words.
        """
        from pydantic import ValidationError

        try:
            return _reader().validate_json(path.read_bytes(), strict=True)
        except ValidationError as error:
            raise ValueError(misfit(error)) from error


@cache
def _reader() -> TypeAdapter[TrialResult]:
    """Checks every field: a technique from outside may say anything, and its trial's parent must not die of it."""
    from pydantic import TypeAdapter

    return TypeAdapter(TrialResult)


def misfit(error: ValidationError) -> str:
    """What does not fit, in a few words: the first of all faults, and where it is."""
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"][:3])
    found = "" if first["type"] in {"missing", "json_invalid"} else f", found {first['input']!r:.40}"
    return printable(f"{where}: {first['msg']}{found}" if where else f"{first['msg']}{found}")


def write_json(path: Path, content: object) -> None:
    """Write whole or not at all: a temporary name in the same folder, then a rename. NaN is "nan" (`trial.numbers`)."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.partial")
    temporary.write_text(json.dumps(encode(content), allow_nan=False, default=str), encoding="utf-8")
    temporary.rename(path)
