"""Coverage-guided fuzzing of `claims.yaml`: judged on no trial, or one clear error.

python -m tests.fuzz.fuzz_claims -max_total_time=1800 FOLDER        FOLDER keeps what reaches new code
"""

from __future__ import annotations

import atheris

with atheris.instrument_imports(include=["harness", "ruamel"]):
    from tests.fuzz import oracles
    from tests.judgement.test_claims_fuzz import VOCABULARY

from tests.fuzz.guided import fuzz

if __name__ == "__main__":
    fuzz(oracles.claims, seeds="claims", words=VOCABULARY)
