"""Trials of several gloo ranks, through the launcher as in a run: a zygote that forks a process a rank.

`options["sabotage"]` names what the children shall set without putting it into effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from harness.trial import preload
from harness.trial.launch import Finished, LocalLauncher
from harness.trial.ranks import processes_of
from harness.trial.spec import TrialResult, TrialSpec
from tests.training import spec_of

ENTRY = "tests.techniques.ranks:main"
#: Long enough for eight ranks on two busy cores; a test that hangs ends all the same.
WALL_LIMIT_SECONDS = 240


class Ranks:
    """Runs trials of several ranks and keeps their results: the same trial is run once.

    Those of DeepSpeed have a zygote of their own, that has imported it; `launcher` starts the others.
    """

    def __init__(self, folder: Path, launcher: LocalLauncher) -> None:
        self._folder = folder
        self._launcher = launcher
        self._with_deepspeed = LocalLauncher(gpu=False, modules=preload.modules_for([{"zero": 1}]), log=folder / "log")
        self._on_gpus = LocalLauncher(gpu=True, modules=preload.modules_for([{"zero": 1}]), log=folder / "gpu-log")
        self._results: dict[str, Finished] = {}

    def __call__(self, *, sabotage: str = "", **details: Any) -> TrialResult:
        """The result of a trial, one rank a device. `tests.training.spec_of` says what `details` may hold.

        Raises:
            AssertionError: the children wrote no result.
        """
        finished = self.finished(sabotage=sabotage, **details)
        assert finished.result is not None, f"{finished.outcome}: {finished.reason}"
        return finished.result

    def finished(self, *, sabotage: str = "", **details: Any) -> Finished:
        """How the trial ended, whatever it wrote."""
        spec = self.spec(sabotage=sabotage, **details)
        its_own = "deepspeed" in preload.modules_for([spec.settings])
        launcher = self._with_deepspeed if its_own else self._launcher
        with mock.patch.object(launcher, "entry", ENTRY):
            return self._once(launcher, spec, sabotage, details)

    def on_gpus(self, **details: Any) -> Finished:
        """The trial on this machine's GPUs."""
        return self._once(self._on_gpus, replace(self.spec(**details), device="cuda"), "", details)

    def _once(self, launcher: LocalLauncher, spec: TrialSpec, sabotage: str, details: Mapping[str, Any]) -> Finished:
        """What the trial gave when it was run first."""
        key = repr((spec.device, sabotage, sorted(details.items())))
        if key not in self._results:
            self._results[key] = launcher.run(
                spec, ranks=processes_of(spec.settings), wall_limit_seconds=WALL_LIMIT_SECONDS, environment={}
            )
        return self._results[key]

    def spec(self, *, sabotage: str = "", **details: Any) -> TrialSpec:
        folder = self._folder / f"trial{len(self._results)}"
        spec = spec_of(options={"sabotage": sabotage}, **details)
        return replace(spec, record_path=str(folder / "result.json"), cache_directory=str(folder / "cache"))

    def close(self) -> None:
        self._with_deepspeed.close()
        self._on_gpus.close()


def main(spec_path: Path) -> int:
    """What a child calls: the real worker, after the sabotage that its spec asks for."""
    import torch

    from harness.trial import worker

    torch.set_num_threads(1)
    sabotage = TrialSpec.read(spec_path).options.get("sabotage", "")
    if sabotage:
        SABOTAGE[sabotage]()
    return worker.main(spec_path)


def _nothing(*_: object, **__: object) -> None:
    return None


def _set_but_not_done(module: str, name: str) -> Callable[[], None]:
    def sabotage() -> None:
        import importlib

        technique = getattr(importlib.import_module(f"harness.techniques.{module}"), name)
        technique.apply = _nothing

    return sabotage


def _stage_nought() -> None:
    """The engine starts, at a stage that shards nothing."""
    from harness.techniques import deepspeed_engine

    deepspeed_engine._zero = lambda *_, **__: {"stage": 0}


def _stage_nought_that_says_two() -> None:
    """The same, and the engine says of itself that it is at the stage that was asked for."""
    from harness.techniques import zero

    _stage_nought()
    truth = zero._engine_facts
    zero._engine_facts = lambda engine: {**truth(engine), "stage": 2, "overlap_comm": True}


def _two_micro_batches() -> None:
    """The schedule cuts the batch in two, whatever was asked for."""
    from torch.distributed import pipelining

    plain = pipelining.Schedule1F1B

    def in_two(stage: Any, count: int, **options: Any) -> Any:
        return plain(stage, 2, **options)

    vars(pipelining)["Schedule1F1B"] = in_two


