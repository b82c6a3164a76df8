"""Whether trials of a user's own step may be compared at all: same weights, same batches, and arms that differ.

Trials of such a step carry hashes of their first batch, of their first weights and of what a step did. Other trials
have none, and nothing here concerns them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import combinations

from harness.judgement.judged import ArmResult, BlockResult, Word
from harness.judgement.metrics import Metric
from harness.judgement.pairs import matched
from harness.judgement.parity import effective_batch, finite
from harness.judgement.same_training import BATCHES
from harness.judgement.site import Absent, Site
from harness.results.record import Record
from harness.trial.outcome import Outcome

BATCH, WEIGHTS, WORK = "first_batch_sha256", "first_weights_sha256", "work_sha256"
#: First losses of two trials of one seed further apart than this, relative: other numbers, not other rounding.
SAME_LOSS = 1e-3
#: Axes that must leave a mark on what a step does. Others (sizes, data loading) change how much or when.
LEAVE_A_MARK = frozenset({
    "precision", "attention", "checkpointing", "compile", "optimizer", "lora", "quantization", "pruning",
    "distillation", "clip", "zero", "parallel",
})  # fmt: skip


def doubt(site: Site, metric: Metric | None = None) -> Absent | None:
    """Why the arms of a user's step must not be compared; None where they may."""
    reason = _drawn_anew(site.block) or _no_number(site.baseline) or _ignored(site.arm, site.baseline)
    if not reason and metric is not None and metric.gated:
        reason = _diverged(site)
    return Absent(word=Word.INVALID, reason=reason) if reason else None


def _drawn_anew(block: BlockResult) -> str:
    """Baseline and control of a round have the same seed and the same settings: everything must be the same."""
    for one, other in _same_seed(block):
        for name, words in ((BATCH, "other data"), (BATCHES, "other data"), (WEIGHTS, "other first weights")):
            first, second = one.figures.get(name), other.figures.get(name)
            if None not in (first, second) and first != second:  # older trials have no hash of their warm-up
                return (
                    f"build gives {words} at each call: two trials of the same seed and settings (round {one.round}, "
                    f"{one.arm} and {other.arm}) began differently, so no difference between arms means anything; draw "
                    "from torch's, numpy's or Python's global random numbers, which are seeded before build, or from a "
                    "generator with a seed of its own"
                )
        if _apart(one, other):
            losses = f"{_shown(one.losses[0])} and {_shown(other.losses[0])}"
            return (
                f"two trials of the same seed and settings (round {one.round}, {one.arm} and {other.arm}) have first "
                f"losses {losses}: something draws numbers that nothing seeds"
            )
    return ""


def _no_number(baseline: ArmResult) -> str:
    """A baseline that trains nothing: every later loss is none either, and parity has nothing to compare with."""
    for trial in _ok(baseline.trials):
        if BATCH in trial.figures and trial.losses and not finite(trial.losses[0]):
            return (
                f"the loss is no number ({_shown(trial.losses[0])}) from step 1 on (round {trial.round}, {trial.arm}), "
                "so nothing is trained and no difference between arms means anything; look for a division by zero, a "
                "logarithm of none, or a fully masked row in what build returns"
            )
    return ""


def _diverged(site: Site) -> str:
    """No round is left in which the baseline trained to the end, so that parity has nothing to compare with."""
    broken, whole = broken_rounds(site)
    if not broken or len(broken) < whole:
        return ""
    number, step = broken[0]
    return (
        f"the loss of {site.baseline.name} becomes infinite or no number in every round (from step {step} on in round "
        f"{number}), so nothing says whether the arms trained the same; choose a smaller learning rate, or look for "
        "what overflows in what build returns"
    )


def broken_rounds(site: Site) -> tuple[list[tuple[int, int]], int]:
    """Rounds in which the loss of a user's step in the baseline became no number, each with the step from 1, and the
    number of all rounds that are compared."""
    pairs, _ = matched(site.arm.trials, site.baseline.trials)
    plain = [trial for _, trial in pairs if BATCH in trial.figures and trial.losses]
    firsts = [(each.round, next((n for n, loss in enumerate(each.losses, 1) if not finite(loss)), 0)) for each in plain]
    return [(number, step) for number, step in firsts if step], len(plain)


def _same_seed(block: BlockResult) -> Iterator[tuple[Record, Record]]:
    """Pairs of trials of a user's step that differ in nothing: same round, same cell."""
    rounds: dict[tuple[int, str], list[Record]] = {}
    for trial in _ok(trial for arm in block.arms for trial in arm.trials):
        if BATCH in trial.figures:
            rounds.setdefault((trial.round, trial.cell_key), []).append(trial)
    for trials in rounds.values():
        yield from combinations(trials, 2)


def _apart(one: Record, other: Record) -> bool:
    if not one.losses or not other.losses:
        return False
    first, second = one.losses[0], other.losses[0]
    if not finite(first) or not finite(second):
        return _shown(first) != _shown(second)
    return not math.isclose(first, second, rel_tol=SAME_LOSS, abs_tol=SAME_LOSS)


def _shown(loss: float | None) -> str:
    return "nan" if loss is None else f"{loss:.6g}"


def _ignored(arm: ArmResult, baseline: ArmResult) -> str:
    """Both arms did the very same work to the last digit of every loss."""
    changed = {axis for axis in arm.cell if arm.cell[axis] != baseline.cell.get(axis)}
    if not changed & LEAVE_A_MARK or effective_batch(arm.cell) != effective_batch(baseline.cell):
        return ""
    pairs, _ = matched(arm.trials, baseline.trials)
    marked = [(one, other) for one, other in pairs if WORK in one.figures and WORK in other.figures]
    if not marked or not all(_same_work(one, other) for one, other in marked):
        return ""
    return (
        f"{arm.name} and {baseline.name} did exactly the same: the same operators as often, and the same losses to the "
        "last digit in every round; the setting changes nothing here, because build ignores it or because both arms "
        "have it"
    )


def _same_work(one: Record, other: Record) -> bool:
    return one.figures[WORK] == other.figures[WORK] and one.losses == other.losses


def _ok(trials: Iterable[Record]) -> Iterator[Record]:
    return (trial for trial in trials if trial.outcome is Outcome.OK)
