"""DeepSpeed's engine on gloo ranks: what a stage shards, that it trains the same, and that a lame engine is found out.

Bytes a parameter of bf16 training with AdamW (Rajbhandari et al., arXiv 1910.02054): 2 of weights, 2 of gradients, 12
of optimizer (fp32 weights and two moments). Sharded over N ranks: 4 + 12/N with the optimizer's, 2 + 14/N with
gradients, 16/N with all. DeepSpeed 0.19 shards gradients in stage 1 too.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.experiment.axes import Setting
from harness.techniques import deepspeed_state, zero
from harness.techniques.deepspeed_engine import configuration
from harness.techniques.deepspeed_options import name_the_architecture
from harness.trial import memory
from harness.trial.measure import gradient_health
from harness.trial.outcome import Outcome
from harness.trial.ranks import Ranks as OneRank
from harness.trial.training import TrainingRun
from tests.techniques.ranks import Ranks
from tests.techniques.test_parallel import TINY, assert_counted_over
from tests.training import cell, cpu, gpus, refused, run_trial, spec_of

#: The tied embedding, 512 x 64: its gradient is kept whole by every rank whose share it reaches into.
LARGEST = 512 * 64
STAGES = [0, 1, 2, 3, "offload"]


class TestRefusedBeforeLaunch:
    def test_without_deepspeed(self) -> None:
        packages = {name: version for name, version in cpu().packages.items() if name != "deepspeed"}
        assert "pip install --no-build-isolation deepspeed" in str(refused(replace(cpu(), packages=packages), zero=1))

    @pytest.mark.parametrize("zero", STAGES)
    def test_one_device_runs_every_stage(self, zero: int | str) -> None:
        assert refused(zero=zero, precision="ds-bf16") is None

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"zero": 1, "precision": "amp-fp16"}, "would both scale the loss"),
            ({"zero": 0, "precision": "bf16"}, "say ds-bf16"),
            ({"zero": "offload", "precision": "bf16"}, "say ds-bf16"),
            ({"zero": 1, "compile": "default"}, "compile=default has no effect with zero=1"),
            ({"zero": 3, "quantization": "nf4", "precision": "ds-bf16", "lora": 8}, "4-bit"),
            ({"zero": 0, "overlap_comm": False}, "no effect at stage 0"),
            ({"precision": "ds-bf16", "overlap_comm": False}, "no effect at stage 0"),
            ({"overlap_comm": False}, "no effect without zero"),
            ({"autocast_outside": "on"}, "about DeepSpeed's engine"),
            ({"autocast_outside": "on", "zero": 1}, "precision=fp32 does not; set precision to ds-bf16"),
            ({"autocast_outside": "on", "zero": 0, "precision": "tf32"}, "precision=tf32 does not"),
            ({"deepspeed_config": "as-printed"}, "about DeepSpeed's engine"),
            ({"deepspeed_config": "as-printed", "zero": 3}, "set zero to 2"),
        ],
    )
    def test_what_cannot_work(self, changes: dict[str, Setting], reason: str) -> None:
        assert reason in str(refused(gpus(2), **changes))

    def test_the_printed_configuration_needs_a_gpu_and_a_compiler(self) -> None:
        printed: dict[str, Setting] = {"deepspeed_config": "as-printed", "zero": 2, "precision": "ds-bf16"}
        assert "on a GPU only" in str(refused(**printed))
        packages = {**cpu().packages, "ninja": "1.11"}
        with_nvcc = replace(gpus(1), tools={"nvcc": "/usr/local/cuda/bin/nvcc"}, packages=packages)
        assert refused(with_nvcc, **printed) is None
        assert "there is no nvcc here" in str(refused(replace(with_nvcc, tools={}), **printed))


class TestConfiguration:
    def test_the_printed_one_is_the_documents(self) -> None:
        config = configuration(cell(zero=2, deepspeed_config="as-printed"), parameters=TINY, hidden_size=64)
        assert config["fp16"]["enabled"] is True
        assert config["optimizer"]["type"] == "AdamW"
        assert config["zero_optimization"]["stage"] == 2
        assert config["zero_optimization"]["overlap_comm"] is True
        assert config["train_micro_batch_size_per_gpu"] == 2

    def test_buckets_follow_the_models_size(self) -> None:
        def bucket(parameters: int) -> int:
            zero = configuration(cell(zero=1), parameters=parameters, hidden_size=64)["zero_optimization"]
            return int(zero["reduce_bucket_size"])

        assert bucket(TINY) == TINY // 20
        assert bucket(2_000) == 1_024, "not one of 100 elements at a time"
        assert bucket(7_000_000_000) == 50_000_000

    def test_offload_is_stage_2_with_the_optimizer_on_the_host(self) -> None:
        zero = configuration(cell(zero="offload"), parameters=TINY, hidden_size=64)["zero_optimization"]
        assert zero["stage"] == 2
        assert zero["offload_optimizer"]["device"] == "cpu"
        assert "offload_param" not in zero

    def test_micro_batches_are_counted_as_the_cell_says(self) -> None:
        for printed in ("ours", "as-printed"):
            asked = cell(zero=2, deepspeed_config=printed, batch_size=8, accumulation=4)
            config = configuration(asked, parameters=TINY, hidden_size=64)
            assert config["train_micro_batch_size_per_gpu"] == 8
            assert config["gradient_accumulation_steps"] == 4

    def test_nothing_is_clipped_by_default(self) -> None:
        assert configuration(cell(zero=1), parameters=TINY, hidden_size=64)["gradient_clipping"] == 0.0


class TestTwoRanks:
    @pytest.mark.parametrize("zero", STAGES)
    def test_a_stage_trains_what_ddp_trains(self, run_ranks: Ranks, zero: int | str) -> None:
        result = run_ranks(zero=zero, devices=2, accumulation=2)
        assert result.outcome is Outcome.OK, result.reason
        ddp = run_ranks(parallel="ddp", devices=2, accumulation=2, gradient_check=True)
        assert result.measured["losses"] == pytest.approx(ddp.measured["losses"], abs=1e-4)
        assert result.measured["gradient_norms"] == pytest.approx(ddp.measured["gradient_norms"], rel=1e-3)
        assert result.measured["parameters"] == {"total": TINY, "trainable": TINY}
        assert result.measured["model_flops_per_token"] == ddp.measured["model_flops_per_token"]
        assert_counted_over(result, ranks=2, micro_batches_a_step=2)

    @pytest.mark.parametrize("zero", [0, 1, 2, 3])
    def test_a_stage_shards_what_it_should(self, run_ranks: Ranks, zero: int) -> None:
        result = run_ranks(zero=zero, devices=2, precision="ds-bf16")
        assert result.outcome is Outcome.OK, result.reason
        facts = result.evidence["zero"]["facts"]
        assert facts["stage"] == zero
        assert facts["bf16_engine"] is True
        assert facts["optimizer_shares"] == pytest.approx([1.0, 1.0] if zero == 0 else [0.5, 0.5], abs=0.01)
        assert facts["gradient_shares"] == pytest.approx([1.0, 1.0] if zero == 0 else [0.5, 0.5], abs=0.01)
        assert facts["parameter_shares"] == pytest.approx([0.5, 0.5] if zero == 3 else [1.0, 1.0], abs=0.01)
        assert_state(result.measured["figures"]["bytes_per_parameter"], zero, ranks=2)

    def test_every_ranks_bytes_are_in_the_record_by_kind(self, run_ranks: Ranks) -> None:
        result = run_ranks(zero=2, devices=2, precision="ds-bf16")
        for rank in result.ranks:
            state = rank["model_state_bytes"]
            assert state["parameters"] == pytest.approx(2 * TINY, rel=0.01)
            assert state["optimizer"] == pytest.approx(12 * TINY / 2, rel=0.01)
            assert TINY <= state["gradients"] <= TINY + 2 * LARGEST
            assert state["after_step"] == pytest.approx(2 * TINY + 12 * TINY / 2, rel=0.01)

    def test_shards_of_stage_3_are_weights_gradients_and_optimizer_each_under_its_kind(self, run_ranks: Ranks) -> None:
        for rank in run_ranks(zero=3, devices=2, precision="ds-bf16").ranks:
            state = rank["model_state_bytes"]
            assert state["parameters"] == pytest.approx(2 * TINY / 2, rel=0.01)
            assert state["gradients"] == pytest.approx(2 * TINY / 2, rel=0.01)
            assert state["optimizer"] == pytest.approx(12 * TINY / 2, rel=0.01)
            assert state["buckets"] <= 0.2 * TINY

    @pytest.mark.parametrize(("zero", "whole"), [(2, 0), (3, TINY - 5 * 64)])
    def test_weights_that_forward_gathers_are_no_activations(self, run_ranks: Ranks, zero: int, whole: int) -> None:
        """In stage 3 all but the norms, which stay gathered."""
        result = run_ranks(zero=zero, devices=2, sabotage="an allocator that counts")
        state = result.measured["model_state_bytes"]
        assert state["gathered"] == 4 * whole
        assert state["activations"] == 10**9 - 4 * whole

    def test_offload_keeps_the_optimizer_on_the_host(self, run_ranks: Ranks) -> None:
        facts = run_ranks(zero="offload", devices=2, accumulation=2).evidence["zero"]["facts"]
        assert facts["offload"] is True
        assert facts["optimizer_devices"] == ["cpu"]

    def test_overlap_is_what_the_cell_says(self, run_ranks: Ranks) -> None:
        without = run_ranks(zero=2, devices=2, overlap_comm=False, precision="ds-bf16")
        assert without.outcome is Outcome.OK, without.reason
        assert without.evidence["zero"]["facts"]["overlap_comm"] is False
        with_it = run_ranks(zero=2, devices=2, precision="ds-bf16")
        assert with_it.evidence["zero"]["facts"]["overlap_comm"] is True

    @pytest.mark.parametrize(
        ("sabotage", "reason"),
        [
            ("zero", "no DeepSpeed engine trained"),
            ("stage 0", "the engine runs at stage 0"),
            ("stage 0 that says 2", "a rank holds 100% of the optimizer elements at stage 2"),
        ],
    )
    def test_a_flag_that_does_nothing_is_found_out(self, run_ranks: Ranks, sabotage: str, reason: str) -> None:
        result = run_ranks(sabotage=sabotage, zero=2, devices=2)
        assert result.outcome is Outcome.INERT
        assert reason in result.reason

    def test_lora_under_the_engine_counts_and_trains_its_adapters(self, run_ranks: Ranks) -> None:
        result = run_ranks(zero=3, devices=2, lora=8)
        assert result.outcome is Outcome.OK, result.reason
        assert result.measured["parameters"] == run_trial(lora=8).measured["parameters"]


#: What an engine at stage 3 on two ranks says and holds.
SOUND = {
    "stage": 3, "overlap_comm": True, "bf16_engine": True, "offload": False, "world_size": 2, "padding": 0.01,
    "largest_parameter": 0.3, "optimizer_devices": ["cuda"], "optimizer_shares": [0.5, 0.5],
    "gradient_shares": [0.5, 0.5], "parameter_shares": [0.5, 0.5],
}  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "differs", "reason"),
    [
        ({"zero": 3}, {}, ""),
        # padding, and a gradient that lies across two shares
        ({"zero": 3}, {"optimizer_shares": [0.49, 0.51], "gradient_shares": [0.8, 0.5]}, ""),
        ({"zero": 3}, {"optimizer_shares": [0.5, 0.6]}, "60% of the optimizer elements at stage 3, not 51%"),
        ({"zero": 3}, {"gradient_shares": [0.5, 0.9]}, "90% of the gradient elements at stage 3, not 81%"),
        ({"zero": 3}, {"parameter_shares": [0.5, 0.6]}, "60% of the parameter elements at stage 3, not 51%"),
        ({"zero": 2}, {"stage": 2, "parameter_shares": [1.0, 1.0]}, ""),
        ({"zero": 2}, {"stage": 2, "gradient_shares": [1.0, 1.0]}, "of the gradient elements at stage 2"),
        ({"zero": 1}, {"stage": 1, "parameter_shares": [1.0, 1.0], "gradient_shares": [1.0, 1.0]}, ""),
        ({"zero": 0}, {"stage": 0, "overlap_comm": False, "optimizer_shares": [1.0, 1.0]}, ""),
        ({"zero": 1}, {}, "stage 1 was asked for, and the engine runs at stage 3"),
        ({"zero": 3}, {"overlap_comm": False}, "overlap_comm=True was set, and the engine has False"),
        ({"zero": 3, "overlap_comm": False}, {}, "overlap_comm=False was set, and the engine has True"),
        ({"zero": 3}, {"bf16_engine": False}, "precision=ds-bf16 was set, and the engine's bf16 is off"),
        ({"zero": 3}, {"offload": True}, "zero=3 was set, and the engine's offload is True"),
        ({"zero": "offload"}, {"stage": 2, "offload": True, "optimizer_devices": ["cpu"]}, ""),
        (
            {"zero": "offload"}, {"stage": 2, "optimizer_devices": ["cpu"]},
            "zero=offload was set, and the engine's offload is False",
        ),
        (
            {"zero": "offload"}, {"stage": 2, "offload": True, "optimizer_devices": ["cpu", "cuda"]},
            "zero=offload was set, and optimizer state lies on cpu, cuda",
        ),
    ],
)  # fmt: skip
def test_an_engine_is_what_the_cell_says_and_each_rank_holds_its_share(
    settings: dict[str, Setting], differs: dict[str, object], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zero, "wrong_world", lambda cell, run: None)
    monkeypatch.setattr(zero, "_engine_facts", lambda engine: SOUND | differs)
    monkeypatch.setattr(deepspeed_state, "shares", lambda run: {})
    run: Any = SimpleNamespace(facts={"engine": object(), "steps_taken_back": 0})
    evidence = zero.Zero().evidence(cell(devices=2, precision="ds-bf16", **settings), run)
    assert evidence is not None
    assert evidence.holds is not bool(reason)
    assert reason in evidence.reason


class TestOneRank:
    @pytest.mark.parametrize("zero", [1, 2, 3])
    def test_a_stage_alone_runs_and_shards_nothing(self, run_ranks: Ranks, zero: int) -> None:
        result = run_ranks(zero=zero)
        assert result.outcome is Outcome.OK, result.reason
        assert result.measured["losses"] == pytest.approx(run_trial().measured["losses"], abs=1e-4)
        assert result.evidence["zero"]["facts"]["optimizer_shares"] == pytest.approx([1.0], abs=0.01)

    def test_ds_bf16_is_the_engine_at_stage_0_with_fp32_master_weights(self, run_ranks: Ranks) -> None:
        result = run_ranks(precision="ds-bf16")
        assert result.outcome is Outcome.OK, result.reason
        assert result.evidence["precision"]["facts"]["weights"] == "torch.bfloat16"
        assert result.evidence["zero"]["facts"]["bf16_engine"] is True
        assert result.measured["figures"]["bytes_per_parameter"] == pytest.approx(16, abs=0.1)

    def test_stage_0_trains_what_the_other_stages_train(self, run_ranks: Ranks) -> None:
        """DeepSpeed makes a step before training there: left in, the losses are off by 0.01 to 0.03 nats."""
        whole, sharded = run_ranks(precision="ds-bf16", zero=0), run_ranks(precision="ds-bf16", zero=1)
        assert whole.measured["losses"] == pytest.approx(sharded.measured["losses"], abs=2e-3)
        assert whole.evidence["zero"]["facts"]["steps_taken_back"] == 1
        assert sharded.evidence["zero"]["facts"]["steps_taken_back"] == 0

    def test_plain_bf16_has_no_master_weights(self, run_ranks: Ranks) -> None:
        result = run_ranks(precision="bf16", zero=1)
        assert result.outcome is Outcome.OK, result.reason
        # 2 of weights, 2 of gradients, 2 of the optimizer's own weights, 4 of moments
        assert result.measured["figures"]["bytes_per_parameter"] == pytest.approx(10, abs=0.1)

    def test_amp_bf16_is_the_engines_own_autocast(self, run_ranks: Ranks) -> None:
        result = run_ranks(precision="amp-bf16", zero=1)
        assert result.outcome is Outcome.OK, result.reason
        assert result.evidence["precision"]["facts"]["weights"] == "torch.float32"
        assert result.evidence["precision"]["word"] == "bfloat16 inside"

    def test_autocast_outside_is_seen_before_the_engine_and_inside_it(self, run_ranks: Ranks) -> None:
        result = run_ranks(precision="ds-bf16", autocast_outside="on")
        assert result.outcome is Outcome.OK, result.reason
        facts = result.evidence["deepspeed_config"]["facts"]
        assert facts["autocast_before_the_engine"] is True
        assert set(facts) == {"autocast_before_the_engine", "autocast_inside", "engine_warnings"}

    def test_autocast_outside_that_is_not_entered_is_found_out(self, run_ranks: Ranks) -> None:
        result = run_ranks(sabotage="autocast", precision="ds-bf16", autocast_outside="on")
        assert result.outcome is Outcome.INERT
        assert "no autocast was on" in result.reason


@pytest.mark.parametrize("ranks", [4, pytest.param(8, marks=pytest.mark.slow)])
class TestManyRanks:
    @pytest.mark.parametrize("zero", [0, 1, 2, 3])
    def test_state_follows_the_published_formulas(self, run_ranks: Ranks, ranks: int, zero: int) -> None:
        result = run_ranks(zero=zero, devices=ranks, precision="ds-bf16")
        assert result.outcome is Outcome.OK, result.reason
        assert len(result.ranks) == ranks
        assert_state(result.measured["figures"]["bytes_per_parameter"], zero, ranks=ranks)

    @pytest.mark.slow  # two ranks show it too
    @pytest.mark.parametrize("zero", [1, 2, 3])
    def test_losses_are_those_of_the_unsharded_engine(self, run_ranks: Ranks, ranks: int, zero: int) -> None:
        sharded = run_ranks(zero=zero, devices=ranks, precision="fp32")
        whole = run_ranks(zero=0, devices=ranks, precision="fp32")
        assert sharded.outcome is Outcome.OK, sharded.reason
        assert sharded.measured["losses"] == pytest.approx(whole.measured["losses"], abs=2e-4)

    def test_ddp_and_fsdp_hold_what_they_should(self, run_ranks: Ranks, ranks: int) -> None:
        ddp, fsdp = (run_ranks(parallel=parallel, devices=ranks) for parallel in ("ddp", "fsdp"))
        assert ddp.measured["figures"]["bytes_per_parameter"] == pytest.approx(20, abs=0.01)
        assert fsdp.measured["figures"]["bytes_per_parameter"] == pytest.approx(16 / ranks, abs=0.05)
        assert fsdp.measured["losses"] == pytest.approx(ddp.measured["losses"], abs=2e-4)


def test_deepspeeds_optimizer_is_compiled_for_the_device_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """An image for Hopper says `9.0a` there, of which DeepSpeed makes a ValueError."""
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0a")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    name_the_architecture(torch.device("cpu"))
    assert os.environ["TORCH_CUDA_ARCH_LIST"] == "9.0a"
    name_the_architecture(torch.device("cuda", 0))
    assert os.environ["TORCH_CUDA_ARCH_LIST"] == "9.0"


@pytest.mark.gpus2
@pytest.mark.parametrize("zero", STAGES)
def test_two_gpus(run_ranks: Ranks, zero: int | str) -> None:
    finished = run_ranks.on_gpus(zero=zero, devices=2, precision="ds-bf16")
    assert finished.outcome is Outcome.OK, finished.reason


@pytest.mark.gpu
def test_the_engine_switches_the_autocast_around_it_off_on_a_gpu(run_ranks: Ranks) -> None:
    finished = run_ranks.on_gpus(precision="ds-bf16", autocast_outside="on")
    assert finished.result is not None, finished.reason
    facts = finished.result.evidence["deepspeed_config"]["facts"]
    assert facts["autocast_before_the_engine"] is True
    assert facts["autocast_inside"] is False
    assert "disabled within the DeepSpeed engine" in facts["engine_warnings"][0]


def assert_state(bytes_per_parameter: float, zero: int, *, ranks: int) -> None:
    """State of the fullest rank before the step. Above the formula lie padding, buckets of a twentieth of the model in
    stage 3, and in stages 1 and 2 the part of the largest gradient that belongs to another rank."""
    formula = {0: 16, 1: 2 + 14 / ranks, 2: 2 + 14 / ranks, 3: 16 / ranks}[zero]
    above = {0: 0.05, 1: 2 * LARGEST / TINY + 0.05, 2: 2 * LARGEST / TINY + 0.05, 3: 0.2}[zero]
    assert formula - 0.01 <= bytes_per_parameter <= formula + above


@pytest.mark.parametrize("loss_scale", [1.0, 65536.0])
def test_scaled_gradients_count_once_and_their_norm_is_unscaled(loss_scale: float) -> None:
    """The engine's own buffers of fp16: 1000 elements of 2 bytes, each 2⁻¹⁰ times the scale."""
    model = torch.nn.Module()
    model.register_parameter("weight", torch.nn.Parameter(torch.zeros(1000, dtype=torch.float16)))
    held = torch.full((1000,), 2**-10 * loss_scale, dtype=torch.float16)
    run = TrainingRun(spec_of(), OneRank(), cpu())
    run.model = run.plain_model = model
    run.optimizer = SimpleNamespace(averaged_gradients={0: [held]}, loss_scale=loss_scale, cpu_offload=False, state={})
    deepspeed_state.show(run)
    state = memory.model_state(run)
    assert (state["parameters"], state["gradients"], state["buckets"]) == (2000, 2000, 0)
    assert run.gradient_norm() == pytest.approx(1000**0.5 * 2**-10)
    assert gradient_health(run) == {"bad_gradients": 0, "zero_gradients": 0}
    (gradient,) = run.gradient_tensors()
    gradient.zero_()
    assert not held.any(), "what is changed is what the engine holds"


def test_planning_needs_neither_torch_nor_deepspeed() -> None:
    program = (
        "import sys; from harness.techniques.registry import axis_table; assert 'zero' in axis_table(); "
        "sys.exit(bool({'torch', 'deepspeed'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=120).returncode == 0
