"""Watches that torch brings: its counter of operations, its profiler, its writer for TensorBoard."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from harness.techniques.watch import Watch

if TYPE_CHECKING:
    from harness.trial.batching import Batch


class FlopsProfile(Watch):
    """torch's counter of operations around the forward and backward of every 50th step."""

    EVERY = 50

    def attach(self) -> None:
        inner = self.run.micro_step

        def counted(batch: Batch) -> Any:
            if self.run.steps_done % self.EVERY:
                return inner(batch)
            from torch.utils.flop_counter import FlopCounterMode

            with FlopCounterMode(display=False) as counter:
                loss = inner(batch)
            self.noted({"flops": counter.get_total_flops()})
            return loss

        self.run.micro_step = counted

    def expected_calls(self) -> int:
        return -(-self.run.steps_done // self.EVERY) * self.run.accumulation

    def saw(self) -> bool:
        return self.last is not None and self.last["flops"] > 0


class Profiler(Watch):
    """torch.profiler, two steps in five, each trace exported for Chrome; it ends with the window."""

    _WAITED, _WARMED, _RECORDED = 2, 1, 2

    def attach(self) -> None:
        self.run.around_window.append(self._watching)

    def expected_calls(self) -> int:
        watched = self.run.spec.warmup_steps + self.run.spec.steps
        # a cycle that the end of the window finds recording has its trace written as well
        return (watched + self._RECORDED) // (self._WAITED + self._WARMED + self._RECORDED)

    def saw(self) -> bool:
        return self.calls == 0 or self.last["trace_bytes"] > 0

    @contextmanager
    def _watching(self) -> Iterator[None]:
        from torch.profiler import ProfilerActivity, profile, schedule

        on_gpu = self.run.device.type == "cuda"
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
        cycle = schedule(wait=self._WAITED, warmup=self._WARMED, active=self._RECORDED)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"

            def export(profiler: Any) -> None:
                profiler.export_chrome_trace(str(path))
                self.noted({"trace_bytes": path.stat().st_size})

            with profile(
                activities=activities, schedule=cycle, on_trace_ready=export,
                record_shapes=True, profile_memory=True, with_stack=True,
            ) as profiler:  # fmt: skip

                def after(_step: int) -> None:
                    profiler.step()

                self.run.after_step.append(after)
                yield
                self.run.after_step.remove(after)


class TensorBoard(Watch):
    """A SummaryWriter with the scalars that D3 writes."""

    def attach(self) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._folder = self.run.held.enter_context(tempfile.TemporaryDirectory())
        self._writer = SummaryWriter(self._folder)
        self.run.held.callback(self._writer.close)
        self._start = time.time()
        super().attach()

    def look(self, step: int) -> dict[str, float]:
        values = {"Training/Loss": self.run.losses[-1].item()}
        if self.run.device.type == "cuda":
            values["System/GPU_Memory_GB"] = torch.cuda.memory_allocated() / 1024**3
            values["System/GPU_Cached_GB"] = torch.cuda.memory_reserved() / 1024**3
        elapsed = time.time() - self._start
        values["System/Samples_Per_Second"] = step / elapsed if elapsed > 0 else 0.0
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        return values

    def saw(self) -> bool:
        self._writer.flush()
        return any(path.stat().st_size for path in Path(self._folder).iterdir())
