"""`claimbench doctor`: a setting runs here where it does with what it needs beside it, and its row says what."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.environment import Environment
from harness.report.doctor import Answer, answers
from harness.techniques.registry import axis_table
from harness.trial.kinds import refusal
from tests.techniques.test_precision import _gpu
from tests.training import cpu

PACKAGES = dict.fromkeys(("torch", "transformers", "peft", "deepspeed", "ninja"), "1.0")
TOOLS = {"nvcc": "/usr/bin/nvcc", "c++": "/usr/bin/c++"}
CPU = replace(cpu(), packages=PACKAGES, tools=TOOLS)
GPU = replace(_gpu((9, 0), packages=PACKAGES), tools=TOOLS)
TWO_GPUS = replace(GPU, devices=GPU.devices * 2)


def row(here: Environment, axis: str, setting: str) -> Answer:
    every = answers(axis_table(), lambda cell: refusal(here, cell, "training"))
    return next(each for each in every if (each.axis, each.setting) == (axis, setting))


@pytest.mark.parametrize(
    ("here", "axis", "setting", "beside"),
    [
        (CPU, "autocast_outside", "on", "with precision=ds-bf16"),
        (CPU, "overlap_comm", "false", "with zero=1"),
        (CPU, "micro_batches", "1 to 1,024", "with parallel=pipeline devices=2"),
        (CPU, "parallel", "pipeline", "with devices=2"),
        (CPU, "lora_targets", "qv", "with lora=8"),
        (GPU, "deepspeed_config", "as-printed", "with zero=2"),
        (TWO_GPUS, "micro_batches", "1 to 1,024", "with parallel=pipeline devices=2"),
        (TWO_GPUS, "parallel", "dp", "with devices=2"),
    ],
)
def test_a_setting_that_needs_another_one_runs_here_with_it(
    here: Environment, axis: str, setting: str, beside: str
) -> None:
    found = row(here, axis, setting)
    assert found.runs
    assert found.note.endswith(f" · {beside}")


@pytest.mark.parametrize(
    ("here", "axis", "setting", "reason"),
    [
        (CPU, "deepspeed_config", "as-printed",
         "deepspeed_config=as-printed asks for fp16, which DeepSpeed trains on a GPU only"),
        (CPU, "parallel", "dp", "parallel=dp copies the model between GPUs and needs two of them; use ddp on a CPU"),
        (CPU, "pin_memory", "true", "pin_memory=true is about copies to a GPU, and there is none here"),
        (GPU, "parallel", "dp", "parallel=dp needs devices to be 2 or more"),
        (replace(CPU, packages={"torch": "1"}), "overlap_comm", "false",
         "overlap_comm=false has no effect without zero; set zero to 1, 2 or 3"),
    ],
)  # fmt: skip
def test_what_is_in_its_way_is_not_the_setting_that_it_needs(
    here: Environment, axis: str, setting: str, reason: str
) -> None:
    found = row(here, axis, setting)
    assert (found.runs, found.note) == (False, reason)
