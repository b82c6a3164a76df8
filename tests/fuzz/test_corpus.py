"""The corpus of the coverage-guided fuzzers, replayed: seeds, and the inputs that they ever found a fault with.

The fuzzers need atheris and an hour (`tests.fuzz.fuzz_matrix`, `tests.fuzz.fuzz_claims`); this needs seconds.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import oracles

CORPUS = Path(__file__).parent / "corpus"


def inputs(folder: str) -> list[Path]:
    found = sorted((CORPUS / folder).iterdir())
    assert found, f"no seeds in {folder}"
    return found


@pytest.mark.parametrize("path", inputs("matrix"), ids=lambda path: path.stem)
def test_a_matrix_of_the_corpus(path: Path) -> None:
    planned = path.stem in {"every-part", "small"}
    assert (oracles.matrix(path.read_bytes()) == "planned") == planned


@pytest.mark.parametrize("path", inputs("claims"), ids=lambda path: path.stem)
def test_claims_of_the_corpus(path: Path) -> None:
    judged = path.stem in {"every-form", "one", "sentences"}
    assert (oracles.claims(path.read_bytes()) == "judged") == judged
