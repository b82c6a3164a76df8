"""What the options of `run` and `plan` take."""

from __future__ import annotations

import pytest
import typer

from harness.options import gpu_numbers, pairs, share, slurm_minutes


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("02:00:00", 120), ("1:30", 2), ("90", 90), ("1-12", 36 * 60), ("1-00:30", 24 * 60 + 30), ("00:00:59", 1),
        ("2h", 120), ("90m", 90), ("45s", 1), ("90s", 2), ("120s", 2), ("1.01h", 61),
    ],
)  # fmt: skip
def test_a_time_as_slurm_writes_it_or_as_we_do(text: str, minutes: int) -> None:
    assert slurm_minutes(text) == minutes


@pytest.mark.parametrize("text", ["", "soon", "0", "1:2:3:4", "-5", "1:-30", "00:00:00"])
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is no length of time; write 02:00:00, 2h, or minutes"):
        slurm_minutes(text)


@pytest.mark.parametrize(
    ("text", "expected"), [("5%", 0.05), ("0.05", 0.05), ("0", 0), ("0%", 0), ("0.99", 0.99), ("150%", 1.5)]
)
def test_a_share(text: str, expected: float) -> None:
    assert share(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["5", "1", "1.5", "-5%", "-0.1", "", "%", "nan", "inf%", "1000%", "five"])
def test_what_is_no_share(text: str) -> None:
    """`--threshold 5` was 500%: a gate that never closes."""
    with pytest.raises(typer.BadParameter, match=r"is no share; write 5% or 0\.05"):
        share(text)


def test_gpus_by_number() -> None:
    assert gpu_numbers("0,1,3") == "0,1,3"
    assert gpu_numbers("all") == "all"


@pytest.mark.parametrize("text", ["", "0,0", "0;1", "-1", "one"])
def test_other_gpus_are_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="names no GPUs; write 0,1,2,3 or all"):
        gpu_numbers(text)


def test_options_of_sbatch() -> None:
    assert pairs(["qos=high", "constraint=a=b", "exclusive"]) == {"qos": "high", "constraint": "a=b", "exclusive": ""}


@pytest.mark.parametrize("word", ["=x", "a b=c", "--qos=x", "qos\n#SBATCH=x", "qos=x\n#SBATCH --y"])
def test_what_is_no_option_of_sbatch_is_refused(word: str) -> None:
    with pytest.raises(typer.BadParameter, match="is no option of sbatch; write --slurm qos=high"):
        pairs([word])
