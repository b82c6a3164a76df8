"""A trial of a user's own step: what is done to it, what proves it, and what is said of one that is wrong."""

from __future__ import annotations

import functools
import hashlib
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.techniques.precision import Precision
from harness.techniques.registry import axis_table
from harness.trial import custom, foreign, own_batches, own_blocks, own_gradients, own_step
from harness.trial.model import dropout_of
from harness.trial.outcome import Outcome
from harness.trial.spec import TrialResult
from harness.trial.training import TrainingRun
from tests.check import steps
from tests.training import run_spec, spec_of

STEPS = Path(__file__).with_name("steps.py")
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
pytestmark = pytest.mark.train


def trial(build: str, *, file: Path = STEPS, gradient_check: bool = False, **settings: Any) -> TrialResult:
    """One trial whose question names the given settings. Sizes are the step's own unless they are named."""
    own = {"sequence_length": 1024, "batch_size": 8, "stream": "parse", **settings}  # the defaults
    spec = spec_of(model=f"{file}:{build}", gradient_check=gradient_check, options={"named": sorted(settings)}, **own)
    return run_spec(replace(spec, baseline_settings=spec.settings))


def test_a_step_of_three_parts_is_trained_and_counted() -> None:
    result = trial("good", gradient_check=True)
    assert (result.outcome, result.reason) == (Outcome.OK, "")
    # 2 embeddings of 64·32 with the head's 64 biases, and per block: norm 64, qkv 32·96+96, out 32·32+32
    assert result.measured["parameters"]["total"] == 2 * 64 * 32 + 64 + 2 * (64 + 32 * 96 + 96 + 32 * 32 + 32)
    assert result.measured["gradient_check"]["error"] < 1e-5
    assert result.measured["tokens_per_second"] == pytest.approx(
        result.measured["samples_per_second"] * 16, rel=1e-9
    )  # a sample is 16 tokens
    assert "configuration" in result.missing["mfu"]
    assert result.evidence == {}, "a setting that nobody named owes no proof"


def test_the_same_seed_gives_the_same_weights_data_and_losses() -> None:
    first, second = trial("good"), trial("good")
    assert first.measured["losses"] == second.measured["losses"]
    assert first.measured["figures"]["first_batch_sha256"] == second.measured["figures"]["first_batch_sha256"]
    assert first.measured["figures"]["first_weights_sha256"] == second.measured["figures"]["first_weights_sha256"]
    assert first.measured["figures"]["work_sha256"] == second.measured["figures"]["work_sha256"]


def test_what_a_step_did_is_known_by_what_ran_how_often_and_on_which_parameters() -> None:
    """Arms that did the same are told that the setting was ignored: half as many operators, or half the bits, are not
    the same."""

    def done(operators: dict[str, int], kernels: dict[str, int], model: torch.nn.Module) -> Any:
        profile = SimpleNamespace(operators=Counter(operators), kernels=Counter(kernels))
        run: Any = SimpleNamespace(own=SimpleNamespace(figures={}, source=""), profile=profile, plain_model=model)
        own_step.judge(run, result := TrialResult(outcome=Outcome.OK))
        return result.measured["figures"]["work_sha256"]

    layer, once = torch.nn.Linear(2, 2), {"aten::mm": 1}
    given = [
        (once, once, layer), ({"aten::mm": 2}, once, layer), (once, {"aten::mm": 2}, layer), ({}, once, layer),
        (once, once, torch.nn.Linear(2, 4)), (once, once, torch.nn.Linear(2, 2).half()),
        (once, once, torch.nn.Sequential(layer)),
    ]  # fmt: skip
    assert len({done(*each) for each in given}) == len(given)
    assert done(*given[0]) == done({"aten::mm": 1}, {"aten::mm": 1}, torch.nn.Linear(2, 2))


@pytest.mark.parametrize(
    ("build", "settings"), [("named_module", {}), ("wrapped", {}), ("wraps_when_asked", {"compile": "default"})]
)
def test_gradients_are_compared_whatever_their_parameters_are_called(build: str, settings: dict[str, Any]) -> None:
    """A wrapper's part of a name goes on both sides, and no other does: what was not found counted as zero."""
    result = trial(build, gradient_check=True, **settings)
    assert (result.outcome, result.reason) == (Outcome.OK, "")
    assert result.measured["gradient_check"]["error"] < 1e-5
    assert result.measured["gradient_check"]["parameters_compared"] == (15 if build == "wraps_when_asked" else 5)


def test_gradients_of_other_parameters_are_not_compared() -> None:
    result = trial("splits_when_asked", gradient_check=True, attention="sdpa")
    assert (result.outcome, result.reason) == (Outcome.OK, "")
    assert result.measured["gradient_check"] == {
        "skipped": "the plain model has other parameters than the timed one: head.0.bias is in the timed one alone"
    }


@pytest.mark.parametrize(
    ("settings", "times"), [({"attention": "sdpa"}, 2), ({"compile": "default"}, 4), ({"checkpointing": "full"}, 4)]
)
def test_the_plain_step_is_built_with_plain_settings(settings: dict[str, Any], times: int) -> None:
    """What a setting that build honours changes would be held against itself. torch's default attention is in each."""
    found = trial("twice_as_large_when_asked", gradient_check=True, **settings).measured["gradient_check"]
    assert found["error"] == pytest.approx(times - 1, rel=1e-4)


def test_a_gradient_over_micro_batches_is_that_of_the_mean_of_their_losses() -> None:
    result = trial("good", accumulation=3, gradient_check=True)
    assert (result.outcome, result.reason) == (Outcome.OK, "")
    assert result.measured["gradient_check"]["error"] < 1e-5


