"""A slowdown planted in the step of real trials, and the runs that must find it (or, without it, must not).

`Planted` is an outside technique as anyone would install one, through the entry point of its distribution. It has no
axis, so cells keep their names: what it does looks like any change of code between two runs.

    python -m benchmarks.planted FOLDER planted 0.15 0.05   two runs, each step of the second 15% longer
    python -m benchmarks.planted FOLDER equal 21            runs between which nothing changes
    python -m benchmarks.planted FOLDER steady 0.5 0.05 3   as `planted`, in three rounds of steps that mostly wait

A machine whose trials differ too much to show that much at a threshold of 5% gets as much as it can show.

Both need the distribution on the path: `environment_with_planted` makes it.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, variance
from typing import TYPE_CHECKING, Any

from harness.experiment.cell import Cell
from harness.techniques.base import Stage, Technique

if TYPE_CHECKING:
    from harness.environment import Environment
    from harness.experiment.study import Plan
    from harness.results.record import Record
    from harness.trial.launch import Launcher
    from harness.trial.training import TrainingRun

ROOT = Path(__file__).resolve().parents[1]
#: Where a trial finds the file that says by how much its steps are to be longer.
VARIABLE = "CLAIMBENCH_PLANTED"
ROUNDS = 5
#: Of the matrix below, the control left out: what one comparison has.
CELLS = 2

MATRIX = """
schema: 1
rounds: {rounds}
workloads:
  small: {workload}
baseline: {baseline}
studies:
  optimizer:
    workload: small
    axes: {{optimizer: [for-loop]}}
    warmup_steps: {warmup}
    steps: {steps}
"""
CPU = {"workload": "{model: tiny, sequence_length: 64, batch_size: 4}", "baseline": "{stream: cached}",
       "warmup": 5, "steps": 60}  # fmt: skip
#: Steps of 180 ms that the GPU limits. Those that the host limits (36 ms: bf16, 8 of length 512) differ by 8% between
#: trials, and 3% of them cannot be seen in five rounds.
GPU = {"workload": "{model: gpt2-124m, sequence_length: 1024, batch_size: 24}",
       "baseline": "{precision: amp-bf16, stream: cached}", "warmup": 4, "steps": 12}  # fmt: skip
#: Most of a step is a wait of 60 ms for its data: trials are as alike on a busy machine as on an idle one.
STEADY = {"workload": "{model: tiny, sequence_length: 16, batch_size: 1}",
          "baseline": "{stream: cached, cost_per_sample_ms: 60}", "warmup": 3, "steps": 15}  # fmt: skip


class Planted(Technique):
    """Makes each step longer by what a file says: a sleep on the CPU; on a GPU a kernel that spins, since a sleeping
    host would only queue a little later what the device has still to do."""

    stage = Stage.STEP

    def apply(self, cell: Cell, run: TrainingRun) -> None:
        planted = json.loads(Path(os.environ[VARIABLE]).read_text(encoding="utf-8"))
        seconds = float(planted["seconds"])
        if seconds:
            on_gpu = run.device.type == "cuda"
            run.before_optimizer.append(_spin(seconds, planted["sm_mhz"]) if on_gpu else lambda: time.sleep(seconds))


def _spin(seconds: float, sm_mhz: float) -> Callable[[], None]:
    import torch

    cycles = int(seconds * sm_mhz * 1e6)
    return lambda: torch.cuda._sleep(cycles)


def environment_with_planted(folder: Path) -> dict[str, str]:
    """Environment variables under which `Planted` is installed, its distribution made in `folder`."""
    package = folder / "site" / "claimbench_planted-1.0.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: claimbench-planted\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[claimbench.techniques]\nplanted = benchmarks.planted:Planted\n")
    path = os.pathsep.join([str(ROOT), str(package.parent), os.environ.get("PYTHONPATH", "")])
    planted = folder / "planted.json"
    planted.write_text(json.dumps({"seconds": 0.0}), encoding="utf-8")
    return {**os.environ, "PYTHONPATH": path, VARIABLE: str(planted), "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True, kw_only=True)
class Bench:
    """One small plan that can be run again and again under one zygote."""

    folder: Path
    plan: Plan
    environment: Environment
    launcher: Launcher

    def run(self, name: str) -> list[Record]:
        """One run in a store of its own."""
        from harness.results.collect import Options, fill
        from harness.results.store import Store
        from harness.trial.nvml import meters

        options = Options(meters=meters(device.uuid for device in self.environment.devices))
        with Store.open(self.folder / f"{name}.sqlite", writable=True) as store:
            fill(store, self.plan, self.launcher, self.environment, options=options)
            return list(store.records())

    def plant(self, share: float, seen: list[Record]) -> dict[str, Any]:
        """From now on steps are longer by a share of what they took in the trials seen."""
        step = median(median(record.step_seconds) for record in seen)
        clocks = [record.clocks["sm_mhz"] for record in seen if record.clocks.get("sm_mhz")]
        planted = {
            "share": share,
            "seconds": share * step,
            "sm_mhz": median(clocks) if clocks else None,
            "step_seconds": step,
        }
        Path(os.environ[VARIABLE]).write_text(json.dumps(planted), encoding="utf-8")
        return planted


def enough(share: float, threshold: float, seen: list[Record], rounds: int) -> float:
    """`share`, or where that is too little twice the least that a comparison of runs with this noise finds.

    Three rounds know less of the noise than five: there half of `share` has to be found, or it is four times the least.
    """
    from harness.judgement.power import smallest_slowdown

    least = smallest_slowdown(spread(seen), rounds, threshold=threshold, level=0.05 / CELLS)
    margin = 1 if rounds >= ROUNDS else 2
    return share if least is None or margin * least <= share else 2 * margin * least


def spread(records: list[Record]) -> float:
    """Standard deviation of ln(tokens/s) between the trials of a cell, pooled over the cells of a run."""
    cells: dict[str, list[float]] = {}
    for record in records:
        if record.tokens_per_second is not None:
            cells.setdefault(record.arm, []).append(math.log(record.tokens_per_second))
    return math.sqrt(fmean(variance(logs) for logs in cells.values()))


def main(folder: Path, what: str, number: float, threshold: float = 0.05, rounds: float = ROUNDS) -> None:
    import harness
    from harness.results.collect import local_launcher

    here = harness.machine()
    shape, rounds = STEADY if what == "steady" else GPU if here.has_gpu else CPU, int(rounds)
    matrix = folder / "matrix.yaml"
    matrix.write_text(MATRIX.format(rounds=rounds, **shape), encoding="utf-8")
    plan = harness.plan(matrix, scale="full", environment=here)
    with local_launcher(plan, here) as launcher:
        bench = Bench(folder=folder, plan=plan, environment=here, launcher=launcher)
        if what != "equal":
            before = bench.run("before")
            print(json.dumps(bench.plant(enough(number, threshold, before, rounds), before)))
            bench.run("after")
        for place in range(int(number) if what == "equal" else 0):
            bench.run(f"{place:02d}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], *map(float, sys.argv[3:]))
