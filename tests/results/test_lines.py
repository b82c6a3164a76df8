"""JSON lines: equal records are equal bytes, and a bad line is one sentence with its place."""

import gzip
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.errors import RecordsError
from harness.results.lines import ordered, read_lines, write_lines
from harness.results.load import import_records
from harness.results.record import RECORD_SCHEMA
from harness.results.store import Store
from tests.records import make_records

RECORDS = make_records(rounds=2)
LINES = [record.as_text() for record in RECORDS[:5]]


@pytest.mark.parametrize("name", ["evidence.jsonl", "evidence.jsonl.gz"])
def test_what_is_written_is_read_back_in_the_order_of_the_run(tmp_path: Path, name: str) -> None:
    path = tmp_path / "new" / name
    assert write_lines(reversed(RECORDS), path) == len(RECORDS)
    assert read_lines(path) == ordered(RECORDS)
    in_a_round = [each.position for each in read_lines(path) if each.study == "precision" and each.round == 2]
    assert in_a_round == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("name", ["evidence.jsonl", "evidence.jsonl.gz"])
def test_equal_records_are_equal_bytes(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write_lines(RECORDS, tmp_path / "one" / name)
    monkeypatch.setattr("time.time", lambda: 4_000_000_000.0)  # gzip would note the time
    write_lines(reversed(RECORDS), tmp_path / "two" / f"other-{name}")
    assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / f"other-{name}").read_bytes()


def test_one_record_a_line_with_sorted_names(tmp_path: Path) -> None:
    path = tmp_path / "evidence.jsonl"
    write_lines(RECORDS, path)
    lines = path.read_text().splitlines()
    assert len(lines) == len(RECORDS)
    assert all(list(json.loads(line)) == sorted(json.loads(line)) for line in lines)


def test_losses_that_are_not_finite_survive(tmp_path: Path) -> None:
    path = tmp_path / "evidence.jsonl"
    write_lines([replace(RECORDS[0], losses=[1.0, math.nan, math.inf, -math.inf])], path)
    assert "NaN" not in path.read_text()
    assert "Infinity" not in path.read_text()
    (back,) = read_lines(path)
    assert repr(back.losses) == "[1.0, nan, inf, -inf]"


def test_a_word_that_reads_like_a_number_stays_a_word(tmp_path: Path) -> None:
    path = tmp_path / "evidence.jsonl"
    record = replace(RECORDS[0], losses=[math.inf], reason="nan", study="inf", arm="-inf")
    write_lines([record], path)
    assert read_lines(path) == [record]


def test_text_of_other_languages_stays_readable(tmp_path: Path) -> None:
    path = tmp_path / "evidence.jsonl"
    write_lines([replace(RECORDS[0], reason="显存不足\nsecond line")], path)
    assert "显存不足" in path.read_text(encoding="utf-8")
    assert read_lines(path)[0].reason == "显存不足\nsecond line"


def test_blank_lines_are_no_records(tmp_path: Path) -> None:
    path = tmp_path / "evidence.jsonl"
    path.write_text(f"\n{LINES[0]}\n  \n{LINES[1]}\n\n")
    assert read_lines(path) == RECORDS[:2]


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file, not a folder")
    with pytest.raises(RecordsError, match="cannot be written"):
        write_lines(RECORDS, tmp_path / "taken" / "evidence.jsonl")
    assert [each.name for each in tmp_path.iterdir()] == ["taken"]


def changed(**fields: Any) -> str:
    return json.dumps({**json.loads(LINES[2]), **fields})