@pytest.mark.parametrize("precision", ["bf16", "amp-bf16"])
def test_what_rounding_costs_is_that_of_the_cells_own_precision(precision: str) -> None:
    """16 bits of which 8 are of the number: 0.004 a rounding. In fp32 the plain step would be off by nothing."""
    found = trial("good", precision=precision, gradient_check=True).measured["gradient_check"]
    assert 1e-3 < found["eager_error"] < 0.05
    assert found["error"] <= 2 * found["eager_error"]


def test_the_plain_step_in_fp16_has_the_loss_scale_of_the_cell() -> None:
    """Without it eager attention was off by the whole gradient, and twice as much was allowed to any other."""
    found = trial("small_loss", precision="amp-fp16", gradient_check=True).measured["gradient_check"]
    assert 1e-4 < found["eager_error"] < 0.01
    assert found["error"] <= 2 * found["eager_error"]


def test_the_plain_step_is_multiplied_in_full_fp32_and_attends_by_plain_operations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever the cell chose: TF32 would be as wrong as what it judges, and a kernel would be held against itself."""
    found: list[tuple[str, bool, bool]] = []

    def looking(*given: Any) -> Any:
        kernels = torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.math_sdp_enabled()
        found.append((torch.get_float32_matmul_precision(), *kernels))
        return plain(*given)

    plain = own_gradients.loss_of
    monkeypatch.setattr(own_gradients, "loss_of", looking)
    monkeypatch.setattr(Precision, "apply", lambda *_: torch.set_float32_matmul_precision("high"))
    result = trial("good", gradient_check=True, attention="sdpa-flash", precision="fp32")
    assert "flash" in result.evidence["attention"]["word"]
    assert found == [("high", False, True), ("highest", False, True)]


def test_data_that_are_drawn_later_do_not_depend_on_what_build_has_drawn() -> None:
    """An arm whose build draws more would be trained on other data; and the plain step is given the same ones too."""
    none, two = (trial("draws_each_batch", workers=workers, gradient_check=True) for workers in (0, 2))
    assert none.measured["figures"]["first_batch_sha256"] == two.measured["figures"]["first_batch_sha256"]
    assert none.measured["losses"] == two.measured["losses"]
    assert two.measured["gradient_check"]["error"] < 1e-5


@pytest.mark.parametrize(("accumulation", "hashed"), [(1, 2), (2, 4)])
def test_batches_are_known_by_all_of_the_warm_up_and_no_others(accumulation: int, hashed: int) -> None:
    """Two steps of warm-up. Arms whose windows differ in length are held together by what both have seen."""
    found = trial("good", accumulation=accumulation).measured["figures"]["warmup_batches_sha256"]
    batches = custom.call(steps.good, "steps.py:good", torch.device("cpu"), {}, seed=7).batches
    digest = hashlib.sha256("".join(map(own_batches.batch_hash, list(batches)[:hashed])).encode())  # type: ignore[arg-type]
    assert found == digest.hexdigest()[:16]


@pytest.mark.parametrize(
    ("settings", "axis", "word"),
    [
        ({"attention": "sdpa-math"}, "attention", "aten::_scaled_dot_product_attention_math"),
        ({"checkpointing": "full"}, "checkpointing", "2 forwards a block"),
        ({"precision": "amp-bf16"}, "precision", "bfloat16 inside"),
        ({"precision": "bf16"}, "precision", "bfloat16 inside"),
        ({"optimizer": "for-loop"}, "optimizer", "for-loop"),
        ({"batch_size": 2}, "sequence_length", "2 samples of 16 tokens"),
    ],
)
def test_settings_are_applied_from_outside_and_proven(settings: Any, axis: str, word: str) -> None:
    result = trial("good", **settings)
    assert (result.outcome, result.reason) == (Outcome.OK, "")
    assert result.evidence[axis]["holds"]
    assert result.evidence[axis]["word"] == word


@pytest.mark.parametrize(
    ("cell", "baseline", "named"),
    [
        ({}, {}, set()),
        ({"attention": "eager"}, {}, {"attention"}),
        # what the baseline sets is owed a proof in both: that it is off here, too
        ({}, {"attention": "eager"}, {"attention"}),
        ({"precision": "bf16"}, {"precision": "bf16"}, {"precision"}),
        # how the built-in data is read is no matter of the step's own batches
        ({"workers": 2}, {"workers": 2}, set()),
        ({"workers": 2}, {}, {"workers"}),
    ],
)
def test_a_question_is_about_what_either_arm_sets(
    cell: dict[str, Any], baseline: dict[str, Any], named: set[str]
) -> None:
    defaults = axis_table().defaults()
    spec = replace(spec_of(), settings={**defaults, **cell}, baseline_settings={**defaults, **baseline})
    assert foreign.named_axes(spec) == named
    assert foreign.named_axes(replace(spec, options={"named": ["clip"]})) == {*named, "clip"}


def test_what_cannot_be_applied_says_why_and_how_to_do_it_oneself() -> None:
    result = trial("good", attention="eager")
    assert result.outcome is Outcome.INERT
    assert "no transformers model, whose attention can be exchanged" in result.reason
    assert "read settings['attention'] in build, add 'attention' to honours" in result.reason
    assert "the batches are the step's own" in trial("good", workers=2).reason
    assert "none of the layers q_proj" in trial("good", lora=8).reason
    assert "share its data out between devices" in trial("good", zero=1).reason
    assert "the step brings an optimizer of its own" in trial("groups_of_two_rates", optimizer="for-loop").reason
    assert "DeepSpeed's engine is not set up for it" in trial("good", precision="ds-bf16").reason


def test_a_setting_that_build_honours_shows_itself_or_is_proven_by_it() -> None:
    by_hand = trial("honours_attention", attention="eager")
    assert (by_hand.outcome, by_hand.evidence["attention"]["word"]) == (Outcome.OK, "plain operations")
    told = trial("honours_workers", workers=2)
    assert told.evidence["workers"]["word"] == "2 workers, as build was told"
    assert told.outcome is Outcome.OK


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_what_the_harness_saw_is_not_replaced_by_what_the_step_says_of_itself(attention: str) -> None:
    result = trial("vouches_for_attention", attention=attention)
    seen = result.evidence["attention"]
    assert (result.outcome is Outcome.OK, seen["holds"]) == (attention == "sdpa",) * 2
    assert seen["word"] == "aten::_scaled_dot_product_flash_attention_for_cpu"


def test_accumulation_that_the_loss_does_itself_is_not_done_again() -> None:
    """2 steps of warm-up, 3 of the window, 1 under the profiler: a call each, of 4 micro-batches of 2 samples."""
    result = trial("accumulates", gradient_check=True, accumulation=4, batch_size=2)
    assert (result.outcome, result.reason) == (Outcome.OK, "")
    assert result.evidence["accumulation"]["word"] == "6 calls of 8 samples"
    assert result.evidence["sequence_length"]["word"] == "2 samples of 16 tokens"
    assert result.measured["gradient_check"]["error"] < 1e-5
    window = sum(result.measured["step_seconds"])
    assert result.measured["samples_per_second"] * window == pytest.approx(3 * 8)


def test_accumulation_inside_a_loss_shows_in_nothing_but_its_own_evidence() -> None:
    result = trial("accumulates_without_evidence", accumulation=4)
    assert result.outcome is Outcome.INERT
    assert "says that it honours accumulation, and nothing shows it" in result.reason


def test_how_a_batch_is_copied_is_left_alone_where_build_honours_it() -> None:
    assert trial("honours_non_blocking", non_blocking=True).evidence["non_blocking"]["word"] == "False"


@pytest.mark.parametrize(
    ("build", "axis", "reason"),
    [
        ("checkpoints_by_itself", "checkpointing", "checkpointing=off was set, but backward ran "),
        ("checkpoints_by_itself", "checkpointing", "where settings['checkpointing'] asks for it and add"),
        ("checkpoints_a_function", "checkpointing", "checkpointing=off was set, but backward ran "),
        ("checkpoints_a_function", "checkpointing", " operators again: the step recomputes by itself; let build do so"),
        ("checkpoints_a_function_reentrant", "checkpointing", " operators again: the step recomputes by itself; let"),
        ("compiles_one_block", "compile", "compile=off was set, but a step ran 1 region of compiled code: the step"),
        ("compiles_by_itself", "compile", "compile=off was set, but a step ran 2 regions of compiled code: the step"),
    ],
)
def test_an_off_that_build_turns_on_is_inert(build: str, axis: str, reason: str) -> None:
    result = trial(build, **{axis: "off"})
    assert result.outcome is Outcome.INERT
    assert reason in result.reason


@pytest.mark.parametrize(
    ("build", "axis", "word"),
    [
        ("good", "checkpointing", "nothing recomputed"),
        ("good", "compile", "nothing compiled"),
        ("checkpoints_as_asked", "checkpointing", "nothing recomputed"),
        ("steps_inside_backward", "checkpointing", "nothing recomputed"),
    ],
)
def test_an_off_that_is_off_is_shown(build: str, axis: str, word: str) -> None:
    result = trial(build, **{axis: "off"})
    assert (result.outcome, result.reason) == (Outcome.OK, "")
    assert result.evidence[axis]["word"] == word


def test_what_is_on_by_itself_concerns_no_question_but_its_own() -> None:
    assert trial("compiles_by_itself", optimizer="for-loop").outcome is Outcome.OK


@pytest.mark.parametrize("setting", ["full", "reentrant"])
@pytest.mark.parametrize(
    ("build", "blocks", "in_backward"),
    [
        ("bare_layers", 4, 1), ("one_block_three_times", 1, 3), ("named_arguments", 2, 1), ("lists_in_lists", 3, 1),
        ("a_list_of_pairs", 4, 1), ("two_towers", 2 + 2 + 3, 1), ("input_without_gradient", 2, 1),
    ],
)  # fmt: skip
def test_every_outermost_block_is_recomputed_once(build: str, blocks: int, in_backward: int, setting: str) -> None:
    result = trial(build, checkpointing=setting, gradient_check=True)
    assert (result.outcome, result.reason) == (Outcome.OK, "")
    proof = result.evidence["checkpointing"]
    assert proof["word"].split(",")[0] == "2 forwards a block"
    assert (proof["facts"]["blocks"], proof["facts"]["recomputed_blocks"]) == (blocks, blocks)
    assert proof["facts"]["in_backward"] == in_backward
    assert result.measured["gradient_check"]["error"] < 1e-5


def test_blocks_of_transformers_models_are_all_of_their_layers_wherever_they_stand() -> None:
    from transformers import T5Config, T5Model

    towers = steps.Towers()
    listed = torch.nn.ModuleList([towers.one, towers.other])
    assert own_blocks.rows(listed) == [list(towers.one.h), list(towers.other.layers)]
    beside = torch.nn.ModuleDict({"tower": towers.one, "head": torch.nn.Sequential(steps.mlp(), steps.mlp())})
    assert own_blocks.rows(beside) == [list(towers.one.h)], "a head is no block"
    tables = torch.nn.ModuleList([torch.nn.Embedding(4, 4), torch.nn.Linear(4, 4)])
    assert own_blocks.rows(tables) == [[tables[1]]], "nor is what only looks up"
    sizes = {"d_model": 32, "d_kv": 16, "d_ff": 32, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 2}
    model = T5Model(T5Config(vocab_size=64, **sizes))
    assert own_blocks.rows(model) == [[*model.encoder.block, *model.decoder.block]]


class Tower(torch.nn.ModuleDict):
    """A transformers model that does not say which of its layers it can checkpoint."""

    def set_attn_implementation(self, name: str) -> None:
        """By which one is known."""


def _listed(*parts: torch.nn.Module) -> torch.nn.ModuleList:
    return torch.nn.ModuleList(parts)


def _in_turn(*parts: torch.nn.Module) -> torch.nn.Sequential:
    return torch.nn.Sequential(*parts)


ONE = steps.Block
OTHER = functools.partial(torch.nn.MultiheadAttention, 4, 1)
LAYER = functools.partial(torch.nn.Linear, 4, 4)
SHARED = ONE()


@pytest.mark.parametrize(
    ("parts", "rows"),
    [
        ({"a": _listed(ONE(), OTHER()), "b": _in_turn(ONE(), ONE())}, ["a.0 a.1", "b.0 b.1"]),
        # one of a kind, two of two kinds, and what has no parts are no row of blocks beside a list
        ({"a": _listed(ONE()), "b": _in_turn(ONE())}, ["a.0"]),
        ({"a": _listed(ONE()), "b": _in_turn(ONE(), OTHER())}, ["a.0"]),
        ({"a": _listed(ONE()), "b": _in_turn(LAYER(), LAYER())}, ["a.0"]),
        ({"a": _listed(torch.nn.EmbeddingBag(4, 4), torch.nn.Embedding(4, 4), ONE())}, ["a.2"]),
        ({"a": _listed(torch.nn.ModuleDict({"x": ONE(), "y": ONE()}), ONE())}, ["a.0.x a.0.y a.1"]),
        # what stands in two lists is of the first
        ({"a": _listed(SHARED, ONE()), "b": _listed(ONE(), SHARED)}, ["a.0 a.1", "b.0"]),
        ({"a": Tower({"x": _listed(ONE()), "y": _listed(ONE(), ONE())})}, ["a.y.0 a.y.1"]),
        # without a list: the longest, and those that are neither in it nor around it
        ({"a": _in_turn(OTHER(), ONE()), "b": _in_turn(ONE(), OTHER(), ONE())}, ["b.0 b.1 b.2", "a.0 a.1"]),
        ({"a": _in_turn(*(_in_turn(ONE(), OTHER()) for _ in range(3)))}, ["a.0 a.1 a.2"]),
        (
            {"a": _in_turn(*(_in_turn(ONE(), OTHER(), ONE()) for _ in range(2)))},
            ["a.0.0 a.0.1 a.0.2", "a.1.0 a.1.1 a.1.2"],
        ),
        ({"a": _in_turn(LAYER(), ONE(), OTHER())}, []),
    ],
)  # fmt: skip
def test_blocks_are_found_where_they_repeat(parts: dict[str, torch.nn.Module], rows: list[str]) -> None:
    model = torch.nn.ModuleDict(parts)
    names = {id(module): name for name, module in model.named_modules()}
    assert [" ".join(names[id(block)] for block in row) for row in own_blocks.rows(model)] == rows


def _own(model: torch.nn.Module) -> own_step.OwnStep:
    step = custom.TrainingStep(model=model, batches=[], loss=steps.loss)
    return own_step.OwnStep(
        source="steps.py:build", build=steps.good, step=step, named=frozenset(), towers=own_blocks.towers(model),
        file=STEPS,
    )  # fmt: skip


def test_what_transformers_recomputes_is_not_recomputed_once_more() -> None:
    own = _own(steps.Towers())
    own.checkpoint("full", input_gradients=False)
    assert list(map(own_blocks.is_checkpointed_here, own.blocks())) == [False] * 4 + [True] * 3


class Shifted(torch.nn.Module):
    """A layer with two arguments by name."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)

    def forward(self, x: torch.Tensor, *, scale: float, shift: float) -> torch.Tensor:
        """As `x`."""
        return self.layer(x) * scale + shift


