"""Several devices: the work divided as asked for, added up right, and found out where it was not divided."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.errors import EnvironmentProblem
from harness.techniques import pipeline, replicas, sharding
from harness.techniques.base import Technique
from harness.techniques.parallel import Parallel
from harness.techniques.pipeline import micro_batches
from harness.techniques.zero import Zero
from harness.trial import ranks as group
from harness.trial.launch import LocalLauncher
from harness.trial.outcome import Outcome
from harness.trial.ranks import Ranks as OneRank
from harness.trial.ranks import needs_group, processes_of
from harness.trial.shapes import SHAPES
from harness.trial.spec import TrialResult
from harness.trial.torchrun import SeveralNodes
from harness.trial.training import TrainingRun
from tests.techniques.ranks import Ranks
from tests.training import cell, cpu, gpus, refused, run_trial, spec_of

#: Parameters of the tiny model by hand: embedding (tied) 512·64; a layer: q and o 64·64 each, k and v 64·32 each, gate,
#: up and down 64·128 each, two norms of 64; a last norm of 64.
TINY = 512 * 64 + 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128 + 2 * 64) + 64
A_STEP = 2 * 64
#: Steps as users write them.
USERS = Path(__file__).resolve().parents[1] / "check" / "steps.py"
STEPS = 3


class TestRefusedBeforeLaunch:
    def test_more_gpus_than_there_are(self) -> None:
        assert refused(gpus(2), parallel="ddp", devices=4) == "devices=4 needs 4 GPUs, and there are 2 here"

    def test_one_process_on_the_gpus_of_several_nodes(self) -> None:
        two_nodes = replace(gpus(8), gpus_per_node=4)
        assert refused(two_nodes, parallel="dp", devices=4) is None
        assert refused(two_nodes, parallel="dp", devices=5) == (
            "parallel=dp is one process on one node, which has 4 of the 5 GPUs here; use ddp"
        )
        assert refused(two_nodes, parallel="ddp", devices=8) is None
        assert refused(two_nodes, parallel="dp", devices=9) == "devices=9 needs 9 GPUs, and there are 8 here"
        assert refused(gpus(8), parallel="dp", devices=8) is None

    def test_a_cpu_runs_up_to_eight_ranks(self) -> None:
        assert refused(parallel="ddp", devices=8) is None
        assert refused(parallel="ddp", devices=9) == "devices=9 needs 9 GPUs; a CPU runs up to 8 ranks"

    def test_devices_that_nothing_uses(self) -> None:
        assert refused(devices=2) == (
            "devices=2 has no effect alone; set parallel to ddp, fsdp, dp or pipeline, or set zero"
        )

    def test_two_ways_of_dividing_at_once(self) -> None:
        assert "both divide" in str(refused(parallel="ddp", zero=1, devices=2))
        assert "precision=ds-bf16" in str(refused(parallel="fsdp", precision="ds-bf16", devices=2))

    @pytest.mark.parametrize("parallel", ["dp", "pipeline"])
    def test_one_device_is_too_few(self, parallel: str) -> None:
        assert refused(gpus(1), parallel=parallel) == f"parallel={parallel} needs devices to be 2 or more"

    @pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
    def test_one_device_is_a_trial_like_any_other(self, parallel: str) -> None:
        assert refused(parallel=parallel) is None

    def test_replicas_in_one_process_are_not_compiled(self) -> None:
        two: dict[str, Any] = {"devices": 2, "compile": "default"}
        assert "use ddp or compile=off" in str(refused(gpus(2), parallel="dp", **two))
        assert refused(gpus(2), parallel="ddp", **two) is None

    def test_data_parallel_in_one_process_needs_gpus(self) -> None:
        assert "use ddp on a CPU" in str(refused(parallel="dp", devices=2))
        assert refused(gpus(2), parallel="dp", devices=2) is None

    @pytest.mark.parametrize(
        ("axis", "setting", "reason"),
        [
            ("lora", 8, "adapters sit in a wrapper"),
            ("compile", "default", "uncompiled"),
            ("precision", "amp-fp16", "scale their losses apart"),
            ("pruning", 0.1, "plain layers"),
            ("distillation", "teacher", "use one device or ddp"),
            ("quantization", "nf4", "set lora to a rank"),
            ("clip", 1.0, "needs the whole gradient"),
            ("batching", "padded", "takes token ids alone"),
            ("checkpointing", "reentrant", "set checkpointing to full"),
            ("monitor", "flops-profile", "set monitor to off"),
            ("monitor", "phases-synchronised", "a step has no such phases"),
        ],
    )
    def test_what_a_pipeline_cannot_do(self, axis: str, setting: str | int | float, reason: str) -> None:
        assert reason in str(refused(gpus(2), parallel="pipeline", devices=2, **{axis: setting}))

    def test_micro_batches_without_a_pipeline(self) -> None:
        assert "set parallel to pipeline, or use accumulation" in str(refused(micro_batches=2))
        assert "set parallel to pipeline" in str(refused(micro_batches=2, parallel="ddp", devices=2))

    def test_micro_batches_that_do_not_divide_the_batch(self) -> None:
        pipeline: dict[str, Any] = {"parallel": "pipeline", "devices": 2, "batch_size": 4}
        assert refused(**pipeline, micro_batches=3) == (
            "micro_batches=3 does not divide batch_size=4; choose one of its divisors"
        )
        assert refused(**pipeline, micro_batches=8) is not None
        assert refused(**pipeline, micro_batches=2) is None

    @pytest.mark.parametrize(
        ("batch_size", "asked", "remedy"),
        [(1, "auto", "a batch_size of 2 or more, and micro_batches: auto"),
         (1, 1, "a batch_size of 2 or more, and micro_batches: auto"),
         (4, 1, "micro_batches: 2"), (9, 1, "micro_batches: 3"),
         (11, "auto", "micro_batches: 11"), (11, 1, "micro_batches: 11")],
    )  # fmt: skip
    def test_fewer_micro_batches_than_stages(self, batch_size: int, asked: str | int, remedy: str) -> None:
        """torch's schedule ends with an error there, once the model is built."""
        why = refused(parallel="pipeline", devices=2, batch_size=batch_size, micro_batches=asked)
        assert f"micro_batches={asked} cuts batch_size={batch_size} into 1" in str(why)
        assert str(why).endswith(f"choose {remedy}")
        batch_size = 2 if "a batch_size of 2" in remedy else batch_size
        parts = remedy.rpartition(": ")[2]
        followed: dict[str, Any] = {"batch_size": batch_size, "micro_batches": parts if parts == "auto" else int(parts)}
        assert refused(parallel="pipeline", devices=2, **followed) is None

    def test_sharded_4_bit_weights_are_stored_in_the_type_that_computes(self) -> None:
        nf4 = {"quantization": "nf4", "lora": 8, "parallel": "fsdp", "devices": 2}
        assert "set precision to bf16" in str(refused(gpus(2), precision="amp-bf16", **nf4))
        assert "fsdp" not in str(refused(gpus(2), precision="bf16", **nf4))

    def test_replicas_in_one_process_do_not_copy_what_unpacks_4_bit_weights(self) -> None:
        """It is no parameter and no buffer: each device would read it from the first."""
        nf4: dict[str, Any] = {"quantization": "nf4", "lora": 8, "precision": "bf16", "devices": 2}
        assert "scales by which bitsandbytes unpacks" in str(refused(gpus(2), parallel="dp", **nf4))
        assert refused(gpus(2), parallel="ddp", **nf4) is None

    def test_a_batch_in_one_row_cannot_be_divided_between_replicas(self) -> None:
        """DataParallel cuts a batch by its rows: one device would do all the work."""
        two = replace(gpus(2), packages={**gpus(2).packages, "flash-attn": "2.8.3"})
        packed: dict[str, Any] = {"attention": "flash2", "batching": "packed", "precision": "bf16", "devices": 2}
        why = str(refused(two, parallel="dp", **packed))
        assert "in one row, which parallel=dp cannot divide between devices; use ddp, or attention=sdpa" in why
        assert refused(two, parallel="ddp", **packed) is None
        assert refused(two, parallel="dp", **{**packed, "attention": "sdpa"}) is None
        assert refused(two, parallel="dp", **{**packed, "batching": "padded"}) is None

    def test_a_scaler_is_not_shared_between_shards(self) -> None:
        """Each rank scales and skips by its own shards' gradients: their weights would part."""
        fp16: dict[str, Any] = {"devices": 2, "precision": "amp-fp16"}
        assert "does not agree between ranks" in str(refused(gpus(2), parallel="fsdp", **fp16))
        assert refused(gpus(2), parallel="ddp", **fp16) is None


