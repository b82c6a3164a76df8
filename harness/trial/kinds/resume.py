"""A run of a small matrix with this harness, killed in the middle and started again. On the CPU, wherever it runs.

Everything goes through the command line, as a user's would: `claimbench run`, SIGKILL, `claimbench run`, `export`.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from harness.environment import Environment
from harness.trial.outcome import Outcome
from harness.trial.processes import interpreter
from harness.trial.ranks import Ranks
from harness.trial.spec import TrialResult, TrialSpec

ROUNDS = 3
#: The baseline, its control and two batch sizes.
ARMS = 4
#: The kill comes when so many trials are stored: in the middle of the second round.
KILLED_AFTER = 5
MATRIX = f"""\
schema: 1
rounds: {ROUNDS}
workloads:
  small: {{model: tiny, data: text.txt, sequence_length: 32}}
studies:
  sizes:
    question: Is a run that was killed completed by running it again?
    workload: small
    baseline: {{batch_size: 1, stream: cached}}
    axes: {{batch_size: [2, 4]}}
    steps: 2
    warmup_steps: 1
"""
_TEXT = "\n\n".join(f"Paragraph {number} of a text to train on.\nIts second line." for number in range(300))
_PATIENCE_SECONDS = 600.0
_LOG = "claimbench.log"
RUN = ("run", "--matrix", "matrix.yaml", "--device", "cpu", "--scale", "full", "--no-report")


def run(spec: TrialSpec, ranks: Ranks, environment: Environment) -> TrialResult:
    """Run, kill, run again, count."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "matrix.yaml").write_text(MATRIX, encoding="utf-8")
        (folder / "text.txt").write_text(_TEXT, encoding="utf-8")
        stored = killed_run(folder)
        if stored is None:
            return TrialResult(outcome=Outcome.CRASH, reason=f"nothing was there to kill; {_last_words(folder)}")
        with _started(folder, *RUN) as again:
            again.wait()
        with _started(folder, "export", "--to", "all.jsonl") as export:
            export.wait()
        exported = folder / "all.jsonl"
        lines = exported.read_text(encoding="utf-8").splitlines() if exported.exists() else []
    figures = counted(json.loads(line) for line in lines)
    result = TrialResult(outcome=Outcome.OK, window=(begun, time.monotonic()))
    result.measured["figures"] = {**figures, "stored_when_killed": stored, "second_run_status": again.returncode}
    return result


def counted(records: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """How many planned trials have exactly one valid record."""
    standing = (each for each in records if not each["superseded"] and each["outcome"] == "ok")
    valid = Counter((each["arm"], each["round"]) for each in standing)
    planned = ARMS * ROUNDS
    doubled = sum(count - 1 for count in valid.values())
    return {
        "complete": len(valid) == planned and doubled == 0, "trials_planned": planned,
        "trials_lost": planned - len(valid), "trials_doubled": doubled,
    }  # fmt: skip


def killed_run(folder: Path) -> int | None:
    """Start a run and kill it in the middle. Trials stored by then; None when it ended by itself."""
    until = time.monotonic() + _PATIENCE_SECONDS
    with _started(folder, *RUN) as process:
        stored = 0
        while process.poll() is None and stored < KILLED_AFTER and time.monotonic() < until:
            time.sleep(0.2)
            stored = trials_in(folder / "results.sqlite")
        ended = process.poll() is not None
        process.kill()
    return None if ended or stored < KILLED_AFTER else stored


def trials_in(store: Path) -> int:
    """Trials in a store that somebody else is writing to."""
    if not store.exists():
        return 0
    try:
        with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True, timeout=5)) as database:
            return int(database.execute("SELECT count(*) FROM trials").fetchone()[0])
    except sqlite3.Error:  # being created just now
        return 0


@contextmanager
def _started(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """claimbench in `folder`; its words go to a file there."""
    command = [*interpreter("harness.cli"), *arguments]
    with (
        (folder / _LOG).open("ab") as log,
        subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        ) as process,
    ):
        yield process


def _last_words(folder: Path) -> str:
    return (folder / _LOG).read_text(encoding="utf-8", errors="replace")[-300:].strip()
