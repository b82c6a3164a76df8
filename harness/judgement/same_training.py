"""Whether the two arms that are compared trained the same: each arm against its block's baseline, and a claim's cell
against the claim's own baseline where it names one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from harness.experiment.axes import Setting
from harness.judgement.judged import Parity
from harness.judgement.pairs import computed, matched
from harness.judgement.parity import Demand, LossPairs, all_finite, demand_of, judge_parity, seed_gap
from harness.judgement.site import Site
from harness.results.record import Record
from harness.trial.outcome import Outcome

#: Figures: a hash of the batches of the warm-up of a user's step, and whether a loss draws random numbers.
BATCHES, DRAWS = "warmup_batches_sha256", "draws"


def parity_at(site: Site) -> Parity:
    """Of the cell with the arm that it is compared with.

    That arm must itself have trained what the block's baseline did, as far as that can be asked of it: two arms that
    go wrong alike agree with each other.
    """
    if site.arm is site.baseline or site.baseline.role == "baseline":
        return site.arm.parity
    if site.baseline.parity.holds is False:
        reason = f"of {site.baseline.name}, which it is compared with: {site.baseline.parity.reason}"
        return replace(site.baseline.parity, reason=reason)
    control, plain = (arm.trials if arm else () for arm in (site.block.control, site.block.baseline))
    alone = replace(of_the_baseline(site.baseline.trials, ()), control=loss_curves(control, plain))
    return parity_with(site.arm.trials, site.arm.cell, site.baseline.trials, site.baseline.cell, alone)


def of_the_baseline(baseline: Sequence[Record], control: Sequence[Record]) -> LossPairs:
    """What the losses of a baseline do by themselves: from seed to seed, and when it is run twice."""
    curves = {
        trial.seed: trial.losses for trial in baseline if trial.outcome is Outcome.OK and all_finite(trial.losses)
    }
    # a round that several machines ran has one seed, and the same losses on each of them
    return LossPairs(pairs=(), control=loss_curves(control, baseline), seed_gap=seed_gap([*curves.values()]))


def parity_with(trials: Sequence[Record], cell: Mapping[str, Setting], other: Sequence[Record],
                baseline: Mapping[str, Setting], alone: LossPairs) -> Parity:  # fmt: skip
    """Of an arm's trials with those of the arm that it is compared with.

    Args:
        trials, cell: of the arm, all of its trials and its settings.
        other, baseline: of the arm that it is compared with.
        alone: what the losses of that one do by themselves.
    """
    kind = trials[0].kind
    if kind != "training":
        return Parity(word="not applicable: no training", holds=None, reason=f"{kind} trains no model")
    good = [trial for trial in trials if trial.outcome is Outcome.OK]
    if not good:
        return Parity(word="not checked: no trial is ok", holds=None)
    chance = _chance(good, other, cell, baseline)
    return judge_parity(cell, baseline, computed(trials), replace(alone, pairs=loss_curves(good, other), chance=chance))


def _chance(arm: Sequence[Record], plain: Sequence[Record], cell: Mapping[str, Setting],
            baseline: Mapping[str, Setting]) -> str:  # fmt: skip
    """Why the arms differ by chance: other batches in a user's step, or a loss that draws, as with dropout."""
    pairs, _ = matched(arm, plain)
    seen = [(one.figures, other.figures) for one, other in pairs]
    if any(BATCHES in one and BATCHES in two and one[BATCHES] != two[BATCHES] for one, two in seen):
        workers = cell.get("workers") != baseline.get("workers")
        why = ": torch gives each loader worker random numbers of its own" if workers else ""
        return f"the arms had other batches in the same round{why}"
    if demand_of(cell, baseline)[0] is Demand.ROUNDING and any(one.get(DRAWS) and two.get(DRAWS) for one, two in seen):
        return "the loss draws random numbers, and other kernels draw others"
    return ""


def loss_curves(arm: Sequence[Record], plain: Sequence[Record]) -> tuple[tuple[list[float], list[float]], ...]:
    """(arm, other) of each round in which both are ok and have losses."""
    pairs, _ = matched(arm, plain)
    return tuple((one.losses, other.losses) for one, other in pairs if one.losses and other.losses)
