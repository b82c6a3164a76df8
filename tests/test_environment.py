"""What `detect` sees of a machine. Cards are faked at NVML's boundary: pynvml itself is real, its answers are ours."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pynvml
import pytest

from harness import software
from harness.environment import Environment, detect, other_processes
from tests.training import gpus

Fail = Callable[..., Any]
UUIDS = ("GPU-aaaa1111-0000", "GPU-aaaa2222-0000", "GPU-bbbb3333-0000")


def failing(code: int) -> Fail:
    def fail(*arguments: object) -> Any:
        raise pynvml.NVMLError(code)

    return fail


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Three H100s; the second has a lower power cap. The handle of a card is its index."""
    answers: dict[str, Callable[..., Any]] = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: "580.95.05",
        "nvmlSystemGetCudaDriverVersion_v2": lambda: 12080,
        "nvmlDeviceGetCount": lambda: 3,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda handle: "NVIDIA H100 80GB HBM3",
        "nvmlDeviceGetUUID": lambda handle: UUIDS[handle],
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=85_520_809_984),
        "nvmlDeviceGetPowerManagementLimit": lambda handle: 500_000 if handle == 1 else 700_000,
        "nvmlDeviceGetCudaComputeCapability": lambda handle: [9, 0],
        "nvmlDeviceGetComputeRunningProcesses": lambda handle: [
            SimpleNamespace(pid=10 + handle, usedGpuMemory=1000),
            SimpleNamespace(pid=20 + handle, usedGpuMemory=None),
        ],
    }
    for name, answer in answers.items():
        monkeypatch.setattr(pynvml, name, answer)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return monkeypatch


def test_a_gpu_is_described_in_base_units(cards: pytest.MonkeyPatch) -> None:
    environment = detect()
    assert environment.has_gpu
    assert (environment.driver, environment.cuda_driver) == ("580.95.05", "12.8")
    second = environment.devices[1]
    assert (second.index, second.name, second.uuid) == (1, "NVIDIA H100 80GB HBM3", UUIDS[1])
    assert second.memory_bytes == 85_520_809_984
    assert second.power_limit_watts == 500.0
    assert second.compute_capability == (9, 0)


@pytest.mark.parametrize(("number", "version"), [(13000, "13.0"), (11080, "11.8"), (12110, "12.11")])
def test_the_cuda_of_a_driver_is_read_from_its_number(cards: pytest.MonkeyPatch, number: int, version: str) -> None:
    cards.setattr(pynvml, "nvmlSystemGetCudaDriverVersion_v2", lambda: number)
    assert detect().cuda_driver == version


@pytest.mark.parametrize(
    ("asked", "seen"),
    [
        (None, [0, 1, 2]),
        ("0", [0]),
        ("2,0", [2, 0]),
        (" 1 , 2 ", [1, 2]),
        ("", []),
        ("-1", []),
        ("0,-1,2", [0]),
        ("0,7,1", [0]),
        ("NoDevFiles", []),
        ("GPU-bbbb3333-0000,0", [2, 0]),
        ("GPU-bbbb", [2]),
        ("GPU-aaaa", []),  # two cards begin so
        ("0,,1", [0]),
    ],
)
def test_devices_are_those_that_cuda_would_see_in_its_order(
    cards: pytest.MonkeyPatch, asked: str | None, seen: list[int]
) -> None:
    if asked is not None:
        cards.setenv("CUDA_VISIBLE_DEVICES", asked)
    assert [device.index for device in detect().devices] == seen


@pytest.mark.parametrize(
    ("question", "field", "left"),
    [
        ("nvmlDeviceGetName", "name", "unknown"),
        ("nvmlDeviceGetUUID", "uuid", ""),
        ("nvmlDeviceGetMemoryInfo", "memory_bytes", 0),
        ("nvmlDeviceGetPowerManagementLimit", "power_limit_watts", None),
        ("nvmlDeviceGetCudaComputeCapability", "compute_capability", None),
    ],
)
def test_one_question_unanswered_leaves_one_gap(
    cards: pytest.MonkeyPatch, question: str, field: str, left: object
) -> None:
    cards.setattr(pynvml, question, failing(pynvml.NVML_ERROR_NOT_SUPPORTED))
    devices = detect().devices
    assert [getattr(device, field) for device in devices] == [left] * 3
    assert sum(value in (None, 0, "", "unknown") for value in vars(devices[1]).values()) == 1


@pytest.mark.parametrize("question", ["nvmlSystemGetDriverVersion", "nvmlSystemGetCudaDriverVersion_v2"])
def test_versions_unanswered_are_none(cards: pytest.MonkeyPatch, question: str) -> None:
    cards.setattr(pynvml, question, failing(pynvml.NVML_ERROR_UNKNOWN))
    environment = detect()
    assert [environment.driver, environment.cuda_driver].count(None) == 1
    assert len(environment.devices) == 3


def test_a_card_that_fell_off_the_bus_is_left_out(cards: pytest.MonkeyPatch) -> None:
    lost = failing(pynvml.NVML_ERROR_GPU_IS_LOST)
    cards.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: lost() if index == 1 else index)
    assert [device.index for device in detect().devices] == [0, 2]


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED])
def test_without_a_driver_there_are_no_devices(cards: pytest.MonkeyPatch, code: int) -> None:
    cards.setattr(pynvml, "nvmlInit", failing(code))
    environment = detect()
    assert (environment.devices, environment.driver, environment.cuda_driver) == ((), None, None)
    assert other_processes(0) == []


def test_without_pynvml_there_are_no_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert detect().devices == ()
    assert other_processes(0) == []