@pytest.mark.parametrize(("setting", "input_gradients"), [("full", False), ("reentrant", False), ("reentrant", True)])
def test_a_block_that_is_recomputed_gets_what_it_is_called_with_and_is_left_as_it_was(
    setting: str, input_gradients: bool
) -> None:
    own, x = _own(torch.nn.ModuleList([Shifted()])), torch.ones(1, 2, requires_grad=True)
    (block,) = own.blocks()
    forwards: list[int] = []
    assert own.watch(block, lambda: forwards.append(1)) is None, "nothing recomputes it yet"
    plain = block(x, scale=2.0, shift=3.0)
    own.checkpoint(setting, input_gradients=input_gradients)
    watch = own.watch(block, lambda: forwards.append(1))
    assert watch is not None
    assert torch.equal(block(x, scale=2.0, shift=3.0), plain)
    block(x, scale=2.0, shift=3.0).sum().backward()
    assert len(forwards) == 3, "of two calls, and of one backward"
    watch.remove()
    assert torch.equal(block(x, scale=2.0, shift=3.0), plain)
    assert len(forwards) == 3


def test_the_share_of_blocks_is_of_all_parameters_each_once() -> None:
    model = torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(4)))
    model[:2].requires_grad_(False)
    assert own_blocks.share_of(model, [model[3], model[3]]) == 0.25
    assert own_blocks.share_of(model, [model[0]]) == 0.25


