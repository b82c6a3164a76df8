"""CSV and parquet for other programs; the format follows from the name."""

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from harness.errors import EnvironmentProblem, InputError
from harness.results.export import export
from harness.results.lines import ordered, read_lines
from tests.records import CellShape, StudyShape, make_records

MIXED = StudyShape(
    name="lora", cells=(CellShape(settings={"lora": 8}, trainable_share=0.01), CellShape(settings={"clip": 1.0}))
)
RECORDS = ordered([*make_records(rounds=1), *make_records([MIXED], rounds=1)])


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_json_lines(tmp_path: Path, name: str) -> None:
    assert export(RECORDS, tmp_path / name) == len(RECORDS)
    assert read_lines(tmp_path / name) == RECORDS


def test_csv_has_a_row_per_trial_and_lists_as_json(tmp_path: Path) -> None:
    assert export(RECORDS, tmp_path / "a.csv") == len(RECORDS)
    table = pd.read_csv(tmp_path / "a.csv")
    assert list(table["arm"]) == [record.arm for record in RECORDS]
    assert table["tokens_per_second"][0] == RECORDS[0].tokens_per_second
    assert json.loads(table["step_seconds"][0]) == RECORDS[0].step_seconds
    assert json.loads(table["environment"][0]) == RECORDS[0].environment


def test_parquet_reads_back_where_words_and_numbers_mix(tmp_path: Path) -> None:
    assert export(RECORDS, tmp_path / "a.parquet") == len(RECORDS)
    table = pd.read_parquet(tmp_path / "a.parquet")
    assert set(table["cell.lora"]) == {"off", "8"}
    assert set(table["cell.clip"]) == {"off", "1.0"}
    assert table["tokens_per_second"][0] == RECORDS[0].tokens_per_second
    assert table["round"].dtype == "int64"


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl", "jsonl.gz"])
def test_equal_records_are_equal_bytes(tmp_path: Path, ending: str) -> None:
    export(RECORDS, tmp_path / f"one.{ending}")
    export(reversed(RECORDS), tmp_path / f"two.{ending}")
    assert (tmp_path / f"one.{ending}").read_bytes() == (tmp_path / f"two.{ending}").read_bytes()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_numbers_that_are_not_finite_are_written(tmp_path: Path, ending: str) -> None:
    export([replace(RECORDS[0], losses=[1.0, math.nan])], tmp_path / f"a.{ending}")
    table = pd.read_csv(tmp_path / "a.csv") if ending == "csv" else pd.read_parquet(tmp_path / "a.parquet")
    assert json.loads(table["losses"][0]) == [1.0, "nan"]


def test_no_records_make_a_table_without_rows(tmp_path: Path) -> None:
    for ending in ("csv", "parquet", "jsonl"):
        assert export([], tmp_path / f"a.{ending}") == 0


def test_parquet_without_pyarrow_names_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(EnvironmentProblem, match=r"pip install pyarrow, or export to \.csv"):
        export(RECORDS, tmp_path / "a.parquet")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "suggested"), [("a.jsnol", r"\.jsonl"), ("a.xlsx", r"\.csv"), ("plain", r"\.csv")])
def test_an_unknown_format_suggests_a_known_one(tmp_path: Path, name: str, suggested: str) -> None:
    with pytest.raises(InputError, match=suggested):
        export(RECORDS, tmp_path / name)
    assert list(tmp_path.iterdir()) == []
