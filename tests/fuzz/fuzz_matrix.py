"""Coverage-guided fuzzing of `matrix.yaml`: planned, or one clear error.

python -m tests.fuzz.fuzz_matrix -max_total_time=1800 FOLDER        FOLDER keeps what reaches new code
"""

from __future__ import annotations

import atheris

with atheris.instrument_imports(include=["harness", "ruamel"]):
    from tests.experiment.test_fuzz import VOCABULARY
    from tests.fuzz import oracles

from tests.fuzz.guided import fuzz

if __name__ == "__main__":
    fuzz(oracles.matrix, seeds="matrix", words=VOCABULARY)
