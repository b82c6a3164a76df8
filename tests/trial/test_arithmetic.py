"""MFU and HFU as they are computed: dense peaks, the type that was seen, useful tokens, every device."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.trial import arithmetic, peaks
from harness.trial.arithmetic import document_lengths
from harness.trial.flops import Weights
from harness.trial.model import make_config
from harness.trial.outcome import Outcome
from harness.trial.peaks import Peak, peak_for
from harness.trial.ranks import Ranks
from harness.trial.spec import TrialResult
from harness.trial.training import TrainingRun, make_batches
from tests.training import cpu, run_spec, run_trial, spec_of

H100 = "NVIDIA H100 80GB HBM3"
#: By hand, tiny: 2 layers of 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128 weights, head 64 * 512.
BLOCKS, HEAD = 2 * 36_864, 32_768

#: TFLOP/s without sparsity, in fp32 (no tensor cores), tf32, bf16, fp16; None: the device has no such rate.
#: H100: "NVIDIA H100 Tensor Core GPU Architecture" (whitepaper v1.04), table 2, the figures without sparsity;
#: PCIe and H200: their data sheets, whose tensor-core figures are "with sparsity": half of 756, 1513 and of 989, 1979.
#: A100: its data sheet, TF32 156 | 312*, BF16 312 | 624*. L4: 120, 242 with sparsity. L40S: 183 | 366*, 362 | 733*.
#: RTX 4090: "NVIDIA Ada GPU Architecture", appendix A; RTX 3090: "NVIDIA Ampere GA102", table 9; FP32 accumulation.
#: V100 (SXM2): its data sheet, 15.7 and 125.
DENSE: dict[str, tuple[float | None, float | None, float | None, float | None]] = {
    H100: (66.9, 494.7, 989.4, 989.4),
    "NVIDIA H100 PCIe": (51.2, 378, 756, 756),
    "NVIDIA H200": (66.9, 494.7, 989.4, 989.4),
    "NVIDIA A100-SXM4-40GB": (19.5, 156, 312, 312),
    "NVIDIA A100-SXM4-80GB": (19.5, 156, 312, 312),
    "NVIDIA A100-PCIE-40GB": (19.5, 156, 312, 312),
    "NVIDIA A100 80GB PCIe": (19.5, 156, 312, 312),
    "NVIDIA L4": (30.3, 60, 121, 121),
    "NVIDIA L40S": (91.6, 183, 362, 362),
    "NVIDIA GeForce RTX 4090": (82.6, 82.6, 165.2, 165.2),
    "NVIDIA GeForce RTX 3090": (35.6, 35.6, 71, 71),
    "Tesla V100-SXM2-16GB": (15.7, None, None, 125),
    "Tesla V100-SXM2-32GB": (15.7, None, None, 125),
}


def test_every_device_on_file_has_its_dense_peaks() -> None:
    assert set(peaks._TABLE) == set(DENSE)
    for device, rates in DENSE.items():
        for dtype, rate in zip(("fp32", "tf32", "bf16", "fp16"), rates, strict=True):
            peak = peak_for(device, dtype)
            if rate is None:
                assert peak == f"{device} has no published {dtype} rate on file"
            else:
                assert isinstance(peak, Peak)
                assert (peak.value, peak.dtype) == (pytest.approx(rate * 1e12), dtype)
                assert "NVIDIA" in peak.source


def test_another_device_has_none() -> None:
    assert "no published dense peak on file for 'NVIDIA H100 NVL'" in str(peak_for("NVIDIA H100 NVL", "bf16"))


@pytest.fixture
def on_h100(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trial runs on the CPU, which bears this name."""
    monkeypatch.setattr(arithmetic, "device_name", lambda device: H100)


