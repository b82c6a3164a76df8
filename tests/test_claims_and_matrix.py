"""The documents, claims.yaml and matrix.yaml agree: no id without a claim, no claim without a study, no idle study.

The tables here are written out on purpose. Whoever changes a figure in claims.yaml changes it here too, or this fails.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import harness
from harness.experiment.matrix import Matrix, read_matrix
from harness.experiment.scale import SMOKE
from harness.experiment.scale import blocks as blocks_at
from harness.experiment.study import Role
from harness.judgement.claims import Claim, Claims
from harness.judgement.claims_file import read_claims
from harness.results.load import read_records
from harness.techniques.registry import axis_table
from harness.trial.kinds import ALONE, COMMON, KINDS, OPTIONS, figures_of
from tests.shapes import H100

ROOT = Path(__file__).parent.parent

#: Id → form, metric, low, high. An open end is None; an exact figure is written as its ends.
FIGURES: dict[str, tuple[str, str, float | None, float | None]] = {
    "amp-speed": ("range", "speedup", 1.5, 2),
    "amp-memory": ("range", "peak_saved", 0.45, 0.55),
    "bf16-activations": ("range", "activation_saved", 0.45, 0.55),
    "bf16-parameters": ("range", "parameter_bytes_saved", 0.45, 0.55),
    "ds-bf16-speed": ("range", "speedup", 1.5, 2),
    "ckpt-memory-low": ("range", "peak_saved", 0.30, 0.50),
    "ckpt-memory-high": ("range", "peak_saved", 0.50, 0.80),
    "ckpt-time": ("range", "step_time_ratio", 1.20, 1.30),
    "flash-speed-low": ("range", "speedup", 1.10, 1.20),
    "flash-speed-default": ("range", "speedup", 1.10, 1.20),
    "flash-memory-low": ("range", "peak_saved", 0.10, 0.20),
    "flash-speed-high": ("range", "speedup", 2, 4),
    "flash-speed-high-alone": ("range", "figure_inverse:busy_seconds", 2, 4),
    "flash-memory-high": ("exact", "peak_ratio", 7.22, 7.98),
    "flash-memory-high-alone": ("exact", "figure_inverse:layer_peak_bytes", 7.22, 7.98),
    "zero-speed": ("range", "speedup", 1.00, 1.10),
    "lora-params": ("at-least", "trainable_share_saved", 0.90, None),
    "batch-speed": ("range", "speedup", 1.5, 2),
    "batch-speed-64": ("exact", "speedup", 1.4, 1.6),
    "accum-speed": ("range", "speedup", 1.2, 1.5),
    "accum-speed-2": ("exact", "speedup", 1.15, 1.25),
    "compile-speed": ("range", "speedup", 1.3, 2),
    "compile-speed-30": ("exact", "speedup", 1.25, 1.35),
    "loader-speed": ("range", "samples_ratio", 1.2, 1.5),
    "loader-train": ("range", "speedup", 1.10, 1.20),
    "loader-share": ("at-most", "data_wait_share", None, 0.10),
    "ddp-speed": ("range", "speedup", 1.5, 2),
    "dp-speed": ("range", "speedup", 1.5, 2),
    "ddp-speed-80": ("exact", "speedup", 1.7, 1.9),
    "multi-gpu-linear": ("at-least", "scaling_efficiency", 0.95, None),
    "model-parallel": ("exact", "speedup", 1.4, 1.6),
    "fused-speed": ("range", "speedup", 1.1, 1.3),
    "overall-d1": ("range", "speedup", 1.4, 2.2),
    "overall-d1-mem": ("range", "peak_saved", 0.10, 0.20),
    "overall-d4": ("range", "speedup", 2, 3),
    "overall-d4-multi": ("range", "speedup", 3, 5),
    "overall-d4-mem": ("range", "peak_saved", 0.30, 0.50),
    "overall-product": ("product", "speedup", 1.4, 2.2),
    "util-target": ("at-least", "utilisation", 0.85, None),
    "util-target-90": ("at-least", "utilisation", 0.90, None),
    "estimator": ("range", "prediction_ratio", 0.8, 1.25),
}
#: How many times less state for many devices.
LIMITS = {"zero1-memory": 4, "zero2-memory": 8}
#: The members of each order as the document ranks them.
ORDERS = {
    "lora-largest": ["LoRA", "mixed precision", "checkpointing", "batch size", "quantization"],
    "speed-order": ["batch size", "several GPUs", "data loading", "compilation", "overlap"],
}
#: Statements, with the range or the value that could show them wrong; None where they are only reported.
STATEMENTS: dict[str, tuple[float | None, float | None] | bool | None] = {
    "memory-target": None,
    "flash-by-import": True,
    "amp-vs-deepspeed": None,
    "empty-cache": None,
    "non-blocking": None,
    "monitor-cost": (None, 1.05),
    "throughput-recipe": (0.95, 1.05),
    "batch-finder": True,
    "async-loader": None,
    "mmap-dataset": None,
    "cached-dataset": None,
    "dynamic-batch": None,
    "packing": None,
    "pruning": None,
    "distillation": None,
    "qlora": None,
    "zero-offload": None,
    "zero3": None,
    "warmup": None,
    "cosine": None,
    "clip": None,
    "phases": None,
    "flash-exact": (None, 2),
    "flash-stable": (None, 1),
    "workers-late": True,
    "persistent-spawn": None,
    "zero2-config": None,
    "samples-metric": (0.95, 1.05),
    "cpu-percent": None,
    "flops-profile": None,
    "opt-levels": None,
    "apex-fused": None,
    "switches": None,
    "emergency": True,
    "overlap": None,
    "leak": (None, 1048576),
    "grad-health": None,
    "resume": True,
}
#: Where each of them stands, in the documents' order of the claim.
DOCUMENTS = {
    "D1": """
        amp-speed amp-memory ds-bf16-speed ckpt-memory-low ckpt-time flash-speed-low flash-speed-default
        flash-memory-low loader-train overall-d1 overall-d1-mem overall-product flash-by-import amp-vs-deepspeed
        empty-cache non-blocking monitor-cost phases flash-stable workers-late flops-profile switches emergency
        resume
    """,
    "D2": """
        amp-speed amp-memory flash-speed-high flash-speed-high-alone flash-memory-high flash-memory-high-alone
        zero1-memory zero2-memory zero-speed zero-offload zero3 warmup cosine clip flash-exact
    """,
    "D3": """
        amp-memory bf16-activations bf16-parameters ckpt-memory-high ckpt-time lora-params lora-largest
        multi-gpu-linear speed-order util-target memory-target estimator throughput-recipe batch-finder
        async-loader mmap-dataset cached-dataset dynamic-batch packing pruning distillation qlora
        persistent-spawn zero2-config samples-metric cpu-percent opt-levels overlap leak grad-health
    """,
    "D4": """
        ckpt-memory-low batch-speed batch-speed-64 accum-speed accum-speed-2 compile-speed compile-speed-30
        loader-speed loader-train loader-share ddp-speed dp-speed ddp-speed-80 model-parallel fused-speed overall-d4
        overall-d4-multi overall-d4-mem util-target-90 memory-target apex-fused
    """,
}
CONTRADICTIONS = {
    ("ckpt-memory-low", "ckpt-memory-high"),
    ("flash-speed-low", "flash-speed-high"),
    ("flash-memory-low", "flash-memory-high"),
    ("util-target", "util-target-90"),
}
EVERY_ID = sorted([*FIGURES, *LIMITS, *ORDERS, *STATEMENTS])


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    return read_matrix(ROOT / "matrix.yaml", axis_table(), KINDS, ALONE, OPTIONS)


@pytest.fixture(scope="module")
def claims(matrix: Matrix) -> Claims:
    """Read against the matrix: every study, cell, baseline and sweep point that a claim names exists."""
    return read_claims(ROOT / "claims.yaml", blocks=tuple(matrix.blocks()))


def studies_of(claim: Claim) -> set[str]:
    return {claim.study, *claim.see, *(entry.study for entry in claim.order if entry.study)}


def test_the_documents_ids_are_the_claims_ids(claims: Claims) -> None:
    assert sorted(claims.claims) == EVERY_ID
    assert len(EVERY_ID) == len(set(EVERY_ID)) == 83


def test_every_study_serves_a_claim_and_every_claim_has_its_study(claims: Claims, matrix: Matrix) -> None:
    served = {study for claim in claims.all() for study in studies_of(claim)}
    assert served == {study.name for study in matrix.studies}


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_the_documents_own(claims: Claims, name: str) -> None:
    form, metric, low, high = FIGURES[name]
    claim = claims.claims[name]
    assert (claim.form, claim.metric) == (form, metric)
    assert claim.bounds == (
        None if low is None else pytest.approx(low, abs=1e-9), None if high is None else pytest.approx(high, abs=1e-9)
    )  # fmt: skip


@pytest.mark.parametrize(("name", "limit"), LIMITS.items())
def test_a_limit_is_the_documents_own(claims: Claims, name: str, limit: float) -> None:
    claim = claims.claims[name]
    assert (claim.form, claim.metric, claim.limit) == ("limit", "model_state_ratio", limit)


@pytest.mark.parametrize(("name", "ranked"), ORDERS.items())
def test_an_order_is_the_documents_own(claims: Claims, name: str, ranked: list[str]) -> None:
    assert [entry.title for entry in claims.claims[name].order] == ranked


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_is_refutable_by_what_was_agreed(claims: Claims, name: str) -> None:
    claim, agreed = claims.claims[name], STATEMENTS[name]
    assert claim.form == "statement"
    assert claim.range == (agreed if isinstance(agreed, tuple) else None)
    assert claim.expect == (agreed if isinstance(agreed, bool) else None)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_each_document_has_its_claims(claims: Claims, document: str) -> None:
    found = [claim.id for claim in claims.all() if document in {source.document for source in claim.sources}]
    assert sorted(found) == sorted(DOCUMENTS[document].split())


def test_contradictions_name_each_other_and_are_judged_at_the_same_place(claims: Claims) -> None:
    named = {frozenset((claim.id, other)) for claim in claims.all() for other in claim.contradicts}
    assert named == {frozenset(pair) for pair in CONTRADICTIONS}
    for one, other in CONTRADICTIONS:
        first, second = claims.claims[one], claims.claims[other]
        assert second.id in first.contradicts
        assert first.id in second.contradicts
        assert (first.study, first.cell, first.at) == (second.study, second.cell, second.at)


def test_each_claim_says_where_its_figure_comes_from_and_on_what_it_is_judged(claims: Claims) -> None:
    bare = [claim.id for claim in claims.all() if not claim.origin or not claim.conditions]
    assert bare == []


def test_statements_are_ours_and_quotes_are_short(claims: Claims) -> None:
    for claim in claims.all():
        assert claim.statement.isascii(), claim.id
        assert all(len(source.quote) <= 60 for source in claim.sources), claim.id


def test_each_study_asks_one_question_under_a_name_of_its_own(matrix: Matrix) -> None:
    questions = [study.question for study in matrix.studies]
    assert all(question.endswith("?") and question.count("?") == 1 for question in questions)
    assert len(set(questions)) == len(questions)


def test_figures_are_judged_on_five_rounds(claims: Claims, matrix: Matrix) -> None:
    """But for memory and counts, which have no spread, and for what stands far from any edge."""
    rounds = {study.name: study.rounds for study in matrix.studies}
    fewer = {name for name in FIGURES if rounds[claims.claims[name].study] < 5}
    assert fewer == {
        "flash-speed-default", "flash-speed-high-alone", "flash-memory-high-alone", "lora-params", "loader-share",
        "util-target", "util-target-90", "estimator",
    }  # fmt: skip


def test_a_run_that_is_cut_short_leaves_the_headline_figures(matrix: Matrix) -> None:
    order = [study.name for study in matrix.studies]
    assert order[:5] == ["precision", "attention", "attention-kernels", "checkpointing", "compile"]
    several = [study.name for study in matrix.studies if study.baseline.number("devices") > 1]
    assert order.index("scaling") < min(order.index(name) for name in several)
    assert order.index("interactions") < order.index("scaling")


def test_the_attention_sweep_holds_the_tokens_of_a_step_constant(matrix: Matrix) -> None:
    for name in ("attention", "attention-alone"):
        points = next(study.points for study in matrix.studies if study.name == name)
        tokens = {int(point["sequence_length"]) * int(point["batch_size"]) for point in points}
        assert tokens == {8192}
        assert [point["sequence_length"] for point in points] == [128, 256, 512, 1024, 2048, 4096, 8192]


def test_kinds_are_known_and_described(matrix: Matrix) -> None:
    table = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
    described = set(re.findall(r"^\| `([a-z-]+)` \|", table.partition("## Kinds and figures")[2], flags=re.MULTILINE))
    assert {study.kind for study in matrix.studies} <= described
    assert set(KINDS) <= described


def test_the_options_of_every_kind_are_described_and_no_others() -> None:
    table = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8").partition("## Kinds and figures")[2]
    rows = {row.split("|")[1].strip(" `"): row for row in table.splitlines() if row.startswith("| `")}
    told = {
        kind: set(re.findall(r"`(\w+)`(?=:|,|;| \|)", re.split(r"(?<!\\)\|", rows[kind])[3] + "|")) for kind in KINDS
    }
    assert told == {kind: set(OPTIONS[kind]) - set(COMMON) for kind in KINDS}
    assert all(f"`{name}`" in table for name in COMMON)


def test_what_holds_in_each_kind_is_described() -> None:
    text = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8").partition("## Kinds and figures")[2]
    told = {}
    for line in re.findall(r"^- `[a-z-]+`.*?(?=\n[-\n])", text.partition("## ")[0], flags=re.DOTALL | re.MULTILINE):
        names, axes = line.partition(": ")[::2]
        told.update({kind: set(re.findall(r"`(\w+)`", axes)) for kind in re.findall(r"`([a-z-]+)`", names)})
    assert told == {name: set(kind.idle if kind.only is None else kind.only) for name, kind in KINDS.items()}


@pytest.mark.parametrize("scale", ["full", "smoke"])
@pytest.mark.parametrize("file", ["matrix.yaml", "examples/small.yaml", "examples/every-setting.yaml"])
def test_no_cell_of_ours_asks_for_what_its_kind_does_not_apply(file: str, scale: harness.Scale) -> None:
    plan = harness.plan(ROOT / file, scale=scale, environment=H100)
    assert not [trial.refusal for trial in plan.trials if "does not apply" in str(trial.refusal)]


@pytest.mark.parametrize("evidence", sorted(path.name for path in (ROOT / "reports" / "evidence").iterdir()))
def test_every_figure_of_the_evidence_is_declared_by_its_kind(evidence: str) -> None:
    left: dict[str, set[str]] = {}
    for record in read_records(ROOT / "reports" / "evidence" / evidence):
        left.setdefault(record.kind, set()).update(record.figures)
    assert {kind: sorted(names - figures_of([kind])) for kind, names in left.items()} == {kind: [] for kind in left}


@pytest.mark.parametrize("kind", [name for name in KINDS if name not in ("throughput-recipe", "samples-metric")])
def test_every_figure_that_a_kind_declares_stands_on_the_page(kind: str) -> None:
    """The two left out train, and leave what training leaves."""
    page = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
    (row,) = (line for line in page.splitlines() if line.startswith(f"| `{kind}` |"))
    missing = {figure for figure in KINDS[kind].figures if figure not in row and not figure.startswith("O")}
    assert missing == set()


def test_every_figure_that_a_claim_uses_is_described(claims: Claims) -> None:
    table = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8").partition("## Kinds and figures")[2]
    used = {
        name.partition(":")[2] for claim in claims.all() for name in (claim.metric or "", *claim.shows) if ":" in name
    }
    assert sorted(name for name in used if f"`{name}`" not in table) == []


def test_the_smoke_scale_is_small_and_keeps_the_breadth(matrix: Matrix) -> None:
    """A few minutes on two cores: most studies, few cells, one of them compiled."""
    blocks = list(blocks_at(matrix, SMOKE))
    assert len({block.study for block in blocks}) >= 25
    assert sum(len(block.arms) * block.rounds for block in blocks) <= 600
    compiled = {
        arm.cell.key for block in blocks for arm in block.arms
        if arm.role is Role.CELL and arm.cell["compile"] != "off"
    }  # fmt: skip
    assert len(compiled) == 1
