"""What sharing a host cost, in a sentence: from the A/A control across the GPUs of a machine (`results.sharing`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from statistics import geometric_mean

from harness.judgement.judged import Interval
from harness.judgement.pairs import by_key, device_key, matched
from harness.judgement.stats import ratio_interval
from harness.report import formats
from harness.results.record import Record
from harness.results.sharing import ARM, STUDY

#: A cost beyond this moves a claim's figure by more than trials differ anyway.
_NOTABLE = 0.98


def cost(records: Iterable[Record]) -> Interval | None:
    """Tokens/s side by side over tokens/s alone, same GPU, same round; None where no control ran."""
    arms = _arms(records)
    pairs, dropped = matched(arms[ARM], arms["baseline"])
    speeds = [(one.tokens_per_second, other.tokens_per_second) for one, other in pairs]
    return ratio_interval([one / other for one, other in speeds if one and other], dropped=dropped)


def gpus_apart(records: Iterable[Record]) -> float | None:
    """The fastest GPU over the slowest, alone; None where fewer than two were seen."""
    arms = _arms(records)
    speeds: dict[str, list[float]] = defaultdict(list)
    for record in (*by_key(arms["baseline"]).values(), *by_key(arms["control"]).values()):
        if record.tokens_per_second:
            speeds[device_key(record)].append(record.tokens_per_second)
    means = [geometric_mean(each) for each in speeds.values()]
    return max(means) / min(means) if len(means) > 1 else None


def sentence(records: Iterable[Record]) -> str:
    """For the end of a run; empty where no control ran."""
    records = list(records)
    found, apart = cost(records), gpus_apart(records)
    if found is None:
        return ""
    ends = "" if found.low is None or found.high is None else f" [{found.low:.3f}, {found.high:.3f}]"
    spread = "" if apart is None else f"; alone, the fastest GPU is {formats.share(apart - 1)} ahead of the slowest"
    said = f"side by side a trial runs at {found.value:.3f}x{ends} of its speed alone{spread}"
    if found.high is not None and found.high < _NOTABLE:
        said += ". Warning: sharing the host costs speed; run claims that are judged at an edge without --gpus"
    elif found.low is None or found.low < _NOTABLE:
        said += f"; its {found.rounds} rounds are too coarse to say whether sharing the host costs speed"
    return said


def _arms(records: Iterable[Record]) -> dict[str, list[Record]]:
    arms: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        if record.study == STUDY and not record.superseded:
            arms[record.arm].append(record)
    return arms
