"""What a job of the cluster does on its node: run its rounds through zygotes there, leave each one's records as a file.

    python -m harness.results.slurm.node FOLDER        the job in this folder
    python -m harness.results.slurm.node --describe    this node's environment, one line of JSON

It writes no store. A round's file appears whole, under its name, when the round is complete; should the job die, the
rounds whose files are there are done and the others are not.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.environment import Environment
from harness.experiment.study import PlannedTrial
from harness.results.carrier import Orders
from harness.results.lines import write_lines, write_whole
from harness.results.record import Record
from harness.results.rounds import Round, parts_of
from harness.results.side_by_side import SideBySide
from harness.results.slurm.job import Errand, Job, label
from harness.results.workplace import Workplace
from harness.techniques.registry import this_machine
from harness.trial import preload, processes
from harness.trial.interrupts import Interrupts
from harness.trial.launch import ENTRY, Launcher, LocalLauncher
from harness.trial.nvml import meters
from harness.trial.outcome import Outcome
from harness.trial.torchrun import SeveralNodes, nodes_for

#: A job that is being cancelled loses its processes in any order: a crash is believed after so many seconds.
_SECONDS_TO_BELIEVE_A_CRASH = 1.0


def run_job(folder: str) -> None:
    """Run the job in `folder`, as far as it gets."""
    where = Path(folder)
    job = Job.read(where)
    here = environment_of(job)
    # compilation caches on the node's own disk: many nodes writing to one shared folder would wait for each other
    with Interrupts() as interrupts, tempfile.TemporaryDirectory(prefix="claimbench-") as caches:
        outbox = Outbox(folder=where, job=job, interrupts=interrupts)
        outbox.expect(job, here)
        place = Workplace(folder=where / "work", data_folder=Path(job.data_folder), cache_folder=Path(caches))
        _carrier(job, place, here).carry([each for _, each in outbox.expected.values()], outbox)
        outbox.end()


def environment_of(job: Job) -> Environment:
    """Of the node; of a job over several nodes with the devices of all of them, first node first."""
    here = this_machine()
    if not job.gpu:
        return replace(here, devices=())
    if job.nodes == 1:
        return here
    describing = [*processes.interpreter("harness.results.slurm.node"), "--describe"]
    command = ["srun", f"--ntasks={job.nodes}", "--ntasks-per-node=1", "--overlap", *describing]
    ours = processes.findable(os.environ)
    lines = subprocess.run(command, env=ours, capture_output=True, text=True, check=True).stdout.splitlines()
    others = [environment_from(json.loads(line)) for line in lines if line.startswith("{")]
    theirs = [device for each in others if each.host != here.host for device in each.devices]
    return replace(here, devices=(*here.devices, *theirs))


def describe(path: str) -> None:
    """Leave this node's environment as a file of JSON."""
    write_whole(Path(path), json.dumps(this_machine().as_json()).encode())


def environment_from(content: dict[str, Any]) -> Environment:
    """An environment as `Environment.as_json` wrote it.

    Raises:
        ValueError: it is none.
    """
    from pydantic import TypeAdapter

    return TypeAdapter(Environment).validate_python(content)


