"""Watches of the machine: its GPU through NVML or through a program, its processor and memory through psutil."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from harness.techniques.watch import Watch


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
