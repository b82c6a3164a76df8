"""How fast 10,000 trials are kept and read: `pytest benchmarks/test_store_speed.py`.

Bounds are several times what an idle laptop core needs (a second to read, under a millisecond a trial on a local disk
plus two flushes of it), so that they catch a change of order and no busy machine.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.results.lines import write_lines
from harness.results.load import frame, read_records
from harness.results.record import Record
from harness.results.store import Store
from tests.records import many_records

COUNT = 10_000


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return many_records(COUNT)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, records: list[Record]) -> Path:
    """One store and its export, plain and compressed."""
    folder = tmp_path_factory.mktemp("kept")
    with Store.open(folder / "results.sqlite", writable=True) as store:
        store.add_all(records)
    write_lines(records, folder / "results.jsonl")
    write_lines(records, folder / "results.jsonl.gz")
    return folder


@pytest.mark.parametrize("name", ["results.sqlite", "results.jsonl", "results.jsonl.gz"])
def test_read_10000_records(benchmark: Any, folder: Path, name: str) -> None:
    read = benchmark.pedantic(read_records, args=(folder / name,), rounds=3, warmup_rounds=1)
    assert len(read) == COUNT
    assert benchmark.stats.stats.min < 5.0


def test_make_a_frame_of_10000_records(benchmark: Any, records: list[Record]) -> None:
    table = benchmark.pedantic(frame, args=(records,), rounds=3, warmup_rounds=1)
    assert len(table) == COUNT
    assert benchmark.stats.stats.min < 5.0


def test_write_10000_records_as_lines(benchmark: Any, records: list[Record], tmp_path: Path) -> None:
    benchmark.pedantic(write_lines, args=(records, tmp_path / "a.jsonl"), rounds=3)
    assert benchmark.stats.stats.min < 10.0


def test_add_one_record_to_a_store_of_10000(benchmark: Any, folder: Path, records: list[Record]) -> None:
    """What a run waits for after each trial, the flush to the disk included."""
    attempts = iter(range(2, 1_000_000))
    with Store.open(folder / "results.sqlite", writable=True) as store:
        benchmark.pedantic(lambda: store.add(replace(records[0], attempt=next(attempts))), rounds=20)
    assert benchmark.stats.stats.median < 0.5


def test_ask_what_is_missing_in_10000_rounds(benchmark: Any, folder: Path, records: list[Record]) -> None:
    rounds = sorted({(record.block, record.round, record.fingerprint) for record in records})
    with Store.open(folder / "results.sqlite") as store:

        def ask() -> int:
            return sum(len(store.settled_arms(*each)) for each in rounds for _ in range(COUNT // len(rounds)))

        assert benchmark.pedantic(ask, rounds=3) >= COUNT
    assert benchmark.stats.stats.min < 5.0


def test_look_at_the_machine_in_a_fresh_process(benchmark: Any) -> None:
    """Processor time of `detect` alone, without the interpreter's own start; under 0.3 s."""
    script = (
        "import time; from harness.environment import detect; start = time.process_time(); detect();"
        "print(time.process_time() - start)"
    )
    seconds: list[float] = []

    def look() -> None:
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        seconds.append(float(done.stdout))

    benchmark.pedantic(look, rounds=5)
    benchmark.extra_info["detect_seconds"] = sorted(seconds)
    assert min(seconds) < 0.3