@pytest.mark.parametrize(
    ("settings", "processes", "group"),
    [
        ({}, 1, False),
        ({"parallel": "dp", "devices": 4}, 1, False),
        ({"parallel": "ddp", "devices": 4}, 4, True),
        ({"parallel": "fsdp", "devices": 1}, 1, True),
        ({"parallel": "pipeline", "devices": 2}, 2, True),
        ({"zero": 2, "devices": 2}, 2, True),
        ({"precision": "ds-bf16"}, 1, True),
    ],
    ids=str,
)
def test_a_process_a_device_except_dp_which_drives_all_of_its_own(
    settings: dict[str, Any], processes: int, group: bool
) -> None:
    assert (processes_of(settings), needs_group(settings)) == (processes, group)


def test_the_first_rank_of_a_second_node_is_not_the_first_of_the_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 alone writes the result and checks the gradient."""
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    alone = OneRank.from_environment()
    assert (alone, alone.first) == (OneRank(rank=0, local_rank=0, world_size=1), True)
    for name, number in (("RANK", "2"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "4")):
        monkeypatch.setenv(name, number)
    there = OneRank.from_environment()
    assert (there, there.first) == (OneRank(rank=2, local_rank=0, world_size=4), False)


@pytest.mark.parametrize("settings", [{"parallel": "ddp"}, {"zero": 2}], ids=str)
def test_fewer_ranks_than_devices_are_found_out(settings: dict[str, Any]) -> None:
    """As where a launcher starts one process, whose group of one divides nothing."""
    run: Any = SimpleNamespace(ranks=OneRank(), facts={"engine": object()})
    technique: Technique = Zero() if "zero" in settings else Parallel()
    evidence = technique.evidence(cell(devices=2, **settings), run)
    assert evidence is not None
    assert (evidence.holds, evidence.reason) == (False, "devices=2 was set, but 1 rank(s) trained")


@pytest.mark.parametrize(("batch_size", "stages", "wanted"), [(8, 2, 8), (12, 2, 6), (1, 2, 1), (7, 4, 7), (64, 2, 8)])
def test_a_batch_is_divided_into_up_to_four_micro_batches_a_stage(batch_size: int, stages: int, wanted: int) -> None:
    assert micro_batches(batch_size, stages) == wanted


def test_layers_are_dealt_out_by_their_work_and_in_order() -> None:
    from harness.techniques.stages import layers_of

    assert layers_of(24, 2) == [range(12), range(12, 24)]
    assert layers_of(7, 3) == [range(3), range(3, 5), range(5, 7)]
    assert layers_of(16, 2, 4.32) == [range(10), range(10, 16)], "10 against 6 + 4.32"
    assert layers_of(16, 4, 4.32) == [range(5), range(5, 10), range(10, 15), range(15, 16)], "5, 5, 5 and 1 + 4.32"
    assert layers_of(2, 2, 4.32) == [range(1), range(1, 2)], "no stage is without a block"


@pytest.mark.train
@pytest.mark.parametrize(
    ("model", "head", "last"),
    [
        # 2048 x 128256 of the head over 2048 x (2 x 2048 + 2 x 512 + 3 x 8192) of a block
        ("llama-1b", 128256 / 29696, range(10, 16)),
        # 768 x 50257 over 768 x (3 + 1 + 4 + 4) x 768; its layers are Conv1D
        ("gpt2-124m", 50257 / (12 * 768), range(9, 12)),
    ],
)
def test_the_head_counts_as_the_blocks_that_it_is_worth(model: str, head: float, last: range) -> None:
    import torch

    from harness.techniques.stages import _own_layers, head_in_blocks
    from harness.trial.model import make_config, make_model

    config = make_config(model, 64)
    built = make_model(config, attention="eager", dtype=torch.float32, device=torch.device("meta"), seed=0)
    assert head_in_blocks(built) == pytest.approx(head)
    assert _own_layers(built, index=1, stages=2) == list(last)
    with pytest.raises(EnvironmentProblem, match=r"cannot divide .* into 17 stages; use fewer devices"):
        _own_layers(built, index=0, stages=17)


@pytest.mark.train
@pytest.mark.parametrize(("index", "drops"), [(0, True), (1, False)])
def test_the_dropout_of_the_embedding_acts_in_the_first_stage_alone(index: int, drops: bool) -> None:
    """transformers' inner model drops what it is given, which for a later stage are hidden vectors."""
    import torch

    from harness.techniques.stages import StageModule
    from harness.trial.model import make_config, make_model

    config = make_config("tiny-gpt2", 64)
    config.embd_pdrop = 0.5
    model = make_model(config, attention="eager", dtype=torch.float32, device=torch.device("cpu"), seed=0)
    stage = StageModule(model, index=index, stages=2, contexts=nullcontext).train()
    given = torch.ones(1, 8, dtype=torch.long) if index == 0 else torch.ones(1, 8, 64)
    assert torch.equal(stage(given), stage(given)) is not drops


