"""A kind says which settings hold in it; what it would pass over is refused before anything is launched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

import harness
from harness.experiment.axes import Setting
from harness.trial.kinds import KINDS, refusal
from tests.techniques.test_precision import _gpu
from tests.training import cell, gpus, run_trial, settings

#: Kind → settings that do nothing in it. They were let through, without evidence, and stood as 1.00x.
PASSED_OVER: Mapping[str, tuple[Mapping[str, Setting], ...]] = {
    "loader-only": ({"compile": "default"}, {"precision": "bf16"}, {"non_blocking": True}, {"accumulation": 2}),
    "attention-only": (
        {"compile": "default"}, {"workers": 4}, {"lora": 8}, {"precision": "ds-bf16"}, {"batching": "packed"},
    ),
    "optimizer-only": ({"clip": 1.0}, {"batch_size": 4}, {"precision": "amp-bf16"}, {"zero": 1}),
    "copy-only": ({"copy": "side-stream"}, {"stream": "mmap"}, {"precision": "bf16"}),
    "epoch-turnaround": ({"attention": "eager"}, {"non_blocking": True}),
    "flash-by-import": ({"attention": "eager"}, {"compile": "default"}),
    "workers-late": ({"workers": 2}, {"prefetch": 4}, {"persistent": True}, {"start": "spawn"}),
    "batch-finder": ({"batch_size": 4},),
    "emergency": (),
    "throughput-recipe": ({"micro_batches": 2},),
    "resume": ({"precision": "bf16"}, {"batch_size": 4}, {"sequence_length": 32}),
    "opt-levels": ({"zero": 1, "precision": "ds-bf16"}, {"autocast_outside": "on"}),
    "apex-fused": ({"optimizer": "for-loop"}, {"precision": "tf32"}),
    "flash-stable": ({"attention": "eager"}, {"precision": "amp-bf16"}),
}  # fmt: skip
#: Kinds that train, on all devices, and put every technique into effect.
TRAINING = frozenset({"training", "samples-metric", "throughput-recipe"})
SEVERAL: Mapping[str, Setting] = {"parallel": "ddp", "devices": 2}
PIPELINE: Mapping[str, Setting] = {"parallel": "pipeline", "devices": 2}
MATRIX = """\
schema: 1
rounds: 3
workloads:
  small: {{model: tiny, sequence_length: 32, batch_size: 2}}
baseline: {{{shared}}}
studies:
  layer:
    question: What does a layer of attention take?
    kind: attention-only
    workload: small
    baseline: {{{own}}}
    axes: {{attention: [eager]}}
"""


def _everything() -> harness.Environment:
    packages = {"apex": "1", "xformers": "1", "deepspeed": "1", "peft": "1"}
    one = _gpu((9, 0), packages=packages)
    return replace(one, devices=gpus(2).devices)


@pytest.mark.parametrize(
    ("kind", "changes"), [(kind, changes) for kind, several in PASSED_OVER.items() for changes in several]
)
def test_what_a_kind_would_pass_over_is_refused_in_words(kind: str, changes: Mapping[str, Setting]) -> None:
    said = str(refusal(_everything(), cell(**changes), kind))
    axes = [f"{axis}={str(value).lower() if isinstance(value, bool) else value}" for axis, value in changes.items()]
    assert said.startswith(tuple(f"kind {kind} does not apply {each}; leave it out" for each in axes))


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_one_rank_are_refused_several_devices(kind: str) -> None:
    """Their figures were those of the first rank."""
    assert {*PASSED_OVER} | TRAINING == {*KINDS}
    assert (refusal(_everything(), cell(**PIPELINE), kind) is None) == (kind in TRAINING - {"throughput-recipe"})
    said = refusal(_everything(), cell(**SEVERAL), kind)
    assert (said is None) == (kind in TRAINING), said
    shared = replace(cell(**SEVERAL), shared=settings(**SEVERAL))
    several = refusal(_everything(), shared, kind)
    assert several is None if kind in TRAINING else str(several).startswith(f"kind {kind} does not apply parallel=ddp")


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("loader-only", {"workers": 4, "prefetch": 4, "stream": "mmap", "batching": "packed", "batch_size": 4}),
        ("attention-only", {"precision": "amp-bf16", "attention": "sdpa-flash", "batch_size": 4}),
        ("optimizer-only", {"precision": "bf16", "optimizer": "fused", "sequence_length": 32}),
        ("copy-only", {"pin_memory": True, "non_blocking": True, "batch_size": 4}),
        ("epoch-turnaround", {"workers": 2, "start": "spawn", "persistent": True}),
        ("batch-finder", {"precision": "amp-bf16", "checkpointing": "full"}),
        ("emergency", {"compile": "default", "clip": 1.0}),
        ("flash-stable", {"precision": "bf16"}),
    ],
)
def test_what_holds_in_a_kind_is_let_through(kind: str, changes: Mapping[str, Setting]) -> None:
    assert refusal(_everything(), cell(**changes), kind) is None


@pytest.mark.parametrize("scale", ["full", "smoke"])
def test_what_all_studies_of_a_matrix_share_is_left_alone(tmp_path: Path, scale: harness.Scale) -> None:
    """Sizes that the smoke scale cuts down and compilation that it turns off are shared there too."""
    (tmp_path / "m.yaml").write_text(MATRIX.format(shared="stream: cached, workers: 8, compile: default", own=""))
    plan = harness.plan(tmp_path / "m.yaml", scale=scale, environment=gpus(1))
    assert [trial.refusal for trial in plan.trials] == [None] * 9


@pytest.mark.parametrize("own", ["compile: default", "stream: parse"])
def test_what_a_study_asks_for_itself_is_not(tmp_path: Path, own: str) -> None:
    (tmp_path / "m.yaml").write_text(MATRIX.format(shared="stream: cached", own=own))
    plan = harness.plan(tmp_path / "m.yaml", scale="full", environment=gpus(1))
    asked = own.replace(": ", "=")
    assert {str(trial.refusal).partition(";")[0] for trial in plan.trials} == {
        f"kind attention-only does not apply {asked}"
    }


def test_half_the_bytes_of_the_weights_are_shown_where_the_optimizer_runs_by_itself() -> None:
    result = run_trial("optimizer-only", precision="bf16", optimizer="fused")
    assert {axis: proof["holds"] for axis, proof in result.evidence.items()} == {"precision": True, "optimizer": True}