def test_reentrant_without_input_gradients_leaves_a_block_untrained() -> None:
    result = trial("input_without_gradient", checkpointing="reentrant", input_gradients="off")
    assert (result.outcome, result.reason.split(":")[0]) == (
        Outcome.INERT, "backward ran 0 of 2 blocks forward again",
    )  # fmt: skip


def test_a_small_part_that_is_recomputed_is_told() -> None:
    """2 blocks of 2·(32·32 + 32) weights, beside 1000·32 of the embedding and 32·64 + 64 of the head: 11%."""
    result = trial("a_large_rest", checkpointing="full")
    share = 4 * 1056 / (4 * 1056 + 32000 + 2112)
    assert result.evidence["checkpointing"]["facts"]["share_of_parameters"] == pytest.approx(share)
    assert result.evidence["checkpointing"]["word"] == "2 forwards a block, 11% of the parameters"
    assert "the blocks that are recomputed hold 11% of the parameters alone" in result.warnings


def test_a_checkpointing_that_build_sees_to_chooses_its_lists() -> None:
    result = trial("checkpoints_as_asked", checkpointing="full")
    assert (result.outcome, result.reason) == (Outcome.OK, "")
    assert result.evidence["checkpointing"]["word"] == "2 forwards a block"


def test_the_attention_of_both_towers_is_exchanged() -> None:
    result = trial("two_towers", attention="eager")
    assert (result.outcome, result.reason) == (Outcome.OK, "")
    assert result.evidence["attention"]["word"] == "plain operations"
    assert "configuration" in result.missing["mfu"], "one tower's shape says nothing of the work of both"


