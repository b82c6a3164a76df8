"""The software of the machine: packages that can move a figure, git, compilers. Part of `environment.detect`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from contextlib import suppress

#: Distributions whose version can move a figure, change an outcome or change a report, with the reason.
PACKAGES: dict[str, str] = {
    "torch": "runs every trial",
    "triton": "compiles what torch.compile emits",
    "transformers": "the models",
    "tokenizers": "the tokens",
    "safetensors": "reads local models",
    "accelerate": "device placement in transformers and peft",
    "peft": "LoRA",
    "bitsandbytes": "nf4",
    "deepspeed": "ZeRO",
    "flash-attn": "flash2",
    "xformers": "an attention that documents compare with",
    "apex": "fused optimizers that documents name",
    "transformer-engine": "replaces layers where transformers finds it",
    "liger-kernel": "replaces layers where transformers finds it",
    "kernels": "lets transformers fetch attention kernels",
    "torchao": "quantization that peft and transformers pick up",
    "datasets": "reads parquet",
    "pyarrow": "reads and writes parquet",
    "numpy": "batches and statistics",
    "psutil": "host memory",
    "nvidia-ml-py": "device meters",
    "submitit": "Slurm",
    "ninja": "builds extensions",
    "tensorboard": "a monitor; exports",
    "pandas": "tables",
    "scipy": "intervals",
    "seaborn": "figures of reports",
    "jinja2": "pages of reports",
    "pydantic": "the matrix's schema",
    "ruamel-yaml": "reads the matrix",
    "rich": "the progress display",
    "typer": "the command line",
    "claimbench": "all of the rest",
}
#: Libraries of NVIDIA's that decide which kernels run, how devices talk, or how code is compiled.
NVIDIA = ("cudnn", "nccl", "cublas", "cuda-runtime", "cuda-nvrtc", "nvjitlink", "cusparselt", "nvshmem")
#: Their distributions are named after the CUDA that they are for; some no longer, from CUDA 13 on.
SUFFIXES = ("", "-cu13", "-cu12", "-cu11")


def normalised(name: str) -> str:
    """The spelling of a distribution's name that all others are equal to (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def packages(also: Iterable[str] = ()) -> dict[str, str]:
    """Versions of what is installed of PACKAGES, of NVIDIA's libraries and of `also`."""
    from importlib.metadata import PackageNotFoundError, version

    libraries = [f"nvidia-{library}{suffix}" for library in NVIDIA for suffix in SUFFIXES]
    found = {}
    for name in dict.fromkeys([*PACKAGES, *libraries, *map(normalised, also)]):
        with suppress(PackageNotFoundError):
            found[name] = str(version(name))
    return found


def nvidia(found: dict[str, str], library: str) -> str | None:
    """Version of one of NVIDIA's libraries (`cudnn`), whichever CUDA it is for."""
    return next((found[name] for suffix in SUFFIXES if (name := f"nvidia-{library}{suffix}") in found), None)


def git() -> tuple[str | None, bool | None]:
    """Commit of the working directory's repository, and whether tracked files differ from it."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    # optional locks off: looking must not get in the way of the user's own git
    variables = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=2, check=True, env=variables)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None, None
    answer = done.stdout.strip()
    return answer.removesuffix("-dirty"), answer.endswith("-dirty")


def tools() -> dict[str, str]:
    """Programs that some settings need, by name, with their paths."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    found = {
        "nvcc": shutil.which("nvcc", path=f"{home}/bin") or shutil.which("nvcc"),
        "nvidia-smi": shutil.which("nvidia-smi"),
        "c++": next(filter(None, map(shutil.which, (os.environ.get("CXX", ""), "c++", "g++", "clang++"))), None),
    }
    return {name: path for name, path in found.items() if path}
