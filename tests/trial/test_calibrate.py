"""What this device achieves, measured in a process of its own."""

from __future__ import annotations

import pytest

from harness.errors import LaunchError
from harness.trial.calibrate import in_child


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