def test_the_reference_gradient_is_of_eager_attention_in_both_towers(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's default kernel in one of them would be held against itself."""
    found: list[list[str]] = []

    def looking(own: Any, step: Any, model: Any, batch: Any) -> Any:
        found.append([tower.config._attn_implementation for tower in (model.one, model.other)])
        return plain(own, step, model, batch)

    plain = own_gradients.loss_of
    monkeypatch.setattr(own_gradients, "loss_of", looking)
    result = trial("two_towers", gradient_check=True)
    assert result.measured["gradient_check"]["error"] < 1e-5
    assert found == [["eager", "eager"]] * 2, "at the cell's own precision, and in fp32"


def test_pruning_takes_a_module_that_is_listed_three_times_once() -> None:
    result = trial("one_block_three_times", pruning=0.5)
    assert (result.outcome, result.reason) == (Outcome.OK, "")
    assert result.evidence["pruning"]["facts"]["matrices"] == 2
    assert result.evidence["pruning"]["facts"]["share_of_zeros"] == pytest.approx(0.5, abs=1e-3)


@pytest.mark.parametrize(("setting", "word"), [("amp-bf16", "bfloat16 inside"), ("fp32", "float32 inside")])
@pytest.mark.parametrize(
    "build",
    [
        "torch_encoder", "convolutions", "bag_of_words", "bare_layers", "compiles_by_itself",
        "a_layer_in_fp32_before_blocks",
    ],
)  # fmt: skip
def test_the_precision_of_the_first_product_that_runs_in_a_block_is_seen(build: str, setting: str, word: str) -> None:
    result = trial(build, precision=setting)
    assert (result.outcome, result.reason) == (Outcome.OK, "")
    assert result.evidence["precision"]["word"] == word


def test_a_model_in_which_no_product_is_seen_is_told_so() -> None:
    result = trial("product_by_hand", precision="amp-bf16")
    assert result.outcome is Outcome.INERT
    assert result.reason == "precision=amp-bf16 was set, but no matrix product was seen"


@pytest.mark.parametrize("build", ["two_in_one_optimizer", "two_in_one_to_none", "two_in_one_compiled", "takes_more"])
def test_an_optimizer_needs_no_more_than_two_methods(build: str) -> None:
    result = trial(build, gradient_check=True, clip=1.0)
    assert (result.outcome, result.reason) == (Outcome.OK, "")
    assert len(set(result.measured["losses"])) == len(result.measured["losses"]), "it trains"
    # 4 bytes each: SGD's moment of every number of a matrix; AdamW's two of all others, and its step of every tensor
    matrices = 2 * 64 * 32 + 2 * (32 * 96 + 32 * 32)
    rest, tensors = 64 + 2 * (64 + 96 + 32), 1 + 2 * (2 + 1 + 1)
    assert result.measured["model_state_bytes"]["optimizer"] == 4 * matrices + 8 * rest + 4 * tensors


@pytest.mark.parametrize(("setting", "outcome"), [("for-loop", Outcome.OK), ("foreach", Outcome.INERT)])
def test_what_an_optimizer_of_ones_own_runs_is_seen_in_its_step(setting: str, outcome: Outcome) -> None:
    result = trial("honours_optimizer", optimizer=setting)
    assert result.evidence["optimizer"]["word"] == "for-loop"
    assert result.outcome is outcome


def test_what_needs_an_optimizer_of_torchs_says_so() -> None:
    scheduled = trial("two_in_one_optimizer", schedule="cosine")
    assert scheduled.outcome is Outcome.INERT
    assert "schedule=cosine cannot be applied from outside: the step's optimizer is none of torch's" in scheduled.reason
    scaled = trial("two_in_one_optimizer", precision="amp-fp16")
    assert scaled.outcome is Outcome.INERT
    assert "a GradScaler finds the gradients in param_groups, which a Both does not have" in scaled.reason


@pytest.mark.parametrize("setting", ["cosine", "warmup-linear"])
def test_a_schedule_begins_at_the_rate_of_each_group(setting: str) -> None:
    result = trial("groups_of_two_rates", schedule=setting)
    assert (result.outcome, result.reason) == (Outcome.OK, "")
    assert max(result.evidence["schedule"]["facts"]["expected"]) == pytest.approx(1e-5)


def test_layers_that_stand_in_a_list_themselves_are_quantized() -> None:
    result = trial("bare_layers", quantization="nf4")
    assert (result.outcome, result.reason) == (Outcome.OK, "")
    assert result.evidence["quantization"]["facts"]["layers"] == 4


def test_copies_of_own_batches_from_pageable_memory_are_told() -> None:
    result = trial("good", non_blocking=True)
    assert (result.outcome, result.reason) == (Outcome.OK, "")
    assert result.evidence["stream"]["word"] == "the host waits, pageable batches"


def test_a_setting_that_says_more_about_an_honoured_one_is_not_applied_by_half() -> None:
    result = trial("honours_checkpointing", checkpointing="full", input_gradients="off")
    assert result.outcome is Outcome.INERT
    assert "input_gradients=off cannot be applied to steps.py:honours_checkpointing from outside" in result.reason
    assert "build honours checkpointing, to which it belongs" in result.reason
    assert "lora_targets=qv cannot be applied" in trial("ignores_checkpointing", lora=4, lora_targets="qv").reason


@pytest.mark.parametrize(
    ("build", "settings", "reason"),
    [
        ("says_that_it_honours_attention", {"attention": "eager"}, "the profile shows the kernel of sdpa-flash"),
        ("honours_workers_without_evidence", {"workers": 2}, "says that it honours workers, and nothing shows it"),
        ("disproves_workers", {"workers": 2}, "the evidence of steps.py:disproves_workers says otherwise"),
        ("ignores_size", {"batch_size": 4}, "a batch holds 2 samples, not batch_size=4: build must read it"),
        ("ignores_size", {"sequence_length": 64}, "a sample holds 16 tokens, not sequence_length=64"),
        ("ignores_size", {"sequence_length": 14}, "a sample holds 16 tokens, not sequence_length=14"),
        (
            "input_without_gradient",
            {"sequence_length": 64},
            "a sample holds 1 tokens, not sequence_length=64: build must read it in settings, and where its batches "
            "hold no token ids return a TrainingStep with tokens=",
        ),
        # the flash kernel is there, and a mask keeps it from being used
        ("masked_and_honoured", {"attention": "sdpa-flash"}, "its kernel is not in the profile"),
    ],
)
def test_a_setting_that_is_not_in_effect_makes_the_trial_inert(build: str, settings: Any, reason: str) -> None:
    result = trial(build, **settings)
    assert result.outcome is Outcome.INERT
    assert reason in result.reason


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        ("raises", "steps.py:raises raised at line "),
        ("raises", "FileNotFoundError: weights.pt is not there"),
        ("exits", "steps.py:exits raised at line "),
        ("exits", ": SystemExit: the corpus is missing; run fetch.sh first"),
        ("exits_with_nothing_wrong", "the loss of steps.py:exits_with_nothing_wrong raised at line "),
        ("returns_two", "returned a tuple of 2; it must return (model, batches, loss) or a TrainingStep"),
        ("returns_a_model", "returned a Model; it must return (model, batches, loss) or a TrainingStep"),
        ("returns_no_module", "the model is a function, and must be a torch.nn.Module"),
        ("returns_no_loss", "the loss is a float, and must be a function of (model, batch)"),
        ("frozen", "the model has no parameter that is trained"),
        ("elsewhere", "the model lies on meta, not on cpu; call .to(device) in build"),
        ("in_eval", "the model is in eval mode"),
        ("vector_loss", "returned a tensor of shape (2, 16, 64); it must return a scalar tensor"),
        ("detached_loss", "has no gradient"),
        ("failing_loss", "the loss of steps.py:failing_loss raised at line "),
        ("no_batches", "there is no batch"),
        ("one_pass", "the batches are a list_iterator, which ends after one pass and cannot begin again"),
        (
            "generates",
            "the batches are a generator, which ends after one pass and cannot begin again; return a list, a",
        ),
        ("begins_once", "the batches ended after one pass and cannot begin again"),
        ("gives_no_batches", "the function of batches returned a NoneType; it must return an iterable"),
        ("failing_batches", "the batches of steps.py:failing_batches raised at line "),
        ("absent", "has no function 'absent'"),
        ("WIDTH", "steps.py is of type int; name the function that returns model, batches and loss"),
        (
            "calls_backward",
            ") calls backward itself, or holds on to the graph of an earlier step; return the loss alone",
        ),
        ("calls_backward_and_clears", ") calls backward itself"),
        ("keeps_its_graph", ") calls backward itself"),
        ("tokens_of_text", ") returned 'many'; it must return how many tokens a batch has, 1 or more"),
        ("tokens_that_are_none", ") returned 0; it must return how many tokens a batch has, 1 or more"),
        ("tokens_of_less_than_one", ") returned 0.5; it must return how many tokens a batch has, 1 or more"),
        ("tokens_without_end", ") returned inf; it must return how many tokens a batch has, 1 or more"),
        ("tokens_that_are_true", ") returned True; it must return how many tokens a batch has, 1 or more"),
        ("tokens_of_each_sample", ") returned a Tensor; it must return how many tokens a batch has, 1 or more"),
        ("tokens_from_another_file", "the tokens of steps.py:tokens_from_another_file returned a "),
        ("failing_tokens", "the tokens of steps.py:failing_tokens raised at line "),
        ("no_optimizer", ") returned nothing; it must return a torch.optim.Optimizer"),
        ("made_optimizer", "optimizer is a SGD, and must be a function of parameters"),
        ("wants_a_closure", "wants_a_closure returned a LBFGS, whose step needs 'closure': the harness calls step()"),
        ("step_alone", "step_alone returned a StepAlone; it must return a torch.optim.Optimizer of the parameters"),
        (
            "clears_what_it_is_told",
            "clears_what_it_is_told returned a ClearsWhatItIsTold, whose zero_grad needs 'which': the harness calls",
        ),
        ("optimizer_that_fails", "the optimizer of steps.py:optimizer_that_fails raised at line "),
        ("failing_optimizer", "the optimizer of steps.py:failing_optimizer raised at line "),
        ("honours_no_axis", "honours names 'worker', which is no axis; did you mean 'workers'?"),
        ("honours_a_text", "honours is 'workers', and must be a set of axes"),
        ("failing_evidence", "the evidence of steps.py:failing_evidence raised at line "),
        ("evidence_of_a_list", ") returned a list; it must return a mapping, axis: True or False"),
        ("evidence_in_words", ") says 'no' of workers; it must return a mapping, axis: True or False"),
        ("evidence_in_threes", ") says (True, '2 workers', 'seen') of workers; it must return a mapping, axis: True"),
        ("evidence_in_a_word_and_why", ") says ('yes', '2 workers') of workers; it must return a mapping, axis: True"),
        ("evidence_of_no_axis", ") speaks of 'worker', which is no axis; did you mean 'workers'?"),
        ("evidence_that_is_no_function", "evidence is a dict, and must be a function of nothing"),
    ],
)
def test_a_step_that_is_wrong_is_told_so_in_words(build: str, reason: str) -> None:
    result = trial(build)
    assert result.outcome is Outcome.CRASH
    assert reason in result.reason
    assert "\n" not in result.reason


