"""What the zygote imports before it forks, and the proof that importing left nothing behind that a fork would break."""

from __future__ import annotations

import gc
import importlib
import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from harness.trial.processes import signal_name

#: Always imported where they are installed. Not peft and bitsandbytes: both initialise CUDA at import (measured), and a
#: CUDA context does not survive a fork.
MODULES = (
    "numpy",
    "torch",
    "torch.utils.data",
    "torch.distributed",
    "torch.distributed.fsdp",
    "torch._dynamo",
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
    # DeepSpeed's engine and peft import it too, in every trial
    compiler = zero or any(cell.get("compile", "off") != "off" or cell.get("lora", "off") != "off" for cell in cells)
    wanted = {"torch._inductor.compile_fx": compiler, "deepspeed": zero, "flash_attn": flash}
    return (*MODULES, *(name for name, used in wanted.items() if used))


@dataclass(kw_only=True)
class Preloaded:
    """What importing did."""

    seconds: float = 0.0
    modules: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    """Module → why it could not be imported. A trial that needs it will say so itself."""
    problems: list[str] = field(default_factory=list)
    """Reasons why this process must not be forked; empty when all is well."""
    notes: list[str] = field(default_factory=list)
    """What importing left behind that is worth knowing when something goes wrong."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def base_environment(inherited: Mapping[str, str], *, gpu: bool) -> dict[str, str]:
    """`inherited` with what training processes need. The user's own values win, save where isolation rests on ours."""
    needed = {**ENVIRONMENT, "DS_ACCELERATOR": "cuda" if gpu else "cpu"}
    if not gpu:
        # What a CPU trains here is tiny: a second OpenMP thread gains nothing and spins against loader processes.
        needed["OMP_NUM_THREADS"] = "1"
    ours = {name: needed[name] for name in ("PYTORCH_NVML_BASED_CUDA_CHECK", "PYTHONHASHSEED", "OPENBLAS_NUM_THREADS")}
    return {**needed, **inherited, **ours}


def preload(modules: Iterable[str]) -> Preloaded:
    """Import `modules`, prove that a fork of this process can work, and move all objects out of the collector's sight.

    `gc.freeze` keeps collections in the children from touching (and so copying) the pages they share.
    """
    began = time.monotonic()
    result = Preloaded()
    for name in modules:
        threads = _thread_count()
        _import(name, result)
        if _thread_count() > threads:
            result.notes.append(f"importing {name} started {_thread_count() - threads} thread(s)")
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
    """torch's own word, and on a machine with a GPU the deed: a forked child computes on it.

    What is open or running after the imports is no proof either way: torch 2.11's inductor calls cuInit at import,
    which leaves a thread and open device files behind, and children of such a process use the GPU all the same (seen on
    an H100, driver 580; no context exists yet). Older drivers refuse, and then the probe says so.
    """
    if "torch" not in imported:
        return []
    import torch

    if torch.cuda.is_initialized():
        return ["importing left torch.cuda initialised"]
    if not torch.cuda.device_count():  # through NVML: see ENVIRONMENT
        return []
    why = failure_of_a_child(_compute)
    return [f"a forked child cannot use the GPU: {why}"] if why else []


def _compute() -> None:
    """A few numbers added up on the GPU."""
    import torch

    if (total := float(torch.ones(4, device="cuda").sum())) != 4.0:
        raise ArithmeticError(f"1 + 1 + 1 + 1 came out as {total} there")


def failure_of_a_child(deed: Callable[[], None], limit_seconds: float = 60.0) -> str:
    """Fork a child that does `deed`; why it could not, or "". One that was killed says nothing of that: once more."""
    why, status = _tried_in_a_child(deed, limit_seconds)
    if status == -signal.SIGKILL and not why:
        why, status = _tried_in_a_child(deed, limit_seconds)
    if why or not status:
        return why
    return f"it was ended by {signal_name(-status)}" if status < 0 else f"it exited with {status}"


def _tried_in_a_child(deed: Callable[[], None], limit_seconds: float) -> tuple[str, int]:
    """What the deed raised, or that it did not end, and the child's exit code, negative: the signal that ended it."""
    words, ours = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            deed()
            status = 0
        except BaseException as error:  # noqa: BLE001 - handed to the parent, and the child ends
            os.write(ours, f"{type(error).__name__}: {error}".splitlines()[0].encode()[:4096])
        finally:
            os._exit(status)
    os.close(ours)
    watched = os.pidfd_open(pid)
    with open(words, errors="replace") as told:
        try:
            ended = select.select([watched], [], [], limit_seconds)[0]
            if not ended:
                os.kill(pid, signal.SIGKILL)
        finally:
            os.close(watched)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return (told.read() if ended else f"it did not end within {limit_seconds:g} s"), status
