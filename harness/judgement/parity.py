"""Whether a cell trained the same thing as its baseline: by the first gradient and the loss curve."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from functools import partial
from itertools import combinations
from operator import sub
from statistics import median, median_high

from harness.experiment.axes import Setting
from harness.judgement.judged import Parity
from harness.judgement.quantities import gradient_error, numeric
from harness.results.record import Record


class Demand(IntEnum):
    """What a changed setting owes the baseline, weakest duty last."""

    EXACT = 0
    """It must not change the arithmetic: losses match within float tolerance."""
    ROUNDING = 1
    """It changes rounding: the gap stays within a share of what two seeds of the baseline differ by."""
    SPREAD = 2
    """The curves compare as statistics only: the gap stays within what two seeds of the baseline differ by."""
    UNEQUAL = 3
    """It changes the problem: there is nothing to compare."""


#: Axis → what a change of it owes, and why.
DEMANDS: Mapping[str, tuple[Demand, str]] = {
    "checkpointing": (Demand.EXACT, "the forward pass is computed again, not differently"),
    "workers": (Demand.EXACT, "who reads the data does not change it"),
    "prefetch": (Demand.EXACT, "how far ahead data is read does not change it"),
    "pin_memory": (Demand.EXACT, "where a batch lies does not change it"),
    "persistent": (Demand.EXACT, "the life of a worker does not change the data"),
    "start": (Demand.EXACT, "how a worker starts does not change the data"),
    "non_blocking": (Demand.EXACT, "when a copy is waited for must not change what is copied"),
    "copy": (Demand.EXACT, "the stream of a copy must not change what is copied"),
    "stream": (Demand.EXACT, "every stream reads the same samples"),
    "cost_per_sample_ms": (Demand.EXACT, "the cost is time alone"),
    "empty_cache": (Demand.EXACT, "the allocator's cache holds no values"),
    "input_gradients": (Demand.EXACT, "it decides whether gradients arrive, not which"),
    "overlap_comm": (Demand.EXACT, "when gradients are exchanged must not change them"),
    "monitor": (Demand.EXACT, "watching must not change what is watched"),
    "precision": (Demand.ROUNDING, "fewer bits"),
    "attention": (Demand.ROUNDING, "another order of summation"),
    "compile": (Demand.ROUNDING, "fused operations round less often"),
    "optimizer": (Demand.ROUNDING, "another order of operations"),
    "autocast_outside": (Demand.ROUNDING, "fewer bits in some operations"),
    "zero": (Demand.ROUNDING, "another order of reduction"),
    "parallel": (Demand.ROUNDING, "another order of reduction"),
    "micro_batches": (Demand.ROUNDING, "another order of summation"),
    "lora": (Demand.UNEQUAL, "other weights are trained"),
    "lora_targets": (Demand.UNEQUAL, "other weights are trained"),
    "quantization": (Demand.UNEQUAL, "the weights are other weights"),
    "sequence_length": (Demand.UNEQUAL, "other samples"),
    "batching": (Demand.UNEQUAL, "other batches"),
    "deepspeed_config": (Demand.UNEQUAL, "another optimizer and another precision"),
    "clip": (Demand.UNEQUAL, "other updates"),
    "schedule": (Demand.UNEQUAL, "other updates"),
    "pruning": (Demand.UNEQUAL, "weights are set to zero"),
    "distillation": (Demand.UNEQUAL, "another loss"),
}
#: Their product is the effective batch: changing them is unequal work unless it stays the same.
BATCH_AXES = ("batch_size", "accumulation", "devices")
#: Ways of using several devices that split one batch instead of adding batches.
NOT_DATA_PARALLEL = frozenset({"none", "pipeline"})

#: Float tolerance of a loss curve, nats: rounding alone moves an AdamW run of some dozen steps by less.
TOLERANCE_NATS = {"fp32": 2e-3, "tf32": 1e-2}
TOLERANCE_HALF_NATS = 2e-2
#: Of what two seeds differ by, the share that rounding may take. In their median round, on H100s and H200s, the cells
#: that change rounding alone took 0.15 at most; one that took a step more before training 0.11 to 0.33 by study.
ROUNDING_SHARE = 0.25
#: Arms of one seed that draw other numbers lie as far apart as two seeds do on the mean, half of them farther.
CHANCE_FACTOR = 1.5
#: Where kernels are not deterministic the A/A control strays too: less than twice its gap is never asked for.
CONTROL_FACTOR = 2.0
#: Of the float tolerance, the share that a control's median round must exceed to count as straying.
CONTROL_SHARE = 0.1
#: Where it differs by less than that, but does, a spike of the loss carries a round off now and then, in one of 150 to
#: 200 on H100s and H200s (docs/statistics.md). Of this many rounds one may; with fewer none: of five 3 arms in 100 fail
#: by chance, and are told of this number.
ROUNDS_OF_A_STRAY = 10
#: The first gradient may be off by twice what eager attention is off by at that precision, or by rounding of fp32.
GRADIENT_FACTOR = 2.0
GRADIENT_FLOOR = 1e-5


@dataclass(frozen=True, kw_only=True)
class LossPairs:
    """The loss curves that are compared: one pair a round, and what the baseline does by itself."""

    pairs: tuple[tuple[Sequence[float], Sequence[float]], ...]
    """(cell, baseline) of each round."""
    control: tuple[tuple[Sequence[float], Sequence[float]], ...]
    """(A/A control, baseline) of each round."""
    seed_gap: float | None
    """`seed_gap` of the baseline's curves."""
    chance: str = ""
    """Why the arms of a user's step differ by chance, whatever the settings owe; empty where they do not."""


