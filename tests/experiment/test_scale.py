"""The smoke scale keeps the question and shrinks the work."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.experiment import scale
from harness.experiment.plan import make_plan
from harness.experiment.scale import FULL, SMOKE, blocks
from harness.experiment.study import Block
from harness.experiment.workloads import change_problem, contents_of
from harness.report.terminal import scale_note
from tests.experiment.conftest import Read

HEAD = """\
schema: 1
rounds: 6
workloads:
  big: {model: llama-1b, sequence_length: 2048, batch_size: 32}
studies:
"""


def smoke(read: Read, studies: str) -> list[Block]:
    return list(blocks(read(HEAD + studies), SMOKE))


def names(block: Block) -> list[str]:
    return [arm.name for arm in block.arms]


def test_full_is_the_matrix_itself(read: Read) -> None:
    matrix = read(HEAD + "  a: {workload: big, axes: {attention: flash2}}\n")
    assert list(blocks(matrix, FULL)) == list(matrix.blocks())


def test_shapes_rounds_and_steps_are_tiny(read: Read) -> None:
    (block,) = smoke(read, "  a: {workload: big, axes: {attention: flash2}, baseline: {accumulation: 8, devices: 8}}\n")
    cell = block.baseline.cell
    assert (cell.workload.name, cell.workload.model, cell.workload.data) == ("big", "tiny", "stdlib")
    assert [cell[axis] for axis in ("sequence_length", "batch_size", "accumulation", "devices")] == [64, 4, 4, 2]
    assert (block.rounds, block.warmup_steps, block.steps) == (3, 2, 6)


@pytest.fixture
def own_step(tmp_path: Path) -> str:
    (tmp_path / "my.py").write_text("def build(device, settings):\n    return object()\n", encoding="utf-8")
    return HEAD.replace("llama-1b", "my.py:build")


def test_a_training_step_of_the_users_own_stays_with_smaller_sizes(read: Read, own_step: str) -> None:
    (block,) = blocks(read(own_step + "  a: {workload: big, axes: {batch_size: [64]}}\n"), SMOKE)
    assert {arm.cell.workload.model for arm in block.arms} == {"my.py:build"}
    assert [arm.cell["batch_size"] for arm in block.arms] == [2, 2, 4]
    assert block.baseline.cell["sequence_length"] == 64
    assert block.baseline.cell.workload.contents


def test_a_config_of_the_users_own_becomes_tiny(read: Read, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}', encoding="utf-8")
    text = HEAD.replace("llama-1b", "./config.json") + "  a: {workload: big, axes: {attention: flash2}}\n"
    (block,) = blocks(read(text), SMOKE)
    assert block.baseline.cell.workload.model == "tiny"


@pytest.mark.parametrize(("model", "data"), [("config.json", "stdlib"), ("folder", "stdlib"), ("config.json", "d.txt")])
def test_the_files_that_a_smoke_trial_reads_are_those_that_may_not_change(
    read: Read, tmp_path: Path, model: str, data: str
) -> None:
    config = tmp_path / model / "config.json" if model == "folder" else tmp_path / model
    config.parent.mkdir(exist_ok=True)
    config.write_text('{"model_type": "gpt2"}', encoding="utf-8")
    (tmp_path / "d.txt").write_text("some text", encoding="utf-8")
    text = HEAD.replace("{model: llama-1b,", f"{{model: {model}, data: {data},")
    (block,) = blocks(read(text + "  a: {workload: big, axes: {attention: flash2}}\n"), SMOKE)
    workloads = [arm.cell.workload for arm in block.arms]

    def problems() -> set[str | None]:
        return {change_problem(each.model, each.data, Path(each.folder), each.contents) for each in workloads}

    assert problems() == {None}
    config.write_text('{"model_type": "llama"}', encoding="utf-8")
    assert problems() == {None}
    (tmp_path / "d.txt").write_text("another text", encoding="utf-8")
    (problem,) = problems()
    assert (problem is None) == (data == "stdlib")
    assert problem is None or problem.startswith("d.txt was changed while the run went on")


def test_data_of_ones_own_is_read_once_however_many_cells_and_studies_there_are(
    read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "d.txt").write_text("some text", encoding="utf-8")
    text = HEAD.replace("{model: llama-1b,", "{model: llama-1b, data: d.txt,")
    study = "{workload: big, axes: {attention: flash2, batch_size: [8, 64]}, sweep: {sequence_length: [512, 1024]}}"
    matrix, seen = read(f"{text}  a: {study}\n  b: {study}\n"), []

    def counted(model: str, data: str, folder: Path) -> str:
        seen.append(data)
        return contents_of(model, data, folder)

    monkeypatch.setattr(scale, "contents_of", counted)
    assert len(list(blocks(matrix, SMOKE))) == 4
    assert seen == ["d.txt"]


def test_what_is_small_already_stays(read: Read) -> None:
    text = "  a: {workload: big, axes: {batch_size: [2]}, sweep: {sequence_length: [16]}, steps: 4, warmup_steps: 0}\n"
    (block,) = smoke(read, text.replace("[2]", "[2, 64]"))
    assert (block.steps, block.warmup_steps, block.sweep) == (4, 0, {"sequence_length": 16})


def test_the_ends_of_a_sweep_are_kept_in_order(read: Read) -> None:
    up, down = "[512, 1024, 2048, 4096]", "[4096, 2048, 512]"
    study = "  a: {workload: big, axes: {attention: flash2}, sweep: {sequence_length: %s}}\n"
    assert [block.sweep for block in smoke(read, study % up)] == [{"sequence_length": 32}, {"sequence_length": 64}]
    assert [block.sweep for block in smoke(read, study % down)] == [{"sequence_length": 64}, {"sequence_length": 32}]


def test_of_several_swept_axes_the_first_and_the_last_point_are_kept(read: Read) -> None:
    sweep = "{sequence_length: [512, 1024], batch_size: [8, 16, 32]}"
    every = smoke(read, f"  a: {{workload: big, axes: {{attention: flash2}}, sweep: {sweep}}}\n")
    assert [block.sweep for block in every] == [
        {"sequence_length": 32, "batch_size": 2},
        {"sequence_length": 64, "batch_size": 4},
    ]


def test_of_a_sweep_over_models_one_point_is_left_for_every_other_axis(read: Read) -> None:
    study = "  a: {workload: big, axes: {attention: flash2}, sweep: %s}\n"
    assert [block.sweep for block in smoke(read, study % "{model: [llama-1b, gpt2-124m]}")] == [{"model": "tiny"}]
    both = smoke(read, study % "{model: [llama-1b, gpt2-124m], batch_size: [8, 16]}")
    assert [block.sweep for block in both] == [{"model": "tiny", "batch_size": 2}, {"model": "tiny", "batch_size": 4}]
    assert {arm.cell.workload.model for block in both for arm in block.arms} == {"tiny"}


@pytest.mark.parametrize(
    ("axis", "settings", "expected"),
    [
        ("batch_size", "[64, 128, 256]", ["batch_size=2", "batch_size=4"]),  # the baseline's 32 becomes 1
        ("workers", "[4, 8]", ["workers=1", "workers=2"]),
        ("workers", "[1, 16]", ["workers=1", "workers=2"]),
        ("accumulation", "[2, 4]", ["accumulation=2", "accumulation=4"]),
        ("accumulation", "[4, 32]", ["accumulation=2", "accumulation=4"]),
        ("cost_per_sample_ms", "[1, 20]", ["cost_per_sample_ms=1.0", "cost_per_sample_ms=5.0"]),
        ("devices", "[2, 4, 8]", ["devices=2"]),  # 4 devices would be the same cell
        ("lora", "[8, 64]", ["lora=8", "lora=64"]),
    ],
)
def test_different_numbers_stay_different_and_in_order(
    read: Read, axis: str, settings: str, expected: list[str]
) -> None:
    (block,) = smoke(read, f"  a: {{workload: big, axes: {{{axis}: {settings}}}}}\n")
    assert names(block)[2:] == expected


def test_a_study_keeps_its_first_cells(read: Read) -> None:
    axes = "precision: [bf16, tf32, amp-bf16], attention: [flash2, eager, sdpa-math], checkpointing: [full, reentrant]"
    one, every, stack = smoke(
        read,
        f"  one: {{workload: big, axes: {{{axes}}}}}\n"
        f"  every: {{workload: big, design: factorial, axes: {{{axes}}}}}\n"
        f"  stack: {{workload: big, design: cumulative, axes: {{{axes}}}}}\n",
    )
    assert names(one)[2:] == [
        "precision=bf16", "precision=tf32", "attention=flash2", "attention=eager", "checkpointing=full",
        "checkpointing=reentrant",
    ]  # fmt: skip
    assert names(every)[2:] == [
        "checkpointing=full", "checkpointing=reentrant", "attention=flash2", "attention=flash2 checkpointing=full",
    ]  # fmt: skip
    assert names(stack)[2:] == ["precision=bf16", "precision=tf32", "precision=amp-bf16"]


def test_combinations_are_kept_beside_the_design(read: Read) -> None:
    text = """\
  a:
    workload: big
    design: cumulative
    axes: {precision: bf16, attention: flash2, checkpointing: full, optimizer: fused}
    combinations: [{checkpointing: full, batch_size: 64}, {attention: eager}, {attention: sdpa-math}]
