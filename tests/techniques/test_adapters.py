"""LoRA and 4-bit weights: in effect, counted right, and found out when they do nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.techniques import quantization
from harness.techniques.lora import Lora
from harness.techniques.quantization import Quantization, _layers
from harness.trial.outcome import Outcome
from harness.trial.ranks import Ranks
from harness.trial.spec import TrialResult
from harness.trial.training import TrainingRun, make_built_in
from tests.training import cell, cpu, spec_of

RunTrial = Callable[..., TrialResult]

#: Llama-3.2-1B by hand, rank 8, a layer: q and o 8·(2048+2048) each, k and v 8·(2048+512) each, gate, up and down
#: 8·(2048+8192) each.
LLAMA_ADAPTERS_A_LAYER = 2 * 8 * (2048 + 2048) + 2 * 8 * (2048 + 512) + 3 * 8 * (2048 + 8192)
#: q, k, v, o, gate, up, down and two norms a layer; the embedding (tied to the head) and the last norm.
LLAMA_WEIGHTS_A_LAYER = 2 * 2048 * 2048 + 2 * 2048 * 512 + 3 * 2048 * 8192 + 2 * 2048
LLAMA_REST = 128_256 * 2048 + 2048


def test_the_share_of_lora_on_llama_1b_is_the_one_by_hand() -> None:
    from harness.trial.flops import logical_size

    model = adapted("llama-1b", rank=8, device=torch.device("meta"))
    sizes = {True: 0, False: 0}
    for parameter in model.parameters():
        sizes[parameter.requires_grad] += logical_size(parameter)
    assert LLAMA_ADAPTERS_A_LAYER == 352_256
    assert sizes[True] == 16 * 352_256 == 5_636_096
    assert sizes[False] == 16 * LLAMA_WEIGHTS_A_LAYER + LLAMA_REST == 1_235_814_400


@pytest.mark.parametrize(
    ("targets", "a_layer"),
    [
        # attention's query, key and value in one matrix and its output, then up and down
        ("all", (64 + 3 * 64) + (64 + 64) + (64 + 256) + (256 + 64)),
        ("qv", 64 + 3 * 64),
    ],
)
def test_the_targets_in_a_gpt2_are_its_own(targets: str, a_layer: int) -> None:
    model: Any = adapted("tiny-gpt2", rank=8, device=torch.device("meta"), targets=targets)
    assert sum(part.numel() for part in model.parameters() if part.requires_grad) == 2 * 8 * a_layer


def test_adapters_begin_at_random_from_the_trials_seed() -> None:
    models: list[Any] = [adapted("tiny", rank=4, device=torch.device("cpu"), seed=seed) for seed in (1, 1, 2)]
    first, again, other = (next(part for part in each.parameters() if part.requires_grad) for each in models)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def adapted(model: str, *, rank: int, device: object, targets: str = "all", seed: int = 1) -> object:
    """A model with the technique's own adapters, built without a trial."""
    from harness.environment import Environment
    from harness.techniques.registry import axis_table
    from harness.trial.model import make_config, make_model
    from harness.trial.spec import TrialSpec

    settings = {**axis_table().defaults(), "lora": rank, "lora_targets": targets}
    spec = TrialSpec(
        trial_id="x", kind="training", model=model, data="stdlib", settings=settings, baseline_settings=settings,
        seed=seed, warmup_steps=1, steps=1, device="cpu", record_path="", cache_directory="", data_directory="",
    )  # fmt: skip
    run = TrainingRun(spec, Ranks(), Environment())
    run.config = make_config(model, 1024)
    run.model = make_model(run.config, attention="sdpa", dtype=torch.float32, device=device, seed=1)  # type: ignore[arg-type]
    run.plain_model = run.model
    Lora().apply(run.cell, run)
    return run.model


def test_lora_trains_its_adapters_alone(run_trial: RunTrial) -> None:
    result = run_trial(lora=8)
    assert result.outcome is Outcome.OK, result.reason
    # tiny by hand: hidden 64, key/value 32, inner 128, two layers
    a_layer = 8 * ((64 + 64) * 2 + (64 + 32) * 2 + (64 + 128) * 3)
    assert result.measured["parameters"]["trainable"] == 2 * a_layer
    facts = result.evidence["lora"]["facts"]
    assert facts["without_gradient"] == 0
    assert facts["zero_b"] == 0


