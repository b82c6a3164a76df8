"""Which step a profile tells of."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from harness.trial.breakdown import breakdown
from harness.trial.profile import profile_step

pytestmark = pytest.mark.train


def steps_that_do(*work: Callable[[torch.Tensor], object]) -> tuple[Callable[[], None], list[int]]:
    """A step that does something else each time, and a list of those that were made."""
    made: list[int] = []
    square = torch.ones(4, 4)

    def step() -> None:
        work[len(made)](square)
        made.append(len(made))

    return step, made


def test_one_device_makes_one_step() -> None:
    step, made = steps_that_do(lambda x: x @ x)
    profile = profile_step(step, torch.device("cpu"))
    assert made == [0]
    assert profile.operators["aten::mm"] == 1


def test_of_several_ranks_the_second_step_is_read_alone() -> None:
    """In the first one the ranks wait for the last profiler to start."""
    step, made = steps_that_do(lambda x: x @ x, lambda x: (x.softmax(0), x.softmax(1)))
    profile = profile_step(step, torch.device("cpu"), ranks=2)
    assert made == [0, 1]
    assert profile.operators["aten::softmax"] == 2
    assert "aten::mm" not in profile.operators
    assert {span.name for span in profile.spans} >= {"aten::softmax", "aten::_softmax"}
    assert not any(span.note or "claimbench" in span.name for span in profile.spans), "the mark is no part of the step"
    assert breakdown(profile, 1.0)["seconds"]["attention"] > 0
