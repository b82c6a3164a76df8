"""A job that is with Slurm: which rounds it still owes, and what its folder says of its end."""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.results.lines import read_lines
from harness.results.record import Record
from harness.results.rounds import Round
from harness.results.slurm.cluster import GONE, JobState
from harness.results.slurm.job import Errand, Job

#: A job that has ended may have files that this machine does not see yet (NFS): looked for so often.
_LOOKS = 2


@dataclass(frozen=True, kw_only=True)
class Said:
    """What a job says when it comes to its own end."""

    postponed: frozenset[str] = frozenset()
    """Labels of rounds that no longer fitted into its time."""
    unlike: dict[str, Any] = field(default_factory=dict)
    """What its node is, where that is not what the run was planned for."""

    @property
    def why_unlike(self) -> str:
        """And what to do."""
        return (
            f"a node is not like the one that the run was planned for ({self.unlike}); ask for one kind of node, as in"
            " --slurm constraint=h100, or remove .claimbench/stores/<store>/slurm/node-*.json beside the store to plan"
            " anew"
        )


@dataclass(kw_only=True)
class Sent:
    """One job. Its name is that of its folder, so that another run can find it."""

    folder: Path
    rounds: dict[str, Round]
    """By label: those that this run waits for."""
    nodes: int = 1
    others: set[str] = field(default_factory=set)
    """Labels of those that the job runs for another plan; they are stored as well."""
    state: JobState = GONE
    _looks: int = 0

    @property
    def name(self) -> str:
        return self.folder.name

    def take(self, missing: dict[str, Round]) -> None:
        """Take its rounds out of those that are missing here, and note the others that it runs.

        Of a job that another version wrote nothing is known; what comes back of it is stored all the same.
        """
        errands: dict[str, Errand] = {}
        with suppress(OSError, ValueError):
            job = Job.read(self.folder)
            errands, self.nodes = job.errands_by_label(), job.nodes
        self.rounds = {
            name: missing.pop(name)
            for name, errand in errands.items()
            if name in missing and answers(missing[name], errand.order, errand.fingerprint)
        }
        self.others = errands.keys() - self.rounds.keys()

    def look(self, state: JobState) -> None:
        """Take in what Slurm says; ask before looking for files, so that an ended job's are there."""
        # its number is kept when Slurm has forgotten the job
        self.state = replace(state, number=state.number or self.state.number)
        self._looks += self.over

    @property
    def ended(self) -> bool:
        """Nothing more will come of it."""
        return self.over and (not (self.rounds or self.others) or self._looks >= _LOOKS)

    @property
    def over(self) -> bool:
        """Slurm no longer has it, or it says so itself; its last files may still be on their way."""
        return not self.state.active or (self.folder / "ended.json").exists()

    def delivered(self) -> Iterator[tuple[Round | None, Sequence[Record]]]:
        """Rounds that have come back; each file is removed when the next is asked for, and must be stored by then.

        None: this run did not ask for it, or asked for more than came: cells have been added since, or the machine is
        another.
        """
        for file in sorted((self.folder / "rounds").glob("*.jsonl")):
            records = read_lines(file)
            self.others.discard(file.stem)
            yield self._asked_for(file.stem, records), records
            file.unlink()

    def _asked_for(self, name: str, records: Sequence[Record]) -> Round | None:
        each = self.rounds.get(name)
        if each is None or not answers(each, {record.arm for record in records}, records[0].fingerprint):
            return None
        return self.rounds.pop(name)

    def said(self) -> Said | None:
        """None: it did not come to its own end."""
        try:
            content = json.loads((self.folder / "ended.json").read_bytes())
        except (OSError, ValueError):
            return None
        return Said(postponed=frozenset(content["postponed"]), unlike=content["unlike"])

    def out_of_time(self) -> frozenset[str]:
        """Labels of rounds that it had no time for beside others; none where it had time for nothing at all."""
        said = self.said()
        with suppress(OSError, ValueError):
            if said is not None and len(said.postponed) < len(Job.read(self.folder).errands):
                return said.postponed
        return frozenset()

    def last_line(self, log: Path) -> str:
        """Of what it printed; empty where there is nothing."""
        with suppress(OSError):
            lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
            return next((line.strip()[:200] for line in reversed(lines) if line.strip()), "")
        return ""

    def ask_to_stop(self) -> None:
        """It begins no further round."""
        with suppress(OSError):
            (self.folder / "stop").touch()

    def remove(self) -> None:
        """All that came of it is stored."""
        shutil.rmtree(self.folder, ignore_errors=True)


def answers(each: Round, arms: Collection[str], fingerprint: str) -> bool:
    """Whether a round with these arms, on such a machine, is all that `each` asks for."""
    return each.circumstances.fingerprint == fingerprint and {trial.arm.name for trial in each.trials} <= set(arms)
