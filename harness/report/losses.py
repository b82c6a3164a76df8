"""The loss curves of a block: each arm beside its baseline, in the rounds that both have.

A round has a seed of its own, and two seeds lie further apart than most techniques move a loss. So curves are
subtracted round by round, as parity pairs them, before anything is averaged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean

from harness.judgement.judged import ArmResult, BlockResult
from harness.judgement.pairs import PairKey, matched, pair_key
from harness.judgement.parity import Demand, demand_of, finite
from harness.report import formats
from harness.report.figures import curves, style
from harness.report.figures.gallery import Gallery, Picture
from harness.report.measure import figure_name
from harness.report.pictures import MOST_LINES, WIDTH

#: Of each round the loss curves of an arm and of its baseline.
Rounds = Mapping[PairKey, tuple[Sequence[float | None], Sequence[float | None]]]


def losses_picture(block: BlockResult, gallery: Gallery) -> Picture | None:
    """Loss curves of a block over each other. None where no arm shares a round with the baseline."""
    lines = loss_lines(block)
    if not lines:
        return None
    margin = common_margin([arm for arm in block.arms if arm.name in {line.name for line in lines[1:]}])
    place = f" at {formats.settings(block.sweep)}" if block.sweep else ""
    caption = f"Loss curves of study {block.study}{place}, {_averaged(lines)}."
    if margin is not None:
        caption += (" Band: the margin of parity, a bound on the mean distance of the two curves of a round over all "
                    "its steps, not on that of one step.")  # fmt: skip
    drawing = partial(curves.losses, lines=lines, margin=margin)
    size = (WIDTH, 4.1 + style.legend_inches([line.label for line in lines], WIDTH))
    return gallery.draw(figure_name("losses", block), caption, drawing, size=size)


def loss_lines(block: BlockResult) -> list[curves.LossLine]:
    """The baseline, then each arm that shares a round with it; nothing where none does.

    Losses are means over the rounds that all of them have, or, where there are none, over those that each has in common
    with the baseline. Gaps are differences within rounds, averaged over all rounds that both have.
    """
    baseline = block.baseline
    if baseline is None:
        return []
    cells = [arm for arm in block.arms if arm.role == "cell"]
    paired = [(arm, rounds) for arm in cells if (rounds := paired_rounds(arm, baseline))][: MOST_LINES - 1]
    if not paired:
        return []
    common = set[PairKey].intersection(*(set(rounds) for _, rounds in paired))
    whole = {key: pair for _, rounds in paired for key, pair in rounds.items()}
    counts = {len(rounds) for _, rounds in paired}
    plain = [other for key, (_, other) in whole.items() if key in (common or whole)]
    lines = [curves.LossLine(name=baseline.name, losses=_mean(plain), rounds=len(plain))]
    for arm, rounds in paired:
        shown = [one for key, (one, _) in rounds.items() if key in (common or rounds)]
        gaps = [[_minus(*losses) for losses in zip(*pair, strict=False)] for pair in rounds.values()]
        notes = [formats.plural(len(rounds), "round")] if len(counts) > 1 else []
        notes += ["other work"] if _owes_nothing(arm, baseline) else []
        lines.append(curves.LossLine(name=arm.name, losses=_mean(shown), rounds=len(shown), gap=_mean(gaps),
                                     gap_rounds=len(rounds), note=", ".join(notes)))  # fmt: skip
    return lines


def paired_rounds(arm: ArmResult, baseline: ArmResult) -> Rounds:
    """The rounds in which both are ok and have losses, and the baseline's are numbers."""
    pairs, _ = matched(arm.trials, baseline.trials)
    return {pair_key(one): (one.losses, other.losses) for one, other in pairs
            if one.losses and other.losses and all(map(finite, other.losses))}  # fmt: skip


def common_margin(arms: Sequence[ArmResult]) -> float | None:
    """The margin of parity where it is one for all of these arms, nats; None where they differ or one owes none."""
    margins = {arm.parity.margin for arm in arms}
    return margins.pop() if len(margins) == 1 else None


def _owes_nothing(arm: ArmResult, baseline: ArmResult) -> bool:
    return demand_of(arm.cell, baseline.cell)[0] is Demand.UNEQUAL


def _averaged(lines: Sequence[curves.LossLine]) -> str:
    """Over how many rounds, above and below."""
    above, below = ({line.rounds for line in lines}, {line.gap_rounds for line in lines[1:]})
    within, rounds = "the distance from the baseline within each round", formats.plural(lines[0].rounds, "round")
    if above == below and len(above) == 1:
        return f"mean over {rounds}; below, {within}"
    some = f"the {rounds} that all have" if len(above) == 1 else "those rounds of each that the baseline has too"
    return f"mean over {some}; below, {within}, mean over the rounds that both have"


def _mean(runs: Sequence[Sequence[float | None]]) -> list[float]:
    """By step, as far as all runs reached; no number from where one is none."""
    return [fmean(math.nan if loss is None else loss for loss in step) for step in zip(*runs, strict=False)]


def _minus(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other
