"""Do something in a fresh process, from a kind whose own process must never touch the GPU.

A trial's process is itself a fork of one that has imported everything and computed nothing; as long as it computes
nothing either, its forks start in milliseconds with a device, an allocator and a thread pool of their own.
"""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from harness.experiment.axes import Setting
from harness.trial.outcome import Outcome
from harness.trial.processes import die_with_parent
from harness.trial.spec import TrialResult, TrialSpec, write_json


def start(work: Callable[..., None], *arguments: Any) -> BaseProcess:
    """A forked process that does `work` and dies with this one."""
    process = multiprocessing.get_context("fork").Process(target=_child, args=(os.getpid(), work, arguments))
    process.start()
    return process


def _child(parent: int, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    die_with_parent(parent)
    work(*arguments)


def answer(work: Callable[[TrialSpec], dict[str, Any]], spec: TrialSpec, folder: Path) -> dict[str, Any]:
    """What `work(spec)` gives in a process of its own.

    Raises:
        RuntimeError: the process ended without an answer.
    """
    path = folder / "answer.json"
    path.unlink(missing_ok=True)
    process = start(_write, work, spec, path)
    process.join()
    if not path.exists():
        raise RuntimeError(f"{work.__name__} ended with status {process.exitcode} and no answer")
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def _write(work: Callable[[TrialSpec], dict[str, Any]], spec: TrialSpec, path: Path) -> None:
    write_json(path, work(spec))


def trial(spec: TrialSpec, folder: Path, **changes: Setting) -> TrialResult:
    """A training trial in a process of its own, with some settings changed."""
    path = folder / "try.json"
    path.unlink(missing_ok=True)
    told = folder / "spec.json"
    settings = {**spec.settings, **changes}
    child = replace(spec, kind="training", settings=settings, record_path=str(path), gradient_check=False, options={})
    child.write(told)
    process = start(_train, told)
    process.join()
    if path.exists():
        return TrialResult.read(path)
    # the system's own killer when the host is out of memory
    outcome = Outcome.OOM if process.exitcode == -9 else Outcome.CRASH
    return TrialResult(outcome=outcome, reason=f"the process ended with status {process.exitcode} and no result")


def _train(told: Path) -> None:
    from harness.trial.worker import main

    os._exit(main(told))