def test_what_else_backward_raises_is_told_in_its_own_words() -> None:
    result = trial("hook_that_fails")
    assert result.outcome is Outcome.CRASH
    assert "the gradient is lost" in result.reason
    assert "calls backward itself" not in result.reason


def test_what_a_part_returns_is_told_with_the_line_that_the_part_stands_at() -> None:
    text = STEPS.read_text(encoding="utf-8").splitlines()
    line = 1 + next(number for number, each in enumerate(text) if 'tokens=lambda batch: "many"' in each)
    assert f"the tokens of steps.py:tokens_of_text (line {line}) returned 'many'" in trial("tokens_of_text").reason


def test_tokens_may_be_a_number_of_any_kind() -> None:
    result = trial("tokens_of_a_tensor")
    assert (result.outcome, result.reason) == (Outcome.OK, "")
    assert result.measured["tokens_per_second"] == pytest.approx(result.measured["samples_per_second"] * 3.5, rel=1e-9)


def test_tokens_on_the_device_are_read_after_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """In each timed step the reading waited for the device, which a step without it does not do."""
    inside: list[int] = []
    watched: Any = None
    plain = TrainingRun.step

    def step(self: TrainingRun) -> None:
        nonlocal watched
        watched = sys.modules[type(self.plain_model).__module__].Watched
        before = len(watched.reads)
        plain(self)
        inside.append(len(watched.reads) - before)

    monkeypatch.setattr(TrainingRun, "step", step)
    result = trial("tokens_that_must_wait")
    assert (result.outcome, result.reason) == (Outcome.OK, "")
    assert set(inside) == {0}
    assert watched.reads, "and they are read"
    assert result.measured["tokens_per_second"] == pytest.approx(result.measured["samples_per_second"] * 3.5, rel=1e-9)