def test_adapters_are_scaled_by_twice_the_rank_without_dropout() -> None:
    model: Any = adapted("tiny", rank=4, device=torch.device("cpu"))
    config = model.peft_config["default"]
    assert (config.r, config.lora_alpha, config.lora_dropout) == (4, 8, 0.0)


def test_qv_targets_two_matrices_a_layer(run_trial: RunTrial) -> None:
    result = run_trial(lora=4, lora_targets="qv")
    assert result.measured["parameters"]["trainable"] == 2 * 4 * ((64 + 64) + (64 + 32))


def test_reentrant_checkpointing_without_input_gradients_trains_nothing_and_is_inert(run_trial: RunTrial) -> None:
    result = run_trial(lora=8, checkpointing="reentrant", input_gradients="off")
    assert result.outcome is Outcome.INERT
    assert "trains nothing" in result.reason


def test_reentrant_checkpointing_with_input_gradients_trains(run_trial: RunTrial) -> None:
    result = run_trial(lora=8, checkpointing="reentrant")
    assert result.outcome is Outcome.OK, result.reason


def test_adapters_that_are_not_put_on_are_found_out(run_trial: RunTrial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lora, "apply", lambda self, cell, run: None)
    result = run_trial(lora=8)
    assert result.outcome is Outcome.INERT
    assert "there are 0 adapter weights" in result.reason


def _sabotaged(monkeypatch: pytest.MonkeyPatch, spoil: Callable[[TrainingRun], object]) -> None:
    applied = Lora.apply

    def apply(self: Lora, cell: Any, run: TrainingRun) -> None:
        applied(self, cell, run)
        spoil(run)

    monkeypatch.setattr(Lora, "apply", apply)


def test_adapters_that_no_gradient_reaches_are_inert(run_trial: RunTrial, monkeypatch: pytest.MonkeyPatch) -> None:
    """As behind a reentrant checkpoint (open-unlearning#178): the second block trains, the first does not."""

    def detached(_module: Any, _inputs: Any, output: Any) -> Any:
        return output.detach() if isinstance(output, torch.Tensor) else (output[0].detach(), *output[1:])

    _sabotaged(monkeypatch, lambda run: run.blocks()[0].register_forward_hook(detached))
    result = run_trial(lora=8)
    assert result.outcome is Outcome.INERT
    # 7 layers of a block, A and B each
    assert result.reason == "lora=8 trains nothing: 14 of 28 weights have no gradient, 7 B matrices are zero"


