"""What judging gives: plain data that the report and `--json` show, made by `judgement.judge`."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from harness.experiment.axes import Setting
from harness.results.record import Record


class Word(StrEnum):
    """The verdicts."""

    CONFIRMED = "confirmed"
    REFUTED_BELOW = "refuted, below"
    REFUTED_ABOVE = "refuted, above"
    """Better than claimed, where more is better."""
    INCONCLUSIVE = "inconclusive"
    REACHED = "reached"
    NOT_REACHED = "not reached here"
    EXTRAPOLATED = "extrapolated"
    REPORTED = "reported"
    """A statement without a range: what was measured stands beside it."""
    FAST_BUT_DIFFERENT = "fast but different"
    INVALID = "invalid"
    NOT_COMPARABLE = "not comparable"
    NOT_TESTABLE = "not testable here"
    NOT_RUN = "not run"


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A ratio (or share) with its 95% interval. `low` and `high` are None where the rules give no interval (memory)."""

    value: float
    low: float | None = None
    high: float | None = None
    rounds: int = 0
    """Pairs that went into it."""
    dropped: int = 0
    """Pairs dropped because an arm failed."""
    observed: tuple[float, ...] = ()
    """One value a round, in order of rounds."""
    reference: tuple[float, float] | None = None
    """Of memory: between which values the baseline's own trials lie, its largest being "no difference"; anywhere, where
    an arm ran out of it."""


@dataclass(frozen=True, kw_only=True)
class Parity:
    """Whether the cell trained the same thing."""

    word: str
    """`holds`, `fails`, `not applicable: unequal work`, `not checked: …`."""
    holds: bool | None
    loss_gap: float | None = None
    """Mean distance of the loss curves of a round, nats: the median of the rounds; where all must agree the largest,
    but for one round in ten where the baseline does not repeat itself to the last bit."""
    worst_gap: float | None = None
    """That of the round with the largest, nats."""
    strayed: int = 0
    """Rounds beyond the margin although the one that is judged is not."""
    judged: str = ""
    """Of which rounds `loss_gap` speaks, in words, for where others strayed."""
    rounds: int = 0
    """Rounds whose losses were compared."""
    margin: float | None = None
    gradient_error: float | None = None
    eager_error: float | None = None
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class ArmResult:
    """One cell of a block over all its rounds."""

    name: str
    role: str
    cell: dict[str, Setting]
    cell_key: str
    outcomes: dict[str, int]
    """Outcome → number of trials."""
    reason: str
    """Why the trials that failed did, in one sentence; empty when all are ok."""
    tokens_per_second: float | None
    """Geometric mean over rounds."""
    spread: float | None
    """Standard deviation of ln(tokens/s) between rounds."""
    noise: str
    """`` | `noisy` | `unstable`."""
    speedup: Interval | None
    """Against the block's baseline; None for the baseline."""
    memory: dict[str, tuple[float, float]]
    """View (allocated, reserved, device, host) → (maximum over trials, range), bytes."""
    memory_ratio: dict[str, float]
    """View → maximum of this arm ÷ maximum of the baseline."""
    mfu: float | None
    hfu: float | None
    phases: dict[str, float]
    parity: Parity
    evidence: str
    """In a word."""
    flags: tuple[str, ...] = ()
    """Validity warnings in words."""
    trials: tuple[Record, ...] = ()


@dataclass(frozen=True, kw_only=True)
class BlockResult:
    """A study at one sweep point on one device and fingerprint."""

    study: str
    block: str
    kind: str
    workload: str
    model: str
    sweep: dict[str, Setting]
    scale: str
    device: str
    fingerprint: str
    arms: tuple[ArmResult, ...]
    noise_floor: Interval | None
    """The A/A control's ratio."""
    suspect: bool
    """The control's interval excludes 1 after Holm's correction over all controls of the run."""
    rounds: int
    warnings: tuple[str, ...] = ()
    asked_rounds: int = 0
    """That the claims' matrix asks for; 0 where it is not known."""
    another: str = ""
    """Why no claim may be judged on it: it is of another matrix' study of that name (`asked`). Empty where it is of the
    claims' own, or they name no matrix."""

    @property
    def baseline(self) -> ArmResult | None:
        return self._of_role("baseline")

    @property
    def control(self) -> ArmResult | None:
        """The baseline under a second name (A/A)."""
        return self._of_role("control")

    def _of_role(self, role: str) -> ArmResult | None:
        return next((arm for arm in self.arms if arm.role == role), None)

    @property
    def control_differs(self) -> bool:
        """The control's interval excludes 1 by itself, without a correction: by chance 1 of 20 does."""
        floor = self.noise_floor
        return bool(floor and floor.low is not None and floor.high is not None and not floor.low <= 1 <= floor.high)

    @property
    def control_strays(self) -> str:
        """Why the control fails parity; empty where it does not, or there is none."""
        return self.control.parity.reason if self.control and self.control.parity.holds is False else ""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the measurements say of one claim."""

    claim: str
    word: Word
    reason: str
    """One sentence that explains the word."""
    helped: str
    """Whether the technique improved the metric at all: `yes`, `no` or `not shown`; where figures of several metrics
    or cells stand beside each other and differ, each by name (`model state: yes; speed: no`). Empty where nothing was
    measured, and where the metric has no "no difference": levels and facts."""
    claimed: str
    """The claim in words: `1.5x to 2x faster`."""
    measured: str
    """`1.48x [1.46, 1.50]`, or empty."""
    value: float | None = None
    interval: tuple[float, float] | None = None
    rounds: int = 0
    rounds_needed: int | None = None
    """For an inconclusive verdict: rounds that would settle it at the spread seen with a chance of 80%, None when none
    would."""
    scope: str = ""
    """`holds at 3, fails at 2 of 5 points`, with those at which it holds."""
    metric: str = ""
    low: float | None = None
    high: float | None = None
    """The claimed range on the metric."""
    study: str = ""
    block: str = ""
    fingerprint: str = ""
    """Of the trials in that block that count: a study may have been run under several."""
    device: str = ""
    """Of the trials that were looked at; empty where there are none."""
    arm: str = ""
    sweep: dict[str, Setting] = field(default_factory=dict)
    other_baseline: str = ""
    """The same metric against the obvious other baseline, in words."""
    details: dict[str, Any] = field(default_factory=dict)
    """Anything the claim's page shows beyond this: an order, a fit, predictions, the points of a sweep."""


def stands_on(verdict: Verdict, block: BlockResult) -> bool:
    """Whether this is the block that was judged: its key, under one fingerprint, on one device."""
    return (block.block, block.fingerprint, block.device) == (verdict.block, verdict.fingerprint, verdict.device)


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """All of it."""

    verdicts: tuple[Verdict, ...]
    blocks: tuple[BlockResult, ...]
    excluded: tuple[Record, ...]
    """Trials that no figure stands on: failed, invalid, superseded."""