@pytest.mark.train
@pytest.mark.usefixtures("on_h100")
@pytest.mark.parametrize(
    ("precision", "peak", "dtype"),
    [("fp32", 66.9e12, "fp32"), ("bf16", 989.4e12, "bf16"), ("amp-bf16", 989.4e12, "bf16")],
)
@pytest.mark.parametrize("checkpointing", ["off", "full", "reentrant"])
def test_mfu_is_model_flops_over_the_peak_of_the_precision(
    precision: str, peak: float, dtype: str, checkpointing: str
) -> None:
    measured = run_trial(precision=precision, checkpointing=checkpointing).measured
    attention = 2 * 2 * 64 * 64  # 2·L·H·Q·T of a forward
    model = 6 * (BLOCKS + HEAD) + 3 * attention
    again = 0 if checkpointing == "off" else 2 * BLOCKS + attention
    assert measured["model_flops_per_token"] == model
    assert measured["hardware_flops_per_token"] == model + again
    assert measured["mfu"] == pytest.approx(measured["tokens_per_second"] * model / peak)
    assert measured["hfu"] == pytest.approx(measured["tokens_per_second"] * (model + again) / peak)
    assert (measured["peak_flops"]["value"], measured["peak_flops"]["dtype"]) == (pytest.approx(peak), dtype)


@pytest.mark.train
def test_frozen_weights_of_a_trial_take_no_gradient_of_their_own() -> None:
    """4N of them and 6N of the adapters, where 6N of all would be half as much again (LoRA counted as 6N)."""
    adapters = 2 * 8 * ((64 + 64) * 2 + (64 + 32) * 2 + (64 + 128) * 3)
    attention = 2 * 2 * 64 * 64
    off, full = (run_trial(lora=8, checkpointing=each).measured for each in ("off", "full"))
    assert off["model_flops_per_token"] == 4 * (BLOCKS + HEAD) + 6 * adapters + 3 * attention
    assert full["model_flops_per_token"] == off["model_flops_per_token"]
    again = 2 * (BLOCKS + adapters) + attention
    assert full["hardware_flops_per_token"] == off["model_flops_per_token"] + again


@pytest.mark.train
@pytest.mark.parametrize("lora", ["off", 8])
def test_a_teachers_forward_is_the_hardwares(lora: str | int) -> None:
    """2N of all its weights and its attention, forward alone: it has the student's shape, and no adapters."""
    alone, taught = (run_trial(lora=lora, distillation=each).measured for each in ("off", "teacher"))
    assert taught["model_flops_per_token"] == alone["model_flops_per_token"]
    forward = 2 * (BLOCKS + HEAD) + 2 * 2 * 64 * 64
    assert taught["hardware_flops_per_token"] == alone["hardware_flops_per_token"] + forward


@pytest.mark.train
@pytest.mark.usefixtures("on_h100")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_four_bit_layers_are_held_against_the_peak_of_the_type_that_they_compute_in(precision: str) -> None:
    """The precision's evidence looks at a layer that is not 4-bit: in fp32 the trial could pass the peak of fp32."""
    result = run_trial(quantization="nf4", lora=8, precision=precision)
    assert result.outcome is Outcome.OK, result.reason
    assert result.measured["peak_flops"]["dtype"] == "bf16"
    assert result.measured["peak_flops"]["value"] == pytest.approx(989.4e12)


@pytest.mark.train
@pytest.mark.usefixtures("on_h100")
def test_no_peak_where_four_bit_layers_make_the_smaller_half() -> None:
    """Adapters of 64 columns on products of 64 and 128 make more than the frozen weights themselves."""
    result = run_trial(quantization="nf4", lora=64, precision="fp32")
    assert result.outcome is Outcome.OK, result.reason
    assert "mfu" not in result.measured
    assert "4-bit layers multiply in another data type" in result.missing["mfu"]
    assert result.missing["hfu"] == result.missing["peak_flops"] == result.missing["mfu"]


def filled(
    *, ranks: int = 1, devices_fed: int = 1, speed: float = 1e6, outcome: Outcome = Outcome.OK
) -> TrialResult:  # fmt: skip
    """What `fill` makes of a speed of all devices together, seen in bf16, with 1000 weights and no attention."""
    run = TrainingRun(spec_of(precision="bf16"), Ranks(world_size=ranks), cpu())
    run.devices_fed = devices_fed
    run.weights = Weights(trained_in_blocks=1000)
    run.config = SimpleNamespace(num_attention_heads=1, num_hidden_layers=1, head_dim=0.0, hidden_size=0)
    result = TrialResult(outcome=outcome, evidence={"precision": {"facts": {"inner_activation": "torch.bfloat16"}}})
    result.measured = {"tokens_per_second": speed, "figures": {"useful_tokens_per_second": speed / 2}}
    arithmetic.fill(run, result)
    return result