def demand_of(cell: Mapping[str, Setting], baseline: Mapping[str, Setting]) -> tuple[Demand, str]:
    """The heaviest of what the changed settings owe, with the axis and the reason in words."""
    changed = [axis for axis in cell if cell[axis] != baseline.get(axis)]
    demands = [(*DEMANDS.get(axis, (Demand.SPREAD, "not known to leave the arithmetic alone")), axis)
               for axis in changed if axis not in BATCH_AXES]  # fmt: skip
    if effective_batch(cell) != effective_batch(baseline):
        demands.append((Demand.UNEQUAL, "another effective batch", _moved(changed)))
    elif _streams(cell) != _streams(baseline) or {"batch_size", "accumulation"} & {*changed}:
        # samples are drawn batch by batch: two batches of 32 are not the halves of one of 64
        demands.append((Demand.SPREAD, "other samples in a batch of the same size", _moved(changed)))
    elif any(axis in changed for axis in BATCH_AXES):
        demands.append((Demand.EXACT, "same effective batch", _moved(changed)))
    if not demands:
        return Demand.EXACT, "nothing differs"
    demand, reason, axis = max(demands, key=lambda each: each[0])
    return demand, f"{axis}: {reason}"


def effective_batch(cell: Mapping[str, Setting]) -> int:
    """Samples that one optimizer step sees, over all devices."""
    return int(cell.get("batch_size", 1)) * int(cell.get("accumulation", 1)) * _streams(cell)


def _streams(cell: Mapping[str, Setting]) -> int:
    """Ranks that draw samples of their own."""
    engine = cell.get("zero", "off") != "off" or str(cell.get("precision", "")).startswith("ds-")
    data_parallel = engine or cell.get("parallel", "none") not in NOT_DATA_PARALLEL
    return int(cell.get("devices", 1)) if data_parallel else 1


def _moved(changed: Sequence[str]) -> str:
    """The axis to name for another batch."""
    return next((axis for axis in (*BATCH_AXES, "parallel", "zero", "precision") if axis in changed), "batch")


def tolerance_of(cell: Mapping[str, Setting]) -> float:
    """How far rounding alone carries the losses of a cell from those of a baseline at the same precision, nats."""
    return TOLERANCE_NATS.get(str(cell.get("precision", "fp32")), TOLERANCE_HALF_NATS)


