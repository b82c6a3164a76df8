"""How long a trial may take."""

from __future__ import annotations

from typing import Any

import pytest

from harness.results.budget import wall_limit_seconds
from tests.results.plans import a_block, a_plan


@pytest.mark.parametrize(
    ("compiled", "options", "override", "seconds"),
    [
        ("off", {}, None, 120.0),
        ("default", {}, None, 420.0),
        ("reduce-overhead", {}, None, 420.0),
        ("max-autotune", {}, None, 720.0),
        ("max-autotune", {"wall_limit_seconds": 45}, None, 45.0),
        ("off", {"wall_limit_seconds": True}, None, 120.0),
        ("off", {"wall_limit_seconds": 45}, 5.0, 5.0),
    ],
)
def test_a_trial_may_take_as_long_as_the_user_or_its_study_says_or_its_compilation_needs(
    compiled: str, options: dict[str, Any], override: float | None, seconds: float
) -> None:
    trial = a_plan(a_block(settings={"compile": compiled}, options=options)).trials[0]
    assert wall_limit_seconds(trial, override) == seconds
