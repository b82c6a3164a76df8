"""Dense peak rates of devices, by name and data type, each with its source.

An unknown device has no peak: MFU is then null, never a guess. Sparse figures of data sheets are halved; TF32 and BF16
are the tensor cores' with FP32 accumulation.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Peak:
    """`value` in FLOP/s for matrix products with operands of `dtype`."""

    value: float
    dtype: str
    source: str


_HOPPER = "NVIDIA H100 datasheet (SXM5), dense = half of the figure with sparsity"
_HOPPER_PCIE = "NVIDIA H100 datasheet (PCIe), dense = half of the figure with sparsity"
_H200 = "NVIDIA H200 datasheet (SXM), dense = half of the figure with sparsity"
_A100 = "NVIDIA A100 datasheet"
_ADA = "NVIDIA L4/L40S datasheet, dense = half of the figure with sparsity"
_ADA_GEFORCE = "NVIDIA Ada GPU architecture whitepaper, FP32 accumulation"
_AMPERE_GEFORCE = "NVIDIA GA102 whitepaper, FP32 accumulation"
_VOLTA = "NVIDIA V100 datasheet"

#: Device name (as the driver gives it) → (source, {dtype: TFLOP/s}).
_TABLE: dict[str, tuple[str, dict[str, float]]] = {
    "NVIDIA H100 80GB HBM3": (_HOPPER, {"fp32": 66.9, "tf32": 494.7, "bf16": 989.4, "fp16": 989.4}),
    "NVIDIA H100 PCIe": (_HOPPER_PCIE, {"fp32": 51.2, "tf32": 378.0, "bf16": 756.0, "fp16": 756.0}),
    "NVIDIA H200": (_H200, {"fp32": 66.9, "tf32": 494.7, "bf16": 989.4, "fp16": 989.4}),
    "NVIDIA A100-SXM4-40GB": (_A100, {"fp32": 19.5, "tf32": 156.0, "bf16": 312.0, "fp16": 312.0}),
    "NVIDIA A100-SXM4-80GB": (_A100, {"fp32": 19.5, "tf32": 156.0, "bf16": 312.0, "fp16": 312.0}),
    "NVIDIA A100-PCIE-40GB": (_A100, {"fp32": 19.5, "tf32": 156.0, "bf16": 312.0, "fp16": 312.0}),
    "NVIDIA A100 80GB PCIe": (_A100, {"fp32": 19.5, "tf32": 156.0, "bf16": 312.0, "fp16": 312.0}),
    "NVIDIA L4": (_ADA, {"fp32": 30.3, "tf32": 60.0, "bf16": 121.0, "fp16": 121.0}),
    "NVIDIA L40S": (_ADA, {"fp32": 91.6, "tf32": 183.0, "bf16": 362.0, "fp16": 362.0}),
    "NVIDIA GeForce RTX 4090": (_ADA_GEFORCE, {"fp32": 82.6, "tf32": 82.6, "bf16": 165.2, "fp16": 165.2}),
    "NVIDIA GeForce RTX 3090": (_AMPERE_GEFORCE, {"fp32": 35.6, "tf32": 35.6, "bf16": 71.0, "fp16": 71.0}),
    "Tesla V100-SXM2-16GB": (_VOLTA, {"fp32": 15.7, "fp16": 125.0}),
    "Tesla V100-SXM2-32GB": (_VOLTA, {"fp32": 15.7, "fp16": 125.0}),
}


def why_unknown(device_name: str) -> str:
    """Why a device has no peak at all; empty where it has."""
    if device_name in _TABLE:
        return ""
    return f"no published dense peak on file for {device_name!r}; add it to harness/trial/peaks.py with its source"


def peak_for(device_name: str, dtype: str) -> Peak | str:
    """The dense peak of products in `dtype` (fp32, tf32, bf16, fp16) on a device, or the reason why none is known."""
    if unknown := why_unknown(device_name):
        return unknown
    source, rates = _TABLE[device_name]
    if dtype not in rates:
        return f"{device_name} has no published {dtype} rate on file"
    return Peak(value=rates[dtype] * 1e12, dtype=dtype, source=source)