class TestTwoRanks:
    def test_ddp_exchanges_gradients_and_counts_the_work_of_both(self, run_ranks: Ranks) -> None:
        result = run_ranks(parallel="ddp", devices=2, gradient_check=True)
        assert result.outcome is Outcome.OK, result.reason
        facts = result.evidence["parallel"]["facts"]
        first, second = facts["gradient_checksums"]
        assert first == pytest.approx(second, rel=1e-6)
        assert facts["losses"][0] != facts["losses"][1]
        # the mean of both ranks' gradients is that of both ranks' batches in one model
        assert result.measured["gradient_check"]["error"] < 1e-5
        assert_counted_over(result, ranks=2)

    def test_ddp_keeps_buckets_beside_the_gradients(self, run_ranks: Ranks) -> None:
        state = run_ranks(parallel="ddp", devices=2, gradient_check=True)
        # fp32: 4 of weights, 4 of gradients, 8 of moments, 4 of buckets
        assert state.measured["figures"]["bytes_per_parameter"] == pytest.approx(20, abs=0.01)
        assert state.measured["figures"]["bytes_per_parameter_after_step"] == pytest.approx(16, abs=0.01)
        assert state.measured["model_state_bytes"]["buckets"] == 4 * TINY

    def test_ddp_exchanges_once_a_step_under_accumulation(self, run_ranks: Ranks) -> None:
        result = run_ranks(parallel="ddp", devices=2, accumulation=2, gradient_check=True)
        assert result.outcome is Outcome.OK, result.reason
        assert result.measured["gradient_check"]["error"] < 1e-5

    @pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
    def test_ranks_whose_batches_hold_unequal_numbers_of_tokens_count_alike(
        self, run_ranks: Ranks, parallel: str
    ) -> None:
        result = run_ranks(parallel=parallel, devices=2, batching="padded", batch_size=4, gradient_check=True)
        assert result.outcome is Outcome.OK, result.reason
        assert result.measured["gradient_check"]["error"] < 1e-5

    def test_a_users_own_division_is_trained_and_its_gradient_not_compared(self, run_ranks: Ranks) -> None:
        """The wrapper of a step that rank 0 builds anew waits for ranks that have left: gloo, "closed by peer"."""
        model = f"{USERS}:in_its_own_ddp"
        sizes: dict[str, Any] = {"sequence_length": 16, "batch_size": 2}
        result = run_ranks(model=model, parallel="ddp", devices=2, gradient_check=True, **sizes)
        assert (result.outcome, result.reason) == (Outcome.OK, "")
        assert result.measured["gradient_check"] == {
            "skipped": "the step divides its work between ranks, and the plain one is built and run in one process"
        }
        assert len(result.ranks) == 2

    def test_the_printed_throughput_is_of_all_ranks_as_that_of_training_is(self, run_ranks: Ranks) -> None:
        """Three steps of two samples on each: 12 samples in the 6 seconds of the slower rank. It was 1.0, rank 0's."""
        result = run_ranks(sabotage="a clock that forwards move", kind="throughput-recipe", parallel="ddp", devices=2)
        assert (result.outcome, result.reason) == (Outcome.OK, "")
        assert result.measured["figures"]["recipe_samples_per_second"] == 2.0
        assert len(result.ranks) == 2

    @pytest.mark.parametrize(
        ("settings", "zeros"),
        [
            # the other rank's shards of the two have other entries
            ({"parallel": "fsdp"}, 0),
            # each rank has gradients that no other has
            ({"parallel": "pipeline"}, 2),
            # both have all, averaged already
            ({"parallel": "ddp"}, 1),
        ],
    )
    def test_gradients_of_zero_are_counted_over_all_ranks(
        self, run_ranks: Ranks, settings: dict[str, Any], zeros: int
    ) -> None:
        """What rank 0 saw of its own stood for the model: 1 in each."""
        result = run_ranks(sabotage="gradients of zero", devices=2, **settings)
        figures = result.measured["figures"]
        assert (figures["zero_gradients"], figures["bad_gradients"]) == (zeros, 0), result.reason

    def test_fsdp_shards_parameters_gradients_and_moments(self, run_ranks: Ranks) -> None:
        result = run_ranks(parallel="fsdp", devices=2, accumulation=2, gradient_check=True)
        assert result.outcome is Outcome.OK, result.reason
        assert result.evidence["parallel"]["facts"]["shares"] == [0.5, 0.5]
        assert result.measured["figures"]["bytes_per_parameter"] == pytest.approx(16 / 2, abs=0.01)
        assert result.measured["gradient_check"]["error"] < 1e-5
        ddp = run_ranks(parallel="ddp", devices=2, accumulation=2, gradient_check=True)
        assert result.measured["losses"] == pytest.approx(ddp.measured["losses"], abs=1e-4)
        assert result.measured["gradient_norms"] == pytest.approx(ddp.measured["gradient_norms"], rel=1e-3)
        assert result.measured["parameters"] == ddp.measured["parameters"] == {"total": TINY, "trainable": TINY}
        assert_counted_over(result, ranks=2, micro_batches_a_step=2)

    @pytest.mark.parametrize(
        ("model", "asked", "forwards"), [("tiny", "auto", 4), ("tiny", 2, 2), ("tiny-gpt2", "auto", 4)]
    )
    def test_a_pipeline_trains_what_one_device_trains(
        self, run_ranks: Ranks, model: str, asked: str | int, forwards: int
    ) -> None:
        changes: dict[str, Any] = {"model": model, "accumulation": 2, "batch_size": 4}
        result = run_ranks(parallel="pipeline", devices=2, micro_batches=asked, **changes)
        assert result.outcome is Outcome.OK, result.reason
        alone = run_trial(**changes)
        assert result.measured["losses"] == pytest.approx(alone.measured["losses"], abs=1e-4)
        assert result.measured["gradient_norms"] == pytest.approx(alone.measured["gradient_norms"], rel=1e-3)
        assert result.measured["parameters"] == alone.measured["parameters"]
        assert result.measured["model_flops_per_token"] == alone.measured["model_flops_per_token"]
        assert result.evidence["parallel"]["word"] == f"1 + 1 layers, {forwards} micro-batches"
        stages = result.evidence["parallel"]["facts"]["stages"]
        assert [each["layers"] for each in stages] == [[0], [1]]
        assert [each["passes"] for each in stages] == [forwards, forwards]

    @pytest.mark.parametrize("model", ["tiny", "tiny-gpt2"])
    def test_a_stage_between_two_others_trains_its_blocks_and_no_more(
        self, run_ranks: Ranks, tmp_path: Path, model: str
    ) -> None:
        """Embedding and head share a weight: the first stage and the last, which is not the second, add it up."""
        shape = SHAPES[model]
        layers = "n_layer" if shape.model_type == "gpt2" else "num_hidden_layers"
        file = tmp_path / "config.json"
        file.write_text(json.dumps({"model_type": shape.model_type, **shape.values, layers: 3}), encoding="utf-8")
        changes: dict[str, Any] = {"model": str(file), "batch_size": 4}
        result = run_ranks(parallel="pipeline", devices=3, **changes)
        assert result.outcome is Outcome.OK, result.reason
        alone = run_trial(**changes)
        assert result.measured["losses"] == pytest.approx(alone.measured["losses"], abs=1e-4)
        assert result.measured["gradient_norms"] == pytest.approx(alone.measured["gradient_norms"], rel=1e-3)
        assert result.measured["parameters"] == alone.measured["parameters"]
        assert result.evidence["parallel"]["word"] == "1 + 1 + 1 layers, 4 micro-batches"
        assert [each["tokens"] for each in result.ranks] == [0, 0, STEPS * 4 * 64]

    def test_a_pipelines_tokens_are_counted_once(self, run_ranks: Ranks) -> None:
        result = run_ranks(parallel="pipeline", devices=2, model="tiny", accumulation=2, batch_size=4)
        tokens = [each["tokens"] for each in result.ranks]
        assert tokens == [0, STEPS * 2 * 4 * 64]
        window = max(each["window_seconds"] for each in result.ranks)
        assert result.measured["tokens_per_second"] == pytest.approx(sum(tokens) / window)

    def test_a_pipeline_recomputes_each_micro_batch(self, run_ranks: Ranks) -> None:
        result = run_ranks(parallel="pipeline", devices=2, checkpointing="full", precision="amp-bf16")
        assert result.outcome is Outcome.OK, result.reason
        assert result.evidence["checkpointing"]["word"] == "2 forwards a block"

    @pytest.mark.parametrize("parallel", ["ddp", "fsdp", "pipeline"])
    def test_a_flag_that_does_nothing_is_found_out(self, run_ranks: Ranks, parallel: str) -> None:
        result = run_ranks(sabotage="parallel", parallel=parallel, devices=2)
        assert result.outcome is Outcome.INERT
        assert {
            "ddp": "the gradients of the ranks differ", "fsdp": "a rank holds 100% of the parameters",
            "pipeline": "it was not divided",
        }[parallel] in result.reason  # fmt: skip

    def test_micro_batches_that_were_not_cut_are_found_out(self, run_ranks: Ranks) -> None:
        asked: dict[str, Any] = {"parallel": "pipeline", "devices": 2, "batch_size": 4, "micro_batches": 4}
        result = run_ranks(sabotage="two micro-batches", **asked)
        assert result.outcome is Outcome.INERT
        assert "4 micro-batches were asked for, and the stages ran [2, 2] forwards in a step" in result.reason

    def test_ddp_with_lora_and_checkpointing_marks_no_variable_ready_twice(self, run_ranks: Ranks) -> None:
        result = run_ranks(parallel="ddp", devices=2, lora=8, checkpointing="full")
        assert result.outcome is Outcome.OK, result.reason

    def test_ddp_does_not_look_for_unused_parameters_so_the_reentrant_form_works_too(self, run_ranks: Ranks) -> None:
        """torch's older form runs a backward inside backward, which the search marks as a second one (peft#313)."""
        result = run_ranks(parallel="ddp", devices=2, lora=8, checkpointing="reentrant")
        assert result.outcome is Outcome.OK, result.reason
        assert result.evidence["checkpointing"]["holds"] is True

    def test_the_rank_that_fails_first_says_how_the_trial_ended(self, run_ranks: Ranks) -> None:
        finished = run_ranks.finished(sabotage="second rank out of memory", parallel="ddp", devices=2)
        assert finished.outcome is Outcome.OOM
        assert "2.00 GiB" in finished.reason

    def test_sharded_4_bit_weights_train_what_whole_ones_train(self, run_ranks: Ranks) -> None:
        """A shard is a DTensor and has no `quant_state`; its layer has (the proof ended in an AttributeError)."""
        nf4: dict[str, Any] = {"lora": 8, "quantization": "nf4", "precision": "bf16", "devices": 2}
        sharded, whole = run_ranks(parallel="fsdp", **nf4), run_ranks(parallel="ddp", **nf4)
        assert sharded.outcome is Outcome.OK, sharded.reason
        assert whole.outcome is Outcome.OK, whole.reason
        assert sharded.evidence["parallel"]["facts"]["shares"] == pytest.approx([0.5, 0.5], abs=0.01)
        assert sharded.evidence["quantization"] == whole.evidence["quantization"]
        assert sharded.measured["parameters"] == whole.measured["parameters"]
        assert sharded.measured["losses"] == pytest.approx(whole.measured["losses"], abs=1e-2)

    def test_ranks_make_one_step_before_the_profiled_one_and_every_count_of_steps_holds(self, run_ranks: Ranks) -> None:
        asked: dict[str, Any] = {"parallel": "ddp", "monitor": "item", "schedule": "cosine", "optimizer": "fused"}
        two, one = (run_ranks(devices=devices, **asked) for devices in (2, 1))
        for each in (two, one):
            assert each.outcome is Outcome.OK, each.reason
            assert each.evidence["optimizer"]["facts"]["operators"]["fused"] == 1, "of one step"
        steps = [each.evidence["schedule"]["facts"]["steps"] for each in (two, one)]
        assert steps[0] == steps[1] + 1

    def test_a_compilation_in_the_window_of_any_rank_spoils_it(self, run_ranks: Ranks) -> None:
        """The others wait for that rank in their collectives: their windows are no better."""
        result = run_ranks(sabotage="second rank compiles in the window", parallel="ddp", devices=2)
        assert result.outcome is Outcome.INVALID
        assert result.reason.startswith("rank 1: 1 graphs were compiled inside the window; raise warmup_steps")

    def test_no_rank_leaves_while_another_reads_from_it(self, run_ranks: Ranks) -> None:
        """gloo takes a connection that is closed under its last collective for a fault, and the trial ended with it."""
        result = run_ranks(sabotage="second rank is late", parallel="ddp", devices=2)
        assert (result.outcome, result.reason) == (Outcome.OK, "")

    def test_evidence_that_fails_on_any_rank_makes_the_trial_inert(self, run_ranks: Ranks) -> None:
        result = run_ranks(sabotage="second rank does not clip", parallel="ddp", devices=2, clip=1.0)
        assert result.outcome is Outcome.INERT
        assert result.reason.startswith("rank 1: clip=1 was set, but a gradient of norm")
        assert result.evidence["clip"]["holds"] is False
        assert result.evidence["clip"]["reason"] == result.reason
        assert result.evidence["parallel"]["holds"] is True
        assert run_ranks(parallel="ddp", devices=2, clip=1.0).outcome is Outcome.OK

    def test_a_rank_that_was_killed_is_the_cause_and_not_the_broken_connection_of_the_other(
        self, run_ranks: Ranks
    ) -> None:
        finished = run_ranks.finished(sabotage="second rank killed", parallel="ddp", devices=2)
        assert finished.outcome is Outcome.CRASH
        assert finished.reason.startswith("Rank 1 of 2 was killed by SIGKILL, sent neither by claimbench nor for lack")
        assert "The others then: " in finished.reason


