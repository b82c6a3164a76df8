"""Data loading: where samples come from, who prepares them, and how they reach the device."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from harness.environment import Environment
from harness.experiment.axes import Axis
from harness.experiment.cell import Cell
from harness.techniques.base import Evidence, Stage, Technique

if TYPE_CHECKING:
    from harness.trial.training import TrainingRun


#: How long the device is kept busy while the host is watched: 50 ms at 2 GHz.
_BUSY_CYCLES = 100_000_000
#: Stream → its class in harness.trial.streams.
_CLASSES = {
    "parse": "ParsingStream", "cached": "CachedStream", "reopen": "ReopeningStream", "mmap": "MappedStream",
}  # fmt: skip


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
        Axis(
            name="workers", default=0, number=int, minimum=0, maximum=256,
            meaning="loader processes", documents=("D1", "D4"),
        ),
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
    proof = (
        "stream: its class; workers: processes alive; start: their kind; prefetch: batches ahead; pin_memory: batches "
        "pinned; persistent: the same processes in each epoch (kind epoch-turnaround); non_blocking: the host goes on "
        "while a pinned copy waits for a busy device; cost_per_sample_ms: time of a sample"
    )

    def requires(self, environment: Environment, cell: Cell) -> str | None:
        for axis in self.axes:
            about_workers = axis.name in ("prefetch", "persistent", "start")
            if about_workers and cell[axis.name] != axis.default and cell["workers"] == 0:
                return f"{axis.name}={cell[axis.name]} has no effect without loader processes; set workers to 1 or more"
        for name in ("pin_memory", "non_blocking"):
            if cell[name] is True and not environment.has_gpu:
                return f"{name}=true is about copies to a GPU, and there is none here"
        return None

    def apply(self, cell: Cell, run: TrainingRun) -> None:
        """The loader is built from the cell; here only what evidence will need is noted, off the window's path."""
        if cell["pin_memory"] is True and run.own is None:
            run.facts["pinned"] = _pinned(run)

    def evidence(self, cell: Cell, run: TrainingRun) -> Evidence | None:
        if run.own is not None:
            return _copies_of_own(cell, run)
        facts = _seen(cell, run)
        alive = facts["workers_alive"]
        reason = next((reason for holds, reason in _checks(cell, facts) if not holds), "")
        return Evidence(holds=not reason, word=f"{cell['stream']}, {alive} workers", facts=facts, reason=reason)


def _seen(cell: Cell, run: TrainingRun) -> dict[str, Any]:
    """What the loader of a run is and does."""
    from harness.trial.data import worker_processes

    workers = worker_processes(run.loader_iterator)
    facts: dict[str, Any] = {
        "stream": cell["stream"], "stream_class": type(run.loader.dataset.stream()).__name__,
        "workers_alive": len(workers),
    }  # fmt: skip
    if workers:
        facts["started_as"] = sorted({type(worker).__name__ for worker in workers})
        facts["prefetch"] = int(run.loader_iterator._prefetch_factor)
    if cell["pin_memory"] is True:
        facts["pinned"] = bool(run.facts.get("pinned"))
    if cell["cost_per_sample_ms"] != 0:
        facts["milliseconds_a_sample"] = _milliseconds_a_sample(run)
    if cell["non_blocking"] is True and cell["copy"] == "plain":
        facts["host_waits_for_copies"] = _host_waits(run, pinned=cell["pin_memory"] is True)
    return facts


def _checks(cell: Cell, facts: dict[str, Any]) -> Iterator[tuple[bool, str]]:
    """Whether each setting shows in what was seen, and the sentence for when it does not."""
    alive = facts["workers_alive"]
    yield alive == cell["workers"], f"workers={cell['workers']} was set, but {alive} worker processes are alive"
    stream = facts["stream_class"]
    yield stream == _CLASSES[str(cell["stream"])], f"stream={cell['stream']} was set, but samples come from {stream}"
    if alive:
        started = ", ".join(facts["started_as"])
        is_right = started.lower() == f"{cell['start']}process"
        yield is_right, f"start={cell['start']} was set, but the workers are of {started}"
        prefetch = facts["prefetch"]
        yield prefetch == cell["prefetch"], f"prefetch={cell['prefetch']} was set, but workers prepare {prefetch} ahead"
    yield facts.get("pinned", True), "pin_memory=true was set, but batches are pageable"
    spent = facts.get("milliseconds_a_sample", float("inf"))
    cost = float(cell["cost_per_sample_ms"])
    yield spent >= cost, f"cost_per_sample_ms={cost:g} was set, but a sample took {spent:.3g} ms"
    # from pageable memory the host waits whatever is asked for: that is the finding, not a flag without effect
    if facts.get("pinned") and "host_waits_for_copies" in facts:
        yield not facts["host_waits_for_copies"], "non_blocking=true was set, but the host waits for a copy to end"


def _pinned(run: TrainingRun) -> bool:
    """Whether the loader hands out pinned batches; the batch that was looked at is given back."""
    import itertools

    first = next(run.batches)
    run.batches = itertools.chain([first], run.batches)
    return all(bool(part.is_pinned()) for part in first.values())


def _milliseconds_a_sample(run: TrainingRun) -> float:
    """What one batch costs in this process, by its samples."""
    start = time.perf_counter()
    batch = run.loader.dataset[0]
    return (time.perf_counter() - start) * 1e3 / len(batch["input_ids"])


def _host_waits(run: TrainingRun, *, pinned: bool) -> bool:
    """Whether the run's copy of a batch holds the host until the device, kept busy meanwhile, has made it."""
    return _waits(run, {name: part.pin_memory() if pinned else part for name, part in run.loader.dataset[0].items()})


def _copies_of_own(cell: Cell, run: TrainingRun) -> Evidence | None:
    """Of a user's batches the harness makes the copies alone, and holds them to `non_blocking` alone."""
    if run.own is None or cell["non_blocking"] is not True:
        return None
    batch = next(run.batches)
    pinned = run.own.is_pinned(batch)
    waits = run.device.type != "cuda" or _waits(run, batch)
    facts = {"pinned": pinned, "host_waits_for_copies": waits}
    word = ("the host waits" if waits else "the host goes on") + ("" if pinned else ", pageable batches")
    # from pageable memory the host waits whatever is asked for
    return Evidence(
        holds=not (pinned and waits), word=word, facts=facts,
        reason="non_blocking=true was set, but the host waits for a copy to end",
    )  # fmt: skip


def _waits(run: TrainingRun, batch: Any) -> bool:
    """Whether the run's copy of a batch holds the host until the device, kept busy meanwhile, has made it."""
    import torch

    torch.cuda.synchronize(run.device)
    torch.cuda._sleep(_BUSY_CYCLES)
    busy = torch.cuda.Event()
    busy.record()
    run.copy(batch)
    waited = bool(busy.query())
    torch.cuda.synchronize(run.device)
    return waited
