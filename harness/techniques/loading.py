"""Data loading: where samples come from, who prepares them, and how they reach the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.environment import Environment
from harness.experiment.axes import Axis
from harness.experiment.cell import Cell
from harness.techniques.base import Evidence, Stage, Technique

if TYPE_CHECKING:
    from harness.trial.training import TrainingRun


class Loading(Technique):
    """The settings of torch's DataLoader and of the copy to the device."""

    axes = (
        Axis(
            name="stream", default="parse",
            settings={
                "parse": "each sample's text is read, parsed and tokenised anew",
                "cached": "all tokens in memory, tokenised once",
                "reopen": "the file is opened for each document and read line by line up to it (D3's reader)",
                "mmap": "tokens in a memory-mapped file",
            },
            meaning="where samples come from", documents=("D3", "D4"),
        ),
        Axis(name="workers", default=0, number=int, minimum=0, maximum=256, meaning="loader processes", documents=("D1", "D4")),
        Axis(
            name="prefetch", default=2, number=int, minimum=1, maximum=64,
            meaning="batches each worker prepares ahead", documents=("D4",),
        ),
        Axis(
            name="pin_memory", default=False, settings={False: "pageable host memory", True: "page-locked host memory"},
            meaning="batches in page-locked memory", documents=("D1", "D4"),
        ),
        Axis(
            name="persistent", default=False,
            settings={False: "workers end with each epoch", True: "workers stay for the next epoch"},
            meaning="keep loader processes between epochs", documents=("D3",),
        ),
        Axis(
            name="start", default="fork",
            settings={"fork": "workers are forked", "spawn": "workers are fresh interpreters"},
            meaning="how loader processes start", documents=("D3",),
        ),
        Axis(
            name="non_blocking", default=False,
            settings={False: "the host waits for each copy", True: "the host goes on while a copy runs"},
            meaning="copies to the device that do not wait", documents=("D1",),
        ),
        Axis(
            name="cost_per_sample_ms", default=0, number=float, minimum=0, maximum=10_000,
            meaning="CPU time added to each sample, to stand for heavier preparation", documents=(),
        ),
    )  # fmt: skip
    stage = Stage.STEP
    requirement = "prefetch, persistent, start: workers; pin_memory, non_blocking: a GPU"
    proof = "worker processes alive, batches pinned, kind of the copies in a one-step profile"

    def requires(self, environment: Environment, cell: Cell) -> str | None:
        for axis in self.axes:
            if axis.name in ("prefetch", "persistent", "start") and cell[axis.name] != axis.default and cell["workers"] == 0:
                return f"{axis.name}={cell[axis.name]} has no effect without loader processes; set workers to 1 or more"
        for name in ("pin_memory", "non_blocking"):
            if cell[name] is True and not environment.has_gpu:
                return f"{name}=true is about copies to a GPU, and there is none here"
        return None

    def apply(self, cell: Cell, run: TrainingRun) -> None:
        """The loader is built from the cell; here only what evidence will need is noted, off the window's path."""
        if cell["pin_memory"] is True:
            run.facts["pinned"] = _pinned(run)

    def evidence(self, cell: Cell, run: TrainingRun) -> Evidence | None:
        from harness.trial.data import worker_processes

        alive = len(worker_processes(run.loader_iterator))
        facts: dict[str, Any] = {"stream": cell["stream"], "workers_alive": alive}
        if alive != cell["workers"]:
            return Evidence(
                holds=False, word=f"{alive} workers", facts=facts,
                reason=f"workers={cell['workers']} was set, but {alive} worker processes are alive",
            )  # fmt: skip
        if cell["pin_memory"] is True:
            facts["pinned"] = run.facts["pinned"]
            if not facts["pinned"]:
                return Evidence(holds=False, word="not pinned", facts=facts, reason="pin_memory=true, but batches are pageable")
        stream = type(run.loader.dataset.stream()).__name__
        facts["stream_class"] = stream
        return Evidence(holds=True, word=f"{cell['stream']}, {alive} workers", facts=facts)


def _pinned(run: TrainingRun) -> bool:
    """Whether the loader hands out pinned batches; the batch that was looked at is given back."""
    import itertools

    first = next(run.batches)
    run.batches = itertools.chain([first], run.batches)
    return all(bool(part.is_pinned()) for part in first.values())