def assert_counted_over(result: TrialResult, *, ranks: int, micro_batches_a_step: int = 1) -> None:
    """The job's speed is all ranks' tokens over the slowest rank's window, and its loss the mean of theirs."""
    assert [each["tokens"] for each in result.ranks] == [STEPS * A_STEP * micro_batches_a_step] * ranks
    window = max(each["window_seconds"] for each in result.ranks)
    tokens = ranks * STEPS * A_STEP * micro_batches_a_step
    assert result.measured["tokens_per_second"] == pytest.approx(tokens / window)
    curves = [each["losses"] for each in result.ranks]
    assert curves[0] != curves[1]
    assert result.measured["losses"] == pytest.approx([sum(step) / ranks for step in zip(*curves, strict=True)])


def test_one_rank_of_ddp_is_the_same_training(run_ranks: Ranks) -> None:
    result = run_ranks(parallel="ddp", devices=1)
    assert result.outcome is Outcome.OK, result.reason
    assert result.measured["losses"] == pytest.approx(run_trial().measured["losses"], abs=1e-5)


@pytest.mark.train
@pytest.mark.parametrize("accumulation", [1, 3])
def test_gradients_are_reduced_after_the_last_micro_batch_alone(
    accumulation: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each of them they would be the same, for so many times the communication."""
    from torch.distributed.fsdp import FSDPModule
    from torch.nn.parallel import DistributedDataParallel

    without: list[int] = []
    told: list[bool] = []
    no_sync, sync = DistributedDataParallel.no_sync, FSDPModule.set_requires_gradient_sync

    def held_back(self: Any) -> Any:
        without.append(1)
        return no_sync(self)

    def said(self: Any, requires: bool) -> None:
        told.append(requires)
        sync(self, requires)

    monkeypatch.setattr(DistributedDataParallel, "no_sync", held_back)
    monkeypatch.setattr(FSDPModule, "set_requires_gradient_sync", said)
    steps: list[int] = []
    plain = TrainingRun.step
    monkeypatch.setattr(TrainingRun, "step", lambda self: (steps.append(1), plain(self))[1])
    assert run_trial(parallel="ddp", devices=1, accumulation=accumulation).outcome is Outcome.OK
    assert sum(without) == len(steps) * (accumulation - 1)
    steps.clear()
    assert run_trial(parallel="fsdp", devices=1, accumulation=accumulation).outcome is Outcome.OK
    assert told == len(steps) * [*[False] * (accumulation - 1), True]


@pytest.mark.parametrize(
    ("apart", "reducer", "reason"),
    [
        (1e-8, True, ""),
        # batches that differ in little
        (1e-4, True, "the gradients of the ranks differ after backward: nothing was exchanged"),
        (0.0, False, "the model has no reducer"),
    ],
)
def test_gradients_are_the_same_on_every_rank_but_for_rounding(
    apart: float, reducer: bool, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sums = [{"gradient": [3.0, 5.0], "loss": 1.0}, {"gradient": [3.0, 5.0 * (1 + apart)], "loss": 1.0}]
    monkeypatch.setattr(replicas, "_checksums_of_a_step", lambda run: None)
    monkeypatch.setattr(group, "gather", lambda mine, ranks: sums)
    model = SimpleNamespace(reducer="there") if reducer else SimpleNamespace()
    run: Any = SimpleNamespace(ranks=OneRank(), model=model, bucket_bytes=lambda: 0)
    evidence = replicas.same_gradients(run)
    assert evidence.holds is not bool(reason)
    assert not reason or evidence.reason == reason


@pytest.mark.parametrize(
    ("shares", "sharded", "holds"),
    [([0.5, 0.5], 2, True), ([0.52, 0.48], 2, True), ([0.5, 0.54], 2, False), ([0.5, 0.5], 1, False)],
)
def test_every_rank_holds_its_share_of_sharded_parameters_alone(
    shares: list[float], sharded: int, holds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, part = SimpleNamespace(numel=lambda: 8), SimpleNamespace(numel=lambda: 8, to_local=lambda: None)
    monkeypatch.setattr(sharding, "shard_of", lambda each: each)
    monkeypatch.setattr(group, "gather", lambda mine, ranks: shares)
    model = SimpleNamespace(modules=lambda: [], parameters=lambda: [part] * sharded + [whole] * (2 - sharded))
    run: Any = SimpleNamespace(ranks=OneRank(), model=model)
    assert sharding.local_share(run).holds is holds


@pytest.mark.parametrize(
    ("held", "layers", "holds"),
    [
        ((2, 1), ([0, 1], [2]), True),
        ((3, 3), ([], []), False),
        # one of them twice, and another not at all
        ((2, 1), ([0, 1], [1]), False),
        ((2, 1), ([0], [1, 2]), False),
    ],
)
def test_stages_hold_all_layers_between_them_and_each_once(
    held: tuple[int, int], layers: tuple[list[int], list[int]], holds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    ranks = [{"layers": mine, "held": count, "passes": 4} for count, mine in zip(held, layers, strict=True)]
    monkeypatch.setattr(group, "gather", lambda mine, one: ranks)
    run: Any = SimpleNamespace(
        model=torch.nn.ModuleList([torch.nn.Identity()]), facts={}, ranks=OneRank(),
        config=SimpleNamespace(num_hidden_layers=3), cell=cell(parallel="pipeline", devices=2, batch_size=4),
    )  # fmt: skip
    evidence = pipeline.own_layers(run)
    assert evidence.holds is holds
    assert holds or "it was not divided" in evidence.reason


@pytest.mark.train
@pytest.mark.parametrize("precision", ["fp32", "amp-bf16"])
def test_fsdp_gathers_a_block_at_a_time_and_reduces_in_fp32(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole model at once would be in memory on every rank; sums of 16 bits round with each rank that is added."""
    import torch
    from torch.distributed import fsdp

    shard, sharded = fsdp.fully_shard, []

    def fully_shard(module: Any, **options: Any) -> Any:
        sharded.append((type(module).__name__, options["mp_policy"]))
        return shard(module, **options)

    monkeypatch.setattr(fsdp, "fully_shard", fully_shard)
    assert run_trial(parallel="fsdp", devices=1, precision=precision).outcome is Outcome.OK
    assert [name for name, _ in sharded] == [*["LlamaDecoderLayer"] * 2, "LlamaForCausalLM"]
    copies = torch.bfloat16 if precision == "amp-bf16" else None
    assert {each.param_dtype for _, each in sharded} == {copies}
    assert {each.reduce_dtype or torch.float32 for _, each in sharded} == {torch.float32}


def test_torchrun_starts_the_same_worker(run_ranks: Ranks, tmp_path: Path) -> None:
    spec = replace(run_ranks.spec(parallel="ddp", devices=2), record_path=str(tmp_path / "result.json"))
    spec.write(tmp_path / "spec.json")
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--rdzv-backend", "c10d",
        "--rdzv-endpoint", "localhost:0", "-m", "harness.trial.worker", str(tmp_path / "spec.json"),
    ]  # fmt: skip
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "CUDA_VISIBLE_DEVICES": ""}
    said = subprocess.run(command, check=False, timeout=240, env=environment, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    result = TrialResult.read(tmp_path / "result.json")
    assert result.outcome is Outcome.OK, result.reason
    assert [each["rank"] for each in result.ranks] == [0, 1]
    forked = run_ranks(parallel="ddp", devices=2)
    assert json.dumps(result.measured["losses"]) == json.dumps(forked.measured["losses"])


def test_a_step_over_nodes_imports_nothing_from_the_working_folder(
    run_ranks: Ranks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `srun` starts on a node, started here: torchrun itself, and the ranks that it starts."""
    for name in ("torch", "psutil", "random"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('this ran')", encoding="utf-8")
    spec = replace(run_ranks.spec(parallel="ddp", devices=2), record_path=str(tmp_path / "result.json"))
    spec.write(tmp_path / "spec.json")
    monkeypatch.setattr(socket, "gethostname", lambda: "localhost")
    step = SeveralNodes(local=LocalLauncher(gpu=False), ranks_per_node=2, nodes=1)._command(spec, 2)
    environment = {
        **os.environ, "GLOO_SOCKET_IFNAME": "lo", "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
    }  # fmt: skip
    command = step[step.index(sys.executable) :]
    said = subprocess.run(
        command, check=False, timeout=240, env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert said.returncode == 0, said.stderr
    assert TrialResult.read(tmp_path / "result.json").outcome is Outcome.OK


def test_a_replica_in_a_thread_computes_in_the_type_of_the_run() -> None:
    """DataParallel tells its threads that autocast is on, not in which type; theirs would be fp16."""
    import threading

    import torch

    from harness.techniques.threads import Entering

    replica = Entering(torch.nn.Linear(4, 4), [lambda: torch.autocast("cpu", dtype=torch.bfloat16)])
    found: list[torch.dtype] = []
    thread = threading.Thread(target=lambda: found.append(replica(input=torch.ones(1, 4)).dtype))
    thread.start()
    thread.join()
    assert found == [torch.bfloat16]


def test_one_process_loads_the_batches_of_all_its_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    """`batch_size` is a device's: with two devices a step of three samples each takes six."""
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # DataParallel looks for the devices that it names
    run = TrainingRun(spec_of(parallel="dp", devices=2, batch_size=3), OneRank(), cpu())
    run.model = torch.nn.Linear(4, 4)
    replicas.feed_several(run, 2)
    assert run.loader_settings().batch_size == 6
    assert run.forwards_a_micro_step == 2


def test_the_loss_of_replicas_is_the_mean_of_theirs() -> None:
    """DataParallel puts what they return into one tensor, a number from each device."""
    import torch

    from harness.techniques.threads import MeanLoss

    class Two(torch.nn.Module):
        def forward(self) -> SimpleNamespace:
            return SimpleNamespace(loss=torch.tensor([1.0, 4.0]))

    assert float(MeanLoss(Two())().loss) == 2.5


@pytest.mark.parametrize(
    ("devices", "precision", "computes", "reason"),
    [
        (1, "fp32", "float32", ""),
        (1, "amp-bf16", "bfloat16", ""),
        (1, "bf16", "bfloat16", ""),
        (1, "amp-fp16", "float16", ""),
        (2, "fp32", "float32", "2 devices in float32 were asked for; a block ran on 1 in float32"),
        (1, "amp-bf16", "float16", "1 devices in bfloat16 were asked for; a block ran on 1 in float16"),
    ],
)
def test_replicas_are_shown_by_the_devices_that_ran_a_block_and_in_which_type(
    devices: int, precision: str, computes: str, reason: str
) -> None:
    import torch

    from harness.techniques.replicas import devices_that_ran

    block = torch.nn.Linear(4, 4)
    inputs = torch.ones(1, 4, dtype=getattr(torch, computes))
    run: Any = SimpleNamespace(
        blocks=lambda: [torch.nn.Sequential(block.to(inputs.dtype))], plain_model=block,
        cell=cell(precision=precision), step=lambda: block(inputs),
    )  # fmt: skip
    evidence = devices_that_ran(run, devices)
    assert evidence.holds is not bool(reason)
    assert not reason or evidence.reason == reason


@pytest.mark.gpus2
@pytest.mark.parametrize("parallel", ["dp", "ddp", "fsdp", "pipeline"])
def test_two_gpus(run_ranks: Ranks, parallel: str) -> None:
    finished = run_ranks.on_gpus(parallel=parallel, devices=2, precision="amp-bf16", batch_size=4)
    assert finished.outcome is Outcome.OK, finished.reason