"""
    (block,) = smoke(read, text)
    assert names(block)[2:] == [
        "precision=bf16",
        "precision=bf16 attention=flash2",
        "precision=bf16 attention=flash2 checkpointing=full",
        "checkpointing=full batch_size=4",
        "attention=eager",
    ]
    assert block.baseline.cell["batch_size"] == 2


def test_one_cell_in_all_is_compiled_and_in_the_default_mode_if_there_is_one(read: Read) -> None:
    text = """\
  first: {workload: big, axes: {compile: [reduce-overhead, max-autotune], attention: eager}}
  second:
    workload: big
    axes: {compile: default, attention: eager}
    sweep: {sequence_length: [512, 1024]}
  third: {workload: big, baseline: {compile: default}, axes: {attention: eager}}
  stack: {workload: big, design: leave-one-out, axes: {compile: default, attention: eager, precision: bf16}}
  nothing: {workload: big, axes: {compile: default}}
"""
    every = smoke(read, text)
    compiled = [arm.cell["compile"] for block in every for arm in block.arms if arm.cell["compile"] != "off"]
    assert compiled == ["default"]
    assert [(block.study, names(block)[2:]) for block in every] == [
        ("first", ["attention=eager"]),
        ("second", ["compile=default", "attention=eager"]),
        ("second", ["attention=eager"]),
        ("third", ["attention=eager"]),
        ("stack", ["stack", "stack less attention"]),
    ]


def test_a_study_can_stay_out(read: Read) -> None:
    text = "  a: {workload: big, axes: {attention: flash2}, smoke: false}\n  b: {workload: big, kind: estimator}\n"
    (block,) = smoke(read, text)
    assert (block.study, names(block)) == ("b", ["baseline"])


def test_what_is_left_out_is_said(read: Read) -> None:
    """Two studies of compilation: one cell alone is compiled, and the other study vanished without a word."""
    compiled = "workload: big, axes: {compile: [default]}"
    swept = "workload: big, axes: {batch_size: [64, 16, 8]}, sweep: {sequence_length: [512, 1024, 2048]}"
    matrix = read(HEAD + f"  three: {{{compiled}}}\n  four: {{{compiled}}}\n  sizes: {{{swept}}}\n")
    # 1 + 1 + 3·3 cells, of which 1 + 0 + 2·2 are left
    plan = make_plan(matrix, lambda cell, kind: None, SMOKE)
    assert plan.left_out == "left out at this scale: 1 of 3 studies (four), 6 of 11 cells"
    assert list(scale_note(plan))[1:] == [plan.left_out]
    assert make_plan(matrix, lambda cell, kind: None, FULL).left_out == ""
    small = read(HEAD + "  a: {workload: big, axes: {attention: flash2}}\n")
    assert len(list(scale_note(make_plan(small, lambda cell, kind: None, SMOKE)))) == 1
