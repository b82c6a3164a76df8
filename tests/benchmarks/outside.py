"""An outside technique that does nothing: its evidence cannot hold."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from harness.experiment.axes import Axis
from harness.experiment.cell import Cell
from harness.techniques.base import Evidence, Technique

if TYPE_CHECKING:
    from harness.trial.training import TrainingRun

ROOT = Path(__file__).resolve().parents[2]


class DoesNothing(Technique):
    """Asked for and never in effect."""

    axes = (Axis(name="does_nothing", default="off", settings={"off": "as it is", "on": "nothing more"}),)

    def evidence(self, cell: Cell, run: TrainingRun) -> Evidence | None:
        return Evidence(holds=False, word="not seen", reason="expected something, saw nothing")


def installed(folder: Path) -> dict[str, str]:
    """Environment variables under which it is installed, as an outside package is: by its entry point."""
    package = folder / "site" / "outside-1.0.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(
        "[claimbench.techniques]\nnothing = tests.benchmarks.outside:DoesNothing\n"
    )
    path = os.pathsep.join([str(ROOT), str(package.parent), os.environ.get("PYTHONPATH", "")])
    # pytest-benchmark measures nothing where it believes to be a worker of pytest-xdist
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return {**inherited, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
