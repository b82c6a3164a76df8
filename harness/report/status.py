"""What a store holds, block by block, and what a matrix still lacks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from harness.experiment.study import Block, Plan, SweepPoint
from harness.results.record import Record
from harness.trial.outcome import SETTLED, TRANSIENT


@dataclass(frozen=True, kw_only=True)
class BlockStatus:
    """One block on one device."""

    study: str
    sweep: SweepPoint
    block: str
    device: str
    complete: int
    """Rounds of which every arm has a result."""
    rounds: int | None
    """Rounds that the matrix asks for; None where the matrix has no such block."""
    outcomes: Mapping[str, int]
    """Outcome → trials, superseded ones left out."""
    missing: int | None
    """Trials that a run would still start for it, where the matrix has it."""


def block_statuses(records: Iterable[Record], plan: Plan | None) -> Iterator[BlockStatus]:
    """The blocks of the plan in its order, then those that only the store knows."""
    kept: dict[str, dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        if not record.superseded:
            kept[record.block][record.fingerprint].append(record)
    planned = {trial.block.key: trial.block for trial in plan.trials} if plan else {}
    for key, block in planned.items():
        for found in kept.get(key, {"": []}).values():
            yield _status(key, block.study, block.sweep, found, block)
    for key, groups in kept.items():
        if key not in planned:
            for found in groups.values():
                yield _status(key, found[0].study, found[0].sweep or {}, found, None)


def _status(key: str, study: str, sweep: SweepPoint, records: list[Record], block: Block | None) -> BlockStatus:
    settled: dict[int, set[str]] = defaultdict(set)
    for record in records:
        if record.outcome in SETTLED | TRANSIENT:
            settled[record.round].add(record.arm)
    arms = {arm.name for arm in block.arms} if block else {record.arm for record in records}
    complete = sum(arms <= found for found in settled.values())
    return BlockStatus(
        study=study,
        sweep=sweep,
        block=key,
        device=_device(records),
        complete=complete,
        rounds=block.rounds if block else None,
        outcomes=dict(Counter(record.outcome.value for record in records).most_common()),
        missing=max(0, block.rounds - complete) * len(arms) if block else None,
    )


def _device(records: list[Record]) -> str:
    from harness.results.load import device_name

    return device_name(records[0]) if records else ""
