"""What a store holds, block by block, and what a run on this machine would still add to it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from harness.environment import Environment
from harness.experiment.study import Block, Plan, SweepPoint
from harness.results.held import Held
from harness.results.load import device_name
from harness.results.record import Record
from harness.results.rounds import Round, rounds_of

#: Block → fingerprint → records that are not superseded.
_Kept = Mapping[str, Mapping[str, list[Record]]]


@dataclass(frozen=True, kw_only=True)
class BlockStatus:
    """One block on one device, with one fingerprint."""

    study: str
    sweep: SweepPoint
    block: str
    device: str
    complete: int
    """Rounds that a run with this fingerprint would leave alone: every arm has a result of one machine in one state."""
    rounds: int | None
    """Rounds that the matrix asks for; None where the matrix has no such block."""
    outcomes: Mapping[str, int]
    """Outcome → trials, superseded ones left out."""
    missing: int | None
    """Trials that a run here would still add, those that cannot run here included; None: the row is none of its own."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """Blocks that count for one and the same, with a line that says for what; "" where there is one section alone."""

    title: str
    blocks: Sequence[BlockStatus]


def sections(records: Iterable[Record], plan: Plan | None, here: Environment | None) -> Iterator[Section]:
    """What is there: of the plan for this machine, of the plan from elsewhere, and of no plan.

    Args:
        plan: made for `here`; None: no matrix, and all that is there is one section.
        here: the machine that a run would use.
    """
    kept: dict[str, dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
    records = list(records)
    for record in records:
        if not record.superseded:
            kept[record.block][record.fingerprint].append(record)
    held = Held(records)
    if plan is None or here is None:
        yield Section(title="", blocks=list(_without_plan(kept, held, set())))
        return
    rounds = {key: list(group) for key, group in groupby(rounds_of(plan, here), key=lambda each: each.key)}
    ours = [_ours(each, kept.get(key, {}), held) for key, each in rounds.items()]
    yield Section(title=f"for this machine as it is now ({_name(here)}): missing is what a run here adds", blocks=ours)
    elsewhere = [one for key, each in rounds.items() for one in _elsewhere(each, kept.get(key, {}), held)]
    for device in dict.fromkeys(each.device for each in elsewhere):
        title = f"of another machine, or with other software than is here now ({device}): does not count for a run here"
        yield Section(title=title, blocks=[each for each in elsewhere if each.device == device])
    others = list(_without_plan(kept, held, rounds.keys()))
    if others:
        yield Section(title=f"not in {plan.matrix_file} at scale {plan.scale}", blocks=others)


def _ours(rounds: Sequence[Round], groups: Mapping[str, list[Record]], held: Held) -> BlockStatus:
    """What a run on this machine finds, and what it does not."""
    lacking = [each for each in rounds if not each.is_stored(held, ())]
    block, found = rounds[0].block, groups.get(rounds[0].circumstances.fingerprint, [])
    missing = sum(len(each.trials) for each in lacking)
    return _status(found, rounds[0].key, block, complete=len(rounds) - len(lacking), missing=missing)


def _elsewhere(rounds: Sequence[Round], groups: Mapping[str, list[Record]], held: Held) -> Iterator[BlockStatus]:
    """The same block with other fingerprints."""
    key, block = rounds[0].key, rounds[0].block
    arms = {arm.name for arm in block.arms}
    for fingerprint, found in groups.items():
        if fingerprint != rounds[0].circumstances.fingerprint:
            complete = sum(arms <= held.settled_arms(key, each.number, fingerprint) for each in rounds)
            yield _status(found, key, block, complete=complete, missing=None)


def _without_plan(kept: _Kept, held: Held, planned: Collection[str]) -> Iterator[BlockStatus]:
    """Blocks that only the store knows: their arms are those that it has seen."""
    for key, groups in kept.items():
        for fingerprint, found in groups.items() if key not in planned else ():
            arms = {record.arm for record in found}
            numbers = {record.round for record in found}
            complete = sum(arms <= held.settled_arms(key, number, fingerprint) for number in numbers)
            yield _status(found, key, None, complete=complete, missing=None)


def _status(
    found: Sequence[Record], key: str, block: Block | None, *, complete: int, missing: int | None
) -> BlockStatus:
    return BlockStatus(
        study=block.study if block else found[0].study,
        sweep=block.sweep if block else found[0].sweep or {},
        block=key,
        device=device_name(found[0]) if found else "",
        complete=complete,
        rounds=block.rounds if block else None,
        outcomes=dict(Counter(record.outcome.value for record in found).most_common()),
        missing=missing,
    )


def _name(machine: Environment) -> str:
    return machine.devices[0].name if machine.has_gpu else "cpu"