@pytest.mark.usefixtures("on_h100")
@pytest.mark.parametrize(("ranks", "devices_fed", "devices"), [(1, 1, 1), (4, 1, 4), (1, 2, 2)])
def test_a_jobs_speed_is_shared_by_its_devices(ranks: int, devices_fed: int, devices: int) -> None:
    measured = filled(ranks=ranks, devices_fed=devices_fed).measured
    assert measured["mfu"] == pytest.approx(0.5e6 / devices * 6000 / 989.4e12)
    assert measured["hfu"] == pytest.approx(1e6 / devices * 6000 / 989.4e12)


@pytest.mark.usefixtures("on_h100")
@pytest.mark.parametrize("before", [Outcome.OK, Outcome.INERT])
def test_more_than_the_peak_is_invalid(before: Outcome) -> None:
    assert filled(speed=2 * 989.4e12 / 6000 * 0.99, outcome=before).outcome is before
    result = filled(speed=2 * 989.4e12 / 6000 * 1.01, outcome=before)
    assert result.outcome is Outcome.INVALID
    assert result.reason == f"MFU 1.01 is above 1: the peak on file for {H100} (bf16) cannot be right"


@pytest.mark.parametrize(
    ("facts", "word"),
    [
        ({"inner_activation": "torch.float32", "product_error": 3e-4}, "tf32"),
        ({"inner_activation": "torch.float32", "product_error": 3e-7}, "fp32"),
        ({"inner_activation": "torch.bfloat16"}, "bf16"),
        ({"inner_activation": "torch.float16"}, "fp16"),
        ({"inner_activation": "torch.float64"}, None),
    ],
)
def test_the_type_is_the_one_that_was_seen(facts: dict[str, Any], word: str | None) -> None:
    run: Any = SimpleNamespace(device=torch.device("cuda"))
    assert arithmetic._products_in(run, facts) == word


OWN = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM

def made(device):
    config = LlamaConfig(vocab_size=512, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2)
    return LlamaForCausalLM(config).to(device), [torch.randint(0, 512, (4, 64)) for _ in range(8)]

def autocasts(device, settings):
    def loss(model, batch):
        with torch.autocast(device.type, dtype=torch.bfloat16):
            return model(input_ids=batch, labels=batch).loss
    return (*made(device), loss)

def plain(device, settings):
    return (*made(device), lambda model, batch: model(input_ids=batch, labels=batch).loss)
"""


@pytest.mark.train
@pytest.mark.usefixtures("on_h100")
@pytest.mark.parametrize(("build", "peak"), [("autocasts", 989.4e12), ("plain", 66.9e12)])
def test_a_users_step_is_held_against_the_type_that_it_computes_in(tmp_path: Path, build: str, peak: float) -> None:
    (tmp_path / "own.py").write_text(OWN)
    sizes: dict[str, Any] = {"sequence_length": 1024, "batch_size": 8, "stream": "parse"}
    options = {"named": ["attention"]}
    spec = spec_of(model=f"{tmp_path / 'own.py'}:{build}", options=options, attention="sdpa-math", **sizes)
    result = run_spec(replace(spec, baseline_settings=spec.settings))
    assert result.outcome is Outcome.OK, result.reason
    assert "precision" not in result.evidence
    assert result.measured["peak_flops"]["value"] == pytest.approx(peak)
    # rows of 64 tokens, whatever the setting says
    assert result.measured["model_flops_per_token"] == 6 * (BLOCKS + HEAD) + 6 * 2 * 64 * 64


@pytest.mark.train
@pytest.mark.usefixtures("on_h100")
@pytest.mark.parametrize("batching", ["padded", "token-budget", "packed"])
def test_tokens_are_useful_and_documents_as_long_as_they_are(batching: str) -> None:
    settings: dict[str, Any] = {"batching": batching, "sequence_length": 256, "accumulation": 2, "stream": "parse"}
    measured = run_trial(**settings, warmup_steps=1, steps=3).measured
    documents, rows = drawn(warmup_steps=1, steps=3, **settings)
    tokens, positions = sum(documents), sum(rows)
    useful = measured["figures"]["useful_tokens_per_second"]
    assert measured["figures"]["useful_share"] == pytest.approx(tokens / positions)
    model = 6 * (BLOCKS + HEAD) + 6 * 2 * 64 * sum(length**2 for length in documents) / tokens
    hardware = 6 * (BLOCKS + HEAD) + 6 * 2 * 64 * sum(length**2 for length in rows) / positions
    assert measured["model_flops_per_token"] == pytest.approx(model)
    assert measured["hardware_flops_per_token"] == pytest.approx(hardware)
    assert measured["mfu"] == pytest.approx(useful * model / 66.9e12)
    assert measured["hfu"] == pytest.approx(measured["tokens_per_second"] * hardware / 66.9e12)
    assert measured["mfu"] < measured["hfu"]


def drawn(*, warmup_steps: int, steps: int, **settings: Any) -> tuple[list[int], list[int]]:
    """Lengths of the documents and rows that the window's steps see, counted as they go by."""
    from harness.trial.training import build

    documents: list[int] = []
    rows: list[int] = []
    run = TrainingRun(spec_of(warmup_steps=warmup_steps, steps=steps, **settings), Ranks(), cpu())
    build(run, [])
    for number in range((warmup_steps + steps) * 2):
        batch = next(run.batches)
        if number >= warmup_steps * 2:
            documents += document_lengths(batch)
            rows += [batch["input_ids"].shape[1]] * len(batch["input_ids"])
    return documents, rows


