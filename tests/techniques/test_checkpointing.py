"""Recomputation is counted where it happens: in backward, which runs no forward otherwise."""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.techniques import checkpointing
from harness.techniques.checkpointing import Checkpointing, Forwards, attention_order, shows_recomputation
from harness.trial import training
from harness.trial.outcome import Outcome
from harness.trial.profile import Profile, Span
from harness.trial.spec import TrialResult
from tests.training import cell, run_spec, spec_of

Run = Callable[..., TrialResult]


@pytest.mark.parametrize("setting", ["full", "reentrant"])
@pytest.mark.parametrize("model", ["tiny", "tiny-gpt2"])
def test_blocks_run_forward_twice(run_trial: Run, setting: str, model: str) -> None:
    result = run_trial(checkpointing=setting, model=model)
    assert result.outcome is Outcome.OK
    assert result.evidence["checkpointing"]["facts"]["forwards_of_first_layer"] == 2


def test_with_accumulation_twice_in_every_micro_batch(run_trial: Run) -> None:
    facts = run_trial(checkpointing="full", accumulation=2).evidence["checkpointing"]["facts"]
    assert facts == {
        "blocks": 2, "recomputed_blocks": 2, "micro_batches": 2, "forwards_of_first_layer": 4, "in_backward": 2,
    }  # fmt: skip


