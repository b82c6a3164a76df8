"""The gradient check asks what the step itself asks: the gradient before clipping, micro-batches of equal weight."""

from __future__ import annotations

import importlib
import json
import weakref
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.techniques.precision import Precision
from harness.trial import gradients
from harness.trial.corpus import prepare
from harness.trial.gradients import (
    NotCompared,
    _rows,
    _summed,
    capture,
    exact_fp32,
    first_parts,
    relative_error,
    same_parameters,
)
from harness.trial.kinds import training as kind
from harness.trial.model import dropout_of, make_config, make_model
from harness.trial.outcome import Outcome
from harness.trial.parameters import shapes_of
from harness.trial.ranks import Ranks
from harness.trial.shapes import SHAPES
from harness.trial.training import TrainingRun
from tests.commands import ROOT
from tests.training import cpu, run_trial, spec_of

pytestmark = pytest.mark.train

#: In fp32 on a CPU, where the same products are only summed in another order; 1e-5 is what parity allows there.
ROUNDING = 1e-6


@pytest.mark.parametrize("settings", [{"clip": 1.0}, {"clip": 1.0, "precision": "bf16"}, {"clip": 0.01}])
def test_a_gradient_is_taken_before_it_is_clipped(settings: dict[str, object]) -> None:
    clipped = run_trial(gradient_check=True, checkpointing="full", **settings).measured["gradient_check"]
    unclipped = {**settings, "clip": "off"}
    assert clipped == run_trial(gradient_check=True, checkpointing="full", **unclipped).measured["gradient_check"]
    assert clipped["error"] <= 2 * clipped["eager_error"] + ROUNDING


@pytest.mark.parametrize("batching", ["fixed", "padded", "packed", "token-budget"])
@pytest.mark.parametrize("accumulation", [1, 3])
def test_the_reference_weights_micro_batches_as_the_step_does(batching: str, accumulation: int) -> None:
    result = run_trial(batching=batching, accumulation=accumulation, sequence_length=256, gradient_check=True)
    assert result.outcome is Outcome.OK, result.reason
    assert result.measured["gradient_check"]["error"] < ROUNDING


@pytest.mark.parametrize(
    ("settings", "within"), [({}, 1e-5), ({"accumulation": 2}, 1e-5), ({"precision": "amp-fp16"}, 1e-2)], ids=str
)
def test_each_step_of_the_warm_up_has_its_gradients_norm(settings: dict[str, Any], within: float) -> None:
    """Unscaled, and that of the mean over the micro-batches; the first against fp32 eager."""
    norms = run_trial(warmup_steps=3, **settings).measured["gradient_norms"]
    run = TrainingRun(spec_of(**settings), Ranks(), cpu())
    run.config = make_config("tiny", 64)
    model = make_model(run.config, attention="eager", dtype=torch.float32, device=run.device, seed=7)
    parts = first_parts(run, prepare(run.spec.data, 512, Path(run.spec.data_directory)))
    gradient = _summed(model, parts, run.device, [], 1.0)
    assert norms[0] == pytest.approx(sum(float(each.norm()) ** 2 for each in gradient.values()) ** 0.5, rel=within)
    assert len(set(norms)) == 3


def _run(**settings: object) -> tuple[TrainingRun, Path]:
    spec = spec_of(batching="padded", accumulation=2, batch_size=4, **settings)
    run = TrainingRun(spec, Ranks(), cpu())
    run.config = make_config("tiny", 64)
    return run, prepare(spec.data, 512, Path(spec.data_directory))


def test_ranks_micro_batches_and_replicas_have_equal_shares() -> None:
    run, folder = _run()
    run.ranks = Ranks(world_size=3)
    run.devices_fed = 2
    parts = first_parts(run, folder)
    assert [share for _, share in parts] == [pytest.approx(1 / 12)] * 12
    # DataParallel loads the rows of all of its devices as one batch and hands each as many
    assert {len(batch["input_ids"]) for batch, _ in parts} == {4}


def test_a_replica_without_a_row_has_no_share() -> None:
    run, folder = _run()
    run.devices_fed = 2
    run.loader_settings = lambda: replace(TrainingRun.loader_settings(run), batch_size=1)  # type: ignore[method-assign]
    assert [share for _, share in first_parts(run, folder)] == [0.5, 0.5]


def test_row_by_row_is_the_gradient_of_the_whole_batches() -> None:
    run, folder = _run()
    parts = first_parts(run, folder)
    rows = [row for part in parts for row in _rows(part)]
    assert len(rows) == 8
    assert sum(share for _, share in rows) == pytest.approx(1.0)
    model = make_model(run.config, attention="eager", dtype=torch.float32, device=run.device, seed=7)
    whole, by_row = (_summed(model, each, run.device, [], 1.0) for each in (parts, rows))
    assert relative_error(by_row, whole) < ROUNDING


