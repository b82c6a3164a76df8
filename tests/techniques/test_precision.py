"""A number format shows in an inner activation, not in a flag."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from harness.environment import Device, Environment
from harness.techniques import precision
from harness.techniques.layers import product_layer
from harness.techniques.precision import Precision
from harness.trial.outcome import Outcome
from harness.trial.spec import TrialResult
from tests.techniques.ranks import Ranks
from tests.training import cell, cpu, refused, run_spec, spec_of

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


def test_fp16_trains_as_fp32_does_with_its_loss_scaled(run_trial: Run) -> None:
    """A CPU is refused it for its speed; what it computes is the same there."""
    whole, scaled = (run_trial(precision=each, gradient_check=True) for each in ("fp32", "amp-fp16"))
    assert scaled.outcome is Outcome.OK, scaled.reason
    assert scaled.evidence["precision"]["facts"] == {
        "inner_activation": "torch.float16", "weights": "torch.float32", "matmul_precision": "highest",
        "loss_scale": 65536.0,
    }  # fmt: skip
    assert scaled.measured["losses"] == pytest.approx(whole.measured["losses"], abs=1e-3)
    assert scaled.measured["gradient_norms"] == pytest.approx(whole.measured["gradient_norms"], rel=1e-2)
    check = scaled.measured["gradient_check"]
    # fp16 keeps 11 bits: 2^-11 is 4.9e-4
    assert 1e-4 < check["eager_error"] < 1e-3
    assert check["error"] <= 2 * check["eager_error"]


@pytest.mark.parametrize("setting", ["amp-bf16", "bf16"])
def test_a_flag_that_changes_nothing_is_inert(run_trial: Run, setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Precision, "apply", lambda *_: None)
    result = run_trial(precision=setting)
    assert result.outcome is Outcome.INERT
    assert result.reason == f"precision={setting} was set, but an inner activation is float32, not bfloat16"


def _weights_in_bf16(run: Any) -> None:
    run.parameter_dtype = torch.bfloat16


def _products_in_bf16(run: Any) -> None:
    def context() -> AbstractContextManager[Any]:
        return torch.autocast(run.device.type, dtype=torch.bfloat16)

    run.forward_contexts.append(context)


@pytest.mark.parametrize(
    ("asked", "done", "seen"),
    [
        ("amp-bf16", _weights_in_bf16, "weights are bfloat16, not float32"),
        ("bf16", _products_in_bf16, "weights are float32, not bfloat16"),
    ],
)
def test_weights_tell_autocast_from_pure_bf16(
    run_trial: Run, asked: str, done: Callable[[Any], None], seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both put out bf16: an inner activation alone cannot tell them apart, and one takes half the other's memory."""
    monkeypatch.setattr(Precision, "apply", lambda _self, _cell, run: done(run))
    result = run_trial(precision=asked)
    assert result.outcome is Outcome.INERT
    assert result.reason == f"precision={asked} was set, but {seen}"


_STEP = """
import torch
from torch import nn
from torch.nn import functional
from harness import TrainingStep

def make(settings, dtype, autocast, honours=()):
    model = nn.Sequential(nn.Embedding(64, 16), nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 64))).to(dtype)
    batches = [torch.randint(0, 64, (settings["batch_size"], settings["sequence_length"])) for _ in range(4)]
    def loss(model, batch):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            return functional.cross_entropy(model(batch).flatten(0, 1).float(), batch.flatten())
    return TrainingStep(model=model, batches=batches, loss=loss, honours=honours)

def weights_in_bf16(device, settings):
    return make(settings, torch.bfloat16, False)

def always_autocasts(device, settings):
    return make(settings, torch.float32, True, honours={"precision"})
"""


