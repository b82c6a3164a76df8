"""One thing has one place: words that are all known and yet contradict each other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.experiment.conftest import HEAD

STUDY = "studies:\n  a:\n    workload: small\n"

CASES = {
    "a cell that is the baseline": (
        HEAD + STUDY + "    baseline: {attention: flash2}\n    axes: {attention: [sdpa, flash2]}\n",
        [
            "matrix.yaml:10:30: attention: 'flash2' is the baseline's own setting, which every cell is compared with; "
            "leave it out"
        ],
    ),
    "a cell that is the default": (
        HEAD + STUDY + "    axes: {attention: [sdpa, flash2]}\n",
        [
            "matrix.yaml:9:24: attention: 'sdpa' is the baseline's own setting, which every cell is compared with; "
            "leave it out"
        ],
    ),
    "a baseline that is swept": (
        HEAD
        + STUDY
        + "    baseline: {accumulation: 2}\n    axes: {attention: flash2}\n    sweep: {accumulation: [1, 2]}\n",
        ["matrix.yaml:9:16: accumulation is swept in this study; leave it out of the baseline"],
    ),
    "an axis that is compared and swept": (
        HEAD + STUDY + "    axes: {attention: flash2}\n    sweep: {attention: [eager]}\n",
        ["matrix.yaml:9:12: attention stands in axes and in sweep; leave it in one of them"],
    ),
    "a setting of the baseline's own that is compared and swept is said once": (
        HEAD + STUDY + "    axes: {attention: [sdpa, flash2]}\n    sweep: {attention: [eager]}\n",
        ["matrix.yaml:9:12: attention stands in axes and in sweep; leave it in one of them"],
    ),
    "a baseline against its workload": (
        HEAD + STUDY + "    baseline: {batch_size: 8}\n    axes: {attention: flash2}\n",
        [
            "matrix.yaml:9:16: batch_size is part of the workload 'small' (line 4); change it there or make another "
            "workload"
        ],
    ),
    "a workload against the matrix' baseline": (
        HEAD.replace("precision: fp32", "batch_size: 8") + STUDY + "    axes: {attention: flash2}\n",
        ["matrix.yaml:4:45: batch_size stands in the matrix' baseline too (line 5); leave it in one place"],
    ),
    "a setting twice": (
        HEAD + STUDY + "    axes: {attention: [eager, flash2, eager]}\n",
        ["matrix.yaml:9:39: attention: 'eager' stands in the list twice; remove one"],
    ),
    "a combination that the design has": (
        HEAD + STUDY + "    axes: {attention: [flash2]}\n    combinations: [{attention: flash2}]\n",
        ["matrix.yaml:10:20: the study has this cell already; remove the combination"],
    ),
    "a combination twice": (
        HEAD + STUDY + "    combinations:\n      - {attention: flash2, compile: default}\n"
        "      - {compile: default, attention: flash2}\n",
        ["matrix.yaml:11:9: the study has this cell already; remove the combination"],
    ),
    "a combination of nothing": (
        HEAD + STUDY + "    combinations: [{}]\n",
        ["matrix.yaml:9:20: an empty combination is the baseline itself; name settings or remove it"],
    ),
    "a combination that sets what is swept": (
        HEAD
        + STUDY
        + "    sweep: {batch_size: [2, 4]}\n    combinations:\n      - {attention: flash2, batch_size: 8}\n",
        ["matrix.yaml:11:29: batch_size is swept in this study; leave it out here"],
    ),
    "points of different axes": (
        HEAD + STUDY + "    axes: {attention: flash2}\n    points: [{batch_size: 2}, {sequence_length: 32}]\n",
        [
            "matrix.yaml:10:14: each point must name the same axes (batch_size, sequence_length)",
            "matrix.yaml:10:31: each point must name the same axes (batch_size, sequence_length)",
        ],
    ),
    "nothing to leave out": (
        HEAD + STUDY + "    design: leave-one-out\n    axes: {attention: flash2}\n",
        ["matrix.yaml:10:5: leave-one-out needs two axes or more; use one-at-a-time for a single one"],
    ),
    "a stack with a choice": (
        HEAD + STUDY + "    design: leave-one-out\n    axes: {attention: [eager, flash2], compile: default}\n",
        ["matrix.yaml:10:12: attention: leave-one-out takes one setting an axis; keep one of them"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_contradiction_is_an_error_at_its_place(problems: Callable[[str], list[str]], name: str) -> None:
    text, expected = CASES[name]
    assert problems(text) == expected