def _second_rank_runs_out_of_memory() -> None:
    """Rank 1 has no memory left at its second step; rank 0 then waits for it in vain."""
    import torch

    from harness.trial.training import TrainingRun

    plain = TrainingRun.step

    def step(self: TrainingRun) -> None:
        if self.ranks.rank == 1 and self.steps_done == 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        plain(self)

    TrainingRun.step = step  # type: ignore[method-assign]


def _a_clock_that_forwards_move() -> None:
    """What the printed recipe takes for the time: two seconds a forward on rank 0, one on the others."""
    from types import SimpleNamespace

    from harness.trial.kinds import throughput_recipe
    from harness.trial.training import TrainingRun

    plain, now = TrainingRun.forward, [0.0]

    def forward(self: TrainingRun, batch: Any) -> Any:
        now[0] += 2.0 if self.ranks.first else 1.0
        return plain(self, batch)

    TrainingRun.forward = forward  # type: ignore[method-assign]
    vars(throughput_recipe)["time"] = SimpleNamespace(time=lambda: now[0])


def _gradients_of_zero() -> None:
    """Where they are counted, rank 0 has zeros in its first gradient and rank 1 in its second."""
    from harness.trial import measure
    from harness.trial.training import TrainingRun

    plain = measure.gradient_health

    def health(run: TrainingRun) -> dict[str, int]:
        list(run.gradient_tensors())[run.ranks.rank].zero_()
        return plain(run)

    measure.gradient_health = health


def _second_rank_is_killed() -> None:
    """Rank 1 is killed at its second step, as the kernel does where memory is short; rank 0's connection breaks."""
    import os
    import signal

    from harness.trial.training import TrainingRun

    plain = TrainingRun.step

    def step(self: TrainingRun) -> None:
        if self.ranks.rank == 1 and self.steps_done == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        plain(self)

    TrainingRun.step = step  # type: ignore[method-assign]


def _second_rank_compiles_in_the_window() -> None:
    """Rank 1 alone compiles something anew at its fourth step, the second of its window."""
    import torch

    from harness.trial.training import TrainingRun

    plain = TrainingRun.step

    def step(self: TrainingRun) -> None:
        if self.ranks.rank == 1 and self.steps_done == 3:
            torch.compile(lambda x: x + 1, backend="eager")(torch.zeros(2))
        plain(self)

    TrainingRun.step = step  # type: ignore[method-assign]


def _second_rank_is_late() -> None:
    """Rank 1 comes out of the last collective two seconds after rank 0, which fails where it has not waited."""
    import time

    from harness.trial import ranks as group

    plain = group.settle

    def settle(ranks: group.Ranks) -> None:
        if not ranks.first:
            time.sleep(2)
        start = time.monotonic()
        plain(ranks)
        if ranks.first and time.monotonic() - start < 1:
            raise ConnectionResetError("closed by peer")

    group.settle = settle


def _second_rank_does_not_clip() -> None:
    from harness.techniques.clip import Clip

    plain = Clip.apply

    def apply(self: Clip, cell: Any, run: Any) -> None:
        if run.ranks.rank != 1:
            plain(self, cell, run)

    Clip.apply = apply  # type: ignore[method-assign]


def _an_allocator_that_counts() -> None:
    """The count of a GPU's allocator, which grows by a GB whenever it is asked."""
    from itertools import count

    from harness.trial import memory

    readings = count(10**9, 10**9)
    memory.allocated = lambda device: next(readings)


SABOTAGE: dict[str, Callable[[], None]] = {
    "parallel": _set_but_not_done("parallel", "Parallel"),
    "two micro-batches": _two_micro_batches,
    "zero": _set_but_not_done("zero", "Zero"),
    "optimizer": _set_but_not_done("optimizer", "Optimizer"),
    "autocast": _set_but_not_done("deepspeed_options", "DeepSpeedOptions"),
    "stage 0": _stage_nought,
    "stage 0 that says 2": _stage_nought_that_says_two,
    "a clock that forwards move": _a_clock_that_forwards_move,
    "gradients of zero": _gradients_of_zero,
    "an allocator that counts": _an_allocator_that_counts,
    "second rank compiles in the window": _second_rank_compiles_in_the_window,
    "second rank is late": _second_rank_is_late,
    "second rank does not clip": _second_rank_does_not_clip,
    "second rank killed": _second_rank_is_killed,
    "second rank out of memory": _second_rank_runs_out_of_memory,
}
