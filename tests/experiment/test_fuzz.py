"""Whatever stands in a matrix, it is planned or refused with one clear error: never a traceback.

CLAIMBENCH_FUZZ_CASES=5000 pytest tests/experiment/test_fuzz.py      the long run (CI does 300, and 100 of broken files)
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from tests.fuzz.oracles import AXES
from tests.fuzz.oracles import matrix as planned_or_refused

CASES = int(os.environ.get("CLAIMBENCH_FUZZ_CASES", "300"))

SLOW_IS_FINE = [HealthCheck.too_slow, HealthCheck.data_too_large]
fuzz = settings(max_examples=CASES, deadline=None, suppress_health_check=SLOW_IS_FINE)
fuzz_a_third = settings(fuzz, max_examples=CASES // 3)

SEED = """\
schema: 1
rounds: 3
workloads:
  small: {model: tiny, sequence_length: 64, batch_size: 4, data: stdlib}
  other: {model: gpt2-124m, data: synthetic}
baseline: {precision: fp32, attention: eager}
studies:
  precision:
    question: Is it faster?
    workload: small
    axes: {precision: [tf32, bf16], checkpointing: full}
    sweep: {sequence_length: [32, 64]}
  stack: &stack
    workload: other
    design: cumulative   # in this order
    axes: {attention: [sdpa, flash2], compile: default}
    combinations:
      - {checkpointing: full, batch_size: 64}
  sizes: {workload: small, kind: estimator, rounds: 1, options: {a: [1, 2.5, x]}}
"""

TREE = YAML(typ="safe", pure=True).load(SEED)

#: Words and values that mean something somewhere, so that mutations get past the first check.
VOCABULARY = (
    "schema", "rounds", "workloads", "baseline", "studies", "workload", "kind", "design", "axes", "sweep", "points",
    "combinations", "options", "smoke", "question", "steps", "warmup_steps", "model", "data", "small", "other",
    "tiny", "stdlib", "training", "estimator", "loader-only", "one-at-a-time", "factorial", "cumulative",
    "leave-one-out", "off", "full", "flash2", "default", "nf4", "retries", *AXES,
)  # fmt: skip


class Words:
    """What mutations put in: the words of a format, and values of every kind."""

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self.keys = st.sampled_from(vocabulary)
        scalars = st.one_of(
            self.keys, st.text(max_size=8), st.integers(-3, 100), st.integers(), st.floats(), st.booleans(), st.none()
        )
        keys = st.one_of(self.keys, st.text(max_size=4))
        self.values = st.recursive(
            scalars,
            lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(keys, inner, max_size=4)),
            max_leaves=8,
        )


WORDS = Words(VOCABULARY)


def mutate(node: Any, draw: st.DrawFn, words: Words) -> Any:
    """The tree with one value changed, removed, renamed or added, anywhere in it."""
    inside = isinstance(node, dict | list) and node and draw(st.integers(0, 3)) > 0
    if not inside:
        return draw(words.values)
    keys = list(node) if isinstance(node, dict) else list(range(len(node)))
    key = draw(st.sampled_from(keys))
    change = draw(st.sampled_from(["deeper", "deeper", "deeper", "remove", "add", "rename"]))
    if change == "deeper":
        node[key] = mutate(node[key], draw, words)
    elif change == "remove":
        del node[key]
    elif isinstance(node, dict):
        value = node.pop(key) if change == "rename" else draw(words.values)
        node[draw(words.keys)] = value
    else:
        node.append(draw(words.values))
    return node


@st.composite
def mutated_matrices(draw: st.DrawFn) -> bytes:
    tree = deepcopy(TREE)
    for _ in range(draw(st.integers(1, 4))):
        tree = mutate(tree, draw, WORDS)
    stream = io.BytesIO()
    YAML(typ="safe", pure=True).dump(tree, stream)
    return stream.getvalue()


#: What YAML gives a meaning to, and what it cannot read.
PIECES = st.sampled_from(
    [
        b"*stack", b"&stack ", b"!!int ", b"<<: *stack\n", b"---\n", b"{", b"]", b": ", b"- ", b"\t", b"\xff", b"\x00",
        b"'", b'"\\x', b"|\n", b"? ", b"%YAML 1.1\n", b"#", b"\r", b"[" * 50,
    ]
)  # fmt: skip


@st.composite
def mangled(draw: st.DrawFn, text: str) -> bytes:
    """The bytes of a file with pieces cut, doubled or replaced: what an editor or a broken disk leaves."""
    content = bytearray(text.encode())
    for _ in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, len(content)))
        end = min(len(content), start + draw(st.integers(0, 12)))
        content[start:end] = draw(st.one_of(PIECES, st.binary(max_size=4), st.just(bytes(content[end : end + 30]))))
    return bytes(content)


def test_the_seed_itself_is_planned() -> None:
    assert planned_or_refused(SEED.encode()) == "planned"


@fuzz
@given(mutated_matrices())
def test_a_mutated_matrix_is_planned_or_refused(content: bytes) -> None:
    planned_or_refused(content)


@fuzz_a_third
@given(mangled(SEED))
def test_a_mangled_file_is_planned_or_refused(content: bytes) -> None:
    planned_or_refused(content)


@fuzz_a_third
@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused(content: bytes) -> None:
    assert planned_or_refused(content) != "planned"


@fuzz_a_third
@given(st.text(alphabet="ab:-?[]{}&*!|>'\"%#,<\\ \n\t0.~", max_size=60))
def test_arbitrary_yaml_is_refused(text: str) -> None:
    assert planned_or_refused(text.encode()) != "planned"
