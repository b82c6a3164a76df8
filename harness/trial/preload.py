"""What the zygote imports before it forks, and the proof that importing left nothing behind that a fork would break."""

from __future__ import annotations

import gc
import importlib
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

#: Always imported where they are installed. Not peft and bitsandbytes: both initialise CUDA at import (measured), and a
#: CUDA context does not survive a fork.
MODULES = (
    "numpy",
    "torch",
    "torch.utils.data",
    "torch.distributed",
    "torch.distributed.fsdp",
    "torch._dynamo",
    "torch._inductor.compile_fx",
    "torch.profiler",
    "transformers",
    "transformers.models.auto.modeling_auto",
    "transformers.models.gpt2.modeling_gpt2",
    "transformers.models.llama.modeling_llama",
    "transformers.models.qwen2.modeling_qwen2",
    "harness.trial.worker",
    "harness.trial.kinds.training",
)

#: What a process that trains must find in its environment before its first import, in a zygote and without one alike.
ENVIRONMENT = {
    # torch counts devices through NVML instead of initialising CUDA.
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    # numpy's BLAS starts a pool of threads when it is loaded; no timed path uses it, and forking wants one thread.
    "OPENBLAS_NUM_THREADS": "1",
    # The worker pool of torch.compile belongs to a trial, never to the process that is forked.
    "TOKENIZERS_PARALLELISM": "false",
    # Sets and dictionaries of strings iterate in the same order in every trial.
    "PYTHONHASHSEED": "0",
    # No trial goes to the network.
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "WANDB_MODE": "offline",
}


def modules_for(cells: Iterable[Mapping[str, object]]) -> tuple[str, ...]:
    """`MODULES`, and the packages that these settings use and that are slow to import."""
    cells = list(cells)
    zero = any(cell.get("zero", "off") != "off" or cell.get("precision") == "ds-bf16" for cell in cells)
    flash = any(cell.get("attention") == "flash2" for cell in cells)
    return (*MODULES, *(["deepspeed"] if zero else []), *(["flash_attn"] if flash else []))


@dataclass(kw_only=True)
class Preloaded:
    """What importing did."""

    seconds: float = 0.0
    modules: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    """Module → why it could not be imported. A trial that needs it will say so itself."""
    problems: list[str] = field(default_factory=list)
    """Reasons why this process must not be forked; empty when all is well."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def base_environment(inherited: Mapping[str, str], *, gpu: bool) -> dict[str, str]:
    """`inherited` with what training processes need. The user's own values win, save where isolation rests on ours."""
    needed = {**ENVIRONMENT, "DS_ACCELERATOR": "cuda" if gpu else "cpu"}
    ours = {name: needed[name] for name in ("PYTORCH_NVML_BASED_CUDA_CHECK", "PYTHONHASHSEED", "OPENBLAS_NUM_THREADS")}
    return {**needed, **inherited, **ours}


def preload(modules: Iterable[str]) -> Preloaded:
    """Import `modules`, look for traces that a fork would break, and move all objects out of the collector's sight.

    `gc.freeze` keeps collections in the children from touching (and so copying) the pages they share.
    """
    began = time.monotonic()
    result = Preloaded()
    for name in modules:
        threads = _thread_count()
        _import(name, result)
        if _thread_count() > threads:
            result.problems.append(f"importing {name} started {_thread_count() - threads} thread(s)")
    result.problems += _cuda_problems(result.modules)
    gc.collect()
    gc.freeze()
    result.seconds = time.monotonic() - began
    return result


def _import(name: str, result: Preloaded) -> None:
    try:
        importlib.import_module(name)
    except Exception as error:  # noqa: BLE001 - whatever an installed package does at import, the others are still wanted
        result.missing[name] = f"{type(error).__name__}: {error}"
    else:
        result.modules.append(name)


def _thread_count() -> int:
    return len(os.listdir("/proc/self/task"))


def _cuda_problems(imported: list[str]) -> list[str]:
    """torch's own word, and the driver's: only an initialised CUDA holds /dev/nvidia-uvm open (NVML alone does not)."""
    problems = []
    if "torch" in imported:
        import torch

        if torch.cuda.is_initialized():
            problems.append("importing left torch.cuda initialised")
    if any(_target(each).startswith("/dev/nvidia-uvm") for each in Path("/proc/self/fd").iterdir()):
        problems.append("importing initialised CUDA (/dev/nvidia-uvm is open)")
    return problems


def _target(link: Path) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return ""
