"""What this device achieves: matrix products by number format, and copies. For `claimbench doctor --calibrate`.

A peak on a data sheet is reached by no program; the rate of one large product is what a training step could come near.
The parent calls `in_child`, which starts

    python -m harness.trial.calibrate DEVICE
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from harness.errors import LaunchError
from harness.trial.peaks import Peak, peak_for
from harness.trial.preload import base_environment
from harness.trial.processes import findable, interpreter

if TYPE_CHECKING:
    import torch

#: Edge of the square matrices: large enough that a GPU's rate does not grow any more, small enough for a CPU.
_EDGE = {"cuda": 8192, "cpu": 256}
_BUFFER_BYTES = {"cuda": 1 << 30, "cpu": 64 << 20}
_WARMUP, _REPEATS = 5, 20
_LIMIT_SECONDS = 300.0
FORMATS = ("bf16", "tf32", "fp32")


def in_child(device: str, limit_seconds: float = _LIMIT_SECONDS) -> dict[str, Any]:
    """Measure `cuda` or `cpu` in a process of its own; the caller needs no torch.

    Returns:
        `device` (name); `matmul_flops`, `published_flops` and `share_of_published` by format (`bf16`, `tf32`, `fp32`);
        `copy_bytes_per_second` by kind of copy; `missing`: name → why it has no value. Medians of repeated timings.

    Raises:
        LaunchError: torch is missing, or the process failed or took too long.
    """
    command = [*interpreter("harness.trial.calibrate"), device]
    environment = findable(base_environment(os.environ, gpu=device == "cuda"))
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=limit_seconds, env=environment, stdin=subprocess.DEVNULL,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise LaunchError(f"calibration did not end within {limit_seconds:g} s; is the device busy?") from None
    if ended.returncode:
        last = ended.stderr.strip().splitlines()[-1:] or ["no message"]
        raise LaunchError(f"calibration failed ({last[0]}); check that torch works here: python -c 'import torch'")
    figures: dict[str, Any] = json.loads(ended.stdout.strip().splitlines()[-1])
    return figures


def calibrate(device_type: str) -> dict[str, Any]:
    """Measure, in this process."""
    import torch

    device = torch.device(device_type)
    name = torch.cuda.get_device_name(device) if device_type == "cuda" else "CPU"
    rates, missing = _matmul_rates(device)
    published: dict[str, float] = {}
    for each in FORMATS:
        peak = peak_for(name, each)
        if isinstance(peak, Peak):
            published[each] = peak.value
        else:
            missing[f"published_flops.{each}"] = peak
    return {
        "device": name, "matmul_flops": rates, "published_flops": published,
        "share_of_published": {each: rates[each] / peak for each, peak in published.items() if each in rates},
        "copy_bytes_per_second": _copy_rates(device), "missing": missing,
    }  # fmt: skip


def _matmul_rates(device: torch.device) -> tuple[dict[str, float], dict[str, str]]:
    edge = _EDGE[device.type]
    rates: dict[str, float] = {}
    missing: dict[str, str] = {}
    for each in FORMATS:
        if each == "tf32" and device.type != "cuda":
            missing["matmul_flops.tf32"] = "TF32 is a format of GPUs"
            continue
        rates[each] = 2.0 * edge**3 / _product_seconds(each, edge, device)
    return rates, missing


def _product_seconds(number_format: str, edge: int, device: torch.device) -> float:
    import torch

    torch.set_float32_matmul_precision("high" if number_format == "tf32" else "highest")
    dtype = torch.bfloat16 if number_format == "bf16" else torch.float32
    left, right = (torch.randn(edge, edge, device=device).to(dtype) for _ in range(2))
    output = torch.empty(edge, edge, device=device, dtype=dtype)
    return _median(lambda: torch.mm(left, right, out=output), device)


def _copy_rates(device: torch.device) -> dict[str, float]:
    """Bytes copied a second: within the device (each is read and written once), and to it from the host."""
    import torch

    size = _BUFFER_BYTES[device.type]
    target = torch.empty(size, dtype=torch.uint8, device=device)
    source = torch.ones(size, dtype=torch.uint8, device=device)

    def rate(origin: torch.Tensor) -> float:
        return size / _median(lambda: target.copy_(origin, non_blocking=True), device)

    rates = {"within the device": rate(source)}
    if device.type == "cuda":
        # ones: memory of zeros that nobody has written to is one page, read over and over
        host = torch.ones(size, dtype=torch.uint8)
        rates |= {"from pinned memory": rate(host.pin_memory()), "from pageable memory": rate(host)}
    return rates


def _median(action: Callable[[], Any], device: torch.device) -> float:
    """Median seconds of `action`, after a warm-up."""
    from harness.trial.kinds.repeat import repeat

    measured = repeat(lambda _: action(), device, warmup=_WARMUP, steps=_REPEATS)
    return statistics.median(measured.times.step_seconds)


if __name__ == "__main__":
    print(json.dumps(calibrate(sys.argv[1])))
