"""A plan for a cluster in words: hours where there are any, and how much of them is a guess."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.report.cluster import paper_lines
from harness.results.slurm.cluster import Cluster
from harness.results.slurm.packing import Paper

PAPER = Paper(
    rounds=4, blocks=2, jobs=1, trials=12, trial_hours=2.5, longest_job_seconds=600, wall_seconds=600, measured=0.5
)


@pytest.mark.parametrize(
    ("hours", "words"), [(1234.56, "1,234.6 hours"), (1.0, "1.0 hours"), (0.5, "30 min"), (0.004, "14 s")]
)
def test_less_than_an_hour_is_told_in_minutes_or_seconds(hours: float, words: str) -> None:
    assert f"{words} of trials; the longest job about 10 min" in paper_lines(
        replace(PAPER, trial_hours=hours), Cluster()
    )[1]  # fmt: skip


@pytest.mark.parametrize(
    ("measured", "words"),
    [
        (1.0, "times: as measured in the store"),
        (0.25, "times: 25.0% of the trials as measured in the store, the others guessed"),
        (0.0, "times: guessed; the store holds no trial of these cells"),
    ],
)
def test_nothing_is_left_to_guess_where_all_was_measured(measured: float, words: str) -> None:
    assert paper_lines(replace(PAPER, measured=measured), Cluster())[3] == words
