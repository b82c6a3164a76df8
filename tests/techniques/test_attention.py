"""Which kernel computed attention is read from a profile, and from nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.techniques import attention, replicas
from harness.techniques.attention import Attention
from harness.techniques.base import Evidence
from harness.trial.outcome import Outcome
from harness.trial.profile import Profile
from harness.trial.spec import TrialResult
from tests.techniques.test_precision import _gpu
from tests.training import cell, masks_in_graphs, refused

Run = Callable[..., TrialResult]


@pytest.mark.parametrize(
    ("setting", "kernel"),
    [("sdpa-flash", "sdpa-flash"), ("sdpa-math", "sdpa-math"), ("eager", None)],
)
def test_the_profile_shows_the_kernel(run_trial: Run, setting: str, kernel: str | None) -> None:
    result = run_trial(attention=setting)
    kernels = result.evidence["attention"]["facts"]["kernels"]
    assert result.outcome is Outcome.OK
    assert list(kernels) == ([kernel] if kernel else [])


@pytest.mark.parametrize("setting", ["eager", "sdpa-math"])
def test_a_choice_that_is_not_made_is_inert(run_trial: Run, setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Attention, "apply", lambda *_: None)
    result = run_trial(attention=setting)
    assert result.outcome is Outcome.INERT
    assert f"attention={setting} was set, but the profile shows the kernel of sdpa-flash" in result.reason


def test_a_kernel_that_falls_back_is_inert(run_trial: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for flash, given plain operations: what a mask or a data type does silently elsewhere."""
    monkeypatch.setattr(Attention, "apply", lambda _self, _cell, run: setattr(run, "attention", "eager"))
    result = run_trial(attention="sdpa-flash")
    assert result.outcome is Outcome.INERT
    assert "its kernel is not in the profile" in result.reason


