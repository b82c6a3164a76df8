"""Whether the same cells give the same ratios on several devices of one kind, beyond what their rounds differ by."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from harness.judgement.blocks import speed_metric
from harness.judgement.judged import ArmResult, BlockResult
from harness.judgement.pairs import ratios

#: Rounds that a device must have run, and devices that must have run so many.
FEWEST = 2


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """One cell, on each device (with those beside it, where a trial takes several)."""

    block: BlockResult
    arm: ArmResult
    means: tuple[float, ...]
    """Speed over the baseline's, geometric mean of the device's rounds, smallest first."""
    rounds: tuple[int, ...]
    """Rounds of each, in the same order."""
    p: float
    """Of one-way analysis of variance on the logarithms: the chance of such means if the devices were alike."""

    @property
    def moved(self) -> float:
        """Largest mean over the smallest, less one."""
        return self.means[-1] / self.means[0] - 1


def agreements(blocks: Iterable[BlockResult]) -> list[Agreement]:
    """Every arm that two devices ran in two rounds or more each, in the order of the blocks."""
    found = []
    for block in blocks:
        if (plain := block.baseline) is not None:
            others = (arm for arm in block.arms if arm is not plain)
            found += [each for arm in others if (each := _agreement(block, arm, plain))]
    return found


def _agreement(block: BlockResult, arm: ArmResult, baseline: ArmResult) -> Agreement | None:
    devices: dict[str, list[float]] = {}
    for (_, device), ratio in ratios(speed_metric(baseline), arm, baseline, "")[0].items():
        devices.setdefault(device, []).append(math.log(ratio))
    groups = sorted((logs for logs in devices.values() if len(logs) >= FEWEST), key=fmean)
    if len(groups) < FEWEST:
        return None
    return Agreement(block=block, arm=arm, means=tuple(math.exp(fmean(logs)) for logs in groups),
                     rounds=tuple(map(len, groups)), p=_p(groups))  # fmt: skip


def _p(groups: Sequence[Sequence[float]]) -> float:
    from scipy.stats import f_oneway

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rounds that agree to the last digit have no spread to divide by
        p = float(f_oneway(*groups).pvalue)
    return p if math.isfinite(p) else 1.0
