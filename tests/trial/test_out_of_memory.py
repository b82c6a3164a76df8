"""Memory that is full is a result (`oom`), in whichever library's words it is told; every other error is a crash."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.trial.outcome import Outcome
from tests.training import run_trial

_WORDS = [
    ("CUDA out of memory. Tried to allocate 2.00 GiB", Outcome.OOM),
    ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", Outcome.OOM),
    ("cuDNN error: CUDNN_STATUS_ALLOC_FAILED", Outcome.OOM),
    ("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED", Outcome.OOM),
    ("CUDA driver error: CUDA_ERROR_OUT_OF_MEMORY", Outcome.OOM),
    (
        "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
        "allocate 4398046511104 bytes. Error code 12 (Cannot allocate memory)",
        Outcome.OOM,
    ),
    ("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx(handle)`", Outcome.CRASH),
    ("CUDA error: an illegal memory access was encountered", Outcome.CRASH),
]


def told(words: str) -> str:
    """Of these words what a reason keeps."""
    return "out of host memory" if "DefaultCPUAllocator" in words else words


@pytest.mark.parametrize(("words", "outcome"), _WORDS)
def test_a_trial_says_so_in_every_librarys_words(words: str, outcome: Outcome, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise RuntimeError(words)

    monkeypatch.setattr("harness.trial.kinds.runner", lambda kind: full)
    result = run_trial()
    assert result.outcome is outcome
    assert told(words) in result.reason


@pytest.mark.parametrize(("words", "outcome"), _WORDS)
def test_a_step_of_ones_own_is_not_blamed_for_it(tmp_path: Path, words: str, outcome: Outcome) -> None:
    (tmp_path / "my.py").write_text(
        "import torch\n"
        f"class Full(torch.nn.Linear):\n    def forward(self, ids):\n        raise RuntimeError({words!r})\n"
        "def build(device, settings):\n    return Full(2, 2), [torch.zeros(2, 2)], lambda model, batch: model(batch)\n",
        encoding="utf-8",
    )
    result = run_trial(model=f"{tmp_path / 'my.py'}:build", options={"named": []})
    assert result.outcome is outcome, result.reason
    assert told(words) in result.reason
