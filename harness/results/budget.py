"""How long trials will take: from what the same cells took before, else from a first guess that learns."""

from __future__ import annotations

from collections.abc import Iterable

from harness.experiment.cell import Cell
from harness.experiment.study import PlannedTrial
from harness.results.record import Record

#: First guesses, seconds a trial: from the request for a process to its end. Means of the default matrix: 6.3 s over
#: 374 trials on an H100 and an H200, 1.2 s over 383 on two CPU cores in the smoke scale.
_GPU_SECONDS = 6.5
_CPU_SECONDS = 1.5
#: What the first trial of a compiled cell pays on top (H100: 30-40 s, max-autotune 418; two cores: 53 s).
_COLD_COMPILE_SECONDS = {"off": 0.0, "max-autotune": 420.0}
_COLD_COMPILE_OTHER_SECONDS = 50.0
#: Later trials read the cell's cache.
_WARM_COMPILE_SECONDS = 7.0

#: Wall limits, seconds. The allowance for compiling stands in every round: a cache may have been cleared in between.
WALL_LIMIT_SECONDS = 120.0
_COMPILE_ALLOWANCE_SECONDS = {"off": 0.0, "max-autotune": 600.0}
_COMPILE_ALLOWANCE_OTHER_SECONDS = 300.0


def wall_limit_seconds(trial: PlannedTrial, override: float | None = None) -> float:
    """After how long a trial is killed: what the user says, what its study says, else a generous default."""
    if override is not None:
        return override
    stated = trial.block.options.get("wall_limit_seconds")
    if isinstance(stated, int | float) and not isinstance(stated, bool):
        return float(stated)
    mode = str(trial.arm.cell.settings.get("compile", "off"))
    return WALL_LIMIT_SECONDS + _COMPILE_ALLOWANCE_SECONDS.get(mode, _COMPILE_ALLOWANCE_OTHER_SECONDS)


class Estimates:
    """Expected wall time of trials. Learns from every record it is shown.

    `first_guess_seconds`: of a trial whose cell was never timed, from who knows better than the means above.
    """

    def __init__(self, *, gpu: bool, seen: Iterable[Record] = (), first_guess_seconds: float | None = None) -> None:
        self._first_guess_seconds = first_guess_seconds
        self._base_seconds = _GPU_SECONDS if gpu else _CPU_SECONDS
        self._latest: dict[tuple[str, str, int], float] = {}
        """(study, cell, steps) → seconds."""
        self._measured_seconds = 0.0
        self._guessed_seconds = 0.0
        for record in seen:
            self._keep(record)

    def seconds(self, trial: PlannedTrial) -> float:
        """Of one trial; 0 for one that is refused. The latest trial of the same cell counts, else a scaled guess."""
        if trial.refusal is not None:
            return 0.0
        known = self._latest.get(_key(trial))
        return known if known is not None else self._guess(trial.arm.cell, cold=True) * self._scale

    def knows(self, trial: PlannedTrial) -> bool:
        """Whether a trial of the same cell was timed before."""
        return _key(trial) in self._latest

    def learn(self, trial: PlannedTrial, record: Record) -> None:
        """Take in a trial that has just ended."""
        if trial.refusal is None and record.wall_seconds is not None:
            cold = _key(trial) not in self._latest
            self._guessed_seconds += self._guess(trial.arm.cell, cold=cold)
            self._measured_seconds += record.wall_seconds
            self._keep(record)

    @property
    def _scale(self) -> float:
        """How far the guesses have been off: measured over guessed, all trials so far together."""
        return self._measured_seconds / self._guessed_seconds if self._guessed_seconds else 1.0

    def _keep(self, record: Record) -> None:
        if record.wall_seconds is not None:
            # a cold compile is not paid again
            seconds = max(1.0, record.wall_seconds - (record.compile_seconds or 0.0))
            warm = _WARM_COMPILE_SECONDS if record.compile_seconds else 0.0
            self._latest[record.study, record.cell_key, record.steps] = min(record.wall_seconds, seconds + warm)

    def _guess(self, cell: Cell, *, cold: bool) -> float:
        if self._first_guess_seconds is not None:
            return self._first_guess_seconds
        mode = str(cell.settings.get("compile", "off"))
        if mode == "off":
            return self._base_seconds
        compiling = _COLD_COMPILE_SECONDS.get(mode, _COLD_COMPILE_OTHER_SECONDS) if cold else _WARM_COMPILE_SECONDS
        return self._base_seconds + compiling


def _key(trial: PlannedTrial) -> tuple[str, str, int]:
    # not the block's key, which is worked out anew each time: the time left is summed over all trials at each event
    return (trial.block.study, trial.arm.cell.key, trial.block.steps)
