"""The YAML reader: values with places, and one error with a place for whatever cannot be read."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from harness.errors import ClaimsError, MatrixError
from harness.experiment.reader import LARGEST_FILE_BYTES, parse_document, read_document


def error_of(content: bytes) -> str:
    with pytest.raises(MatrixError) as caught:
        parse_document(content, "m.yaml")
    return str(caught.value)


def test_values_are_those_of_yaml_1_2() -> None:
    content = b"{a: off, b: yes, c: true, d: 8, e: 1.5, f: '8', g: null, h: 2024-01-01, i: 1:30, j: 0x10, k: ''}"
    assert parse_document(content, "m.yaml").plain() == {
        "a": "off", "b": "yes", "c": True, "d": 8, "e": 1.5, "f": "8", "g": None, "h": "2024-01-01", "i": "1:30",
        "j": 16, "k": "",
    }  # fmt: skip


def test_every_key_and_value_has_its_place() -> None:
    document = parse_document(b"studies:\n  first:\n    axes: {attention: [eager, flash2]}\n", "m.yaml")
    path = ["studies", "first", "axes", "attention"]
    assert str(document.place(path, key=True)) == "m.yaml:3:12"
    assert str(document.place(path)) == "m.yaml:3:23"
    assert str(document.place([*path, 1])) == "m.yaml:3:31"


def test_the_place_of_what_is_not_there_is_that_of_what_it_should_stand_in() -> None:
    document = parse_document(b"studies:\n  first: {workload: x}\n", "m.yaml")
    assert str(document.place(["studies", "first", "axes"], key=True)) == "m.yaml:2:3"


def test_aliases_are_read_and_their_place_is_where_the_value_stands() -> None:
    document = parse_document(b"a: &x [1, 2]\nb: *x\n", "m.yaml")
    assert document.plain() == {"a": [1, 2], "b": [1, 2]}
    assert str(document.place(["b", 1])) == "m.yaml:1:11"


def test_a_byte_order_mark_is_passed_over() -> None:
    assert parse_document(b"\xef\xbb\xbfa: 1\n", "m.yaml").plain() == {"a": 1}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: 1\nb:\n  c: 1\n  c: 2\n", "m.yaml:4:3: duplicate key 'c' (first on line 3)"),
        (b"a: [1\nb: 2\n", "m.yaml:2:2: this is not YAML"),
        (b"a: b: c\n", "m.yaml:1:5: this is not YAML"),
        (b"a:\n\t- b\n", "m.yaml:2:1: this is not YAML"),
        (b'a: "x\n', "m.yaml:2:1: this is not YAML"),
        (b'a: "\\UFFFFFFFF"\n', "m.yaml:1:2: this is not YAML"),
        (b"- a\n- b\n", "m.yaml:1:1: the file must be a mapping (`key: value` lines), not a list"),
        (b"hello\n", "m.yaml:1:1: the file must be a mapping (`key: value` lines), not a single value"),
        (b"", "m.yaml: the file is empty"),
        (b"# a comment\n", "m.yaml: the file is empty"),
        (b"a: 1\n---\nb: 2\n", "m.yaml:2:1: a second document begins here"),
        (b"%YAML 1.1\n---\na: off\n", "m.yaml:2:1: only YAML 1.2 is read"),
        (b"a: 1\nb: \xff\n", "m.yaml:2:4: the file is not UTF-8"),
        ("a: b".encode("utf-16"), "m.yaml:1:1: the file is not UTF-8"),
        (b"a: b\x00\n", "m.yaml:1:5: character #x0000 may not stand in YAML"),
        (b'a: "\\e[2J"\n', "m.yaml:1:4: control characters are not read"),
        (b'a: "\\ud800"\n', "m.yaml:1:4: control characters are not read"),
        (b"a: !!python/object/apply:os.system [ls]\n", "m.yaml:1:4: the tag 'tag:yaml.org,2002:python/object/apply"),
        (b"a: !mine b\n", "m.yaml:1:4: the tag '!mine' is not read here"),
        (b"a: &x [*x]\n", "m.yaml:1:8: the alias *x stands inside its own anchor"),
        (b"a: *x\n", "m.yaml:1:4: the alias *x has no anchor"),
        (b"a: &x {b: 1}\nc: {<<: *x}\n", "m.yaml:2:5: merge keys (`<<`) are not read here"),
        (b"? [a]\n: b\n", "m.yaml:1:3: a key must be a word"),
        (b"a: .nan\n", "m.yaml:1:4: infinity and not-a-number"),
        (b"a: 99999999999999999999\n", "m.yaml:1:4: this number is too large"),
        (b"a: -99999999999999999999\n", "m.yaml:1:4: this number is too large"),
        (b"a: " + b"9" * 5000, "m.yaml:1:4: this number cannot be read"),
        (b"[" * 100, "m.yaml:1:41: nested more than 40 levels deep"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_one_error_with_its_place(content: bytes, message: str) -> None:
    assert error_of(content).startswith(message)


def test_two_duplicate_keys_are_a_line_each() -> None:
    assert [line.split(";")[0] for line in error_of(b"a: 1\na: 2\nb: 1\nb: 2\n").splitlines()] == [
        "m.yaml:2:1: duplicate key 'a' (first on line 1)",
        "m.yaml:4:1: duplicate key 'b' (first on line 3)",
    ]


def test_a_billion_laughs_are_refused_at_once() -> None:
    lines = ["l0: &l0 [ha, ha, ha, ha, ha, ha, ha, ha, ha, ha]"]
    lines += [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 10)]
    start = time.process_time()
    assert "more than 100,000 values" in error_of("\n".join(lines).encode())
    assert time.process_time() - start < 1


def test_aliases_do_not_nest_deeper_than_what_is_written_out() -> None:
    lines = ["l0: &l0 [x]", *(f"l{n}: &l{n} [*l{n - 1}]" for n in range(1, 60))]
    assert "aliases nest this more than 40 levels deep" in error_of("\n".join(lines).encode())


def test_a_file_that_is_too_large_is_not_parsed() -> None:
    assert error_of(b"#" * (LARGEST_FILE_BYTES + 1)).startswith("m.yaml: the file is larger than 1 MiB")


def test_a_file_of_endless_values_is_given_up() -> None:
    assert "more than 100,000 values" in error_of(b"a: [" + b"1," * 100_000 + b"1]")


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(MatrixError, match=r"no\.yaml: there is no such file"):
        read_document(tmp_path / "no.yaml")
    with pytest.raises(MatrixError, match="the file cannot be read"):
        read_document(tmp_path)
    with pytest.raises(MatrixError, match="the file cannot be read"):
        read_document("no\0name")


def test_the_class_of_the_error_is_the_callers() -> None:
    with pytest.raises(ClaimsError, match=r"claims\.yaml:1:1"):
        parse_document(b"- a", "claims.yaml", ClaimsError)
