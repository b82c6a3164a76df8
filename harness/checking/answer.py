"""The answer as data: the verdict, what the budget could resolve, parity, memory, and where the time went."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.checking.question import Question
from harness.checking.schedule import Schedule
from harness.judgement.claims import Claims
from harness.judgement.judged import ArmResult, BlockResult, Interval, Judgement, Verdict, stands_on
from harness.judgement.metrics import Statistic, metric_named
from harness.judgement.pairs import measure, ratios
from harness.judgement.stats import smallest_found, summarise
from harness.judgement.why import Why, why_of
from harness.results.record import Record
from harness.trial.outcome import Outcome

#: A difference counts as found when four runs of five like this one would find it.
CHANCE = 0.8


@dataclass(frozen=True, kw_only=True)
class Resolution:
    """What so many rounds can tell apart."""

    rounds: int
    spread: float
    """Standard deviation of one ln(cell ÷ baseline) between rounds, the control's taken in."""
    smallest_ratio: float
    """The smallest true ratio above 1 that is told from 1 four times in five."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Everything that is said about one sentence."""

    question: Question
    claims: Claims
    judgement: Judgement
    records: tuple[Record, ...]
    block: BlockResult | None
    """The one that the verdict stands on."""
    schedule: Schedule | None
    """None: the pilot's answer was final."""
    resolution: Resolution | None
    why: tuple[Why, ...]
    """Baseline first."""
    interrupted: bool = False
    postponed: int = 0
    """Rounds that no longer fitted."""
    seconds: float = 0.0
    budget_seconds: float = 0.0
    store: Path = Path()

    @property
    def verdict(self) -> Verdict:
        return self.judgement.verdicts[0]

    @property
    def window_seconds(self) -> float | None:
        """The shortest window of any trial that counts; None where there is none."""
        ok = [each for each in self.records if each.outcome is Outcome.OK and not each.superseded]
        return min((math.fsum(each.step_seconds) for each in ok if each.step_seconds), default=None)

    @property
    def busy(self) -> Interval | None:
        """Of what is timed, the part that no host changes: a step's time in which the device computes or copies, cell
        over baseline. None where no device was profiled, and for figures that are not timed."""
        claim, arms = self.claims.all()[0], self.arms
        if metric_named(claim.metric or "speedup").statistic is not Statistic.PAIRED or "cell" not in arms:
            return None
        found = measure(metric_named("busy_time_ratio"), arms["cell"], arms.get("baseline"), claim.view)
        return None if found is None else found.interval

    @property
    def arms(self) -> Mapping[str, ArmResult]:
        """By role: baseline, control, cell."""
        return {arm.role: arm for arm in self.block.arms} if self.block else {}


def answer_of(
    question: Question, claims: Claims, judgement: Judgement, records: Sequence[Record], *,
    schedule: Schedule | None = None, interrupted: bool = False, postponed: int = 0,
) -> Answer:  # fmt: skip
    """Put the answer together."""
    block = _block(judgement, question)
    arms = {arm.role: arm for arm in block.arms} if block else {}
    shown = [arms[role] for role in ("baseline", "cell") if role in arms]
    return Answer(
        question=question, claims=claims, judgement=judgement, records=tuple(records), block=block, schedule=schedule,
        resolution=_resolution(claims, arms) if schedule else None, interrupted=interrupted, postponed=postponed,
        why=tuple(why for arm in shown if (why := why_of(arm)) is not None),
    )  # fmt: skip


def _block(judgement: Judgement, question: Question) -> BlockResult | None:
    own = [block for block in judgement.blocks if stands_on(judgement.verdicts[0], block)]
    here = [block for block in judgement.blocks if block.sweep == dict(question.points[0])]
    return next(iter([*own, *here, *judgement.blocks]), None)


def _resolution(claims: Claims, arms: Mapping[str, ArmResult]) -> Resolution | None:
    """From the spread seen; None for figures that have none, and where there are too few rounds."""
    claim = claims.all()[0]
    metric = metric_named(claim.metric or "speedup")
    if metric.statistic is not Statistic.PAIRED or "baseline" not in arms or "cell" not in arms:
        return None
    logs = []
    for role in ("cell", "control"):
        found = ratios(metric, arms[role], arms["baseline"], claim.view)[0] if role in arms else {}
        if len(found) > 1:
            logs.append(summarise([math.log(ratio) for ratio in found.values()]))
    if not logs:
        return None
    # both differ from the baseline by the same kind of chance: pooled, weighted by what each knows
    freedom = sum(each.count - 1 for each in logs)
    spread = math.sqrt(sum((each.count - 1) * each.deviation**2 for each in logs) / freedom)
    rounds = logs[0].count
    return Resolution(rounds=rounds, spread=spread, smallest_ratio=smallest_found(spread, rounds, chance=CHANCE))