def without(name: str) -> str:
    return json.dumps({key: value for key, value in json.loads(LINES[2]).items() if key != name})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        pytest.param(LINES[2][:200], "not JSON at column", id="cut short in the middle of the file"),
        pytest.param("garbage", "not JSON at column 1", id="garbage"),
        pytest.param("[1, 2]", "a record is a JSON object, not list", id="a list"),
        pytest.param("null", "a record is a JSON object, not NoneType", id="null"),
        pytest.param('"nan"', "a record is a JSON object, not str", id="a word"),
        pytest.param("{}", "study", id="an empty object"),
        pytest.param("[" * 100_000, "remove the line", id="nested without end"),
        pytest.param(without("outcome"), "outcome", id="no outcome"),
        pytest.param(changed(outcome="fine"), "outcome: .*'ok'.*found 'fine'", id="an unknown outcome"),
        pytest.param(changed(round="two"), "round: .*integer, found 'two'", id="text for a number"),
        pytest.param(changed(round=True), "round: .*found True", id="true for a number"),
        pytest.param(changed(study=7), "study: .*string, found 7", id="a number for text"),
        pytest.param(changed(tokens_per_second="12"), "tokens_per_second: .*number, found '12'", id="a number as text"),
        pytest.param(changed(losses=[1.0, "x"]), r"losses\.1: .*number, found 'x'", id="text among numbers"),
        pytest.param(changed(losses=["nan", "x"]), r"losses\.1: .*number, found 'x'", id="text beside NaN"),
        pytest.param(changed(step_seconds=None), "step_seconds: .*found None", id="null for a list"),
        pytest.param(changed(cell=[]), "cell: .*found", id="a list for a mapping"),
        pytest.param(changed(round=1 << 70), "round: .*from 0 to 9223372036854775807", id="a round beyond counting"),
        pytest.param(changed(attempt=-1), "attempt: .*from 0 to", id="a try before the first"),
        pytest.param(changed(tokens_per_second=-1.0), "tokens_per_second: .*not be negative, found -1", id="backwards"),
        pytest.param(changed(step_seconds=[0.1, -0.1]), "step_seconds: .*not be negative", id="a step backwards"),
        pytest.param(changed(environment={"devices": 8}), "environment.devices: .*list of objects", id="no devices"),
        pytest.param(changed(environment={"devices": [{}]}), r"devices\.0: .*have a name", id="a nameless device"),
        pytest.param(changed(environment={"packages": ["torch"]}), "packages: .*an object", id="no packages"),
        pytest.param(changed(clocks={"foreign": 3}), "clocks.foreign: .*list of objects", id="no processes"),
        pytest.param(changed(evidence={"lora": {"facts": 3}}), "evidence.lora.facts: .*object", id="no facts"),
        pytest.param(changed(evidence={"lora": "yes"}), "evidence.lora: .*found 'yes'", id="no evidence"),
        pytest.param(changed(schema=RECORD_SCHEMA + 1), "newer claimbench.*upgrade", id="a newer schema"),
        pytest.param(
            changed(schema=RECORD_SCHEMA + 1, losses="none"), "newer claimbench.*upgrade", id="newer, other types"
        ),
    ],
)
def test_a_bad_line_is_one_sentence_with_its_place_and_nothing_is_imported(
    tmp_path: Path, line: str, message: str
) -> None:
    path = tmp_path / "evidence.jsonl"
    path.write_text("\n".join([*LINES[:2], line, *LINES[3:]]) + "\n")
    with Store.open(tmp_path / "store.sqlite", writable=True) as store:
        with pytest.raises(RecordsError, match=message) as caught:
            import_records(path, store)
        assert str(caught.value).startswith(f"{path}:3:1: ")
        assert "\n" not in str(caught.value)
        assert store.count() == 0


def test_a_last_line_cut_short_says_that_the_file_was(tmp_path: Path) -> None:
    path = tmp_path / "evidence.jsonl"
    path.write_text("\n".join(LINES)[:-50])
    with pytest.raises(RecordsError, match=r":5:1: not JSON at column \d+ and the file ends there: it was cut short"):
        read_lines(path)


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def damaged(content: bytes) -> bytes:
    return content[:-8] + bytes(4) + content[-4:]


@pytest.mark.parametrize("spoil", [cut, damaged])
def test_a_spoilt_gzip_file_is_one_sentence(tmp_path: Path, spoil: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "evidence.jsonl.gz"
    write_lines(RECORDS, path)
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(RecordsError, match=r"evidence\.jsonl\.gz:\d+:1: the gzip file is damaged or cut short"):
        read_lines(path)


def test_bytes_that_are_no_text_are_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "evidence.jsonl"
    path.write_bytes(LINES[0].encode() + b"\n\xff\xfe\x00binary\n")
    with pytest.raises(RecordsError, match="not text in UTF-8"):
        read_lines(path)


def test_gzip_is_told_by_its_content_not_its_name(tmp_path: Path) -> None:
    path = tmp_path / "evidence.jsonl"
    path.write_bytes(gzip.compress("\n".join(LINES).encode()))
    assert read_lines(path) == RECORDS[:5]


def test_an_import_of_the_same_file_twice_doubles_nothing(tmp_path: Path) -> None:
    path = tmp_path / "evidence.jsonl.gz"
    write_lines(RECORDS, path)
    with Store.open(tmp_path / "store.sqlite", writable=True) as store:
        assert import_records(path, store) == (len(RECORDS), 0)
        assert import_records(path, store) == (0, len(RECORDS))
        assert list(store.records()) == ordered(RECORDS)


def test_export_and_import_are_a_round_trip_with_superseded_trials(tmp_path: Path) -> None:
    with Store.open(tmp_path / "one.sqlite", writable=True) as store:
        store.add_all(RECORDS)
        store.supersede(RECORDS[0].block, RECORDS[0].round, RECORDS[0].fingerprint)
        write_lines(store.records(), tmp_path / "one.jsonl")
    with Store.open(tmp_path / "two.sqlite", writable=True) as store:
        import_records(tmp_path / "one.jsonl", store)
        write_lines(store.records(), tmp_path / "two.jsonl")
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "two.jsonl").read_bytes()
    assert sum(record.superseded for record in read_lines(tmp_path / "two.jsonl")) == 5
