"""What the settings of the axis `monitor` do, a class each, in `WATCHES`. Here those that look at the step itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from harness.techniques.watch import Watch
from harness.techniques.watch_machine import CpuPercent, NvidiaSmi, Nvml
from harness.techniques.watch_torch import FlopsProfile, Profiler, TensorBoard


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
