"""Start one trial and see it to its end: the local launcher.

    with LocalLauncher(gpu=False, directory=work) as launcher:
        finished = launcher.run(spec, ranks=1, wall_limit_seconds=120, environment={})

Whatever happens, `run` returns how the trial ended, and when it returns no process of the trial lives.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from harness.errors import LaunchError
from harness.trial import preload, processes
from harness.trial.channel import Message
from harness.trial.classify import classify, last_lines
from harness.trial.helper import Helper, KilledWhileStarting, StoppedWhileStarting
from harness.trial.interrupts import Interrupts
from harness.trial.outcome import Outcome
from harness.trial.spec import TrialResult, TrialSpec
from harness.trial.supervision import OnForked, Patience, supervise

#: What a child calls, with the path of its TrialSpec.
ENTRY = "harness.trial.worker:main"
#: How often the helper, and a trial whose helper or port was gone, is started before it is given up that somebody
#: kills it, or takes its port, each time.
_STARTS = 3


@dataclass(frozen=True, kw_only=True)
class Finished:
    """How a trial ended, as its parent saw it."""

    outcome: Outcome
    reason: str
    """Empty for `ok`; otherwise a sentence, and for a crash the last lines of standard error below it."""
    result: TrialResult | None
    """What the child wrote, None when it wrote nothing (or nothing that counts)."""
    warnings: tuple[str, ...] = ()
    exit_statuses: tuple[int | None, ...] = ()
    """By rank: exit code, negative for the signal that killed it, None when its end was not seen."""
    stderr_tail: str = ""
    pids: tuple[int, ...] = ()
    """By rank."""
    started: float
    """`time.monotonic()` when the processes were asked for."""
    wall_seconds: float
    peak_host_bytes: int | None = None
    """Largest resident size that any rank had."""
    port_taken: bool = False
    """It crashed since another program had taken the port at which its ranks were to meet."""


class Launcher(Protocol):
    """What runs trials; `LocalLauncher` is the one on this machine."""

    def run(
        self, spec: TrialSpec, *, ranks: int, wall_limit_seconds: float, environment: Mapping[str, str],
        interrupts: Interrupts | None = None, on_forked: OnForked | None = None,
    ) -> Finished: ...  # fmt: skip

    def close(self) -> None: ...


@dataclass(kw_only=True)
class LocalLauncher:
    """Trials on this machine, each rank a process of its own under one helper.

    Start and use it from one thread that outlives the trials: the kernel ties the helper to the thread that forked it.
    """

    gpu: bool
    isolation: str = "zygote"
    """`zygote`: forked from a process that has imported everything. `spawn`: a fresh interpreter each."""
    modules: Sequence[str] = preload.MODULES
    """What the zygote imports; further ones (`deepspeed`, `flash_attn`) when the plan uses them."""
    entry: str = ENTRY
    patience: Patience = field(default_factory=Patience)
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment of every trial, below what a trial brings itself."""
    log: Path | None = None
    """Where the helper's own output goes; None: nowhere."""
    _helper: Helper | None = field(default=None, init=False)

    def run(
        self, spec: TrialSpec, *, ranks: int, wall_limit_seconds: float, environment: Mapping[str, str],
        interrupts: Interrupts | None = None, on_forked: OnForked | None = None,
    ) -> Finished:  # fmt: skip
        """Run one trial to its end.

        The spec and the output of every rank lie beside `spec.record_path`.

        Raises:
            LaunchError: no trial process can be started on this machine at all.
        """
        directory = Path(spec.record_path).parent
        directory.mkdir(parents=True, exist_ok=True)
        spec_path = directory / "spec.json"
        spec.write(spec_path)
        Path(spec.record_path).unlink(missing_ok=True)
        request = _Request(
            spec=spec, spec_path=spec_path, ranks=ranks, wall_limit_seconds=wall_limit_seconds,
            environment={**self.variables, **environment},
        )  # fmt: skip
        try:
            for _ in range(_STARTS):
                finished = self._run_once(request, interrupts, on_forked)
                if finished is not None and not finished.port_taken:
                    break
                # else the helper was gone before it had forked anything, or the ranks never met: nothing has run
        except StoppedWhileStarting:
            return _never_started()
        if finished is None:
            raise LaunchError(
                "The process that starts trials ended each time before it could start one; look at its log."
            )
        return finished

    def close(self) -> None:
        """End the helper and everything under it. The next `run` starts another."""
        if self._helper is not None:
            self._helper.close()
            self._helper = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ready_helper(self, interrupts: Interrupts | None) -> Helper:
        if self._helper is not None and self._helper.alive:
            return self._helper
        self.close()
        modules = self.modules if self.isolation == "zygote" else ()
        for _ in range(_STARTS - 1):
            with contextlib.suppress(KilledWhileStarting):
                self._helper = Helper.start(modules=modules, gpu=self.gpu, log=self.log, interrupts=interrupts)
                return self._helper
        self._helper = Helper.start(modules=modules, gpu=self.gpu, log=self.log, interrupts=interrupts)
        return self._helper

    def _run_once(
        self, request: _Request, interrupts: Interrupts | None, on_forked: OnForked | None
    ) -> Finished | None:
        """None: the helper was lost before the trial existed."""
        helper = self._ready_helper(interrupts)
        kills, started, port = processes.memory_kills(), time.monotonic(), processes.free_port()
        helper.launch(request.message(started=started, port=port, entry=self.entry, fresh=self.isolation == "spawn"))
        ending = supervise(
            helper, ranks=request.ranks, deadline=started + request.wall_limit_seconds, patience=self.patience,
            interrupts=interrupts, on_forked=on_forked,
        )  # fmt: skip
        if ending.helper_lost:
            self.close()
        if ending.helper_lost and ending.killed is None and not ending.pids:
            return None
        classified = classify(
            ending, directory=request.spec_path.parent, record_path=Path(request.spec.record_path),
            wall_limit_seconds=request.wall_limit_seconds, killed_for_memory=processes.memory_kills() > kills,
        )  # fmt: skip
        return Finished(
            outcome=classified.outcome, reason=classified.reason, result=classified.result,
            warnings=classified.warnings, stderr_tail=classified.stderr_tail,
            exit_statuses=ending.statuses, pids=ending.pids,
            started=started, wall_seconds=time.monotonic() - started, peak_host_bytes=ending.peak_host_bytes,
            port_taken=classified.outcome is Outcome.CRASH
            and port_taken(port, classified.reason, request.spec_path.parent),
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class _Request:
    """A trial as it is asked for."""

    spec: TrialSpec
    spec_path: Path
    ranks: int
    wall_limit_seconds: float
    environment: Mapping[str, str]

    def message(self, *, started: float, port: int, entry: str, fresh: bool) -> Message:
        """What the zygote is told."""
        folder = self.spec_path.parent
        parts = []
        for rank in range(self.ranks):
            ours = rank_environment(rank=rank, ranks=self.ranks, port=port, started=started)
            paths = {stream: str(folder / f"rank{rank}.{stream}") for stream in ("stdout", "stderr")}
            for path in paths.values():
                Path(path).write_bytes(b"")  # of an earlier try
            parts.append({"environment": {**ours, **self.environment}, **paths})
        return {"do": "launch", "entry": entry, "argument": str(self.spec_path), "fresh": fresh, "ranks": parts}


def rank_environment(*, rank: int, ranks: int, port: int, started: float) -> dict[str, str]:
    """What torchrun would set for one rank of a single machine, so that the same worker runs under either."""
    cores = len(os.sched_getaffinity(0))
    shared = {} if ranks == 1 else {"OMP_NUM_THREADS": str(max(1, cores // ranks))}
    return {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo",
        # The clock is the machine's, so a child can say how long its start took.
        "CLAIMBENCH_REQUESTED_AT": repr(started),
        **shared,
    }  # fmt: skip


def port_taken(port: int, reason: str, directory: Path) -> bool:
    """Whether a crash was that another program took `port` after it had been chosen: rank 0, which listens, says so.

    Another rank may be the first to fail, for what it is told by the program that does.
    """
    said = [*reason.splitlines(), *last_lines(directory / "rank0.stderr")]
    return any("address already in use" in line.lower() and re.search(rf"\b{port}\b", line) for line in said)


def _never_started() -> Finished:
    return Finished(
        outcome=Outcome.INTERRUPTED, reason="The run was stopped before the trial's process existed.", result=None,
        started=time.monotonic(), wall_seconds=0.0,
    )  # fmt: skip
