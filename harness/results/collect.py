"""Run what the store lacks of a plan.

    with local_launcher(plan, environment) as launcher:
        summary = fill(store, plan, launcher, environment, on_event=show)

Rounds are the unit: a round whose arms all have their result is left alone, any other is run again whole, its earlier
trials kept and marked superseded. Each trial is on the disk before the next begins, so that a run can be killed at any
moment and another one goes on.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from harness.environment import Environment
from harness.experiment.study import Plan, PlannedTrial
from harness.results.budget import Estimates
from harness.results.events import (
    Event,
    OnEvent,
    RoundPostponed,
    RunPlanned,
    StopRequested,
    Summary,
    TrialFinished,
    TrialStarted,
)
from harness.results.rounds import Round, rounds_of
from harness.results.store import Store
from harness.results.tries import Tries
from harness.results.workplace import Workplace
from harness.trial import preload
from harness.trial.interrupts import Interrupts
from harness.trial.launch import Launcher, LocalLauncher
from harness.trial.nvml import Meter
from harness.trial.outcome import Outcome
from harness.trial.sampler import Sampler


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a plan is to be carried out."""

    time_budget_seconds: float | None = None
    """Only rounds that are expected to end within it are begun."""
    wall_limit_seconds: float | None = None
    """For every trial; None: see `results.budget`."""
    retry: frozenset[Outcome] = frozenset()
    """Stored outcomes (crash, timeout) that do not count as results."""
    retries: int = 0
    """Tries again, at once, after a crash or a timeout."""
    meters: Sequence[Meter] = ()
    """One a device, in the order of `Environment.devices` (`trial.nvml.meters`); none: the devices are not watched."""


def fill(
    store: Store, plan: Plan, launcher: Launcher, environment: Environment, *, options: Options | None = None,
    on_event: OnEvent = lambda event: None,
) -> Summary:  # fmt: skip
    """Run every round of `plan` that `store` lacks; study by study, as far as the time budget goes.

    Trials run on `environment.devices`, on the CPU where there are none. SIGINT once ends the run after the trial that
    runs; SIGINT twice, or SIGTERM, ends both at once, and the trial is recorded as interrupted. No process of a trial
    outlives the call.

    Raises:
        WorkloadError: data that cannot be prepared; nothing was launched.
        LaunchError: no trial process can be started.
        StoreError: a record could not be written; those before it are kept.
    """
    options = options or Options()
    workplace = Workplace.beside(store.path)
    with Interrupts() as interrupts:
        tries = Tries(
            launcher=launcher, workplace=workplace, sampler=Sampler(options.meters), interrupts=interrupts,
            retries=options.retries, wall_limit_seconds=options.wall_limit_seconds,
        )  # fmt: skip
        rounds = list(rounds_of(plan, environment))
        todo = [each for each in rounds if not each.is_stored(store, options.retry)]
        run = _Run(
            store=store, todo=todo, tries=tries, options=options, on_event=on_event,
            estimates=Estimates(gpu=environment.has_gpu, seen=store.records()),
            summary=Summary(planned=len(plan.trials), stored_before=len(plan.trials) - _count(todo)),
        )  # fmt: skip
        interrupts.on_soft = run.announce_stop
        run.carry_out()
    if run.summary.left == 0:
        workplace.clear_caches()
    return run.summary


def local_launcher(plan: Plan, environment: Environment, *, isolation: str = "zygote") -> LocalLauncher:
    """A launcher on this machine whose zygote has imported what the cells of `plan` use. Close it, or use `with`."""
    settings = [trial.arm.cell.settings for trial in plan.trials if trial.refusal is None]
    return LocalLauncher(gpu=environment.has_gpu, isolation=isolation, modules=preload.modules_for(settings))


@dataclass(kw_only=True)
class _Run:
    """The rounds that one call of `fill` runs, and what it has done so far."""

    store: Store
    todo: Sequence[Round]
    tries: Tries
    options: Options
    on_event: OnEvent
    estimates: Estimates
    summary: Summary
    began: float = field(default_factory=time.monotonic)
    running: PlannedTrial | None = None

    def carry_out(self) -> None:
        """All rounds that fit, or those up to where the user stops it."""
        seconds = self._seconds_of(self.todo)
        self._tell(RunPlanned(trials=self.summary.planned, stored=self.summary.stored_before, seconds_left=seconds))
        self.tries.workplace.prepare_data(trial for each in self.todo for trial in each.trials)
        for index, each in enumerate(self.todo):
            if not self._stopping and self._fits(each):
                self._run_round(each, seconds_later=self._seconds_of(self.todo[index + 1 :]))
        self.summary.interrupted = self._stopping and self.summary.left > 0
        self.summary.wall_seconds = time.monotonic() - self.began

    def announce_stop(self) -> None:
        """The first Ctrl-C."""
        self._tell(StopRequested(trial=self.running))

    @property
    def _stopping(self) -> bool:
        return self.tries.interrupts.soft

    def _fits(self, each: Round) -> bool:
        if self.options.time_budget_seconds is None:
            return True
        needed = self._seconds_of([each])
        left = self.options.time_budget_seconds - (time.monotonic() - self.began)
        if needed > left:
            self.summary.rounds_postponed += 1
            self._tell(
                RoundPostponed(
                    study=each.block.study, round=each.number, needed_seconds=needed, left_seconds=max(0.0, left)
                )
            )
        return needed <= left

    def _run_round(self, each: Round, *, seconds_later: float) -> None:
        each.supersede(self.store)
        for position, trial in enumerate(each.trials):
            if self._stopping:
                return
            rest = each.trials[position + 1 :]
            self._run_trial(trial, each, seconds_later + sum(map(self.estimates.seconds, rest)))

    def _run_trial(self, trial: PlannedTrial, its_round: Round, seconds_later: float) -> None:
        self.running = trial
        trials = self.summary.planned

        def started(attempt: int) -> None:
            self.summary.launched += 1
            seconds = self.estimates.seconds(trial) + seconds_later
            self._tell(TrialStarted(trial=trial, done=self._done, trials=trials, attempt=attempt, seconds_left=seconds))

        attempt = self.store.next_attempt(
            its_round.key, trial.arm.name, trial.round, its_round.circumstances.fingerprint
        )
        record = self.tries.record(trial, its_round, attempt=attempt, on_start=started)
        self.store.add(record)
        self.tries.workplace.tidy(trial, record)
        self.estimates.learn(trial, record)
        self.summary.outcomes[record.outcome] += 1
        self.running = None
        self._tell(
            TrialFinished(trial=trial, record=record, done=self._done, trials=trials, seconds_left=seconds_later)
        )

    @property
    def _done(self) -> int:
        return self.summary.planned - self.summary.left

    def _seconds_of(self, rounds: Sequence[Round]) -> float:
        return sum(self.estimates.seconds(trial) for each in rounds for trial in each.trials)

    def _tell(self, event: Event) -> None:
        self.on_event(event)


def _count(rounds: Sequence[Round]) -> int:
    return sum(len(each.trials) for each in rounds)