def test_nvml_is_closed_again(cards: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    cards.setattr(pynvml, "nvmlInit", lambda: calls.append("open"))
    cards.setattr(pynvml, "nvmlShutdown", lambda: calls.append("close"))
    detect()
    other_processes(0)
    assert calls == ["open", "close"] * 2


def test_other_processes_of_a_device_are_those_that_are_not_ours(cards: pytest.MonkeyPatch) -> None:
    assert [(each.pid, each.used_bytes) for each in other_processes(2)] == [(12, 1000), (22, None)]
    assert [each.pid for each in other_processes(2, ours={12})] == [22]
    cards.setattr(pynvml, "nvmlDeviceGetComputeRunningProcesses", failing(pynvml.NVML_ERROR_NOT_SUPPORTED))
    assert other_processes(2) == []


def test_the_host_is_described_without_being_named() -> None:
    environment = detect()
    assert environment.python == ".".join(map(str, sys.version_info[:3]))
    assert environment.system.startswith("Linux-")
    assert environment.processor
    assert 1 <= environment.cores <= (os.cpu_count() or 1)
    assert environment.memory_bytes > 2**28
    assert len(environment.host) == 12
    assert os.uname().nodename not in json.dumps(environment.as_json())


def test_packages_are_those_that_matter_with_their_versions() -> None:
    import numpy

    environment = detect()
    assert environment.packages["numpy"] == numpy.__version__
    assert environment.has("NumPy")
    assert environment.has("ruamel.yaml")
    assert not environment.has("pytest")
    assert set(environment.packages) <= set(software.PACKAGES)
    assert all(reason for reason in software.PACKAGES.values())


def test_an_outside_technique_can_name_further_packages() -> None:
    assert detect(also=["PyTest", "not-installed-anywhere"]).has("pytest")


def test_cuda_libraries_are_found_whichever_cuda_they_are_for() -> None:
    found = {"nvidia-cudnn-cu12": "9.10.2.21", "nvidia-nccl": "2.29.7"}
    assert software.nvidia(found, "cudnn") == "9.10.2.21"
    assert software.nvidia(found, "nccl") == "2.29.7"
    assert software.nvidia(found, "cuda-runtime") is None


def test_each_cuda_library_stands_under_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"nvidia-cuda-runtime-cu12": "12.8.90", "nvidia-cudnn-cu12": "9.10.2.21", "nvidia-nccl-cu12": "2.29.7"}
    monkeypatch.setattr(software, "packages", lambda also=(): found)
    environment = detect()
    assert (environment.cuda, environment.cudnn, environment.nccl) == ("12.8.90", "9.10.2.21", "2.29.7")


@pytest.mark.parametrize(("limit", "gib"), [("max\n", 64), (f"{8 << 30}\n", 8), (f"{128 << 30}\n", 64)])
def test_memory_is_that_of_the_machine_or_the_limit_of_its_container(
    limit: str, gib: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, group = Path.read_text, Path("/sys/fs/cgroup/memory.max")
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=64 << 30))
    monkeypatch.setattr(
        Path, "read_text", lambda self, *given, **how: limit if self == group else whole(self, *given, **how)
    )
    assert detect().memory_bytes == gib << 30


def test_cores_are_those_that_this_process_may_use() -> None:
    may = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(may)})
        assert detect().cores == 1
    finally:
        os.sched_setaffinity(0, may)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "t")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "t@example.org")
    (tmp_path / "file").write_text("one")
    for command in ("init -q", "add file", "commit -q -m one", "tag v1"):
        subprocess.run(["git", *command.split()], check=True)
    return tmp_path


def test_the_commit_is_that_of_the_working_directory(repository: Path) -> None:
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    assert software.git() == (commit, False)
    (repository / "untracked").write_text("results lie about")
    assert software.git() == (commit, False)
    (repository / "file").write_text("two")
    assert software.git() == (commit, True)


def test_outside_a_repository_without_git_or_without_a_commit_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert software.git() == (None, None)
    subprocess.run(["git", "init", "-q"], check=True)
    assert software.git() == (None, None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert software.git() == (None, None)


def test_tools_are_found_where_the_variables_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cuda/bin/nvcc", "bin/my-c++"):
        program = tmp_path / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    monkeypatch.setenv("CXX", "my-c++")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert software.tools() == {"nvcc": str(tmp_path / "cuda/bin/nvcc"), "c++": str(tmp_path / "bin/my-c++")}


def test_nothing_at_all_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No programs, no NVML, a working directory that is gone."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    environment = detect()
    assert (environment.devices, environment.git_commit, environment.git_dirty) == ((), None, None)
    assert environment.packages


def test_looking_imports_neither_torch_nor_anything_else_that_is_slow() -> None:
    script = "import sys; from harness.environment import detect; detect(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "transformers", "numpy", "pandas", "pydantic"} & set(loaded)


def test_json_of_an_environment_is_what_comes_back_from_a_file(cards: pytest.MonkeyPatch) -> None:
    content = detect().as_json()
    assert json.loads(json.dumps(content)) == content
    assert content["devices"][1]["compute_capability"] == [9, 0]
    assert set(content) == set(Environment.__dataclass_fields__) - {"gpus_per_node"}


def test_nodes_are_told_only_where_there_are_several() -> None:
    """What is stored of one machine is as it was before there were clusters."""
    assert "gpus_per_node" not in Environment().as_json()
    several = replace(gpus(4), gpus_per_node=2)
    assert several.as_json()["gpus_per_node"] == 2
    assert (several.devices_of_a_process, gpus(4).devices_of_a_process, Environment().devices_of_a_process) == (2, 4, 0)
