"""Records from wherever they are kept, and the data frame made of them."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from harness.errors import RecordsError, StoreError
from harness.results.lines import ordered, write_lines
from harness.results.load import frame, load, read_records
from harness.results.record import NAMES
from harness.results.store import Store
from harness.trial.outcome import Outcome
from tests.records import CPU, CellShape, StudyShape, make_records

RECORDS = ordered(make_records(rounds=2))


def keep(path: Path) -> Path:
    with Store.open(path, writable=True) as store:
        store.add_all(RECORDS)
    return path


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.sqlite", "no-ending-at-all"])
def test_a_file_is_read_whatever_its_kind(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name.endswith(".sqlite"):
        keep(path)
    else:
        write_lines(RECORDS, path)
    assert read_records(path) == RECORDS
    assert read_records(str(path)) == RECORDS


def test_a_store_is_told_by_its_content(tmp_path: Path) -> None:
    assert read_records(keep(tmp_path / "results.db")) == RECORDS


def test_a_folder_is_read_with_its_subfolders(tmp_path: Path) -> None:
    write_lines(RECORDS[:10], tmp_path / "h100" / "one.jsonl")
    write_lines(RECORDS[10:20], tmp_path / "h100" / "two" / "two.jsonl.gz")
    with Store.open(tmp_path / "three.sqlite", writable=True) as store:
        store.add_all(RECORDS[20:])
    (tmp_path / "notes.txt").write_text("no records")
    (tmp_path / "three.sqlite.lock").write_text("1234")
    assert ordered(read_records(tmp_path)) == RECORDS


def test_what_stands_in_two_files_is_read_once_and_superseded_if_it_is_so_in_one(tmp_path: Path) -> None:
    write_lines(RECORDS, tmp_path / "a.jsonl")
    write_lines([replace(RECORDS[0], superseded=True, reason="edited")], tmp_path / "b.jsonl")
    records = read_records(tmp_path)
    assert len(records) == len(RECORDS)
    assert records[0] == replace(RECORDS[0], superseded=True), "as the first file has it"
    assert [record.superseded for record in records] == [True] + [False] * (len(RECORDS) - 1)


def test_an_absent_path_and_an_empty_folder_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(RecordsError, match="nothing is there; give a store"):
        read_records(tmp_path / "absent")
    with pytest.raises(RecordsError, match="no records in this folder"):
        read_records(tmp_path)


def test_one_bad_file_in_a_folder_is_named(tmp_path: Path) -> None:
    write_lines(RECORDS, tmp_path / "good.jsonl")
    (tmp_path / "worse.jsonl").write_text("garbage\n")
    with pytest.raises(RecordsError, match=r"worse\.jsonl:1:1"):
        read_records(tmp_path)
    (tmp_path / "worse.jsonl").unlink()
    (tmp_path / "worse.sqlite").write_text("garbage\n")
    with pytest.raises(StoreError, match=r"worse\.sqlite"):
        read_records(tmp_path)


def test_the_frame_has_a_row_per_trial_and_the_names_of_the_record(tmp_path: Path) -> None:
    table = load(keep(tmp_path / "a.sqlite"))
    assert len(table) == len(RECORDS)
    flattened = {"cell", "sweep", "phases", "model_state_bytes", "parameters", "peak_flops", "gradient_check", "clocks",
                 "figures"}  # fmt: skip
    assert set(NAMES) - flattened <= set(table.columns)
    assert not flattened & set(table.columns)


def test_mappings_become_columns_and_lists_stay_lists() -> None:
    table = frame(RECORDS)
    number = next(place for place, record in enumerate(RECORDS) if record.arm == "precision=bf16")
    row, record = table.iloc[number], RECORDS[number]
    assert row["cell.precision"] == "bf16"
    assert row["phases.forward"] == record.phases["forward"]
    assert row["parameters.trainable"] == 124_439_808
    assert row["evidence.precision"] == "precision seen"
    assert row["step_seconds"] == record.step_seconds
    assert row["outcome"] == "ok"
    assert row["device"] == "NVIDIA H100 80GB HBM3"
    assert set(table["sweep.sequence_length"].dropna()) == {512, 1024, 2048}


def test_a_figure_that_could_not_be_had_is_nan_in_a_column_of_numbers() -> None:
    failed = CellShape(settings={"batch_size": 4096}, outcome=Outcome.OOM)
    table = frame(make_records([StudyShape(name="batch", cells=(failed,))], rounds=1, environment=CPU))
    assert table["tokens_per_second"].dtype == "float64"
    (failed_speed,) = table[table["arm"] == "batch_size=4096"]["tokens_per_second"].tolist()
    assert math.isnan(failed_speed)
    assert table["mfu"].dtype == "float64"
    assert table["mfu"].isna().all()
    assert set(table["device"]) == {"cpu"}


def test_no_records_make_an_empty_frame_with_its_columns() -> None:
    table = frame([])
    assert len(table) == 0
    assert "tokens_per_second" in table.columns
