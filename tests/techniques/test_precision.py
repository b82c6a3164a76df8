"""A number format shows in an inner activation, not in a flag."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from harness.environment import Device, Environment
from harness.techniques.precision import Precision
from harness.trial.outcome import Outcome
from harness.trial.spec import TrialResult
from tests.training import cpu, refused

Run = Callable[..., TrialResult]


def _gpu(capability: tuple[int, int], packages: dict[str, str] | None = None) -> Environment:
    device = Device(index=0, name="a GPU", uuid="GPU-0", memory_bytes=1 << 34, compute_capability=capability)
    return replace(cpu(), devices=(device,), packages=packages if packages is not None else cpu().packages)


@pytest.mark.parametrize(
    ("setting", "inner", "weights"),
    [
        ("fp32", "torch.float32", "torch.float32"),
        ("amp-bf16", "torch.bfloat16", "torch.float32"),
        ("bf16", "torch.bfloat16", "torch.bfloat16"),
    ],
)
def test_the_type_inside_is_the_one_asked_for(run_trial: Run, setting: str, inner: str, weights: str) -> None:
    result = run_trial(precision=setting)
    facts = result.evidence["precision"]["facts"]
    assert result.outcome is Outcome.OK
    assert (facts["inner_activation"], facts["weights"]) == (inner, weights)


@pytest.mark.parametrize("setting", ["amp-bf16", "bf16"])
def test_a_flag_that_changes_nothing_is_inert(run_trial: Run, setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Precision, "apply", lambda *_: None)
    result = run_trial(precision=setting)
    assert result.outcome is Outcome.INERT
    assert result.reason == f"precision={setting} was set, but an inner activation is float32, not bfloat16"


def test_memory_of_weights_is_halved_by_bf16_and_not_by_autocast(run_trial: Run) -> None:
    fp32, amp, bf16 = (
        run_trial(precision=each).measured["model_state_bytes"]["parameters"] for each in ("fp32", "amp-bf16", "bf16")
    )
    assert amp == fp32
    assert bf16 == pytest.approx(fp32 / 2, rel=0.01)


def test_the_record_says_which_products_torch_was_allowed(run_trial: Run) -> None:
    """A figure against fp32 means nothing while it is unknown whether fp32 had TF32 (transformers#15026)."""
    assert run_trial().evidence["precision"]["facts"]["matmul_precision"] == "highest"


def test_what_cannot_run_is_refused_with_the_remedy() -> None:
    assert refused(precision="tf32") == "precision=tf32 needs a GPU with tensor cores (compute capability 8.0 or later)"
    assert "use amp-bf16 on a CPU" in str(refused(precision="amp-fp16"))
    assert "this GPU has 7.0" in str(refused(_gpu((7, 0)), precision="tf32"))
    assert refused(_gpu((8, 0)), precision="tf32") is None
    assert "DS_BUILD_OPS=0 pip install" in str(refused(_gpu((9, 0), packages={}), precision="ds-bf16"))
