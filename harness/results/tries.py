"""One planned trial: launch it, watch the devices meanwhile, try again where that was asked for, make its record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from harness.environment import Device
from harness.errors import LaunchError
from harness.experiment.study import PlannedTrial
from harness.experiment.workloads import change_problem, is_step
from harness.results import assemble
from harness.results.assemble import Try
from harness.results.budget import wall_limit_seconds
from harness.results.record import Record
from harness.results.room import check_room
from harness.results.rounds import Round
from harness.results.workplace import Workplace
from harness.trial.device import DeviceSamples, device_figures
from harness.trial.interrupts import Interrupts
from harness.trial.launch import Finished, Launcher
from harness.trial.loader_memory import LoaderMemory, Readings, peak_within
from harness.trial.outcome import TRANSIENT
from harness.trial.ranks import processes_of
from harness.trial.sampler import Sampler
from harness.trial.spec import TrialSpec


@dataclass(frozen=True, kw_only=True)
class Tries:
    """Runs planned trials, one after the other."""

    launcher: Launcher
    workplace: Workplace
    sampler: Sampler
    interrupts: Interrupts
    retries: int = 0
    """Tries again, at once, after a crash or a timeout."""
    wall_limit_seconds: float | None = None
    """For every trial; None: see `results.budget`."""
    watched: Callable[[int], int] = lambda devices: devices
    """How many of a trial's devices its meters are read of."""

    def record(
        self, trial: PlannedTrial, its_round: Round, *, attempt: int, on_start: Callable[[int], None],
        gradient_check: bool = False,
    ) -> Record:  # fmt: skip
        """The record of `trial`: its last try, with the earlier ones in `attempts`.

        `gradient_check`: compare its first gradient.
        `on_start` is told the number of each try, from 1, just before it is launched; a refused trial has none.

        Raises:
            LaunchError: no trial process can be started, its disk is full, or its files were changed meanwhile.
        """
        if trial.refusal is not None:
            at = Try(attempt=attempt, started_at=now())
            return assemble.unsupported(trial, at=at, circumstances=its_round.circumstances)
        earlier: list[dict[str, object]] = []
        while True:
            on_start(len(earlier) + 1)
            at = Try(attempt=attempt, started_at=now(), earlier=tuple(earlier))
            record = self._launch(trial, its_round, at, gradient_check)
            if record.outcome not in TRANSIENT or len(earlier) >= self.retries or self.interrupts.soft:
                return record
            earlier.append({
                "outcome": str(record.outcome), "reason": record.reason, "wall_seconds": record.wall_seconds,
                "started_at": record.started_at,
            })  # fmt: skip

    def _launch(self, trial: PlannedTrial, its_round: Round, at: Try, gradient_check: bool) -> Record:
        circumstances = its_round.circumstances
        devices = its_round.devices[: trial.arm.cell.number("devices")]
        with self.workplace.writing():
            spec = self.workplace.spec(
                trial, fingerprint=circumstances.fingerprint, attempt=at.attempt, gpu=bool(devices),
                gradient_check=gradient_check,
            )  # fmt: skip
            finished, samples, loader = self._watched(trial, spec, devices)
            check_room(finished, (Path(spec.record_path).parent, Path(spec.cache_directory)))
        _check_unchanged(trial)
        window = finished.result.window if finished.result is not None else None
        figures = device_figures(samples, window, devices=len(devices))
        held = peak_within(loader, window)
        seen = {"peak_loader_bytes": held} if held else {}
        return assemble.record_of(trial, finished, figures, at=at, circumstances=circumstances, seen=seen)

    def _watched(
        self, trial: PlannedTrial, spec: TrialSpec, devices: Sequence[Device]
    ) -> tuple[Finished, tuple[DeviceSamples, ...], Readings]:
        """Launch, with the devices sampled from before the first process to after the last, and loader workers."""
        loader = LoaderMemory()

        def forked(pids: tuple[int, ...]) -> None:
            self.sampler.follow(pids)
            # a user's step may have workers of its own; where loaders are timed alone nothing looks at them
            if trial.block.kind == "training" and (trial.arm.cell["workers"] or is_step(spec.model)):
                loader.follow(pids)

        self.sampler.begin(self.watched(len(devices)))
        try:
            finished = self.launcher.run(
                spec, ranks=processes_of(trial.arm.cell.settings),
                wall_limit_seconds=wall_limit_seconds(trial, self.wall_limit_seconds),
                environment=self.workplace.variables(spec, devices),
                interrupts=self.interrupts, on_forked=forked,
            )  # fmt: skip
        finally:
            samples, held = self.sampler.end(), loader.end()
        return finished, samples, held


def _check_unchanged(trial: PlannedTrial) -> None:
    """See that the files of a trial that has ended are still those of the plan: no trial of others is stored.

    Raises:
        LaunchError: they are not, and no later trial of the plan would be right.
    """
    workload = trial.arm.cell.workload
    changed = change_problem(workload.model, workload.data, Path(workload.folder), workload.contents)
    if changed is not None:
        raise LaunchError(f"{changed}.")


def now() -> str:
    """ISO 8601, UTC: when a trial was asked for."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
