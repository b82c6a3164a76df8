"""pytest-benchmark's JSON, ours or anybody's: what is compared, and on which machine it was measured.

Format: what `--benchmark-json` and `--benchmark-save` write (pytest-benchmark 3 to 5). `extra_info` of our own cells
has the layout of `benchmarks/replay.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, PositiveFloat

from harness.errors import Place, RecordsError
from harness.trial.outcome import Outcome

if TYPE_CHECKING:
    from pydantic import ValidationError


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class TrialNumber(_Part):
    """One of our trials."""

    round: int
    outcome: Outcome
    tokens_per_second: PositiveFloat | None = None
    samples_per_second: PositiveFloat | None = None
    steps_per_second: PositiveFloat | None = None


class Floor(_Part):
    """The A/A control's ratio of a block."""

    observed: tuple[PositiveFloat, ...] = ()
    """One a round."""


class CellInfo(_Part):
    """`extra_info` of a cell of ours; without `claimbench` it is somebody else's."""

    claimbench: int
    study: str
    sweep: dict[str, Any] = Field(default_factory=dict)
    cell: str
    role: str
    kind: str
    cell_key: str
    scale: str
    warmup_steps: int
    steps: int
    device: str
    noise_floor: Floor | None = None
    peak_reserved_bytes: NonNegativeFloat | None = None
    peak_host_bytes: NonNegativeFloat | None = None
    trials: tuple[TrialNumber, ...]


class Stats(_Part):
    """Of one benchmark, in seconds."""

    mean: NonNegativeFloat
    rounds: int
    data: tuple[NonNegativeFloat, ...] = ()
    """Absent where the file was saved without `--benchmark-save-data`."""


class Benchmark(_Part):
    """One test."""

    fullname: str
    stats: Stats
    extra_info: dict[str, Any] = Field(default_factory=dict)
    cell: CellInfo | None = None
    """Set where it is a cell of ours."""


class BenchmarkFile(_Part):
    """One file of pytest-benchmark."""

    machine_info: dict[str, Any]
    commit_info: dict[str, Any] = Field(default_factory=dict)
    benchmarks: tuple[Benchmark, ...]

    @property
    def environment(self) -> dict[str, Any]:
        """In the words of a record's `environment`, as far as the file knows."""
        own: dict[str, Any] = dict(self.machine_info.get("claimbench") or _foreign(self.machine_info))
        commit = {"git_commit": self.commit_info.get("id"), "git_dirty": self.commit_info.get("dirty")}
        return {**own, **commit}


def is_benchmark_file(path: Path) -> bool:
    """Whether it is called `.json`, or is one JSON object over several lines, as JSON lines never are."""
    if path.suffix == ".json":
        return True
    try:
        with path.open("rb") as file:
            return file.read(1024).split(maxsplit=1)[:1] == [b"{"]
    except OSError:
        return False


def read_benchmark_file(path: Path) -> BenchmarkFile:
    """Read and check.

    Raises:
        RecordsError: it cannot be read, or is not pytest-benchmark's.
    """
    from pydantic import ValidationError

    place = Place(file=str(path))
    try:
        file = BenchmarkFile.model_validate_json(path.read_bytes())
        cells = tuple(each.model_copy(update={"cell": _cell(each)}) for each in file.benchmarks)
    except OSError as error:
        raise RecordsError(f"cannot be read ({error.strerror})", place=place) from error
    except ValidationError as error:
        raise RecordsError(f"not pytest-benchmark's JSON: {_first(error)}; write it again", place=place) from error
    return file.model_copy(update={"benchmarks": cells})


def _cell(benchmark: Benchmark) -> CellInfo | None:
    return CellInfo.model_validate(benchmark.extra_info) if "claimbench" in benchmark.extra_info else None


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"][:4])
    return f"{where}: {first['msg']}" if where else str(first["msg"])


def _foreign(machine: Mapping[str, Any]) -> dict[str, Any]:
    cpu = machine.get("cpu") or {}
    return {
        "processor": cpu.get("brand_raw") or machine.get("processor") or "",
        "cores": cpu.get("count"),
        "python": machine.get("python_version"),
        "system": "-".join(str(machine[name]) for name in ("system", "release", "machine") if name in machine),
    }
