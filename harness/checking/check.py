"""Pilot, rounds, verdict: from a question to its answer."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from harness.checking.answer import Answer, answer_of
from harness.checking.question import Question, Size
from harness.checking.schedule import PILOT, Schedule, TooShort, pilot_times, schedule
from harness.environment import Environment
from harness.experiment.study import FEWEST_ROUNDS, Plan
from harness.judgement.claims import Claims
from harness.judgement.judge import judge
from harness.judgement.judged import Judgement, Verdict, Word
from harness.results.collect import Options, fill, local_launcher
from harness.results.events import OnEvent, Summary
from harness.results.record import Record
from harness.results.rounds import rounds_of
from harness.results.store import Store
from harness.trial.launch import LocalLauncher
from harness.trial.nvml import meters

#: Words after which more rounds would change nothing: the pilot's answer is the answer.
HOPELESS = frozenset({Word.INVALID, Word.NOT_TESTABLE, Word.NOT_COMPARABLE, Word.NOT_RUN})


def check(
    question: Question, store: Path, environment: Environment, *, budget_seconds: float, rounds: int | None = None,
    wall_limit_seconds: float | None = None, launcher: LocalLauncher | None = None,
    on_event: OnEvent = lambda event: None, arguments: Sequence[str] = (), version: str = "",
) -> Answer:  # fmt: skip
    """Run the pilot and as many rounds as fit, and judge.

    Args:
        question: as `question.ask` gives it.
        store: keeps the trials; what it holds of the same question already is not run again.
        budget_seconds: for everything, the pilot included.
        rounds: as many, whatever the budget.
        launcher: used and left open, where several checks follow each other; None: one of its own.

    Raises:
        LaunchError: no trial process can be started.
        StoreError: the store cannot be written, or another run holds it.
    """
    began = time.monotonic()
    how = Options(wall_limit_seconds=wall_limit_seconds, meters=meters(each.uuid for each in environment.devices),
                  keep_caches=True)  # fmt: skip
    pilot_plan = question.plan(environment, PILOT, pilot=True)
    starts = nullcontext(launcher) if launcher is not None else local_launcher(pilot_plan, environment)
    with Store.open(store, writable=True) as kept, starts as starter:
        number = kept.begin_run(
            arguments=arguments, matrix_hash=question.hash, version=version,
            matrix_text=f"# {question.sentence}\n{question.source}",
        )  # fmt: skip
        run = _Check(
            question=question, claims=question.claims(environment), store=kept, launcher=starter,
            environment=environment, options=how, on_event=on_event,
        )  # fmt: skip
        answer = run.answer(pilot_plan, began + budget_seconds, rounds)
        kept.finish_run(number)
    return replace(answer, seconds=time.monotonic() - began, budget_seconds=budget_seconds, store=store)


@dataclass(frozen=True, kw_only=True)
class _Check:
    """One call of `check`."""

    question: Question
    claims: Claims
    store: Store
    launcher: LocalLauncher
    environment: Environment
    options: Options
    on_event: OnEvent

    def answer(self, pilot_plan: Plan, deadline: float, rounds: int | None) -> Answer:
        """What the store knows already, else the pilot's answer where it is final, else that of the rounds."""
        known = self._stored(rounds)
        if known is not None:
            return self._judged(self.question.plan(self.environment, known.size), known)
        pilot, summary = self._pilot(pilot_plan)
        judged = judge(pilot, self.claims)
        if summary.interrupted or judged.verdicts[0].word in HOPELESS:
            self.store.add_all(pilot)
            return answer_of(self.question, self.claims, judged, pilot, interrupted=summary.interrupted)
        left = deadline - time.monotonic()
        fits = schedule(self.question, pilot_times(pilot), seconds=left, gpu=self.environment.has_gpu, rounds=rounds)
        if isinstance(fits, TooShort):
            self.store.add_all(pilot)
            return answer_of(self.question, self.claims, _not_run(judged, fits, left), pilot)
        return self._rounds(fits, left)

    def _pilot(self, plan: Plan) -> tuple[list[Record], Summary]:
        """Its records, kept apart from the store: they are no part of the answer unless they are all of it."""
        path = self.store.path.with_name(f".{self.store.path.name}.pilot")
        path.unlink(missing_ok=True)
        try:
            with Store.open(path, writable=True) as apart:
                summary = fill(
                    apart, plan, self.launcher, self.environment, options=self.options, on_event=self.on_event
                )
                return [replace(each) for each in apart.records()], summary
        finally:
            for left in path.parent.glob(f"{path.name}*"):
                left.unlink(missing_ok=True)

    def _rounds(self, fits: Schedule, left: float) -> Answer:
        plan = self.question.only(fits.points).plan(self.environment, fits.size)
        summary = fill(
            self.store, plan, self.launcher, self.environment, on_event=self.on_event,
            options=replace(self.options, time_budget_seconds=max(left, fits.round_seconds), keep_caches=False),
        )  # fmt: skip
        answer = self._judged(plan, fits)
        return replace(answer, interrupted=summary.interrupted, postponed=summary.rounds_postponed)

    def _judged(self, plan: Plan, fits: Schedule) -> Answer:
        keys = {trial.block.key for trial in plan.trials}
        records = [record for record in self.store.records() if record.block in keys]
        return answer_of(self.question, self.claims, judge(records, self.claims), records, schedule=fits)

    def _stored(self, rounds: int | None) -> Schedule | None:
        """The schedule of an earlier check of the same arms, all of whose rounds are there; the longest of several."""
        found = []
        own = [record for record in self.store.records() if record.study == self.question.study]
        for warmup, steps in {(record.warmup_steps, record.steps) for record in own}:
            most = max(record.round for record in own if (record.warmup_steps, record.steps) == (warmup, steps))
            size = Size(warmup_steps=warmup, steps=steps, rounds=max(most, rounds or FEWEST_ROUNDS))
            plan = self.question.plan(self.environment, size)
            if all(each.is_stored(self.store, ()) for each in rounds_of(plan, self.environment)):
                found.append(Schedule(size=size, points=len(self.question.points), round_seconds=0.0))
        return max(found, key=lambda each: (each.size.rounds, each.size.steps), default=None)


def _not_run(judged: Judgement, fits: TooShort, left: float) -> Judgement:
    """The budget is too short for three rounds, and says so."""
    reason = (
        f"three rounds need about {fits.needed_seconds:.0f} s and {max(left, 0):.0f} s of the budget were left after "
        f"the pilot; raise --budget, or make the step smaller"
    )
    verdict: Verdict = replace(
        judged.verdicts[0], word=Word.NOT_RUN, reason=reason, helped="", measured="", value=None, interval=None
    )
    return replace(judged, verdicts=(verdict,))
