"""A job as it travels: the rounds that one job of a cluster is to run, as a JSON file that any node can read.

In `.claimbench/stores/<store>/slurm/jobs/<name>/`:

    job.json     what to run
    rounds/      JSON lines, a file a round, written whole; removed once they are stored
    stop         there: begin no further round
    ended.json   the job came to its own end, with what it left out and why
    work/        where its trials work
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from harness.environment import Environment
from harness.experiment.study import Block, PlannedTrial
from harness.results.carrier import Orders
from harness.results.lines import write_whole
from harness.results.rounds import Round, shared

if TYPE_CHECKING:
    from pydantic import TypeAdapter


@dataclass(frozen=True, kw_only=True)
class Errand:
    """A round on its way."""

    block: int
    """Place in the job's blocks."""
    number: int
    seed: int
    order: tuple[str, ...]
    """Arms in the order in which they run."""
    refusals: dict[str, str] = field(default_factory=dict)
    attempts: dict[str, int]
    looks: frozenset[str] = frozenset()
    """Arms whose first gradient is to be compared."""
    fingerprint: str
    """Of the machine that the run was planned for: the round runs on no other kind."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What one job runs, and how."""

    name: str
    scale: str
    gpu: bool
    nodes: int = 1
    per_node: int | None = None
    """Ranks of a trial on one node, at most; None: all of them."""
    isolation: str = "zygote"
    entry: str = ""
    """What a trial process calls; empty: the worker."""
    retries: int = 0
    wall_limit_seconds: float | None = None
    seconds: float
    """What the job may take: no round is begun that is not expected to end before."""
    data_folder: str
    blocks: tuple[Block, ...]
    errands: tuple[Errand, ...]
    expected: dict[str, float] = field(default_factory=dict)
    """Seconds that a round is expected to take, by its label."""

    def write(self, folder: Path) -> None:
        """Keep it as `job.json` in its folder.

        Raises:
            RecordsError: it cannot be written.
        """
        folder.parent.mkdir(parents=True, exist_ok=True)  # ours, beside the store: no path that a user could mistype
        write_whole(folder / "job.json", _reader().dump_json(self))

    @classmethod
    def read(cls, folder: Path) -> Job:
        """
        Raises:
            ValueError, OSError: there is none, or it is no job.
        """
        return _reader().validate_json((folder / "job.json").read_bytes())

    def errands_by_label(self) -> dict[str, Errand]:
        """Its rounds by the names of the files that they come back in."""
        keys = [block.key for block in self.blocks]
        return {_label(keys[errand.block], errand.number): errand for errand in self.errands}

    def rounds(self, environment: Environment) -> Iterator[tuple[Errand, Round]]:
        """Its rounds as they are on a machine."""
        known = [shared(self.scale, block, environment) for block in self.blocks]
        keys = [block.key for block in self.blocks]
        for errand in self.errands:
            circumstances, devices = known[errand.block]
            yield errand, Round(
                trials=tuple(_trials(errand, self.blocks[errand.block])), key=keys[errand.block],
                circumstances=circumstances, devices=devices,
            )  # fmt: skip


def label(each: Round) -> str:
    """The name of a round: of the file that it comes back in."""
    return _label(each.key, each.number)


def _label(key: str, number: int) -> str:
    return f"{key}-r{number}"


def errand_of(each: Round, block: int, orders: Orders) -> Errand:
    """A round made ready to travel."""
    return Errand(
        block=block, number=each.number, seed=each.trials[0].seed, attempts=dict(orders.attempts),
        looks=orders.looks,
        order=tuple(trial.arm.name for trial in each.trials),
        refusals={trial.arm.name: trial.refusal for trial in each.trials if trial.refusal is not None},
        fingerprint=each.circumstances.fingerprint,
    )  # fmt: skip


def _trials(errand: Errand, block: Block) -> Iterator[PlannedTrial]:
    arms = {arm.name: arm for arm in block.arms}
    for position, name in enumerate(errand.order):
        yield PlannedTrial(
            block=block, arm=arms[name], round=errand.number, position=position, seed=errand.seed,
            refusal=errand.refusals.get(name),
        )  # fmt: skip


@cache
def _reader() -> TypeAdapter[Job]:
    from pydantic import TypeAdapter

    return TypeAdapter(Job)
