"""The machine: what is there, without importing torch and without touching the GPU's state."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness import software


@dataclass(frozen=True, kw_only=True)
class Device:
    """One GPU as NVML describes it."""

    index: int
    """NVML's, in the order of the PCI bus; CUDA's number is the place in `Environment.devices`."""
    name: str
    uuid: str
    memory_bytes: int
    power_limit_watts: float | None = None
    compute_capability: tuple[int, int] | None = None


@dataclass(frozen=True, kw_only=True)
class DeviceProcess:
    """A process that computes on a device. In a container `pid` may be the host's, which means nothing inside."""

    pid: int
    used_bytes: int | None


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Recorded with every trial, and what `requires` decides on."""

    devices: tuple[Device, ...] = ()
    """Those that CUDA_VISIBLE_DEVICES leaves, in CUDA's order; of several nodes one node's after the other's."""
    gpus_per_node: int | None = None
    """Of several nodes; None: one node has all devices."""
    driver: str | None = None
    cuda_driver: str | None = None
    """Newest CUDA that the driver serves."""
    cuda: str | None = None
    """CUDA, cuDNN and NCCL as installed beside torch; None where they came another way."""
    cudnn: str | None = None
    nccl: str | None = None
    packages: dict[str, str] = field(default_factory=dict)
    """Distribution name (normalised: lower case, dashes) → version."""
    python: str = ""
    system: str = ""
    processor: str = ""
    cores: int = 0
    memory_bytes: int = 0
    host: str = ""
    """A hash of the host's name: tells machines apart without naming them."""
    git_commit: str | None = None
    git_dirty: bool | None = None
    tools: dict[str, str] = field(default_factory=dict)
    """Programs some settings need: nvcc, nvidia-smi, a C++ compiler (name → path or version)."""

    @property
    def has_gpu(self) -> bool:
        return bool(self.devices)

    @property
    def devices_of_a_process(self) -> int:
        """GPUs that one process can use: those of its node."""
        return len(self.devices[: self.gpus_per_node])

    def has(self, package: str) -> bool:
        """Whether a distribution is installed, whatever its spelling."""
        return software.normalised(package) in self.packages

    def as_json(self) -> dict[str, Any]:
        """Plain values, as they come back from a file."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        if self.gpus_per_node is None:
            del plain["gpus_per_node"]
        return plain


def detect(*, also: Iterable[str] = ()) -> Environment:
    """Look at this machine. Never raises: what cannot be read stays empty.

    Args:
        also: distributions to look for beyond `software.PACKAGES` (`registry.this_machine` has those of techniques).
    """
    packages = software.packages(also)
    commit, dirty = software.git()
    with nvml() as library:
        devices = _devices(library) if library else ()
        driver = _ask(library, library.nvmlSystemGetDriverVersion) if library else None
        served = _ask(library, library.nvmlSystemGetCudaDriverVersion_v2) if library else None
    return Environment(
        devices=devices,
        driver=driver,
        cuda_driver=f"{served // 1000}.{served % 1000 // 10}" if served else None,
        cuda=software.nvidia(packages, "cuda-runtime"),
        cudnn=software.nvidia(packages, "cudnn"),
        nccl=software.nvidia(packages, "nccl"),
        packages=packages,
        python=platform.python_version(),
        system=f"{platform.system()}-{platform.release()}-{platform.machine()}",
        processor=_processor(),
        cores=_cores(),
        memory_bytes=_memory_bytes(),
        host=_host(),
        git_commit=commit,
        git_dirty=dirty,
        tools=software.tools(),
    )


def other_processes(index: int, *, ours: Collection[int] = ()) -> list[DeviceProcess]:
    """Processes that compute on a device (NVML's index), less those of `ours`; empty where NVML cannot say."""
    with nvml() as library:
        handle = _ask(library, library.nvmlDeviceGetHandleByIndex, index) if library else None
        if library is None or handle is None:
            return []
        found = _ask(library, library.nvmlDeviceGetComputeRunningProcesses, handle) or ()
        return [DeviceProcess(pid=each.pid, used_bytes=each.usedGpuMemory) for each in found if each.pid not in ours]


@contextmanager
def nvml() -> Iterator[Any | None]:
    """pynvml, initialised; None where there is no NVIDIA driver. It makes no CUDA context."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except (ImportError, OSError):
        yield None
        return
    except pynvml.NVMLError:
        yield None
        return
    try:
        yield pynvml
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _ask(library: Any, question: Callable[..., Any], *arguments: Any) -> Any:
    """One answer of NVML, or None: cards, drivers and virtual machines leave single questions unanswered."""
    try:
        answer = question(*arguments)
    except (library.NVMLError, OSError, ValueError):
        return None
    return answer.decode(errors="replace") if isinstance(answer, bytes) else answer


def _devices(library: Any) -> tuple[Device, ...]:
    count = _ask(library, library.nvmlDeviceGetCount) or 0
    found = [device for index in range(count) if (device := _device(library, index)) is not None]
    return _visible(found, os.environ.get("CUDA_VISIBLE_DEVICES"))


def _device(library: Any, index: int) -> Device | None:
    handle = _ask(library, library.nvmlDeviceGetHandleByIndex, index)
    if handle is None:  # fallen off the bus
        return None
    memory = _ask(library, library.nvmlDeviceGetMemoryInfo, handle)
    milliwatts = _ask(library, library.nvmlDeviceGetPowerManagementLimit, handle)
    capability = _ask(library, library.nvmlDeviceGetCudaComputeCapability, handle)
    return Device(
        index=index,
        name=_ask(library, library.nvmlDeviceGetName, handle) or "unknown",
        uuid=_ask(library, library.nvmlDeviceGetUUID, handle) or "",
        memory_bytes=int(memory.total) if memory else 0,
        power_limit_watts=milliwatts / 1000 if milliwatts else None,
        compute_capability=(int(capability[0]), int(capability[1])) if capability else None,
    )


def _visible(devices: list[Device], asked: str | None) -> tuple[Device, ...]:
    """What CUDA makes of CUDA_VISIBLE_DEVICES: numbers or the start of a UUID, up to the first that is neither.

    Source: CUDA C++ programming guide, "CUDA environment variables".
    """
    if asked is None:
        return tuple(devices)
    kept: list[Device] = []
    for word in asked.split(","):
        name = word.strip()
        matches = [each for each in devices if str(each.index) == name or (name and each.uuid.startswith(name))]
        if len(matches) != 1:
            break
        kept += matches
    return tuple(kept)


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.machine()


def _cores() -> int:
    """Those that this process may use."""
    with suppress(AttributeError, OSError):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 0


def _memory_bytes() -> int:
    """Of the machine, or the container's limit where that is less."""
    import psutil

    with suppress(OSError, ValueError):
        return min(int(psutil.virtual_memory().total), int(Path("/sys/fs/cgroup/memory.max").read_text()))
    with suppress(OSError, RuntimeError):
        return int(psutil.virtual_memory().total)
    return 0


def _host() -> str:
    return hashlib.sha256(platform.node().encode()).hexdigest()[:12]