def test_a_count_that_is_a_part_of_something_is_kept_as_it_was() -> None:
    """Two warm-up steps, then 3 + 4 + 5 tokens in three steps of two samples."""
    result = trial("tokens_in_a_part_of_the_batch")
    assert (result.outcome, result.reason) == (Outcome.OK, "")
    assert result.measured["tokens_per_second"] == pytest.approx(result.measured["samples_per_second"] * 2, rel=1e-9)


def test_a_loss_that_calls_another_model_than_it_is_given_is_asked_about_that() -> None:
    result = trial("captured_model", compile="default")
    assert result.outcome is Outcome.INERT
    assert "no frame was compiled; does loss call the model that it is given" in result.reason


def test_a_mask_that_the_asked_kernel_does_not_take() -> None:
    result = trial("masked", attention="sdpa-flash")
    assert result.outcome is Outcome.CRASH
    assert "the attention kernel that was asked for does not take what the model hands" in result.reason
    assert "drop the mask in steps.py:masked" in result.reason


def test_a_model_that_goes_to_eval_while_it_trains_is_invalid() -> None:
    result = trial("goes_to_eval")
    assert result.outcome is Outcome.INVALID
    assert "was put into eval mode while it trained" in result.reason


def test_a_file_that_cannot_be_imported(tmp_path: Path) -> None:
    (tmp_path / "my.py").write_text("import torch\nimport nowhere\n", encoding="utf-8")
    assert "my.py cannot be imported at line 2: ModuleNotFoundError" in trial("build", file=tmp_path / "my.py").reason
    (tmp_path / "my.py").write_text("import torch\ndef build(:\n", encoding="utf-8")
    assert "cannot be imported at line 2: SyntaxError" in trial("build", file=tmp_path / "my.py").reason
    (tmp_path / "my.py").write_text("# coding: none\n", encoding="utf-8")
    whole = "my.py cannot be imported: SyntaxError: unknown encoding: none"
    assert whole in trial("build", file=tmp_path / "my.py").reason, "there is no line 0"