@pytest.mark.parametrize(
    ("build", "asked", "reason"),
    [
        ("weights_in_bf16", "amp-bf16", "precision=amp-bf16 was set, but weights are bfloat16, not float32"),
        ("weights_in_bf16", "bf16", ""),
        ("always_autocasts", "bf16", "precision=bf16 was set, but weights are float32, not bfloat16"),
        ("always_autocasts", "amp-bf16", ""),
    ],
)
def test_weights_of_a_users_own_step(tmp_path: Path, build: str, asked: str, reason: str) -> None:
    (tmp_path / "my.py").write_text(_STEP, encoding="utf-8")
    spec = spec_of(model=f"{tmp_path / 'my.py'}:{build}", options={"named": ["precision"]}, precision=asked)
    result = run_spec(replace(spec, baseline_settings={**spec.settings, "precision": "fp32"}))
    assert result.reason == reason
    assert result.outcome is (Outcome.INERT if reason else Outcome.OK)


@pytest.mark.parametrize(
    ("precision", "inner", "weights"),
    [("fp32", "float32", "float32"), ("amp-bf16", "bfloat16", "float32"), ("bf16", "bfloat16", "bfloat16")],
)
@pytest.mark.parametrize("quantization", ["none", "nf4"])
def test_adapters_and_4_bit_layers_have_types_of_their_own_and_are_no_proof(
    run_trial: Run, precision: str, inner: str, weights: str, quantization: str
) -> None:
    """QLoRA as everybody runs it is autocast on 4-bit weights: those cast their output back to fp32."""
    result = run_trial(precision=precision, lora=8, quantization=quantization)
    assert result.outcome is Outcome.OK, result.reason
    facts = result.evidence["precision"]["facts"]
    assert (facts["inner_activation"], facts["weights"]) == (f"torch.{inner}", f"torch.{weights}")


@pytest.mark.parametrize("precision", ["amp-bf16", "bf16"])
@pytest.mark.parametrize("quantization", ["none", "nf4"])
def test_a_flag_that_changes_nothing_is_inert_under_adapters_too(
    run_trial: Run, precision: str, quantization: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Precision, "apply", lambda *_: None)
    result = run_trial(precision=precision, lora=8, quantization=quantization)
    assert result.outcome is Outcome.INERT
    assert result.reason == f"precision={precision} was set, but an inner activation is float32, not bfloat16"


def test_the_layer_that_is_looked_at_computes_in_the_precision_of_the_cell() -> None:
    """No embedding, no adapter, no 4-bit layer, in peft's wrapper or out of it: where all are such, the next part."""

    class FourBit(nn.Linear):
        compute_dtype = torch.bfloat16

    class Wrapped(nn.Module):
        def __init__(self, base: nn.Linear) -> None:
            super().__init__()
            self.base_layer, self.lora_A = base, nn.ModuleDict({"default": nn.Linear(4, 2)})
            self.weight = base.weight

    packed, plain = Wrapped(FourBit(4, 4)), Wrapped(nn.Linear(4, 4))
    assert product_layer([nn.ModuleList([nn.Embedding(4, 4), nn.LayerNorm(4), packed])]) is None
    assert product_layer([nn.ModuleList([packed, plain])]) is plain
    head = nn.Linear(4, 4)
    assert product_layer([nn.ModuleList([packed]), head]) is head


@pytest.mark.parametrize(
    ("settings", "inner", "weights"),
    [
        ({"parallel": "fsdp", "precision": "amp-bf16"}, "bfloat16", "float32"),
        ({"parallel": "fsdp", "precision": "bf16"}, "bfloat16", "bfloat16"),
        ({"parallel": "pipeline", "precision": "amp-bf16"}, "bfloat16", "float32"),
        ({"zero": 1, "precision": "amp-bf16"}, "bfloat16", "float32"),
        ({"zero": 3, "precision": "amp-bf16"}, "bfloat16", "float32"),
        ({"zero": 3, "precision": "bf16"}, "bfloat16", "bfloat16"),
        ({"zero": 2, "precision": "ds-bf16"}, "bfloat16", "bfloat16"),
    ],
)
def test_sharded_weights_are_looked_at_as_they_are_kept(
    run_ranks: Ranks, settings: dict[str, Any], inner: str, weights: str
) -> None:
    """FSDP gathers a 16-bit copy under autocast, and DeepSpeed steps fp32 masters of a bf16 model."""
    result = run_ranks(devices=2, **settings)
    assert result.outcome is Outcome.OK, result.reason
    facts = result.evidence["precision"]["facts"]
    assert (facts["inner_activation"], facts["weights"]) == (f"torch.{inner}", f"torch.{weights}")


