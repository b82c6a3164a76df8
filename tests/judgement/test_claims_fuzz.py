"""Whatever stands in a claims file, it is judged or refused with one clear error: never a traceback.

CLAIMBENCH_FUZZ_CASES=5000 pytest tests/judgement/test_claims_fuzz.py      the long run (CI does 300, and 100 mangled)
"""

from __future__ import annotations

import io
from copy import deepcopy

from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from harness.judgement.claims import ALLOWED, REQUIRED, Claim, Document, Entry, Source
from harness.judgement.metrics import METRICS
from tests.experiment.test_fuzz import Words, fuzz, fuzz_a_third, mangled, mutate
from tests.fuzz.oracles import claims as judged_or_refused

#: One claim of every form, on the studies of the oracle's trials.
SEED = """\
schema: 1
documents:
  D1: {title: A text, original_title: 训练, file: a.txt}
claims:
  faster:
    statement: It is faster.
    sources: &here [{document: D1, section: §1, quote: faster}]
    form: range
    metric: speedup
    range: [1.5, 2]
    study: precision
    cell: {precision: bf16}
    also: [{precision: amp-bf16}]
    other_baseline: {precision: tf32}
    shows: [step_time_ratio, peak_saved]
    contradicts: [smaller]
    see: [attention]
  smaller: {statement: A, sources: *here, form: at-most, metric: peak_saved, bound: 0.5, view: device,
    study: attention, cell: {attention: flash2}, at: {sequence_length: 1024}}
  reached: {statement: B, sources: *here, form: up-to, metric: speedup, bound: 3, study: attention,
    cell: {attention: flash2}, at: {sequence_length: 2048}, baseline: {attention: sdpa-flash}}
  exact: {statement: C, sources: *here, form: exact, metric: mfu, value: 2, tolerance: 0.1, study: precision,
    cell: {precision: bf16}}
  limit: {statement: D, sources: *here, form: limit, metric: model_state_ratio, limit: 4, study: attention,
    cell: {attention: flash2}}
  ranked: {statement: E, sources: *here, form: order, metric: speedup, study: precision,
    order: [{precision: bf16}, {name: TF32, best_of: [{precision: tf32}, {}]},
      {cell: {attention: flash2}, study: attention, at: {sequence_length: 512}, baseline: {}}]}
  product: {statement: F, sources: *here, form: product, metric: speedup, range: [1, null], study: precision,
    cell: {precision: bf16}, order: [{cell: {precision: amp-bf16}}, {precision: tf32}]}
  said: {statement: G, sources: *here, form: statement, metric: "figure:turned_on", expect: true, study: checkpointing,
    cell: {checkpointing: full}, device: any, conditions: [x], origin: y}
  sentence: {study: checkpointing, check: checkpointing=full at most half the peak memory}
"""

TREE = YAML(typ="safe", pure=True).load(SEED)

#: Words that mean something somewhere, so that mutations get past the first check.
VOCABULARY = (
    "schema", "documents", "claims", "D1", "precision", "bf16", "tf32", "sequence_length", "1024", "faster", "§1",
    "reserved", "device", "host", "gpu", "any", "attention", "flash2", "checkpointing", "figure:turned_on", "figure:",
    *Claim.model_fields, *Document.model_fields, *Source.model_fields, *Entry.model_fields, *REQUIRED, *ALLOWED,
    *METRICS, "check", "precision=bf16 >= 2x", "precision=bf16 up to 100% less step time",
    "precision=bf16 >= 0x slower", "checkpointing=full saves 0x memory", "precision=tf32 1.3x to 50%",
    "checkpointing=full half the peak memory",
)  # fmt: skip
WORDS = Words(VOCABULARY)


@st.composite
def mutated_claims(draw: st.DrawFn) -> bytes:
    tree = deepcopy(TREE)
    for _ in range(draw(st.integers(1, 4))):
        tree = mutate(tree, draw, WORDS)
    stream = io.BytesIO()
    YAML(typ="safe", pure=True).dump(tree, stream)
    return stream.getvalue()


def test_the_seed_itself_is_judged() -> None:
    assert judged_or_refused(SEED.encode()) == "judged"


@fuzz
@given(mutated_claims())
def test_mutated_claims_are_judged_or_refused(content: bytes) -> None:
    judged_or_refused(content)


@fuzz_a_third
@given(mangled(SEED))
def test_a_mangled_file_is_judged_or_refused(content: bytes) -> None:
    judged_or_refused(content)