# -- the examples ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("example", "settings", "axis", "word"),
    [
        ("plain_step", {"checkpointing": "full"}, "checkpointing", "2 forwards a block"),
        ("huggingface_step", {"attention": "eager"}, "attention", "plain operations"),
        ("huggingface_step", {"attention": "sdpa-flash"}, "attention",
         "aten::_scaled_dot_product_flash_attention_for_cpu"),
        ("huggingface_step", {"checkpointing": "full"}, "checkpointing", "2 forwards a block"),
        ("huggingface_step", {"lora": 4}, "lora", "5.64% trained"),
        ("collator_step", {"accumulation": 2}, "sequence_length", "2 samples of 32 tokens"),
    ],
)  # fmt: skip
def test_settings_on_the_examples(example: str, settings: Any, axis: str, word: str) -> None:
    result = trial("build", file=EXAMPLES / f"{example}.py", sequence_length=32, batch_size=2, **settings)
    assert (result.outcome, result.reason) == (Outcome.OK, "")
    assert result.evidence[axis]["word"] == word


def test_each_example_is_ten_lines_or_fewer() -> None:
    import ast

    for file in sorted(EXAMPLES.glob("*_step.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        build = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "build")
        assert (build.end_lineno or 0) - build.lineno <= 10, file.name


@pytest.mark.parametrize(
    ("module", "config", "told"),
    [
        (torch.nn.Dropout(0.25), {}, "0: p=0.25"),
        (torch.nn.Dropout(0.25).eval(), {}, ""),
        (torch.nn.Dropout(0.0), {"attention_dropout": 0.0, "dropout_rate": "high"}, ""),
        # transformers' attention drops by a function
        (torch.nn.Identity(), {"attention_dropout": 0.1}, "attention_dropout=0.1"),
        (torch.nn.Identity(), {"hidden_size": 64, "attn_pdrop": 0.5}, "attn_pdrop=0.5"),
        # of heads that are not there: a GPT-2 without any dropout was not compared for the first
        (torch.nn.Identity(), {"summary_first_dropout": 0.1, "classifier_dropout": 0.1, "qa_dropout": 0.1}, ""),
    ],
)
def test_dropout_that_is_on_is_told_by_its_place(module: Any, config: dict[str, Any], told: str) -> None:
    model: Any = torch.nn.Sequential(module)
    model.config = SimpleNamespace(**config)
    assert dropout_of(model) == told
    assert dropout_of(steps.Towers().one) == ""


def test_dropout_leaves_the_gradient_check_out() -> None:
    result = trial("build", file=EXAMPLES / "collator_step.py", gradient_check=True, sequence_length=32, batch_size=2)
    assert result.measured["gradient_check"]["skipped"].startswith("the model has dropout (")


def test_memory_that_python_lacks_in_a_step_is_out_of_host_memory() -> None:
    result = trial("short_of_memory")
    assert (result.outcome, result.reason) == (Outcome.OOM, "out of host memory")


@pytest.mark.parametrize(("full", "whose"), [("short_in_fp32", "the host's"), ("device_full_in_fp32", "this device's")])
def test_a_reference_that_does_not_fit_says_in_whose_memory(full: str, whose: str) -> None:
    """The timed step trained; the plain one in fp32, which it is compared with, did not fit."""
    result = trial(full, precision="amp-bf16", gradient_check=True)
    assert result.outcome is Outcome.OK
    assert result.measured["gradient_check"]["skipped"] == f"the plain step in fp32 does not fit in {whose} memory"


OWN_DATASET = """
import torch
from torch.utils.data import DataLoader, Dataset

import a_sibling

class Own(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.full((4,), float(a_sibling.WIDTH))

def build(device, settings):
    loader = DataLoader(Own(), batch_size=2, num_workers=1, multiprocessing_context="spawn")
    return torch.nn.Linear(4, 1), loader, lambda model, batch: model(batch).mean()
"""


def test_loader_workers_that_are_spawned_find_the_step_and_its_siblings(tmp_path: Path) -> None:
    file = tmp_path / "my_own_dataset.py"
    file.write_text(OWN_DATASET, encoding="utf-8")
    (tmp_path / "a_sibling.py").write_text("WIDTH = 3", encoding="utf-8")
    result = trial("build", file=file)
    assert (result.outcome, result.reason) == (Outcome.OK, "")


@pytest.mark.parametrize("name", ["profile", "json", "two.dots"])
def test_a_step_that_is_called_like_another_module_takes_nobodys_place(tmp_path: Path, name: str) -> None:
    import json
    import profile

    file = tmp_path / f"{name}.py"
    file.write_text("def build(device, settings): ...", encoding="utf-8")
    build = custom.load(f"{file}:build")
    assert build.__module__ == f"claimbench_step_{name}"
    assert (sys.modules["json"], sys.modules["profile"]) == (json, profile)