def test_memory_of_weights_is_halved_by_bf16_and_not_by_autocast(run_trial: Run) -> None:
    fp32, amp, bf16 = (
        run_trial(precision=each).measured["model_state_bytes"]["parameters"] for each in ("fp32", "amp-bf16", "bf16")
    )
    assert amp == fp32
    assert bf16 == pytest.approx(fp32 / 2, rel=0.01)


@pytest.mark.parametrize("allowed", ["highest", "high", "medium"])
def test_the_record_says_which_products_torch_was_allowed(
    run_trial: Run, allowed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A figure against fp32 means nothing while it is unknown whether fp32 had TF32 (transformers#15026)."""
    monkeypatch.setattr(Precision, "apply", lambda *_: torch.set_float32_matmul_precision(allowed))
    assert run_trial().evidence["precision"]["facts"]["matmul_precision"] == allowed


@pytest.mark.parametrize(
    ("setting", "allowed"), [("fp32", False), ("tf32", True), ("bf16", False), ("amp-bf16", False)]
)
def test_products_in_tf32_are_allowed_where_they_are_asked_for(
    setting: str, allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", not allowed)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        run: Any = SimpleNamespace(forward_contexts=[])
        Precision().apply(cell(precision=setting), run)
        assert torch.get_float32_matmul_precision() == ("high" if allowed else "highest")
        assert torch.backends.cudnn.allow_tf32 is allowed
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize(
    ("setting", "error", "holds"),
    [("fp32", 3e-7, True), ("fp32", 3e-4, False), ("tf32", 3e-4, True), ("tf32", 3e-7, False)],
)
def test_on_a_gpu_fp32_and_tf32_are_told_apart_by_their_rounding(
    setting: str, error: float, holds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A baseline that says fp32 and multiplies in TF32 halves every figure against it."""
    monkeypatch.setattr(precision, "inner_dtypes", lambda run: (torch.float32, torch.float32))
    monkeypatch.setattr(precision, "product_error", lambda device: error)
    run: Any = SimpleNamespace(scaler=None, device=torch.device("cuda"))
    evidence = Precision().evidence(cell(precision=setting), run)
    assert evidence is not None
    assert evidence.holds is holds


def test_the_rounding_of_a_product_is_relative_and_lies_on_the_right_side() -> None:
    """fp32 keeps 24 bits and bf16, as which autocast multiplies here, 8: TF32's 11 are told from fp32's by less."""
    cpu_ = torch.device("cpu")
    assert 1e-8 < precision.product_error(cpu_) < precision.BETWEEN_FP32_AND_TF32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert 1e-3 < precision.product_error(cpu_) < 1e-2
    assert 10 * 3e-7 < precision.BETWEEN_FP32_AND_TF32 < 3e-4 / 10


def test_what_cannot_run_is_refused_with_the_remedy() -> None:
    assert refused(precision="tf32") == "precision=tf32 needs a GPU with tensor cores (compute capability 8.0 or later)"
    assert "use amp-bf16 on a CPU" in str(refused(precision="amp-fp16"))
    assert "this GPU has 7.0" in str(refused(_gpu((7, 0)), precision="tf32"))
    assert refused(_gpu((8, 0)), precision="tf32") is None
    assert "DS_BUILD_OPS=0 pip install" in str(refused(_gpu((9, 0), packages={}), precision="ds-bf16"))
