"""Start a run as a process, watch what it says, kill parts of it, look at what is left."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from harness.experiment.study import Plan
from harness.results.record import Record
from harness.results.store import Store
from harness.trial.outcome import SETTLED
from harness.trial.processes import descendants, wait_until_gone

CHILD = "tests.trial.child:main"


class Run:
    """`tests.faults.driver` in a process of its own."""

    def __init__(self, folder: Path, plan: str, *entry: str) -> None:
        command = [sys.executable, "-m", "tests.faults.driver", str(folder), plan, *entry]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        self.lines: list[str] = []

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_for(self, word: str) -> str | None:
        """Read up to the next line that begins with `word`; None when the run ended before."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.strip())
            if line.startswith(word):
                return line.strip()
        return None

    def everything(self) -> list[int]:
        """All processes of the run, itself first."""
        return [self.pid, *descendants(self.pid)]

    def helper(self) -> tuple[int, int] | None:
        """Keeper and zygote, once both exist."""
        import psutil

        for keeper in psutil.Process(self.pid).children():
            for zygote in keeper.children():
                return keeper.pid, zygote.pid
        return None

    def finish(self) -> int:
        """Read to the end; the exit status."""
        self.wait_for("\0")
        return self.process.wait()

    def kill(self) -> list[int]:
        """kill -9 of the run itself; the processes that live still two seconds later."""
        everything = self.everything()
        began = time.monotonic()
        self.process.kill()
        self.process.wait()
        return wait_until_gone(everything, seconds=2.0 - (time.monotonic() - began))


def check_complete(folder: Path, plan: Plan) -> list[Record]:
    """Every planned trial has exactly one valid record, and the store is sound. The valid records."""
    with Store.open(folder / "results.sqlite") as store:
        assert store.problems() == []
        records = list(store.records(include_superseded=False))
        settled = [record for record in records if record.outcome in SETTLED]
        found = Counter((record.study, record.round, record.arm) for record in settled)
        assert found == Counter((trial.block.study, trial.round, trial.arm.name) for trial in plan.trials)
        assert len(settled) == len(records), "nothing but results is left valid"
    return settled


def losses(records: list[Record]) -> dict[tuple[str, int, str], list[float]]:
    """What is deterministic in a trial."""
    return {(record.study, record.round, record.arm): record.losses for record in records}