@pytest.mark.parametrize(("setting", "written"), [("sdpa-flash", False), ("sdpa", True)])
def test_a_kernel_that_is_asked_for_is_given_no_mask_where_the_model_is_compiled(
    run_trial: Run, setting: str, written: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No flash kernel takes one on a GPU; transformers writes it out where it is traced, and plain `sdpa` has it."""
    masks = masks_in_graphs(monkeypatch)
    result = run_trial(attention=setting, compile="default")
    assert (result.outcome, result.reason) == (Outcome.OK, "")
    assert {mask is not None for mask in masks} == {written}


def _eager(run: Any) -> None:
    run.attention = "eager"


def _sdpa_math(run: Any) -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    run.held.enter_context(sdpa_kernel(SDPBackend.MATH))


_NOT_CALLED = "the model did not call scaled_dot_product_attention"


@pytest.mark.parametrize("compile_", ["off", "default"])
@pytest.mark.parametrize(("asked", "done"), [("eager", _sdpa_math), ("sdpa-math", _eager), ("sdpa", _eager)])
def test_plain_operations_are_told_apart_by_who_called_them(
    run_trial: Run, asked: str, done: Callable[[Any], None], compile_: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are products and a softmax; a compiler makes the same code of them. torch's own backend `eager` spares the
    minute in the C++ compiler."""
    plain = torch.compile
    monkeypatch.setattr(torch, "compile", lambda function, **_: plain(function, backend="eager"))
    assert run_trial(attention=asked, compile=compile_).outcome is Outcome.OK
    monkeypatch.setattr(Attention, "apply", lambda _self, _cell, run: done(run))
    result = run_trial(attention=asked, compile=compile_)
    seen = "the model called scaled_dot_product_attention" if asked == "eager" else _NOT_CALLED
    assert result.outcome is Outcome.INERT
    assert result.reason == f"attention={asked} was set, but {seen}"


class _InThreads(torch.nn.Module):
    """Runs a batch of several as DataParallel does, in a thread; here a single one, on the CPU."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, **batch: torch.Tensor) -> Any:
        if len(batch["input_ids"]) == 1:
            return self.module(**batch)
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(self.module, **batch).result()


@pytest.mark.parametrize(("asked", "other"), [("eager", _sdpa_math), ("sdpa-math", _eager), ("sdpa", _eager)])
def test_replicas_in_threads_are_looked_at_where_the_profiler_sees_them(
    run_trial: Run, asked: str, other: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On two H200s each trial of `parallel=dp` was called inert: no operator of its forward stood in the profile."""
    seen: list[Profile] = []

    def feed(run: Any, devices: int) -> None:
        run.model = _InThreads(run.model)

    def devices_that_ran(run: Any, devices: int) -> Evidence:
        seen.append(run.profile)
        return Evidence(holds=True, word="threads", facts={})

    monkeypatch.setattr(replicas, "feed_several", feed)
    monkeypatch.setattr(replicas, "devices_that_ran", devices_that_ran)
    result = run_trial(attention=asked, parallel="dp", devices=2)
    assert result.outcome is Outcome.OK, result.reason
    assert not any("attention" in name or "softmax" in name for name in seen[0].operators if "backward" not in name)
    monkeypatch.setattr(Attention, "apply", lambda _self, _cell, run: other(run))
    result = run_trial(attention=asked, parallel="dp", devices=2)
    assert result.outcome is Outcome.INERT
    assert result.reason.startswith(f"attention={asked} was set, but the model ")


def test_a_forward_without_attention_is_no_eager_attention(run_trial: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The absence of every kernel alone proves nothing."""
    from transformers.models.llama import modeling_llama

    def nothing(self: Any, hidden_states: torch.Tensor, **_: object) -> tuple[torch.Tensor, None]:
        return self.o_proj(self.q_proj(hidden_states)), None

    monkeypatch.setattr(modeling_llama.LlamaAttention, "forward", nothing)
    result = run_trial(attention="eager")
    assert result.outcome is Outcome.INERT
    assert result.reason == "attention=eager was set, but the model called no softmax"


def test_flash_is_exact_where_eager_is(run_trial: Run) -> None:
    """First gradient against fp32 eager: at most twice what eager attention is off by itself at that precision."""
    check = run_trial(attention="sdpa-flash", precision="bf16", gradient_check=True).measured["gradient_check"]
    assert 0 < check["error"] <= 2 * check["eager_error"]


def test_a_wrong_mask_shows_in_the_gradient(run_trial: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses of a few steps would pass it."""
    plain = torch.nn.functional.scaled_dot_product_attention

    def not_causal(*tensors: torch.Tensor, is_causal: bool = False, **options: object) -> torch.Tensor:
        return plain(*tensors, is_causal=False, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", not_causal)
    check = run_trial(attention="sdpa", gradient_check=True).measured["gradient_check"]
    assert check["error"] > 0.01


def test_flash_in_fp32_is_refused_before_launch() -> None:
    """flash-attention#676, LlamaFactory#7998."""
    hopper = _gpu((9, 0), packages={"flash-attn": "2.8.3"})
    for setting in ("flash2", "sdpa-flash", "sdpa-cudnn"):
        for precision in ("fp32", "tf32"):
            why = str(refused(hopper, attention=setting, precision=precision))
            assert f"takes 16-bit inputs only and precision is {precision}" in why
        assert refused(hopper, attention=setting, precision="bf16") is None
    assert "pip install flash-attn" in str(refused(_gpu((9, 0), packages={}), attention="flash2", precision="bf16"))


def test_a_build_of_flash_attn_without_fp16_kernels_is_refused_in_fp16(monkeypatch: pytest.MonkeyPatch) -> None:
    hopper = _gpu((9, 0), packages={"flash-attn": "2.8.3"})
    for has, why in ((False, "holds bf16 kernels only"), (True, "None")):
        monkeypatch.setattr(attention, "_has_fp16_kernels", lambda environment, has=has: has)
        assert why in str(refused(hopper, attention="flash2", precision="amp-fp16"))
        assert refused(hopper, attention="flash2", precision="amp-bf16") is None


#: As torch's profiler names them: torch's own build of FlashAttention, and the flash-attn package.
_REAL_NAMES = {
    "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, "
    "cutlass::bfloat16_t>, false, true>(pytorch_flash::Flash_fwd_params)": "sdpa-flash",
    "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::bfloat16_t>, false, "
    "true>(flash::Flash_fwd_params)": "flash2",
    "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<64, 64, 256, 4>>(flash::Flash_fwd_params)": "flash2",
    "flash_attn::_flash_attn_forward": "flash2",
    "flash_attn::_flash_attn_varlen_forward": "flash2",
    "aten::_flash_attention_forward": "sdpa-flash",
    "aten::_scaled_dot_product_flash_attention": "sdpa-flash",
    "aten::_scaled_dot_product_flash_attention_for_cpu": "sdpa-flash",
    "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::bfloat16_t>::Params)":
        "sdpa-efficient",
    "aten::_scaled_dot_product_efficient_attention": "sdpa-efficient",
    "aten::_efficient_attention_forward": "sdpa-efficient",
    "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1_cga1x1x1_kernel0_0":
        "sdpa-cudnn",
    "aten::_scaled_dot_product_cudnn_attention": "sdpa-cudnn",
    "aten::_cudnn_attention_forward": "sdpa-cudnn",
    "aten::_scaled_dot_product_attention_math": "sdpa-math",
}  # fmt: skip


@pytest.mark.parametrize(("name", "kernel"), _REAL_NAMES.items())
def test_a_kernel_is_a_sign_of_one_setting_alone(name: str, kernel: str) -> None:
    """torch's own flash kernel bears the name of the package's with another namespace."""
    run: Any = SimpleNamespace(profile=Profile(kernels=Counter({name: 4})), own=None)
    for setting in ("flash2", "sdpa-flash", "sdpa-efficient", "sdpa-cudnn"):
        evidence = Attention().evidence(cell(attention=setting, precision="bf16"), run)
        assert evidence is not None
        assert list(evidence.facts["kernels"]) == [kernel]
        assert evidence.holds is (setting == kernel)


def test_the_kernel_is_named_and_not_the_operator_that_called_it() -> None:
    kernel = next(iter(_REAL_NAMES))
    profile = Profile(kernels=Counter({kernel: 4}), operators=Counter({"aten::_flash_attention_forward": 4}))
    run: Any = SimpleNamespace(profile=profile, own=None)
    evidence = Attention().evidence(cell(attention="sdpa-flash", precision="bf16"), run)
    assert evidence is not None
    assert evidence.word == "pytorch_flash::flash_fwd_kernel"
