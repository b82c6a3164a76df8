"""What sharing a host cost, from the A/A control across its GPUs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.report.sharing import cost, gpus_apart, sentence
from harness.results.record import Record
from harness.results.sharing import ARM, STUDY
from tests.records import many_records

#: Round → (GPU, alone, control, side by side), tokens/s.
ROUNDS = {1: ("GPU-0", 1000.0, 1010.0, 950.0), 2: ("GPU-1", 980.0, 970.0, 931.0), 3: ("GPU-0", 1000.0, 990.0, 950.0)}


def records(rounds: dict[int, tuple[str, float, float, float]]) -> list[Record]:
    like = next(each for each in many_records(40) if each.outcome == "ok" and each.baseline and not each.control)
    found = []
    for number, (gpu, *speeds) in rounds.items():
        for arm, speed in zip(("baseline", "control", ARM), speeds, strict=True):
            environment = {**like.environment, "devices": [{"name": "NVIDIA H100", "uuid": gpu}]}
            found.append(
                replace(like, study=STUDY, arm=arm, round=number, tokens_per_second=speed, environment=environment)
            )
    return found


def test_the_cost_pairs_trials_of_one_gpu_and_round() -> None:
    """950 of 1000, 931 of 980, 950 of 1000: 0.95 in each."""
    found = cost(records(ROUNDS))
    assert found is not None
    assert found.observed == pytest.approx((0.95, 0.95, 0.95))
    assert found.value == pytest.approx(0.95)
    assert found.rounds == 3


def test_gpus_are_compared_alone() -> None:
    """GPU-0: √(√(1000·1010)·√(1000·990)) = 999.97; GPU-1: √(980·970) = 974.99."""
    assert gpus_apart(records(ROUNDS)) == pytest.approx(999.975 / 974.987, rel=1e-4)


def test_a_cost_that_moves_figures_is_a_warning() -> None:
    said = sentence(records(ROUNDS))
    assert said.startswith("side by side a trial runs at 0.950x [0.950, 0.950] of its speed alone; alone, the fastest")
    assert "the fastest GPU is 2.6% ahead of the slowest. Warning: sharing the host costs speed" in said
    free = {number: (gpu, alone, control, alone) for number, (gpu, alone, control, _) in ROUNDS.items()}
    assert "Warning" not in sentence(records(free))


def test_trials_that_were_replaced_do_not_count() -> None:
    slow = {number: (gpu, 1.0, 1.0, 5.0) for number, (gpu, *_) in ROUNDS.items()}
    both = [*records(ROUNDS), *(replace(each, superseded=True) for each in records(slow))]
    assert sentence(both) == sentence(records(ROUNDS))


def test_a_cost_that_may_be_none_is_no_warning() -> None:
    """0.95 to 1.00 of the speed: the interval reaches beyond 0.98."""
    near = {
        1: ("GPU-0", 1000.0, 1000.0, 950.0),
        2: ("GPU-0", 1000.0, 1000.0, 1000.0),
        3: ("GPU-0", 1000.0, 1000.0, 980.0),
    }
    found = cost(records(near))
    assert found is not None
    assert found.low is not None
    assert found.low < 0.98
    assert "Warning" not in sentence(records(near))
    assert sentence(records(near)).endswith("; its 3 rounds are too coarse to say whether sharing the host costs speed")
    none = {number: ("GPU-0", 1000.0, 1000.0, speed) for number, speed in enumerate((999.0, 1000.0, 1001.0), start=1)}
    assert sentence(records(none)).endswith("] of its speed alone")


def test_without_the_control_nothing_is_said() -> None:
    assert sentence(many_records(20)) == ""
    assert gpus_apart(many_records(20)) is None
