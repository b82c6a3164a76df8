"""What measuring costs: a trial's loop against a bare one over the same model, optimizer and batches, in turn.

    pytest benchmarks/test_measuring_overhead.py -m gpu -s        # on one GPU
    python -m benchmarks.test_measuring_overhead gpt2-124m 20 60  # the same by hand: model, pairs, steps of each a pair

The trial marks eight points a step and keeps each loss; the bare loop does neither. A pair is made of short windows of
both in turn, and each pair begins with the other: what makes the host faster or slower for a second falls on both. In
bf16 the host is what limits a step of this size, so that nothing the trial does on it stays hidden.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

#: Steps of a window: about half a second, in which a host seldom changes its pace.
WINDOW_STEPS = 10


def measure(
    model: str, *, pairs: int, steps: int, device: str, batch_size: int, length: int, folder: Path
) -> dict[str, Any]:
    """Tokens/s of the trial's loop over the bare loop's, pair by pair, with the mean's 95% interval (t, log ratios)."""
    from scipy.stats import t as student

    windows = max(1, steps // WINDOW_STEPS)
    run = _build(
        model, device=device, batch_size=batch_size, length=length, folder=folder,
        batches=WINDOW_STEPS * windows * (2 * pairs + 2),
    )  # fmt: skip
    for _ in range(8):
        run.step()
    ratios = []
    for pair in range(pairs):
        order = (_trial_window, _bare_window) if pair % 2 == 0 else (_bare_window, _trial_window)
        seconds = dict.fromkeys(order, 0.0)
        for _ in range(windows):
            for window in order:
                seconds[window] += window(run, WINDOW_STEPS)
        ratios.append(math.log(seconds[_bare_window] / seconds[_trial_window]))
    mean = sum(ratios) / pairs
    spread = math.sqrt(sum((ratio - mean) ** 2 for ratio in ratios) / (pairs - 1))
    half = float(student.ppf(0.975, pairs - 1)) * spread / math.sqrt(pairs)
    return {
        "model": model, "pairs": pairs, "steps": steps, "ratio": math.exp(mean), "low": math.exp(mean - half),
        "high": math.exp(mean + half), "ratios": [math.exp(ratio) for ratio in ratios],
    }  # fmt: skip


def _build(model: str, *, device: str, batch_size: int, length: int, folder: Path, batches: int) -> Any:
    from harness.environment import detect
    from harness.techniques.registry import axis_table, techniques
    from harness.trial.ranks import Ranks
    from harness.trial.spec import TrialSpec
    from harness.trial.training import TrainingRun, build

    settings = {**axis_table().defaults(), "batch_size": batch_size, "sequence_length": length, "stream": "cached"}
    settings["precision"] = "bf16"
    spec = TrialSpec(
        trial_id="overhead", kind="training", model=model, data="stdlib", settings=settings, baseline_settings=settings,
        seed=1, warmup_steps=8, steps=batches, device=device, record_path=str(folder / "result.json"),
        cache_directory=str(folder), data_directory=str(folder / "data"),
    )  # fmt: skip
    run = TrainingRun(spec, Ranks(), detect())
    build(run, techniques())
    return run


def _trial_window(run: Any, steps: int) -> float:
    run.restart()
    run.losses.clear()
    start = time.perf_counter()
    for _ in range(steps):
        run.step()
    run.timeline.end()
    return time.perf_counter() - start


def _bare_window(run: Any, steps: int) -> float:
    """The same work as anyone would write it; one synchronise at the end, as the trial has."""
    model, optimizer, batches, device = run.model, run.optimizer, run.batches, run.device
    start = time.perf_counter()
    for _ in range(steps):
        batch = {name: part.to(device) for name, part in next(batches).items()}
        loss = model(**batch, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    run.timeline.clock.settle()
    return time.perf_counter() - start


def _in_a_process(tmp_path: Path, model: str, pairs: int, steps: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.test_measuring_overhead", model, str(pairs), str(steps), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[1], check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(f"{model}: trial loop at {found['ratio']:.4f} [{found['low']:.4f}, {found['high']:.4f}] of the bare loop")
    return found


@pytest.mark.gpu
def test_measuring_costs_less_than_half_a_percent(tmp_path: Path) -> None:
    found = _in_a_process(tmp_path, "gpt2-124m", pairs=20, steps=60)
    assert found["ratio"] >= 0.995
    assert found["low"] >= 0.985


def main(arguments: list[str]) -> None:
    import tempfile

    import torch

    model, pairs, steps = arguments[0], int(arguments[1]), int(arguments[2])
    folder = Path(arguments[3]) if len(arguments) > 3 else Path(tempfile.mkdtemp())
    on_gpu = torch.cuda.is_available()
    size = {"batch_size": 8, "length": 1024} if on_gpu else {"batch_size": 2, "length": 64}
    device = "cuda" if on_gpu else "cpu"
    print(json.dumps(measure(model, pairs=pairs, steps=steps, device=device, folder=folder, **size)))


if __name__ == "__main__":
    main(sys.argv[1:])
