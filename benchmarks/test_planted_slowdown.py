"""`claimbench compare` on real runs: finds a slowdown that was planted in the step, and none where none was.

    pytest benchmarks/test_planted_slowdown.py -m gpu -s     3% on one GPU, five rounds
    pytest benchmarks/test_planted_slowdown.py -m slow -s    15% on the CPU, five rounds; 20 pairs of equal runs

With a GPU in the machine, `CUDA_VISIBLE_DEVICES=` before the second makes it run on the CPU.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest

import harness
from benchmarks.planted import CELLS, ROOT, ROUNDS, environment_with_planted, spread
from harness.judgement.power import power_between, smallest_slowdown
from harness.judgement.regress import Comparison, compare_sides
from harness.judgement.sides import read_side

PAIRS = 20


def run(folder: Path, what: str, *numbers: float) -> str:
    """`benchmarks.planted` in a process of its own, with the outside technique installed; what it printed."""
    environment = environment_with_planted(folder)
    command = [sys.executable, "-m", "benchmarks.planted", str(folder), what, *map(str, numbers)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def compared(before: Path, after: Path, threshold: float) -> tuple[int, str]:
    """Exit code and output of the command."""
    command = [sys.executable, "-m", "harness.cli", "compare", str(before), str(after), "--threshold", str(threshold)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr)
    return done.returncode, done.stdout


def found_share(folder: Path, share: float, threshold: float, what: str = "planted", rounds: int = ROUNDS) -> float:
    """Plant (as `benchmarks.planted` says), compare, and be told: the share of a step that was planted."""
    planted = json.loads(run(folder, what, share, threshold, rounds))
    step, added = 1000 * planted["step_seconds"], 1000 * planted["seconds"]
    print(f"a step of {step:.2f} ms made {added:.2f} ms longer ({planted['share']:.1%})")
    if rounds == ROUNDS:
        print(power(spread(harness.read([folder / "before.sqlite"])), share=planted["share"], threshold=threshold))
    code, output = compared(folder / "before.sqlite", folder / "after.sqlite", threshold)
    assert code == 1
    assert ": slower" in output or " slower " in output
    return float(planted["share"])


def power(between: float, *, share: float, threshold: float) -> str:
    """What comparisons of two runs with this noise can do."""
    smallest = smallest_slowdown(between, ROUNDS, threshold=threshold, level=0.05 / CELLS)
    chance = power_between(1 + share, between, ROUNDS, level=0.05 / CELLS)
    return (
        f"spread between trials {between:.2%}; at {ROUNDS} rounds a slowdown of {share:.1%} is significant in "
        f"{chance:.0%} of comparisons, and one of {smallest or 0:.1%} is found in 80%"
    )


@pytest.mark.gpu
@pytest.mark.timeout(900)
def test_three_percent_on_a_gpu_are_found_at_five_rounds(tmp_path: Path) -> None:
    assert found_share(tmp_path, share=0.03, threshold=0.015) == 0.03


@pytest.mark.slow
@pytest.mark.train
@pytest.mark.timeout(900)
def test_fifteen_percent_on_the_cpu_are_found_at_five_rounds(tmp_path: Path) -> None:
    """Of steps that wait for their data: of those that only compute, 11 to 13% differ between the trials of a small
    virtual machine, and then no five rounds find 15%."""
    assert found_share(tmp_path, share=0.15, threshold=0.05, what="steady") == 0.15


@pytest.mark.slow
@pytest.mark.train
@pytest.mark.timeout(7200)
def test_of_twenty_pairs_of_equal_runs_at_most_one_is_flagged(tmp_path: Path) -> None:
    run(tmp_path, "equal", PAIRS + 1)
    pairs = [_pair(tmp_path, number) for number in range(PAIRS)]
    flagged = [pair for pair in pairs if pair.regressions]
    ratios = [cell.ratio for pair in pairs for cell in pair.cells if cell.ratio]
    between = median(spread(harness.read([tmp_path / f"{number:02d}.sqlite"])) for number in range(PAIRS))
    print(f"{len(flagged)} of {PAIRS} flagged; ratios from {min(ratios):.3f} to {max(ratios):.3f}")
    print(power(between, share=0.15, threshold=0.05))
    assert len(flagged) <= 1


def _pair(folder: Path, number: int) -> Comparison:
    """A run and the one after it."""
    return compare_sides(*(read_side(folder / f"{place:02d}.sqlite") for place in (number, number + 1)))