@dataclass(kw_only=True)
class Outbox:
    """The desk of a job: keeps a round's records until it is whole, then leaves them where the run collects them."""

    folder: Path
    job: Job
    interrupts: Interrupts
    expected: dict[str, tuple[Errand, Round]] = field(default_factory=dict)
    """By label: rounds that may run here and are not delivered yet."""
    began: float = field(default_factory=time.monotonic)
    postponed: list[str] = field(default_factory=list)
    unlike: dict[str, Any] = field(default_factory=dict)
    """What this node is, where that is not what the run was planned for."""
    _records: dict[str, list[Record]] = field(default_factory=dict)
    _owed: set[tuple[str, str]] = field(default_factory=set)
    """Block and arm whose first gradient is to be compared, until a trial has done so."""

    def expect(self, job: Job, here: Environment) -> None:
        """Sort out the rounds of the job: an earlier start of the same job may have delivered some."""
        for errand, each in job.rounds(here):
            if each.circumstances.fingerprint != errand.fingerprint:
                self.unlike = parts_of(each.block, here, each.devices)
            elif not self._path(label(each)).exists():
                self.expected[label(each)] = (errand, each)

    def begin(self, each: Round) -> Orders | None:
        """As the run numbered its tries; None where it no longer fits into the job's time, or the run is stopping."""
        left = self.job.seconds - (time.monotonic() - self.began)
        if self._is_stopped() or self.job.expected.get(label(each), 0.0) > left:
            self.postponed.append(label(each))
            return None
        errand, _ = self.expected[label(each)]
        self._owed.update((each.key, arm) for arm in errand.looks)
        owed = {arm for block, arm in self._owed if block == each.key}
        return Orders(attempts=errand.attempts, looks=frozenset(owed & errand.attempts.keys()))

    def started(self, trial: PlannedTrial, attempt: int) -> None:
        """Say it in the job's log."""
        print(f"{trial.block.study} round {trial.round}: {trial.arm.name}", flush=True)

    def finished(self, trial: PlannedTrial, record: Record) -> None:
        """Deliver the round once it is whole; one that was interrupted never is."""
        print(f"{trial.block.study} round {trial.round}: {trial.arm.name}: {record.outcome}", flush=True)
        if record.outcome is Outcome.CRASH:
            time.sleep(_SECONDS_TO_BELIEVE_A_CRASH)
        if self.interrupts.soft or record.outcome is Outcome.INTERRUPTED:
            return
        if record.gradient_check and record.outcome in (Outcome.OK, Outcome.INVALID):
            self._owed.discard((trial.block.key, trial.arm.name))
        name = f"{trial.block.key}-r{trial.round}"
        records = self._records.setdefault(name, [])
        records.append(record)
        if len(records) == len(self.expected[name][1].trials):
            write_lines(records, self._path(name))

    def delivered(self, each: Round, records: Sequence[Record]) -> None:
        """Nothing runs elsewhere."""
        raise AssertionError("a job sends no rounds on")

    def found(self, records: Sequence[Record]) -> None:
        """Nor does anything come back."""
        raise AssertionError("a job collects no rounds")

    def lost(self, each: Round) -> None:
        """Nor can one be lost on its way."""
        raise AssertionError("a job sends no rounds on")

    def notice(self, text: str) -> None:
        """Into the job's log."""
        print(text, flush=True)

    def end(self) -> None:
        """Say that the job came to its own end, unless it was ended."""
        if not self.interrupts.soft:
            said = {"postponed": self.postponed, "unlike": self.unlike}
            write_whole(self.folder / "ended.json", json.dumps(said).encode())

    def _is_stopped(self) -> bool:
        """Asked to, or its folder was removed: the run has given the job up, and Slurm did not end all of it."""
        return (self.folder / "stop").exists() or not (self.folder / "job.json").exists()

    def _path(self, name: str) -> Path:
        return self.folder / "rounds" / f"{name}.jsonl"


def _carrier(job: Job, place: Workplace, here: Environment) -> SideBySide:
    """Rounds side by side on the GPUs of a node; one at a time where trials spread over several nodes."""
    cells = [arm.cell.settings for block in job.blocks for arm in block.arms]
    modules = preload.modules_for(cells) if not job.entry else ("json",)
    local_uuids = {device.uuid for device in this_machine().devices}

    def make_launcher(variables: Any) -> Launcher:
        local = LocalLauncher(
            gpu=job.gpu, isolation=job.isolation, modules=modules, variables=variables, entry=job.entry or ENTRY
        )
        if job.nodes == 1 or job.per_node is None:
            return local
        return SeveralNodes(local=local, ranks_per_node=job.per_node, nodes=job.nodes)

    def of_this_node(devices: int) -> int:
        if not devices or job.nodes == 1 or job.per_node is None:
            return devices
        return devices // nodes_for(devices, job.per_node)

    return SideBySide(
        environment=here, workplace=place, make_launcher=make_launcher, retries=job.retries,
        wall_limit_seconds=job.wall_limit_seconds, most_lanes=1 if job.nodes > 1 else None,
        watch=lambda uuids: meters(uuid for uuid in uuids if uuid in local_uuids), watched=of_this_node,
    )  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """Entry of the process."""
    if list(arguments) == ["--describe"]:
        print(json.dumps(this_machine().as_json()))
        return 0
    run_job(arguments[0])
    return 0


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        sys.exit(main(sys.argv[1:]))
