"""A model file that a matrix names is looked at before anything is launched: it must be a shape, no more."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.errors import WorkloadError
from harness.experiment.designs import blocks_of
from harness.experiment.workloads import contents_of
from harness.trial.shapes import read_shape
from tests.experiment.conftest import HEAD, Read

MATRIX = HEAD.replace("tiny", "shape/config.json") + "studies: {a: {workload: small, axes: {attention: flash2}}}\n"

GOOD = {"model_type": "qwen2", "hidden_size": 64}

REFUSED = {
    "code beside it": ({**GOOD, "auto_map": {"AutoModel": "model.Model"}}, "`auto_map` names code to run, which is"),
    "code of somebody's": ({**GOOD, "auto_map": {"AutoModel": "owner/name--model.M"}}, "`auto_map` names code to run"),
    "code of a part": ({**GOOD, "text_config": {"auto_map": {"AutoModel": "m.M"}}}, "`auto_map` names code to run"),
    "a kernel from elsewhere": (
        {**GOOD, "vision": [{"attn_implementation": "owner/kernel"}]}, "`attn_implementation` names code to run",
    ),
    "no model type": ({"hidden_size": 64}, "no `model_type`; it must be a transformers configuration"),
    "a list": ([GOOD], "no `model_type`"),
    "a number for a type": ({"model_type": 7}, "no `model_type`"),
}  # fmt: skip

UNREADABLE = {
    "not JSON": b"{'model_type': 1}",
    "cut short": b'{"model_type": "qwen2", ',
    "not text": b"\xff\xfe\x00",
    "nested without end": b"[" * 200_000,
}


@pytest.fixture
def shape(tmp_path: Path) -> Path:
    path = tmp_path / "shape" / "config.json"
    path.parent.mkdir()
    return path


@pytest.mark.parametrize("name", REFUSED)
def test_a_configuration_that_cannot_be_used(problems: Callable[[str], list[str]], shape: Path, name: str) -> None:
    content, sentence = REFUSED[name]
    shape.write_text(json.dumps(content))
    (line,) = problems(MATRIX)
    assert line.startswith("matrix.yaml:4:18: model 'shape/config.json': shape/config.json: ")
    assert sentence in line
    with pytest.raises(WorkloadError, match=sentence.split("`")[1]):
        read_shape(str(shape))


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_file_that_is_no_configuration(problems: Callable[[str], list[str]], shape: Path, name: str) -> None:
    shape.write_bytes(UNREADABLE[name])
    (line,) = problems(MATRIX)
    assert line.startswith("matrix.yaml:4:18: model 'shape/config.json': shape/config.json: it cannot be read as JSON")
    with pytest.raises(WorkloadError, match="cannot be read as JSON"):
        read_shape(str(shape.parent))


def test_a_file_of_endless_values_is_not_read_whole(problems: Callable[[str], list[str]], shape: Path) -> None:
    shape.write_text(json.dumps({**GOOD, "more": "x" * (2 << 20)}))
    (line,) = problems(MATRIX)
    assert line.endswith("it is larger than 1 MiB, which no configuration is")


def test_another_kind_of_file_is_no_model(problems: Callable[[str], list[str]], tmp_path: Path, shape: Path) -> None:
    shape.write_text(json.dumps(GOOD))
    (tmp_path / "shape" / "weights.bin").write_bytes(b"\x80\x04.")
    (line,) = problems(MATRIX.replace("config.json", "weights.bin"))
    assert line == (
        "matrix.yaml:4:18: model 'shape/weights.bin': shape/weights.bin is no config.json; give one, or a folder that "
        "has one, or file.py:build"
    )
    assert read_shape(str(shape)).model_type == "qwen2"


def test_a_file_that_was_edited_is_another_workload(read: Read, tmp_path: Path, shape: Path) -> None:
    """The store finds trials by these keys: rounds of two models must never stand in one block."""
    text = MATRIX.replace("{model: shape/config.json", "{model: shape/config.json, data: texts.txt")

    def key() -> str:
        (study,) = read(text).studies
        return next(iter(blocks_of(study))).key

    shape.write_text(json.dumps(GOOD))
    (tmp_path / "texts.txt").write_text("one\n")
    first, cell = key(), read(text).studies[0].baseline.key
    assert key() == first
    shape.touch()
    assert key() == first, "when a file was written says nothing of what it holds"
    shape.write_text(json.dumps({**GOOD, "num_hidden_layers": 12}))
    second = key()
    assert second != first
    (tmp_path / "texts.txt").write_text("two\n")
    assert key() not in {first, second}
    assert read(text).studies[0].baseline.key == cell, "`compare` holds a cell before an edit against it after"


def test_a_folder_counts_by_its_configuration_and_the_sizes_of_its_files(tmp_path: Path, shape: Path) -> None:
    shape.write_text(json.dumps(GOOD))
    weights = shape.parent / "model.safetensors"
    found = set()
    for content in (b"", b"12", b"123"):
        weights.write_bytes(content)
        found.add(contents_of("shape", "stdlib", tmp_path))
    assert len(found) == 3
    weights.write_bytes(b"456")
    assert contents_of("shape", "stdlib", tmp_path) in found


def test_what_is_built_in_has_no_contents(tmp_path: Path) -> None:
    assert contents_of("tiny", "stdlib", tmp_path) == ""


def test_a_large_file_counts_by_its_size_and_its_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.experiment.workloads.SAMPLED_BYTES", 8)
    data, found = tmp_path / "texts.txt", []
    for text in (
        "abcd__________efgh",
        "abcd---------efgh!",
        "Xbcd__________efgh",
        "abcd__________efgX",
        "abcd__----____efgh",
    ):
        data.write_text(text)
        found.append(contents_of("tiny", "texts.txt", tmp_path))
    assert len(set(found)) == 4
    assert found[0] == found[4], "the middle of a file beyond 256 MiB is not read"


def test_a_step_whose_file_has_no_such_function(problems: Callable[[str], list[str]], tmp_path: Path) -> None:
    (tmp_path / "my.py").write_text("def build(device, settings): ...\n", encoding="utf-8")
    assert problems(MATRIX.replace("shape/config.json", "my.py:bild")) == [
        "matrix.yaml:4:18: model 'my.py:bild': it has no function 'bild'; did you mean 'build'?"
    ]
