"""Real trials of any kind in the test's own process, on the CPU, in the smallest shapes."""

from __future__ import annotations

import inspect
import json
import signal
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from harness.environment import Device, Environment, detect
from harness.experiment.axes import Setting
from harness.experiment.cell import Cell, Workload
from harness.techniques.registry import axis_table, refusal, techniques
from harness.trial.spec import TrialResult, TrialSpec

#: A sample of 64 tokens, 2 in a batch: a step of the tiny model takes milliseconds.
SMALL: Mapping[str, Setting] = {"sequence_length": 64, "batch_size": 2, "stream": "cached"}


@cache
def cpu() -> Environment:
    """This machine without its GPUs."""
    return replace(detect(), devices=())


def gpus(count: int) -> Environment:
    """This machine as if it had so many H100s."""
    device = Device(index=0, name="NVIDIA H100", uuid="GPU-0", memory_bytes=80 << 30, compute_capability=(9, 0))
    return replace(cpu(), devices=tuple(replace(device, index=index) for index in range(count)))


def settings(**changes: Setting) -> dict[str, Setting]:
    """Every axis: its default, `SMALL`, then `changes` as a matrix would state them."""
    table = axis_table()
    return {**table.defaults(), **SMALL, **{axis: table.parse(axis, value) for axis, value in changes.items()}}


def cell(**changes: Setting) -> Cell:
    """The same as a cell of the tiny model."""
    workload = Workload(name="small", model="tiny", data="stdlib")
    return Cell(
        workload=workload, settings=settings(**changes), defaults=axis_table().defaults(), shared=settings()
    )  # fmt: skip


def refused(environment: Environment | None = None, **changes: Setting) -> str | None:
    """Why a cell cannot run on this machine's CPU (or in another environment); None when it can."""
    return refusal(environment or cpu(), cell(**changes))


def active(**changes: Setting) -> set[str]:
    """The first axis of each technique that a cell asks for."""
    return {each.axes[0].name for each in techniques() if each.active(cell(**changes))}


@cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="claimbench-tests-")  # removed when the interpreter ends


@cache
def workplace() -> Path:
    """A folder of this test session, with a text to train on: documents of uneven length."""
    folder = Path(_temporary().name)
    texts = [inspect.getsource(module) for module in (json.decoder, json.encoder, inspect)]
    pieces = [piece for text in texts for piece in text.split("\n\n") if piece.strip()]
    lines = "\n".join(json.dumps({"text": piece}) for piece in pieces)
    (folder / "text.jsonl").write_text(lines, encoding="utf-8")
    return folder


def spec_of(
    kind: str = "training", *, model: str = "tiny", seed: int = 7, warmup_steps: int = 2, steps: int = 3,
    gradient_check: bool = False, options: Mapping[str, Any] | None = None, **changes: Setting,
) -> TrialSpec:  # fmt: skip
    """What a trial of these settings would be told."""
    folder = workplace()
    return TrialSpec(
        trial_id="test", kind=kind, model=model, data=str(folder / "text.jsonl"), settings=settings(**changes),
        baseline_settings=settings(), seed=seed, warmup_steps=warmup_steps, steps=steps, device="cpu",
        record_path=str(folder / "result.json"), cache_directory=str(folder / "cache"),
        data_directory=str(folder / "data"), gradient_check=gradient_check, options=options or {},
    )  # fmt: skip


def run_trial(kind: str = "training", **details: Any) -> TrialResult:
    """Run one trial here and give its result as the parent would read it (through JSON).

    Args:
        kind: of the trial.
        details: settings by axis, and `model`, `seed`, `warmup_steps`, `steps`, `gradient_check`, `options`.
    """
    return run_spec(spec_of(kind, **details))


def run_spec(spec: TrialSpec) -> TrialResult:
    """The same for a spec that is there already."""
    import torch

    from harness.trial import ranks as group
    from harness.trial.ranks import Ranks
    from harness.trial.worker import outcome_of

    torch.set_num_threads(1)  # two threads of a tiny model wait for each other more than they compute
    _forget_compilation()
    heard = signal.getsignal(signal.SIGCHLD)  # a trial that fails hears of its children no more
    try:
        result = outcome_of(spec, Ranks(), cpu())
    finally:
        signal.signal(signal.SIGCHLD, heard or signal.SIG_DFL)
        group.disconnect()
        _end_loader_workers()
        torch.set_float32_matmul_precision("highest")
        _forget_compilation()
    result.write(Path(spec.record_path))
    return TrialResult.read(Path(spec.record_path))


def masks_in_graphs(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Compile no more than graphs, and note the mask of each SDPA in them: None, or a node that makes one."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    masks: list[object] = []

    def backend(module: torch.fx.GraphModule, _: object) -> Callable[..., Any]:
        calls = [node for node in module.graph.nodes if node.target is scaled_dot_product_attention]
        masks.extend(node.kwargs["attn_mask"] for node in calls)
        return module.forward

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    return masks


def _end_loader_workers() -> None:
    """A trial ends with its process, and its workers with it; tests share one. Left to the garbage collector, which
    closes the queues of a cycle before it ends the iterator that tells its workers by them, each costs five seconds."""
    import gc
    import multiprocessing

    from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

    if multiprocessing.active_children():
        for each in gc.get_objects():
            if type(each) is _MultiProcessingDataLoaderIter:
                each._shutdown_workers()


def _forget_compilation() -> None:
    """A trial has a process of its own and so finds torch.compile's counters at zero; tests share one."""
    import sys

    if "torch._dynamo.utils" in sys.modules:
        import torch

        torch._dynamo.reset()
        sys.modules["torch._dynamo.utils"].counters.clear()