@pytest.mark.parametrize(("dropout", "skipped"), [(0.0, False), (0.1, True)])
def test_a_model_with_dropout_is_not_compared(dropout: float, skipped: bool, tmp_path: Path) -> None:
    """Kernels that draw other masks would be fast but different, by its gradient and by its losses."""
    values = {
        "model_type": "gpt2", "vocab_size": 512, "n_embd": 64, "n_layer": 2, "n_head": 4, "bos_token_id": 0,
        "eos_token_id": 0, "attn_pdrop": dropout, "embd_pdrop": 0.0, "resid_pdrop": 0.0,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(values), encoding="utf-8")
    measured = run_trial(model=str(tmp_path / "config.json"), gradient_check=True).measured
    found = measured["gradient_check"]
    assert ("has dropout (" in found.get("skipped", "")) is skipped
    assert (found.get("error", 1.0) < ROUNDING) is not skipped
    assert measured["figures"].get("draws", False) is skipped


@pytest.mark.parametrize("shape", SHAPES)
def test_the_built_in_shapes_have_no_dropout(shape: str) -> None:
    model: Any = torch.nn.Identity()
    model.config = make_config(shape, 64)
    assert dropout_of(model) == ""


def test_a_round_that_does_not_look_says_so() -> None:
    result = run_trial()
    assert "gradient_check" not in result.measured
    assert result.missing["gradient_check"] == "it is compared once a cell, in the first of its rounds that ends ok"


@pytest.mark.parametrize(
    "settings",
    [{}, {"schedule": "cosine"}, {"schedule": "warmup-linear"}, {"clip": 1.0}, {"monitor": "gradient-norms"},
     {"model": f"{ROOT}/examples/plain_step.py:build", "schedule": "cosine"}],
    ids=lambda settings: " ".join(map(str, settings.values())).rpartition("/")[2] or "plain",
)  # fmt: skip
def test_nothing_of_the_training_is_left_when_the_references_are_built(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights, gradients and moments beside two models more would not fit on a device that the trial filled."""
    # its import warns of an exception, whose traceback pytest keeps with the frames of whoever imports it first
    importlib.import_module("transformers.optimization")
    left: dict[str, list[weakref.ref[torch.Tensor]]] = {}
    free = kind.free

    def watched(trial: TrainingRun) -> None:
        weights = list(trial.plain_model.parameters())
        left["weights"] = [weakref.ref(each) for each in weights]
        left["moments"] = [weakref.ref(each) for each in trial.optimizer_tensors()]
        del weights
        free(trial)
        for name, references in left.items():
            assert references, name
            assert not [each for each in references if each() is not None], name

    monkeypatch.setattr(kind, "free", watched)
    result = run_trial(gradient_check=True, **settings)
    assert result.outcome is Outcome.OK, result.reason
    assert left, "the references were built"


def test_a_captured_gradient_is_unscaled_and_a_copy() -> None:
    model = torch.nn.Linear(2, 1, bias=False)
    model.weight.grad = torch.tensor([[8.0, 16.0]])
    run: Any = SimpleNamespace(loss_scale=lambda: 8.0, plain_model=model)
    assert capture(run)["weight"].tolist() == [[1.0, 2.0]]
    assert model.weight.grad.tolist() == [[8.0, 16.0]], "the optimizer's step finds it as it was"


def test_a_parameter_of_another_shape_is_not_compared() -> None:
    shapes, other = shapes_of(torch.nn.Linear(2, 3)), torch.nn.Linear(2, 4)
    same_parameters(shapes, torch.nn.Linear(2, 3))
    with pytest.raises(NotCompared, match=r"weight has the shape \[4, 2\], and in the timed one \[3, 2\]"):
        same_parameters(shapes, other)


def test_a_gradient_that_is_missing_counts_as_zero_and_not_as_right() -> None:
    ones, twos = torch.ones(4), torch.full((4,), 2.0)
    assert relative_error({}, {"w": ones}) == 1.0
    assert relative_error({"v": twos}, {"v": twos, "w": ones}) == pytest.approx((4 / 20) ** 0.5)
    assert relative_error({"w": twos}, {"w": ones}) == 1.0


def test_exact_products_are_those_of_the_block_alone() -> None:
    torch.set_float32_matmul_precision("high")
    try:
        with exact_fp32():
            assert torch.get_float32_matmul_precision() == "highest"
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_the_reference_is_multiplied_in_full_fp32_whatever_the_cell_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    """In TF32 it would be as wrong as what it judges (transformers#15026)."""
    seen: list[tuple[torch.dtype, str, float]] = []
    plain, chosen = gradients._gradient, Precision.apply

    def noted(run: Any, parts: Any, shapes: Any, *, dtype: torch.dtype, **rest: Any) -> Any:
        seen.append((dtype, torch.get_float32_matmul_precision(), rest.get("scale", 1.0)))
        return plain(run, parts, shapes, dtype=dtype, **rest)

    def with_tf32(self: Precision, cell: Any, run: Any) -> None:
        chosen(self, cell, run)
        torch.set_float32_matmul_precision("high")

    monkeypatch.setattr(gradients, "_gradient", noted)
    monkeypatch.setattr(Precision, "apply", with_tf32)
    assert run_trial(precision="bf16", gradient_check=True).outcome is Outcome.OK
    assert seen == [(torch.float32, "highest", 1.0), (torch.bfloat16, "high", 1.0)]
    seen.clear()
    assert run_trial(precision="amp-fp16", gradient_check=True).outcome is Outcome.OK
    # unscaled, what is small is lost in fp16: the eager error of 16 samples of 256 tokens is then six times as large
    assert seen == [(torch.float32, "highest", 1.0), (torch.float32, "high", 65536.0)]
