"""Copies from the host to the device: of a large buffer, and of a batch of the cell's size."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import torch

from harness.environment import Environment
from harness.techniques.base import Evidence
from harness.trial.clock import Timeline
from harness.trial.kinds.repeat import Repeated, repeat
from harness.trial.kinds.training import as_json
from harness.trial.outcome import Outcome
from harness.trial.ranks import Ranks
from harness.trial.spec import TrialResult, TrialSpec

MEBIBYTES = 64


@dataclass(kw_only=True)
class Copies:
    """Copies of one buffer, and how long each call held the host."""

    source: torch.Tensor
    target: torch.Tensor
    non_blocking: bool
    host_seconds: list[float] = field(default_factory=list)

    def once(self, _: Timeline) -> None:
        start = time.perf_counter()
        self.target.copy_(self.source, non_blocking=self.non_blocking)
        self.host_seconds.append(time.perf_counter() - start)


def run(spec: TrialSpec, ranks: Ranks, environment: Environment) -> TrialResult:
    """Time copies of `options["mebibytes"]`, and of one batch."""
    device = torch.device(spec.device, ranks.local_rank) if spec.device == "cuda" else torch.device("cpu")
    size = int(spec.options.get("mebibytes", MEBIBYTES)) << 20
    # ones: memory of zeros that nobody has written to is one page, read over and over
    copies, measured = _timed(spec, device, torch.ones(size, dtype=torch.uint8))
    # token ids and labels, as the loader hands them out
    shape = (2, int(spec.settings["batch_size"]), int(spec.settings["sequence_length"]))
    _, batch = _timed(spec, device, torch.ones(shape, dtype=torch.int64))
    window = copies.host_seconds[-spec.steps :]
    result = TrialResult(outcome=Outcome.OK, window=measured.window, missing=dict(measured.missing))
    result.measured.update(
        step_seconds=measured.times.step_seconds,
        figures={
            "copy_seconds": measured.seconds,
            "host_seconds": sum(window) / len(window),
            "gigabytes_per_second": size / measured.seconds / 1e9,
            "batch_copy_seconds": batch.seconds,
        },
        **measured.peaks,
    )
    _prove(spec, copies, result)
    return result


def _timed(spec: TrialSpec, device: torch.device, source: torch.Tensor) -> tuple[Copies, Repeated]:
    if spec.settings["pin_memory"] is True:
        source = source.pin_memory()
    copies = Copies(
        source=source, target=torch.empty_like(source, device=device, pin_memory=False),
        non_blocking=spec.settings["non_blocking"] is True,
    )  # fmt: skip
    return copies, repeat(copies.once, device, warmup=spec.warmup_steps, steps=spec.steps)


def _prove(spec: TrialSpec, copies: Copies, result: TrialResult) -> None:
    wanted, pinned = spec.settings["pin_memory"] is True, bool(copies.source.is_pinned())
    word = "pinned" if pinned else "pageable"
    evidence = Evidence(
        holds=pinned == wanted and bool((copies.target == copies.source.to(copies.target.device)).all()), word=word,
        facts={"pinned": pinned, "non_blocking": copies.non_blocking, **result.measured["figures"]},
        reason=f"pin_memory={str(wanted).lower()} was set, but the buffer is {word}, or its copy differs from it",
    )  # fmt: skip
    result.evidence["pin_memory"] = as_json(evidence)
    if not evidence.holds:
        result.outcome, result.reason = Outcome.INERT, evidence.reason
