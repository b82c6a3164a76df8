"""What this device achieves, measured in a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from harness.errors import LaunchError
from harness.trial import calibrate
from harness.trial.calibrate import in_child
from harness.trial.peaks import Peak

if TYPE_CHECKING:
    import torch


@pytest.mark.train
def test_a_cpu_is_calibrated() -> None:
    figures = in_child("cpu")
    assert set(figures["matmul_flops"]) == {"bf16", "fp32"}
    assert all(rate > 1e6 for rate in figures["matmul_flops"].values())
    assert figures["copy_bytes_per_second"]["within the device"] > 1e6
    assert figures["published_flops"] == {}  # no published peak for a CPU, so no share of one
    assert "TF32" in figures["missing"]["matmul_flops.tf32"]


@pytest.mark.train
def test_a_device_that_does_not_work_is_one_sentence() -> None:
    with pytest.raises(LaunchError, match=r"calibration failed .* check that torch works here"):
        in_child("nonsense")


@pytest.mark.train
def test_a_product_is_two_operations_for_each_of_its_edges_cubed(monkeypatch: pytest.MonkeyPatch) -> None:
    """256³ · 2 in half a second, of a device whose peak in bf16 is twice that."""
    rate = 2 * 256**3 / 0.5
    peaks = {"bf16": Peak(value=2 * rate, dtype="bf16", source="by hand")}
    monkeypatch.setattr(calibrate, "_product_seconds", lambda *_: 0.5)
    monkeypatch.setattr(calibrate, "_copy_rates", lambda _: {})
    monkeypatch.setattr(calibrate, "peak_for", lambda name, dtype: peaks.get(dtype, "none on file"))
    found = calibrate.calibrate("cpu")
    assert found["matmul_flops"] == {"bf16": rate, "fp32": rate}
    assert found["published_flops"] == {"bf16": 2 * rate}
    assert found["share_of_published"] == {"bf16": 0.5}


@pytest.mark.train
@pytest.mark.parametrize(("number_format", "allowed"), [("bf16", "highest"), ("tf32", "high"), ("fp32", "highest")])
def test_fp32_is_multiplied_in_tf32_where_that_is_asked_for_alone(
    number_format: str, allowed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    seen: list[tuple[str, torch.dtype]] = []

    def once(action: Callable[[], torch.Tensor], device: torch.device) -> float:
        seen.append((torch.get_float32_matmul_precision(), action().dtype))
        return 1.0

    monkeypatch.setattr(calibrate, "_median", once)
    try:
        calibrate._product_seconds(number_format, 4, torch.device("cpu"))
    finally:
        torch.set_float32_matmul_precision("highest")
    assert seen == [(allowed, torch.bfloat16 if number_format == "bf16" else torch.float32)]
