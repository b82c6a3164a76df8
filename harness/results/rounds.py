"""The plan cut into rounds: the unit that is run whole, stored whole, and run again whole."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Protocol

from harness.environment import Device, Environment
from harness.experiment.study import Block, Plan, PlannedTrial
from harness.results.assemble import Circumstances
from harness.results.fingerprint import fingerprint, fingerprint_parts, measuring, packages_used, revisions_of
from harness.results.store import Store
from harness.techniques.registry import techniques
from harness.trial.outcome import Outcome
from harness.version import VERSION


class Keeps(Protocol):
    """What a round asks of a store; records without one answer it too (`results.held`)."""

    def settled_arms(
        self, block: str, round_number: int, fingerprint: str, *, retry: Iterable[Outcome] = ()
    ) -> frozenset[str]: ...


@dataclass(frozen=True, kw_only=True)
class Round:
    """All arms of a block in one round, in the order in which they run."""

    trials: tuple[PlannedTrial, ...]
    key: str
    """Of the block."""
    circumstances: Circumstances
    devices: tuple[Device, ...]
    """Those that the block uses; none: it runs on the CPU."""

    @property
    def block(self) -> Block:
        return self.trials[0].block

    @property
    def number(self) -> int:
        return self.trials[0].round

    def is_stored(self, store: Keeps, retry: Collection[Outcome]) -> bool:
        """Whether every arm has a result that counts. That an arm could not run is none any more once it can."""
        able = {trial.arm.name for trial in self.trials if trial.refusal is None}
        refused = {trial.arm.name for trial in self.trials} - able
        where = (self.key, self.number, self.circumstances.fingerprint)
        complete = able <= store.settled_arms(*where, retry={*retry, Outcome.UNSUPPORTED})
        return complete and refused <= store.settled_arms(*where, retry=retry)

    def on(self, devices: tuple[Device, ...], environment: Environment, *, side_by_side: int = 1) -> Round:
        """The same round on some of a machine's devices, of the kind that the round was planned for.

        `side_by_side`: how many rounds share the machine; recorded where there are several.
        """
        used = devices[: len(self.devices)]
        seen = replace(environment, devices=used).as_json()
        if side_by_side > 1:
            seen["side_by_side"] = side_by_side
        return replace(self, devices=used, circumstances=replace(self.circumstances, environment=seen))

    def supersede(self, store: Store) -> None:
        """Mark what an earlier, unfinished run of this round left."""
        store.supersede(self.key, self.number, self.circumstances.fingerprint)


def rounds_of(plan: Plan, environment: Environment) -> Iterator[Round]:
    """The rounds of `plan` in its order, with what the records of each share."""
    contents: dict[int, dict[str, Any]] = {}
    # by identity: comparing two blocks compares all of their cells
    for _, group in groupby(plan.trials, key=lambda trial: id(trial.block)):
        trials = list(group)
        block = trials[0].block
        circumstances, devices = shared(plan.scale, block, environment, contents)
        key = block.key
        for _, its_trials in groupby(trials, key=lambda trial: trial.round):
            yield Round(trials=tuple(its_trials), key=key, circumstances=circumstances, devices=devices)


def shared(
    scale: str, block: Block, environment: Environment, contents: dict[int, dict[str, Any]] | None = None
) -> tuple[Circumstances, tuple[Device, ...]]:
    """What the records of a block share on a machine, and the devices that it uses there.

    `contents`: the environment as records keep it, by number of devices, kept between calls for one machine.
    """
    cells = [arm.cell for arm in block.arms]
    devices = environment.devices[: max(cell.number("devices") for cell in cells)]
    known = contents if contents is not None else {}
    if len(devices) not in known:
        known[len(devices)] = replace(environment, devices=devices).as_json()
    how = _made_how(block)
    circumstances = Circumstances(
        scale=scale, fingerprint=fingerprint(environment, devices=devices, **how), version=VERSION,
        environment=known[len(devices)], measuring=measuring(block.kind, how["revisions"]),
    )  # fmt: skip
    return circumstances, devices


def parts_of(block: Block, environment: Environment, devices: Sequence[Device]) -> dict[str, Any]:
    """What the fingerprint of a block's trials is made of, in words."""
    return fingerprint_parts(environment, devices=devices, **_made_how(block))


def _made_how(block: Block) -> dict[str, Any]:
    cells = [arm.cell for arm in block.arms]
    known = techniques()
    return {"packages": packages_used(known, cells), "kind": block.kind, "revisions": revisions_of(known, cells)}
