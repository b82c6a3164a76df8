"""Whatever stands in a file of records, or in what a trial process leaves, it is taken or told of in one sentence.

CLAIMBENCH_FUZZ_CASES=5000 pytest tests/results/test_lines_fuzz.py      the long run (CI does 300, and 100 mangled)
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from harness.errors import RecordsError
from harness.judgement.blocks import compare
from harness.results.assemble import Circumstances, Try, record_of
from harness.results.lines import ordered, read_lines, write_lines
from harness.results.load import frame, import_records
from harness.results.record import NAMES, Record
from harness.results.store import Store
from harness.trial.classify import classify
from harness.trial.device import device_figures
from harness.trial.launch import Finished
from harness.trial.outcome import Outcome
from harness.trial.supervision import Ending
from tests.experiment.test_fuzz import Words, mutate
from tests.records import make_records
from tests.results.plans import a_block, a_plan

CASES = int(os.environ.get("CLAIMBENCH_FUZZ_CASES", "300"))

SLOW_IS_FINE = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
fuzz = settings(max_examples=CASES, deadline=None, suppress_health_check=SLOW_IS_FINE)
fuzz_a_third = settings(fuzz, max_examples=CASES // 3)

RECORDS = make_records(rounds=1)[:3]
LINES = [record.as_text() for record in RECORDS]
WORDS = Words((*NAMES, "devices", "name", "holds", "word", "facts", "reason", "ok", "crash", "nan", "inf", "\ud800"))

RESULT = {
    "outcome": "ok", "reason": "", "measured": {"tokens_per_second": 500.0, "losses": [1.0, "nan"], "mine": {"a": 7}},
    "missing": {"mfu": "no peak is known"}, "evidence": {"attention": {"holds": True, "word": "seen", "facts": {}}},
    "warnings": ["a warning"], "ranks": [{"rank": 0, "peak_allocated_bytes": 7}], "window": [1.0, 2.0],
}  # fmt: skip
RESULT_WORDS = Words((*RESULT, *NAMES, "holds", "word", "facts", "nan", "inf", "oom", "inert", "\ud800"))


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@st.composite
def mutated_lines(draw: st.DrawFn) -> bytes:
    lines = []
    for line in LINES:
        content = json.loads(line)
        for _ in range(draw(st.integers(0, 3))):
            content = mutate(content, draw, WORDS)
        lines.append(json.dumps(content))
    return "\n".join(lines).encode()


@st.composite
def mangled_lines(draw: st.DrawFn) -> bytes:
    content = bytearray("\n".join(LINES).encode())
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(content)))
        end = min(len(content), start + draw(st.integers(0, 12)))
        content[start:end] = draw(st.one_of(st.binary(max_size=4), st.just(bytes(content[end : end + 30]))))
    return bytes(content)


@st.composite
def mutated_results(draw: st.DrawFn) -> bytes:
    content: Any = deepcopy(RESULT)
    for _ in range(draw(st.integers(1, 4))):
        content = mutate(content, draw, RESULT_WORDS)
    return json.dumps(content).encode()


def imported_or_refused(content: bytes, folder: Path) -> None:
    path = folder / "evidence.jsonl"
    path.write_bytes(content)
    store_path = folder / "results.sqlite"
    store_path.unlink(missing_ok=True)
    with Store.open(store_path, writable=True) as store:
        try:
            import_records(path, store)
        except RecordsError as error:
            message = str(error).removeprefix(str(path))
            assert message.count("\n") == 0, message
            assert message.startswith(":"), message
            assert store.count() == 0
            return
        kept = list(store.records())
    write_lines(kept, folder / "again.jsonl")
    again = read_lines(folder / "again.jsonl")
    assert [record.as_text() for record in again] == [record.as_text() for record in ordered(kept)]
    frame(kept)
    compare(kept)


def recorded(content: bytes, folder: Path) -> Record:
    """The record of a trial that left this behind. It must fit a store and its own file format."""
    path = folder / "result.json"
    path.write_bytes(content)
    found = classify(
        Ending(statuses=(0,)), directory=folder, record_path=path, wall_limit_seconds=1, killed_for_memory=False
    )
    finished = Finished(
        outcome=found.outcome, reason=found.reason, result=found.result, started=0.0, wall_seconds=1.0,
        warnings=found.warnings,
    )  # fmt: skip
    figures = device_figures((), found.result.window if found.result else None)
    record = record_of(
        a_plan(a_block()).trials[0], finished, figures, at=Try(attempt=1, started_at="2026-01-01"),
        circumstances=Circumstances(scale="smoke", fingerprint="f", environment={}),
    )  # fmt: skip
    write_lines([record], folder / "record.jsonl")
    (again,) = read_lines(folder / "record.jsonl")
    assert again.as_text() == record.as_text()
    return record


@fuzz
@given(mutated_lines())
def test_mutated_records_are_imported_or_refused(folder: Path, content: bytes) -> None:
    imported_or_refused(content, folder)


@fuzz_a_third
@given(mangled_lines())
def test_a_mangled_file_is_imported_or_refused(folder: Path, content: bytes) -> None:
    imported_or_refused(content, folder)


@fuzz
@given(mutated_results())
@example(b'{"outcome": "ok", "reason": "", "measured": {"clocks": []}}')
@example(b'{"outcome": "ok", "reason": "", "measured": {"figures": 3, "more": 1}}')
def test_a_mutated_result_becomes_a_record(folder: Path, content: bytes) -> None:
    recorded(content, folder)


@fuzz_a_third
@given(st.one_of(st.binary(max_size=100), st.text(alphabet='{}[]":,0.1nul eE-\\', max_size=40).map(str.encode)))
def test_an_arbitrary_result_is_a_crash(folder: Path, content: bytes) -> None:
    assert recorded(content, folder).outcome is Outcome.CRASH


@pytest.mark.parametrize("name", ["figures", "clocks"])
def test_a_list_where_the_parent_adds_names_is_a_crash(folder: Path, name: str) -> None:
    result = {**RESULT, "measured": {**RESULT["measured"], name: []}}
    record = recorded(json.dumps(result).encode(), folder)
    assert record.outcome is Outcome.CRASH
    assert f"{name} must be a mapping, not list" in record.reason


def test_the_result_itself_is_a_record(folder: Path) -> None:
    record = recorded(json.dumps(RESULT).encode(), folder)
    assert record.outcome is Outcome.OK
    assert (record.tokens_per_second, record.figures) == (500.0, {"mine": {"a": 7}})


NO_RESULTS = {
    "a list": b"[]", "text": b'"ok"', "a number": b"7", "nothing": b"null", "nested without end": b"[" * 100_000,
    "a window of one": b'{"outcome": "ok", "window": 5}', "no such outcome": b'{"outcome": "fine"}', "empty": b"",
}  # fmt: skip


@pytest.mark.parametrize("content", NO_RESULTS.values(), ids=NO_RESULTS)
def test_a_result_that_is_none_says_so(folder: Path, content: bytes) -> None:
    record = recorded(content, folder)
    assert record.outcome is Outcome.CRASH
    assert "Its result could not be read" in record.reason
    assert record.reason.count("\n") == 0


def test_a_figure_of_another_type_is_named_and_takes_the_result_with_it(folder: Path) -> None:
    record = recorded(json.dumps({**RESULT, "measured": {"losses": "low", "mfu": 0.5}}).encode(), folder)
    assert record.outcome is Outcome.CRASH
    assert record.reason == "Its result does not fit a record: losses: Input should be a valid array, found 'low'."
    assert record.mfu is None


def test_a_whole_number_where_a_figure_stands_is_a_figure(folder: Path) -> None:
    """Else the same record would be other bytes after an export and an import."""
    record = recorded(json.dumps({**RESULT, "measured": {"tokens_per_second": 500}}).encode(), folder)
    assert repr(record.tokens_per_second) == "500.0"
