"""`claimbench compare`: stores, JSON lines and pytest-benchmark's JSON in; a table, Markdown and an exit code out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.replay import extra_info
from harness.judgement.blocks import compare
from harness.results.lines import write_lines
from harness.results.record import Record
from harness.results.store import Store
from tests.benchmarks.runs import FUSED, optimizer_study
from tests.commands import claimbench
from tests.records import CPU
from tests.shapes import H100


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """`before` as a store, `same` and `slow` as JSON lines."""
    with Store.open(tmp_path / "before.sqlite", writable=True) as store:
        store.add_all(optimizer_study())
    write_lines(optimizer_study(), tmp_path / "same.jsonl")
    write_lines(optimizer_study(scale={FUSED: 0.8}), tmp_path / "slow.jsonl.gz")
    return tmp_path


def test_equal_runs_end_with_0_and_a_slower_one_with_1(folder: Path) -> None:
    same = claimbench("compare", "before.sqlite", "same.jsonl", cwd=folder)
    slow = claimbench("compare", "before.sqlite", "slow.jsonl.gz", cwd=folder)
    assert (same.code, slow.code) == (0, 1)
    assert "0 of 2 cells slower or failing (threshold 5%)" in same.out
    assert "1 of 2 cells slower or failing (threshold 5%)" in slow.out
    assert "optimizer · optimizer=fused" in slow.out
    assert "0.80x [0.76, 0.84]" in slow.out


def test_the_threshold_can_be_given_as_percent_or_as_a_share(folder: Path) -> None:
    codes = [
        claimbench("compare", "before.sqlite", "slow.jsonl.gz", "--threshold", share, cwd=folder).code
        for share in ("30%", "0.3", "20%", "0")
    ]
    assert codes == [0, 0, 1, 1]
    said = claimbench("compare", "before.sqlite", "same.jsonl", "--threshold", "much", cwd=folder)
    assert said.code == 2
    assert "write 5% or 0.05" in said.err


def test_markdown_for_a_pull_request_begins_with_the_answer(folder: Path) -> None:
    said = claimbench("compare", "before.sqlite", "slow.jsonl.gz", "--markdown", cwd=folder)
    lines = said.out.splitlines()
    assert said.code == 1
    assert lines[0] == "### claimbench: 1 of 2 cells slower or failing (threshold 5%)"
    assert lines[4] == "| cell | before | after | ratio | memory | finds | result |"
    assert lines[6].startswith("| **optimizer · optimizer=fused** | **1,200 tokens/s** | **960 tokens/s** | **0.80x")
    assert {line.count("|") for line in lines[4:8]} == {8}
    assert "Environment: no difference." in lines


def test_what_changed_is_said(folder: Path) -> None:
    newer = replace(H100, packages={**H100.packages, "transformers": "5.25.0"})
    write_lines(optimizer_study(environment=newer), folder / "newer.jsonl")
    plain = claimbench("compare", "before.sqlite", "newer.jsonl", cwd=folder)
    markdown = claimbench("compare", "before.sqlite", "newer.jsonl", "--markdown", cwd=folder)
    assert "  package transformers: 5.24.0 → 5.25.0" in plain.out.splitlines()
    assert "- package transformers: 5.24.0 → 5.25.0" in markdown.out.splitlines()


def test_different_devices_are_refused_unless_asked_and_then_said_first(folder: Path) -> None:
    write_lines(optimizer_study(environment=CPU), folder / "cpu.jsonl")
    refused = claimbench("compare", "before.sqlite", "cpu.jsonl", cwd=folder)
    assert refused.code == 2
    assert refused.err.startswith("error: Different devices: before.sqlite was measured on NVIDIA H100")
    for option in ((), ("--markdown",)):
        asked = claimbench("compare", "before.sqlite", "cpu.jsonl", "--across-devices", *option, cwd=folder)
        assert asked.code == 0
        assert "Different devices: before.sqlite was measured on NVIDIA H100" in asked.out.splitlines()[0]


def test_names_from_a_file_are_text_in_markdown(folder: Path) -> None:
    hostile = [replace(record, study="<script>|x") for record in optimizer_study()]
    write_lines(hostile, folder / "hostile.jsonl")
    said = claimbench("compare", "hostile.jsonl", "hostile.jsonl", "--markdown", cwd=folder)
    assert "<script>" not in said.out
    assert "&lt;script&gt;\\|x" in said.out


# pytest-benchmark's files


def benchmarks_of(records: Sequence[Record]) -> dict[str, Any]:
    """The file that `pytest benchmarks --benchmark-json` would write for these trials."""
    (block,) = compare(records).blocks
    tests = [
        {"fullname": f"benchmarks/test_matrix.py::test_cell[{arm.name}]", "group": block.study, "name": arm.name,
         "extra_info": extra_info(block, arm), "stats": _stats([s for t in arm.trials for s in t.step_seconds])}
        for arm in block.arms
    ]  # fmt: skip
    machine = {"claimbench": dict(records[0].environment), "node": "x"}
    return {"machine_info": machine, "commit_info": {"id": "0" * 40, "dirty": False}, "benchmarks": tests}


def foreign(seconds: Sequence[float], name: str = "tests/test_x.py::test_x", *, data: bool = True) -> dict[str, Any]:
    """A file of somebody else's with one benchmark."""
    stats = _stats(seconds)
    if not data:
        del stats["data"]
    machine = {"cpu": {"brand_raw": "A processor", "count": 2}, "python_version": "3.11.7", "system": "Linux"}
    return {
        "machine_info": machine,
        "commit_info": {},
        "benchmarks": [{"fullname": name, "extra_info": {}, "stats": stats}],
    }