@pytest.mark.train
@pytest.mark.parametrize(("attention", "skips"), [("flash2", True), ("sdpa", False), ("eager", False)])
def test_flash_attn_alone_computes_nothing_between_the_documents_of_a_row(attention: str, skips: bool) -> None:
    """It is told where documents end; a kernel with a mask computes the rows whole, 2 in each of 3 steps."""
    run = TrainingRun(spec_of(batching="packed", attention=attention, sequence_length=256), Ranks(), cpu())
    run.config = make_config("tiny", 256)
    make_batches(run)
    documents, computed = arithmetic._lengths(run, TrialResult(outcome=Outcome.OK))
    assert sum(documents.values()) > 6
    assert computed == (documents if skips else {256: 6})


@pytest.mark.train
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_counts_the_documents_that_it_saw_itself(rank: int) -> None:
    run = TrainingRun(spec_of(batching="padded", batch_size=4, warmup_steps=2, steps=3), Ranks(), cpu())
    run.data_rank = rank
    run.config = make_config("tiny", 64)
    make_batches(run)
    seen = [document_lengths(next(run.batches)) for _ in range(2 + 3)]
    documents, _ = arithmetic._seen_again(run)
    assert documents == Counter(itertools.chain(*seen[2:]))


def test_documents_by_mask_by_positions_and_by_row() -> None:
    ids = torch.zeros((2, 4), dtype=torch.long)
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    positions = torch.tensor([[0, 1, 0, 1], [0, 1, 2, 0]])
    assert document_lengths({"input_ids": ids}) == [4, 4]
    assert document_lengths({"input_ids": ids, "attention_mask": mask}) == [4, 2]
    assert document_lengths({"input_ids": ids, "position_ids": positions}) == [2, 2, 3, 1]


@pytest.mark.train
@pytest.mark.usefixtures("on_h100")
def test_an_unknown_shape_has_no_figure_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        '{"model_type": "bert", "vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,'
        ' "num_attention_heads": 4, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}'
    )
    result = run_trial(model=str(tmp_path / "config.json"))
    assert result.outcome is Outcome.OK, result.reason
    for name in ("model_flops_per_token", "hardware_flops_per_token", "mfu", "hfu"):
        assert name not in result.measured
        assert "attention is counted as causal" in result.missing[name]


@pytest.mark.train
def test_experts_of_a_trial(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        '{"model_type": "mixtral", "vocab_size": 512, "hidden_size": 64, "intermediate_size": 128,'
        ' "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 8,'
        ' "num_experts_per_tok": 2, "sliding_window": 16}'
    )
    config = make_config(str(tmp_path / "config.json"), 128)
    assert config.sliding_window == 16
    measured = run_trial(model=str(tmp_path / "config.json"), sequence_length=128).measured
    # projections 12,288, router 512, 2 experts of 24,576; keys as in a window of 16 in 128
    products = 2 * (12_288 + 512 + 2 * 24_576) + 512 * 64
    assert measured["model_flops_per_token"] == pytest.approx(6 * products + 6 * 2 * 64 * 16 * (2 - 16 / 128))