def test_adapters_that_no_step_moves_are_inert(run_trial: RunTrial, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients are there, and B is what it was at the start: zero."""
    monkeypatch.setattr(TrainingRun, "_update", lambda run: run.optimizer.zero_grad(set_to_none=True))
    result = run_trial(lora=8)
    assert result.outcome is Outcome.INERT
    assert "lora=8 trains nothing: 0 of 28 weights have no gradient, 14 B matrices are zero" in result.reason


def test_adapters_beside_which_other_weights_are_trained_are_no_lora(
    run_trial: RunTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    _sabotaged(monkeypatch, lambda run: next(run.model.parameters()).requires_grad_())
    result = run_trial(lora=8)
    assert result.outcome is Outcome.INERT
    assert result.reason == "lora=8 was set, but there are 28 adapter weights and 1 others are trained"


def test_nf4_weights_take_half_a_byte_and_count_by_what_they_stand_for(run_trial: RunTrial) -> None:
    result = run_trial(lora=8, quantization="nf4", precision="bf16")
    assert result.outcome is Outcome.OK, result.reason
    facts = result.evidence["quantization"]["facts"]
    # 4 bits, an 8-bit scale for 64 weights, and the scales' own scale; tiny layers round the last one up
    assert 0.5 + 1 / 64 <= facts["bytes_a_weight"] <= 0.53
    assert facts["compute_dtype"] == ["bfloat16"]
    assert facts["double_quantization"] is True
    plain = run_trial(lora=8, precision="bf16")
    assert result.measured["parameters"] == plain.measured["parameters"]
    assert result.measured["model_state_bytes"]["parameters"] < plain.measured["model_state_bytes"]["parameters"]


def test_the_share_of_lora_on_packed_weights_is_that_of_what_they_stand_for(run_trial: RunTrial) -> None:
    packed, plain = (
        run_trial(lora=8, precision="bf16", quantization=each).evidence["lora"] for each in ("nf4", "none")
    )
    assert packed["facts"]["trainable_share"] == plain["facts"]["trainable_share"]
    assert packed["word"] == plain["word"]
    # tiny: 14 matrices, an embedding and five norms
    assert plain["facts"]["parameter_dtypes"] == {"float32": 28, "bfloat16": 20}
    assert packed["facts"]["parameter_dtypes"]["uint8"] == 14


@pytest.mark.parametrize(("parallel", "stored"), [("fsdp", torch.bfloat16), ("none", torch.uint8)])
def test_sharded_4_bit_weights_are_stored_in_the_type_that_computes(parallel: str, stored: torch.dtype) -> None:
    """axolotl#1494: FSDP shards what it can view as the compute type."""
    qlora: dict[str, Any] = {"lora": 8, "quantization": "nf4", "precision": "bf16"}
    run = TrainingRun(spec_of(**qlora), Ranks(), cpu())
    run.parameter_dtype = torch.bfloat16
    make_built_in(run)
    divided = {"parallel": parallel, "devices": 2} if parallel == "fsdp" else {}
    Quantization().apply(cell(**qlora, **divided), run)
    assert {layer.weight.dtype for layer in _layers(run.plain_model)} == {stored}
    assert {layer.compute_dtype for layer in _layers(run.plain_model)} == {torch.bfloat16}


def test_nf4_that_quantizes_nothing_is_found_out(run_trial: RunTrial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Quantization, "apply", lambda self, cell, run: None)
    result = run_trial(lora=8, quantization="nf4", precision="bf16")
    assert result.outcome is Outcome.INERT
    assert "0 layers are 4-bit" in result.reason


def test_weights_that_are_not_packed_are_no_nf4(run_trial: RunTrial, monkeypatch: pytest.MonkeyPatch) -> None:
    """The class of a layer says so before it has packed anything; in bf16 a weight takes two bytes."""
    monkeypatch.setattr(quantization, "_stored_bytes", lambda layer: 2 * layer.in_features * layer.out_features)
    result = run_trial(lora=8, quantization="nf4", precision="bf16")
    assert result.outcome is Outcome.INERT
    assert "14 layers are 4-bit at 2.00 bytes a weight" in result.reason


def test_weights_in_another_format_of_four_bits_are_no_nf4(
    run_trial: RunTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FP4 is as small and computes as fast."""
    import bitsandbytes

    plain = bitsandbytes.nn.Params4bit
    monkeypatch.setattr(
        bitsandbytes.nn, "Params4bit", lambda *given, **how: plain(*given, **{**how, "quant_type": "fp4"})
    )
    result = run_trial(lora=8, quantization="nf4", precision="bf16")
    assert result.outcome is Outcome.INERT
    assert "14 layers are 4-bit at" in result.reason
    assert "in ['fp4'], computing in ['bfloat16']" in result.reason


def test_a_bias_stays_what_it_was_and_is_frozen_with_its_weight() -> None:
    plain = torch.nn.Linear(64, 64)
    packed = quantization._four_bit(plain, "uint8", torch.device("cpu"))
    assert torch.equal(packed.bias, plain.bias)
    assert not packed.bias.requires_grad


def test_nf4_on_gpt2_says_that_there_is_nothing_to_quantize(run_trial: RunTrial) -> None:
    result = run_trial(model="tiny-gpt2", lora=8, quantization="nf4", precision="bf16")
    assert result.outcome is Outcome.INERT
    assert "Conv1D" in result.reason


def test_nf4_without_adapters_is_refused_before_launch() -> None:
    from harness.environment import Environment
    from harness.experiment.cell import Cell, Workload
    from harness.techniques.registry import axis_table, refusal

    settings = {**axis_table().defaults(), "quantization": "nf4"}
    cell = Cell(workload=Workload(name="w", model="tiny"), settings=settings)
    reason = refusal(Environment(packages={"bitsandbytes": "0.50"}), cell)
    assert reason is not None
    assert "set lora to a rank" in reason


def test_lora_on_a_users_configuration(run_trial: RunTrial, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({
        "model_type": "qwen2", "vocab_size": 256, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 1,
    }))  # fmt: skip
    result = run_trial(model=str(path), lora=2)
    assert result.outcome is Outcome.OK, result.reason
    assert result.measured["parameters"]["trainable"] == 2 * 2 * ((32 + 32) * 2 + (32 + 16) * 2 + (32 + 64) * 3)