def loss_gap(first: Sequence[float], second: Sequence[float]) -> float:
    """Mean distance of two loss curves over their common steps, nats; infinite where one has diverged.

    A loss that is not a number is stored as null.
    """
    steps = min(len(first), len(second))
    try:
        total = sum(map(abs, map(sub, first, second)))
    except TypeError:
        return math.inf
    return total / steps if steps and math.isfinite(total) else math.inf


def seed_gap(curves: Sequence[Sequence[float]]) -> float | None:
    """Mean distance of the baseline's curves, each of another seed: what chance alone does.

    A curve that diverged has no distance to any. None where fewer than two are left.
    """
    gaps = [loss_gap(*pair) for pair in combinations(filter(all_finite, curves), 2)]
    return math.fsum(gaps) / len(gaps) if gaps else None


def finite(loss: float | None) -> bool:
    """Whether a loss is a number; one that is none is stored as null."""
    return loss is not None and math.isfinite(loss)


def all_finite(curve: Sequence[float]) -> bool:
    """Whether a curve has losses and each is a number."""
    return bool(curve) and all(map(finite, curve))


def judge_parity(cell: Mapping[str, Setting], baseline: Mapping[str, Setting], trials: Sequence[Record],
                 losses: LossPairs) -> Parity:  # fmt: skip
    """The two looks at an arm that is not the baseline."""
    demand, why = demand_of(cell, baseline)
    if demand is Demand.UNEQUAL:
        return Parity(word="not applicable: unequal work", holds=None, reason=why)
    if losses.chance:
        demand = Demand.SPREAD
    error, eager = _gradient(trials)
    gradient_fails = error is not None and error > max(GRADIENT_FACTOR * (eager or 0.0), GRADIENT_FLOOR)
    bound = _bound(demand, cell, losses)
    gaps = [loss_gap(*pair) for pair in losses.pairs if all_finite(pair[1])]
    strayed = [each for each in gaps if bound.margin is not None and each > bound.margin]
    gap = _judged(gaps, strayed, bound)
    found = partial(Parity, loss_gap=gap, worst_gap=max(gaps, default=None), margin=bound.margin, rounds=len(gaps),
                    gradient_error=error, eager_error=eager)  # fmt: skip
    if gradient_fails:
        reason = f"the first gradient is off by {error:.2g}, eager attention at that precision by {eager or 0:.2g}"
        return found(word="fails", holds=False, reason=reason)
    if gap is not None and not math.isfinite(gap):
        return found(word="fails", holds=False, reason="a loss became infinite or no number")
    if gap is None or bound.margin is None:
        diverged = "the baseline's own loss became infinite or no number"
        unpaired = diverged if losses.pairs else "no losses of both arms in one round"
        lacking = unpaired if gap is None else "one seed gives no spread between seeds"
        return found(word=f"not checked: {lacking}", holds=None, reason=lacking)
    if gap > bound.margin:
        where, what_would_tell = _failing(gaps, strayed, bound)
        reason = f"the losses lie {gap:.3g} nats apart{where}, {bound.words}{what_would_tell}"
        return found(word="fails", holds=False, reason=reason)
    judged = "in the median round" if bound.rounds is _Rounds.MEDIAN else "in the others at most"
    where = f" {judged}, in {len(strayed)} of {len(gaps)} by up to {max(strayed):.3g}" if strayed else ""
    reason = f"the losses lie {gap:.3g} nats apart{where}, {bound.words}"
    return found(word="holds", holds=True, reason=reason, strayed=len(strayed), judged=judged)


class _Rounds(Enum):
    """Which rounds must lie within the bound."""

    MEDIAN = "the median one"
    MOST = "all, but of ten and more one in ten may stray"
    EVERY = "all"


@dataclass(frozen=True)
class _Bound:
    """How far the losses of a cell may lie from the baseline's, nats."""

    margin: float | None
    """None where the rounds do not give one."""
    words: str
    rounds: _Rounds = _Rounds.MEDIAN


