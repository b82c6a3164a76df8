"""What the settings of the axis `monitor` do: a class each. A watch counts its own calls and keeps what it saw last."""

from __future__ import annotations

import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from harness.trial.batching import Batch
    from harness.trial.training import TrainingRun


class Watch:
    """One way of watching a run."""

    beside = False
    """It watches from a thread, so the number of its calls depends on time."""

    def __init__(self, run: TrainingRun) -> None:
        self.run = run
        self.calls = 0
        self.last: Any = None

    def attach(self) -> None:
        """Hook into the run; by default, `look` after every step."""
        self.run.after_step.append(self._after)

    def look(self, step: int) -> Any:
        """Look once, after step `step`; what is returned is what was seen."""

    def expected_calls(self) -> int:
        """Calls that steps done so far should have made."""
        return self.run.steps_done

    def saw(self) -> bool:
        """Whether the last call saw anything."""
        return self.last is not None

    def noted(self, seen: Any) -> None:
        """Count a call."""
        self.calls += 1
        self.last = seen

    def _after(self, step: int) -> None:
        self.noted(self.look(step))

    def _synchronise(self) -> None:
        if self.run.device.type == "cuda":
            torch.cuda.synchronize(self.run.device)


class Phases(Watch):
    """The host's clock around forward, backward and the optimizer, with a synchronise at each of its readings."""

    def attach(self) -> None:
        run = self.run
        run.call = self._timed("forward_time", run.call)
        run.backward = self._timed("backward_time", run.backward)
        run.update = self._timed("optimizer_time", run.update)
        self.last = {}

    def expected_calls(self) -> int:
        return self.run.steps_done * (2 * self.run.accumulation + 1)

    def saw(self) -> bool:
        return sorted(self.last) == ["backward_time", "forward_time", "optimizer_time"]

    def _timed(self, name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **named: Any) -> Any:
            self._synchronise()
            start = time.time()
            result = inner(*arguments, **named)
            self._synchronise()
            self.noted({**self.last, name: time.time() - start})
            return result

        return timed


class Item(Watch):
    """The loss as a Python number, which waits for the device."""

    def look(self, step: int) -> float:
        return float(self.run.losses[-1].item())


class GradientNorms(Watch):
    """Parameter by parameter, three answers each that wait for the device."""

    def attach(self) -> None:
        self.run.before_optimizer.append(lambda: self.noted(self._norms()))

    def saw(self) -> bool:
        return self.last is not None and self.last["parameters"] > 0

    def _norms(self) -> dict[str, float]:
        squares, count, bad = 0.0, 0, 0
        for gradient in self.run.gradient_tensors():
            squares += gradient.detach().norm(2).item() ** 2
            count += 1
            if torch.isnan(gradient).any():
                bad += 1
            if torch.isinf(gradient).any():
                bad += 1
        return {"norm": squares**0.5, "parameters": count, "bad": bad}


class Nvml(Watch):
    """Utilisation and memory of this rank's GPU, read in a thread of this process from warm-up to the window's end."""

    beside = True
    _SECONDS = 0.1

    def attach(self) -> None:
        self.run.around_window.append(self._watching)

    def expected_calls(self) -> int:
        return 1

    @contextmanager
    def _watching(self) -> Iterator[None]:
        ended = threading.Event()
        thread = threading.Thread(target=self._read, args=(ended,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _read(self, ended: threading.Event) -> None:
        from harness.environment import nvml

        uuid = self.run.environment.devices[self.run.ranks.local_rank].uuid
        with nvml() as library:
            if library is None:
                return
            handle = library.nvmlDeviceGetHandleByUUID(uuid.encode())
            while not ended.wait(self._SECONDS):
                used = library.nvmlDeviceGetMemoryInfo(handle).used
                self.noted({"utilisation": library.nvmlDeviceGetUtilizationRates(handle).gpu / 100, "used_bytes": used})


class NvidiaSmi(Watch):
    """A program a step."""

    _QUESTION = ("--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")

    def look(self, step: int) -> list[str] | None:
        program = self.run.environment.tools["nvidia-smi"]
        answer = subprocess.run([program, *self._QUESTION], capture_output=True, text=True, check=False)
        return answer.stdout.split() if answer.returncode == 0 else None


class CpuPercent(Watch):
    """psutil's answer over one second, during which the step waits, and the host's memory."""

    def look(self, step: int) -> dict[str, float]:
        import psutil

        return {"cpu_percent": psutil.cpu_percent(interval=1), "memory_percent": psutil.virtual_memory().percent}


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
        # a last step that would have completed a cycle still has its trace written when the window ends
        return (watched + 1) // (self._WAITED + self._WARMED + self._RECORDED)

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


WATCHES: Mapping[str, type[Watch]] = {
    "phases-synchronised": Phases,
    "item": Item,
    "gradient-norms": GradientNorms,
    "nvml": Nvml,
    "nvidia-smi": NvidiaSmi,
    "cpu-percent": CpuPercent,
    "flops-profile": FlopsProfile,
    "profiler": Profiler,
    "tensorboard": TensorBoard,
}