def _stats(seconds: Sequence[float]) -> dict[str, Any]:
    return {"mean": sum(seconds) / len(seconds), "rounds": len(seconds), "data": list(seconds)}


def write(path: Path, content: dict[str, Any]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=4), encoding="utf-8")
    return path.name


def test_our_own_benchmark_files_hold_what_the_store_holds(folder: Path) -> None:
    write(folder / "slow.json", benchmarks_of(optimizer_study(scale={FUSED: 0.8})))
    said = claimbench("compare", "before.sqlite", "slow.json", cwd=folder)
    stored = claimbench("compare", "before.sqlite", "slow.jsonl.gz", cwd=folder)
    assert said.code == 1
    assert "environment: no difference" in said.out
    assert said.out.replace("slow.json ", "slow.jsonl.gz ") == stored.out
    assert "no noise floor" not in claimbench("compare", "slow.json", "slow.json", cwd=folder).out


def test_a_file_whose_speeds_count_the_first_step_is_told(folder: Path) -> None:
    earlier = benchmarks_of(optimizer_study())
    for each in earlier["benchmarks"]:
        each["extra_info"]["claimbench"] = 1
    write(folder / "earlier.json", earlier)
    write(folder / "now.json", benchmarks_of(optimizer_study()))
    told = "earlier.json: saved by a version whose speeds count the first step of each window"
    assert told in claimbench("compare", "earlier.json", "now.json", cwd=folder).out
    assert "count the first step" not in claimbench("compare", "now.json", "before.sqlite", cwd=folder).out
    for each in earlier["benchmarks"]:  # on a CPU nothing was left out later
        each["extra_info"]["peak_reserved_bytes"] = None
    write(folder / "cpu.json", earlier)
    assert "count the first step" not in claimbench("compare", "cpu.json", "now.json", cwd=folder).out


def test_anybodys_benchmark_files_are_compared_round_by_round_with_a_warning(folder: Path) -> None:
    write(folder / "a.json", foreign([0.98, 1.0, 1.02]))
    write(folder / "b.json", foreign([1.225, 1.25, 1.275]))
    said = claimbench("compare", "a.json", "b.json", cwd=folder)
    assert said.code == 1
    assert "tests/test_x.py::test_x" in said.out
    assert "0.80x" in said.out
    assert "the rounds of one process stand for its trials" in said.out
    assert claimbench("compare", "a.json", "a.json", cwd=folder).code == 0


def test_each_of_several_files_in_a_folder_is_a_trial(folder: Path) -> None:
    for number, seconds in enumerate((1.0, 1.01, 0.99)):
        write(folder / "before" / f"{number}.json", foreign([0.5 * seconds, 2 * seconds]))  # whose mean is that
        write(folder / "after" / f"{number}.json", foreign([1.25 * seconds] * 5))
    said = claimbench("compare", "before", "after", cwd=folder)
    assert said.code == 1
    assert "0.80x" in said.out
    assert "rounds of one process" not in said.out
    for sides in (("before", "after/0.json"), ("after/0.json", "before")):
        assert "rounds of one process" in claimbench("compare", *sides, cwd=folder).out


def test_a_file_without_its_data_gives_a_ratio_and_no_interval(folder: Path) -> None:
    write(folder / "a.json", foreign([1.0, 1.0], data=False))
    write(folder / "b.json", foreign([2.0, 2.0], data=False))
    said = claimbench("compare", "a.json", "b.json", cwd=folder)
    assert said.code == 0
    assert "0.50x" in said.out
    assert "single trial" in said.out


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("{}", "machine_info"),
        ("[1, 2]", "object"),
        ("{", "EOF"),
        ('{"machine_info": {}, "benchmarks": [{}]}', "fullname"),
    ],
)
def test_a_damaged_file_is_one_sentence(folder: Path, content: str, word: str) -> None:
    (folder / "a.json").write_text(content, encoding="utf-8")
    said = claimbench("compare", "a.json", "before.sqlite", cwd=folder)
    assert said.code == 2
    assert said.err.startswith("error: a.json: not pytest-benchmark's JSON: ")
    assert word in said.err
    assert len(said.err.splitlines()) == 1


def test_a_path_that_is_not_there_is_one_sentence(folder: Path) -> None:
    said = claimbench("compare", "before.sqlite", "nothing.jsonl", cwd=folder)
    assert said.code == 2
    assert len(said.err.splitlines()) == 1