@pytest.mark.parametrize(("again", "holds"), [(2, True), (1, False), (0, False)])
def test_a_block_that_is_recomputed_in_some_micro_batches_alone_is_not_shown(
    again: int, holds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = [Forwards(torch.nn.Identity(), first=2, again=each) for each in (2, again)]
    monkeypatch.setattr(checkpointing, "count_forwards", lambda run: blocks)
    run: Any = SimpleNamespace(own=None, accumulation=2, forwards_a_micro_step=1)
    evidence = Checkpointing._by_hooks(run)
    assert evidence.holds is holds
    assert evidence.facts["recomputed_blocks"] == (2 if holds else 1)


def test_losses_do_not_change(run_trial: Run) -> None:
    off, full = (run_trial(checkpointing=each).measured["losses"] for each in ("off", "full"))
    assert full == pytest.approx(off, abs=1e-5)


def test_fewer_activations_are_kept(run_trial: Run) -> None:
    off, full = (run_trial(checkpointing=each).measured["model_state_bytes"]["activations"] for each in ("off", "full"))
    assert full < off / 2


def test_recomputation_counts_in_hardware_flops_alone(run_trial: Run) -> None:
    """Counted as model FLOPs it would pass for speed."""
    off, full = (run_trial(checkpointing=each).measured for each in ("off", "full"))
    assert full["model_flops_per_token"] == off["model_flops_per_token"]
    assert full["hardware_flops_per_token"] > off["hardware_flops_per_token"]


def test_a_flag_alone_is_inert(run_trial: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Checkpointing, "apply", lambda *_: None)
    result = run_trial(checkpointing="full")
    assert result.outcome is Outcome.INERT
    assert result.reason == "backward ran 0 of 2 blocks forward again: nothing was recomputed"


def test_a_model_in_eval_mode_checkpoints_nothing(run_trial: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    make = training.make_model

    def in_eval_mode(*arguments: Any, **named: Any) -> Any:
        return make(*arguments, **named).eval()

    monkeypatch.setattr(training, "make_model", in_eval_mode)
    result = run_trial(checkpointing="full")
    assert result.outcome is Outcome.INERT
    assert "eval mode" in result.reason


#: One dropout, registered first and used twice, at the end of each half of the block: recomputation stops before its
#: last use, so it runs three times a step where the block is recomputed and twice where it is not.
_STEP = """
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from harness import TrainingStep

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.0)
        self.norm, self.up, self.mixed = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(16, 16)
        self.down = nn.Linear(32, 16)
        self.recompute_half = False

    def half(self, x):
        return x + self.drop(self.down(functional.gelu(self.up(x))))

    def forward(self, x):
        x = x + self.drop(self.mixed(self.norm(x)))
        return checkpoint(self.half, x, use_reentrant=False) if self.recompute_half else self.half(x)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(64, 16), nn.Linear(16, 64)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.recomputed = 0

    def forward(self, ids):
        x = self.embed(ids)
        for number, block in enumerate(self.blocks):
            x = checkpoint(block, x, use_reentrant=False) if number < self.recomputed else block(x)
        return self.head(x)

def make(settings, honours=(), **details):
    model = Model()
    model.recomputed = details.get("recomputed", 0)
    for block in model.blocks:
        block.recompute_half = details.get("half", False)
    batches = [torch.randint(0, 64, (settings["batch_size"], settings["sequence_length"])) for _ in range(4)]
    loss = lambda model, batch: functional.cross_entropy(model(batch).flatten(0, 1), batch.flatten())
    return TrainingStep(model=model, batches=batches, loss=loss, honours=honours)

def plain(device, settings):
    return make(settings)

def honoured(device, settings):
    return make(settings, honours={"checkpointing"}, recomputed=3)

def forgotten(device, settings):
    return make(settings, honours={"checkpointing"})

def one_of_three(device, settings):
    return make(settings, honours={"checkpointing"}, recomputed=1)

def half_of_each(device, settings):
    return make(settings, honours={"checkpointing"}, half=True)
"""


@pytest.mark.parametrize(
    ("build", "setting", "reason"),
    [
        ("plain", "full", ""),
        ("plain", "reentrant", ""),
        ("honoured", "full", ""),
        ("forgotten", "full", "backward ran 0 of 3 blocks forward again: nothing was recomputed"),
        ("one_of_three", "full", "backward ran 1 of 3 blocks forward again, not all"),
        ("half_of_each", "full", "backward ran 0 of 3 blocks forward again: nothing was recomputed"),
    ],
)
def test_a_layer_that_a_block_uses_twice_is_no_recomputation(
    tmp_path: Path, build: str, setting: str, reason: str
) -> None:
    (tmp_path / "my.py").write_text(_STEP, encoding="utf-8")
    spec = spec_of(model=f"{tmp_path / 'my.py'}:{build}", options={"named": ["checkpointing"]}, checkpointing=setting)
    result = run_spec(replace(spec, baseline_settings={**spec.settings, "checkpointing": "off"}))
    assert result.reason == reason
    assert result.outcome is (Outcome.INERT if reason else Outcome.OK)


@pytest.mark.parametrize(
    "precision",
    ["bf16", pytest.param("amp-bf16", marks=pytest.mark.slow), pytest.param("fp32", marks=pytest.mark.slow)],
)
def test_compiled_the_logits_hide_no_activations(
    run_trial: Run, tmp_path: Path, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A vocabulary 128 times the width: in 16 bits the logits are half of what they are in fp32."""
    (tmp_path / "config.json").write_text(json.dumps({
        "model_type": "llama", "vocab_size": 8192, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": True,
    }))  # fmt: skip
    # traced and partitioned as always, without the minute in the C++ compiler
    partitioned = functools.partial(torch.compile, backend="aot_eager_decomp_partition")
    monkeypatch.setattr(torch, "compile", lambda function, **_: partitioned(function))
    asked: dict[str, Any] = {
        "model": str(tmp_path / "config.json"), "compile": "default", "attention": "eager", "checkpointing": "full",
        "precision": precision,
    }  # fmt: skip
    on = run_trial(**asked)
    assert on.outcome is Outcome.OK, on.reason
    assert 0.5 < on.evidence["checkpointing"]["facts"]["hidden_vectors_a_token_and_layer"] < 4
    monkeypatch.setattr(Checkpointing, "apply", lambda *_: None)
    off = run_trial(**asked)
    assert off.outcome is Outcome.INERT
    assert "as if nothing were recomputed" in off.reason


_FORWARD = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits>"
_DOT = "void pytorch_flash::flash_bwd_dot_do_o_kernel<true, Flash_bwd_kernel_traits>"
_BACKWARD = "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<...>"


def _profile(order: str) -> Profile:
    """A step whose attention ran forward (F) and backward (B) in this order, with other kernels of backward around."""
    names = [name for each in order for name in ([_FORWARD] if each == "F" else [_DOT, _BACKWARD])]
    spans = [Span(name, start, start + 1, True, 7) for start, name in enumerate(names)]
    operators = Counter({"aten::_flash_attention_forward": order.count("F")})
    return Profile(kernels=Counter(names), operators=operators, spans=tuple(spans))


@pytest.mark.parametrize(
    ("order", "accumulation", "holds"),
    [
        ("FFFF" + 4 * "FB", 1, True),
        ("FFFFBBBB", 1, False),
        (2 * "FFFFBBBB", 2, False),
        (2 * ("FFFF" + 4 * "FB"), 2, True),
        (8 * "F" + 4 * "FB", 1, True),  # a teacher's before the student's
        ("FFFFBBFBFB", 1, False),  # two of four
    ],
)
def test_compiled_on_a_gpu_recomputation_doubles_the_attention_kernels(
    order: str, accumulation: int, holds: bool
) -> None:
    """4 layers: a kernel runs forward once a layer and micro-batch, or recomputed twice, and backward once."""
    run: Any = SimpleNamespace(
        profile=_profile(order), blocks=lambda: [None] * 4, accumulation=accumulation,
        plain_model=SimpleNamespace(training=True), own=None,
    )  # fmt: skip
    evidence = Checkpointing().evidence(cell(checkpointing="full", compile="default", attention="sdpa-flash"), run)
    assert evidence is not None
    assert evidence.holds is holds
    run.profile = Profile(kernels=Counter({_BACKWARD: 8}))
    assert Checkpointing._by_kernels(run) is None, "kernels of backward are no forwards"


@pytest.mark.parametrize(("order", "holds"), [("FFFF" + 4 * "FB", True), ("FFFFBBBB", False)])
def test_a_block_of_a_users_model_may_attend_any_number_of_times(order: str, holds: bool) -> None:
    """One block that runs four times a step: its backward says so, its list does not."""
    run: Any = SimpleNamespace(profile=_profile(order), blocks=lambda: [None], accumulation=1, own=object())
    evidence = Checkpointing._by_kernels(run)
    assert evidence is not None
    assert evidence.holds is holds
    assert evidence.word == f"{order.count('F') // 4} attention forwards a layer"


@pytest.mark.parametrize(
    ("order", "accumulation", "shown"),
    [
        ("FFBB", 1, False),
        ("FFFBFB", 1, True),
        ("FFFFBB", 1, False),  # a second model
        ("FFFFFBFB", 1, True),
        (2 * "FFFFBB", 2, False),
        (2 * "FFFFFBFB", 2, True),
        ("FFFFBB" + "FFFFFBFB", 2, False),
        ("FFFF" + "FFBB" + "FFBB", 1, True),  # two attentions a block
        ("FFFFFFFF" + "BB" + "FBFB", 1, False),  # the blocks that go backward first keep all
        ("FFFFFFFF" + "FBFB" + "BB", 1, False),  # and those that go last
        ("FFB", 1, False),  # one layer: its second forward may be another model's
        ("FF", 1, False),
    ],
)
def test_forwards_between_two_backwards_are_recomputed_ones(order: str, accumulation: int, shown: bool) -> None:
    runs = attention_order(_profile(order), "sdpa-flash")
    assert shows_recomputation(runs, accumulation) is shown
    assert (sum(forwards for forwards, _ in runs), sum(back for _, back in runs)) == (
        order.count("F"), order.count("B"),
    )  # fmt: skip


@pytest.mark.parametrize("accumulation", [1, 2])
def test_compiled_a_second_models_forward_is_no_recomputation(
    run_trial: Run, accumulation: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A distillation's teacher doubles attention's forwards by itself."""
    # traced and partitioned as always, without the minute in the C++ compiler
    partitioned = functools.partial(torch.compile, backend="aot_eager_decomp_partition")
    monkeypatch.setattr(torch, "compile", lambda function, **_: partitioned(function))
    asked: dict[str, Any] = {
        "compile": "default", "attention": "sdpa-flash", "checkpointing": "full", "distillation": "teacher",
        "accumulation": accumulation, "warmup_steps": 3,
    }  # fmt: skip
    on = run_trial(**asked)
    assert on.outcome is Outcome.OK, on.reason
    assert on.evidence["checkpointing"]["word"] == "3 attention forwards a layer"
    monkeypatch.setattr(Checkpointing, "apply", lambda *_: None)
    off = run_trial(**asked)
    assert off.outcome is Outcome.INERT
    assert "as if nothing were recomputed" in off.reason
