"""A table of axes of the tests' own (that of DESIGN's page), and a matrix written to a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from harness.errors import MatrixError
from harness.experiment.axes import Axis, AxisTable
from harness.experiment.matrix import Matrix, read_matrix

KINDS = ("training", "loader-only", "estimator")
COMPARING_NOTHING = ("estimator",)

#: The head of most matrices here: five lines, so that `studies:` stands on line 6.
HEAD = """\
schema: 1
rounds: 3
workloads:
  small: {model: tiny, sequence_length: 64, batch_size: 4}
baseline: {precision: fp32}
"""

Read = Callable[[str], Matrix]


def words(name: str, *settings: str | int | bool) -> Axis:
    return Axis(name=name, default=settings[0], settings={each: str(each) for each in settings})


def whole(name: str, default: int, *, least: int = 1, most: int = 1 << 20) -> Axis:
    return Axis(name=name, default=default, number=int, minimum=least, maximum=most)


def make_axes() -> AxisTable:
    """Every axis of the design's table, its settings and defaults."""
    return AxisTable(
        [
            words("precision", "fp32", "tf32", "amp-bf16", "amp-fp16", "bf16", "ds-bf16"),
            words("attention", "sdpa", "eager", "sdpa-flash", "sdpa-efficient", "sdpa-cudnn", "sdpa-math", "flash2"),
            words("checkpointing", "off", "full", "reentrant"),
            words("compile", "off", "default", "reduce-overhead", "max-autotune"),
            words("optimizer", "foreach", "for-loop", "fused"),
            whole("batch_size", 8),
            whole("accumulation", 1),
            whole("sequence_length", 1024),
            words("stream", "parse", "cached", "reopen", "mmap"),
            whole("workers", 0, least=0, most=256),
            whole("prefetch", 2),
            words("pin_memory", False, True),
            words("persistent", False, True),
            words("start", "fork", "spawn"),
            words("non_blocking", False, True),
            words("copy", "plain", "side-stream"),
            Axis(name="cost_per_sample_ms", default=0.0, number=float, maximum=10_000),
            words("batching", "fixed", "padded", "packed", "token-budget"),
            Axis(name="lora", default="off", settings={"off": "none"}, number=int, minimum=1, maximum=1024),
            Axis(name="lora_targets", default="default", settings={"default": "all"}, free_text=True),
            words("quantization", "none", "nf4"),
            words("parallel", "none", "dp", "ddp", "fsdp", "pipeline"),
            whole("devices", 1, most=1024),
            words("zero", "off", 0, 1, 2, 3, "offload"),
            Axis(name="empty_cache", default="off", settings={"off": "never"}, number=int, minimum=1),
            words("monitor", "off", "item", "nvml"),
        ]
    )


@pytest.fixture
def axes() -> AxisTable:
    return make_axes()


@pytest.fixture
def read(tmp_path: Path, axes: AxisTable) -> Read:
    """Write a matrix to `matrix.yaml` and read it."""

    def read_text(text: str) -> Matrix:
        path = tmp_path / "matrix.yaml"
        path.write_text(dedent(text), encoding="utf-8")
        return read_matrix(path, axes, KINDS, COMPARING_NOTHING)

    return read_text


@pytest.fixture
def problems(tmp_path: Path, read: Read) -> Callable[[str], list[str]]:
    """The lines of the error that a matrix gives, with `matrix.yaml` for its whole path."""

    def lines(text: str) -> list[str]:
        with pytest.raises(MatrixError) as caught:
            read(text)
        return str(caught.value).replace(f"{tmp_path}/", "").splitlines()

    return lines
