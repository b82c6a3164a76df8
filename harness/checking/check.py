"""Pilot, rounds, verdict: from a question to its answer."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
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
from harness.results.events import Event, OnEvent, RunPlanned, Summary, TrialFinished, TrialStarted
from harness.results.record import Record
from harness.results.rounds import rounds_of
from harness.results.store import Store
from harness.trial.launch import LocalLauncher
from harness.trial.nvml import meters

#: Words after which more rounds would change nothing: the pilot's answer is the answer.
HOPELESS = frozenset({Word.INVALID, Word.NOT_TESTABLE, Word.NOT_COMPARABLE, Word.NOT_RUN})

#: Why there is no verdict after Ctrl-C.
STOPPED_IN_PILOT = "it was stopped in the pilot, before a round that counts; given again, the command begins anew"
STOPPED_IN_FIRST = "it was stopped before a first round was whole; given again, the command goes on"

#: Before the rounds of each block that a check fixed, in the second line of the text of its run.
FIXED = "# rounds, fixed after the pilot: "


def check(
    question: Question, store: Path, environment: Environment, *, budget_seconds: float, rounds: int | None = None,
    wall_limit_seconds: float | None = None, launcher: LocalLauncher | None = None,
    on_event: OnEvent = lambda event: None, arguments: Sequence[str] = (), version: str = "",
) -> Answer:  # fmt: skip
    """Run the pilot and as many rounds as fit, and judge.

    Args:
        question: as `question.ask` gives it.
        store: keeps the trials; what it holds of the same question already is not run again.
        budget_seconds: for everything, but that the pilot runs whatever it is, and one round where three were to fit.
        rounds: as many, whatever the budget; of an earlier check that has more, those.
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
        run = _Check(
            question=question, claims=question.claims(environment), store=kept, launcher=starter,
            environment=environment, options=how, on_event=on_event, deadline=began + budget_seconds, rounds=rounds,
            arguments=arguments, version=version,
        )  # fmt: skip
        answer = run.answer(pilot_plan)
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
    deadline: float
    """On the clock of `time.monotonic`."""
    rounds: int | None
    arguments: Sequence[str]
    version: str

    def answer(self, pilot_plan: Plan) -> Answer:
        """What earlier checks stored, with what they left to do; else the pilot's answer where it is final, else that
        of the rounds."""
        known = self._stored()
        if known is not None:
            return self._rounds(known)
        pilot, summary = self._pilot(pilot_plan)
        judged = judge(pilot, self.claims)
        if summary.interrupted and judged.verdicts[0].word not in HOPELESS - {Word.NOT_RUN}:
            return self._from_pilot(pilot, _not_run(judged, STOPPED_IN_PILOT), interrupted=True)
        if summary.interrupted or judged.verdicts[0].word in HOPELESS:
            return self._from_pilot(pilot, judged, interrupted=summary.interrupted)
        left = self._left()
        times = pilot_times(pilot)
        fits = schedule(self.question, times, seconds=left, gpu=self.environment.has_gpu, rounds=self.rounds)
        if isinstance(fits, TooShort):
            return self._from_pilot(pilot, _not_run(judged, _too_short(fits, left)))
        return self._rounds(fits)

    def _left(self) -> float:
        return self.deadline - time.monotonic()

    def _pilot(self, plan: Plan) -> tuple[list[Record], Summary]:
        """Its records, kept apart from the store: they are no part of the answer unless they are all of it."""
        path = self.store.path.with_name(f".{self.store.path.name}.pilot")
        path.unlink(missing_ok=True)
        try:
            with Store.open(path, writable=True) as apart:
                summary = fill(
                    apart, plan, self.launcher, self.environment, options=self.options, on_event=self._within_budget
                )
                return [replace(each) for each in apart.records()], summary
        finally:
            for left in path.parent.glob(f"{path.name}*"):
                left.unlink(missing_ok=True)

    def _within_budget(self, event: Event) -> None:
        """The pilot's guess of the time left may be far beyond the budget, after which nothing begins any more."""
        left = self._left()
        if isinstance(event, RunPlanned | TrialStarted | TrialFinished) and left > 0:
            event = replace(event, seconds_left=min(event.seconds_left, left))
        self.on_event(event)

    def _from_pilot(self, pilot: list[Record], judged: Judgement, *, interrupted: bool = False) -> Answer:
        with self._noted():
            self.store.add_all(pilot)
        return answer_of(self.question, self.claims, judged, pilot, interrupted=interrupted)

    def _rounds(self, fits: Schedule) -> Answer:
        """Run what the store lacks of a schedule, and judge. Rounds that were asked for by number have no limit."""
        plan = self.question.only(fits.points).plan(self.environment, fits.size)
        if fits.stored == fits.size.rounds * fits.points:
            return self._judged(plan, fits)
        budget = None if self.rounds else max(self._left(), fits.round_seconds)
        trials = sum(trial.round == 1 for trial in plan.trials)
        with self._noted(plan):
            summary = fill(
                self.store, plan, self.launcher, self.environment, on_event=self.on_event,
                options=replace(
                    self.options, time_budget_seconds=budget, keep_caches=False,
                    first_guess_seconds=fits.round_seconds / trials or None,
                ),
            )  # fmt: skip
        answer = self._judged(plan, fits)
        if summary.interrupted and answer.verdict.word is Word.NOT_RUN:
            answer = replace(answer, judgement=_not_run(answer.judgement, STOPPED_IN_FIRST))
        return replace(answer, interrupted=summary.interrupted, postponed=summary.rounds_postponed)

    def _judged(self, plan: Plan, fits: Schedule) -> Answer:
        keys = {trial.block.key for trial in plan.trials}
        records = [record for record in self.store.records() if record.block in keys]
        return answer_of(self.question, self.claims, judge(records, self.claims), records, schedule=fits)

    @contextmanager
    def _noted(self, plan: Plan | None = None) -> Iterator[None]:
        """A run of the store, with the number of rounds that was fixed before them: a check that is cut short goes on
        to that number, and not to one at which its rounds look good."""
        blocks = {trial.block.key: trial.block.rounds for trial in plan.trials} if plan else {}
        number = self.store.begin_run(
            arguments=self.arguments, matrix_hash=self.question.hash, version=self.version,
            matrix_text=f"# {self.question.sentence}\n{FIXED}{json.dumps(blocks)}\n{self.question.source}",
        )  # fmt: skip
        yield
        self.store.finish_run(number)

    def _stored(self) -> Schedule | None:
        """What an earlier check of the same arms fixed, where a round of it is there; of several the one with most."""
        found = []
        records = [record for record in self.store.records() if record.study == self.question.study]
        for warmup, steps in {(record.warmup_steps, record.steps) for record in records}:
            size = Size(warmup_steps=warmup, steps=steps, rounds=self.rounds or FEWEST_ROUNDS)
            keys = {trial.block.key for trial in self.question.plan(self.environment, size).trials}
            begun = [record.round for record in records if record.block in keys]
            fixed = [_fixed(run.matrix_text, key) for run in self.store.runs() for key in keys]
            size = replace(size, rounds=max([size.rounds, *begun, *fixed]))
            plan = self.question.plan(self.environment, size)
            there = sum(each.is_stored(self.store, ()) for each in rounds_of(plan, self.environment))
            if there:
                found.append(Schedule(size=size, points=len(self.question.points), stored=there))
        return max(found, key=lambda each: (each.stored, each.size.steps), default=None)


def _fixed(text: str, block: str) -> int:
    """How many rounds of a block the check with this text fixed (`_Check._noted`); 0: none."""
    line = next(iter(text.split("\n", 2)[1:2]), "")
    if not line.startswith(FIXED):
        return 0
    try:
        blocks = json.loads(line.removeprefix(FIXED))
    except ValueError:
        return 0
    rounds = blocks.get(block) if isinstance(blocks, dict) else None
    return rounds if isinstance(rounds, int) else 0


def _too_short(fits: TooShort, left: float) -> str:
    return (
        f"three rounds need about {fits.needed_seconds:.0f} s and {max(left, 0):.0f} s of the budget were left after "
        f"the pilot; raise --budget, or make the step smaller"
    )


def _not_run(judged: Judgement, reason: str) -> Judgement:
    """Without a verdict, whatever the few trials seem to say."""
    verdict: Verdict = replace(
        judged.verdicts[0], word=Word.NOT_RUN, reason=reason, helped="", measured="", value=None, interval=None
    )
    return replace(judged, verdicts=(verdict,))