def _bound(demand: Demand, cell: Mapping[str, Setting], losses: LossPairs) -> _Bound:
    if losses.chance and losses.seed_gap is not None:
        margin = CHANCE_FACTOR * losses.seed_gap
        allowed = f"two seeds of the baseline {losses.seed_gap:.3g}, of which {CHANCE_FACTOR:g} times is allowed"
        return _Bound(margin, f"{allowed}, since {losses.chance}")
    if demand is not Demand.EXACT:
        return _bound_by_seeds(losses.seed_gap, ROUNDING_SHARE if demand is Demand.ROUNDING else 1.0)
    margin = tolerance_of(cell)
    why = "where the arithmetic must not change"
    control = [gap for pair in losses.control if math.isfinite(gap := loss_gap(*pair))]
    typical = median(control) if control else 0.0
    strays = typical > CONTROL_SHARE * margin
    if strays:  # one cell run twice differs: its kernels round in an order of their own each time
        by_seeds = _bound_by_seeds(losses.seed_gap, ROUNDING_SHARE).margin or 0.0
        margin = max(margin, CONTROL_FACTOR * typical, by_seeds)
        why += " but the baseline run twice differs too"
    # to the last bit the same when run twice: then no spike can carry anything off
    rounds = _Rounds.MEDIAN if strays else _Rounds.MOST if typical else _Rounds.EVERY
    return _Bound(margin, f"{margin:.3g} are allowed {why}", rounds)


def _bound_by_seeds(seed_gap: float | None, share: float) -> _Bound:
    if seed_gap is None:
        return _Bound(None, "")
    allowed = f", of which rounding may take {share * seed_gap:.3g}" if share < 1 else ""
    return _Bound(share * seed_gap, f"two seeds of the baseline {seed_gap:.3g}{allowed}")


def _spared(gaps: Sequence[float], bound: _Bound) -> int:
    """Rounds that may stray although the worst is judged."""
    return len(gaps) // ROUNDS_OF_A_STRAY if bound.rounds is _Rounds.MOST else 0


def _failing(gaps: Sequence[float], strayed: Sequence[float], bound: _Bound) -> tuple[str, str]:
    """In which rounds an arm fails, and what would tell whether it does."""
    if bound.rounds is _Rounds.MEDIAN:
        return (" in the median round" if len(gaps) > 1 else ""), ""
    if _spared(gaps, bound):
        return f" or more in {len(strayed)} of {len(gaps)} rounds", ""
    where = f" in {len(strayed)} of {len(gaps)} rounds" if len(strayed) < len(gaps) else ""
    if not where or bound.rounds is _Rounds.EVERY or len(strayed) > 1:
        return where, ""
    return where, (f"; a spike of the loss can do that in one round, which one of {ROUNDS_OF_A_STRAY} may: run "
                   f"{ROUNDS_OF_A_STRAY} to tell")  # fmt: skip


def _judged(gaps: Sequence[float], strayed: Sequence[float], bound: _Bound) -> float | None:
    """The gap that is judged: the largest of all where a round has diverged; else of the median round; or, where rounds
    must agree, the largest of those that do, if as many do as must, and otherwise what those that do not lie apart.

    A training that spikes answers to the last bit with another curve; a change of the arithmetic shows in every round.
    """
    worst = max(gaps, default=None)
    if worst is None or not math.isfinite(worst):
        return worst
    if bound.rounds is _Rounds.MEDIAN:
        return median_high(gaps)
    spared = _spared(gaps, bound)
    if len(strayed) > spared:
        return min(strayed) if spared else worst
    return sorted(gaps)[-1 - len(strayed)]


def _gradient(trials: Sequence[Record]) -> tuple[float | None, float | None]:
    """The worst error of the first gradient with eager attention's beside it."""
    checks = [(error, numeric(trial.gradient_check.get("eager_error"))) for trial in trials
              if (error := gradient_error(trial)) is not None]  # fmt: skip
    return max(checks, key=lambda check: check[0] / (check[1] or GRADIENT_FLOOR), default=(None, None))
