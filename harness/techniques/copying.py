"""Copying the next batch to the GPU on a stream of its own, while the present one is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from harness.environment import Environment
from harness.experiment.axes import Axis
from harness.experiment.cell import Cell
from harness.techniques.base import Evidence, Stage, Technique

if TYPE_CHECKING:
    from harness.trial.batching import Batch
    from harness.trial.training import TrainingRun

#: Name that the profiler gives to copies from the host.
TO_DEVICE = "Memcpy HtoD"


class Copying(Technique):
    """D3's asynchronous loader, mended: memory of a copy is recorded on the stream that uses it."""

    axes = (
        Axis(
            name="copy",
            default="plain",
            settings={
                "plain": "each batch is copied when it is needed, on the stream that computes",
                "side-stream": "the next batch is copied on a CUDA stream of its own meanwhile (D3's loader)",
            },
            meaning="stream on which batches are copied to the device",
            documents=("D3",),
        ),
    )
    stage = Stage.STEP
    requirement = "side-stream: a GPU"
    proof = "copies from the host on a stream without kernels in a one-step profile; copied batches arrive unchanged"

    def requires(self, environment: Environment, cell: Cell) -> str | None:
        if cell["copy"] == "side-stream" and not environment.has_gpu:
            return "copy=side-stream needs a GPU: a CPU has no CUDA streams; use copy=plain"
        return None

    def apply(self, cell: Cell, run: TrainingRun) -> None:
        if cell["copy"] == "plain":
            return
        before = run.wrap_batches
        run.wrap_batches = lambda batches: copied_ahead(before(batches), run.device)
        run.copy = lambda batch: batch

    def evidence(self, cell: Cell, run: TrainingRun) -> Evidence | None:
        assert run.profile is not None
        aside = streams_of_copies_alone(run.profile.kernel_streams)
        facts: dict[str, Any] = {"streams_of_copies_alone": sorted(aside)}
        if not aside:
            reason = "copy=side-stream was set, but every copy in the profile ran on a stream that computes"
            return Evidence(holds=False, word="one stream", facts=facts, reason=reason)
        right, printed = (changed_batches(run.device, record=record) for record in (True, False))
        facts |= {"changed_batches": right, "changed_batches_as_printed": printed, "batches_tried": TRIED}
        reason = f"{right} of {TRIED} batches were overwritten while they were in use"
        return Evidence(holds=right == 0, word="copies on their own stream", facts=facts, reason=reason)


def streams_of_copies_alone(kernel_streams: dict[str, set[int]]) -> set[int]:
    """Streams on which copies from the host ran and no kernel did."""
    copies = {stream for name, streams in kernel_streams.items() if name.startswith(TO_DEVICE) for stream in streams}
    work = {stream for name, streams in kernel_streams.items() if not name.startswith("Mem") for stream in streams}
    return copies - work


def copied_ahead(batches: Iterator[Batch], device: Any, *, record: bool = True) -> Iterator[Batch]:
    """The batches on the device, each copied while the one before it is in use.

    Args:
        record: tell the allocator that the computing stream uses the copy's memory. Without it the memory of a batch
            that Python has let go of is given to the next copy while kernels that read it are still queued: so the
            document prints it.
    """
    import torch

    side = torch.cuda.Stream(device)

    def start(batch: Batch) -> tuple[Batch, Batch, Any]:
        with torch.cuda.stream(side):
            copied = {name: part.to(device, non_blocking=True) for name, part in batch.items()}
            return copied, batch, side.record_event()

    ahead = next(batches, None)
    under_way = start(ahead) if ahead is not None else None
    while under_way is not None:
        # the host's tensors stay referenced until their copy has been waited for
        present, _host, done = under_way
        ahead = next(batches, None)
        under_way = start(ahead) if ahead is not None else None
        using = torch.cuda.current_stream(device)
        using.wait_event(done)
        if record:
            for part in present.values():
                part.record_stream(using)
        yield present


#: Batches of the check below, their size, and how long the device is kept busy before it reads each: 10 ms at 2 GHz.
TRIED = 32
_NUMBERS = 1 << 20
_BUSY_CYCLES = 20_000_000


def changed_batches(device: Any, *, record: bool) -> int:
    """How many of `TRIED` copied batches hold other numbers than they should when a late kernel reads them."""
    import torch

    # pinned beforehand: to pin memory while kernels are queued may wait for them
    batches_there = [
        {"numbers": torch.full((_NUMBERS,), number, dtype=torch.int32).pin_memory()} for number in range(TRIED)
    ]
    wrong: list[Any] = []
    sleep: Callable[[int], None] = torch.cuda._sleep
    batches = copied_ahead(iter(batches_there), device, record=record)
    for number in range(TRIED):
        part = next(batches)["numbers"]
        sleep(_BUSY_CYCLES)
        wrong.append((part != number).any())
        del part
    return int(torch.stack(wrong).sum())
