"""Rounds into jobs: whole rounds, a block's together as far as it goes, each job well within its time limit."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from harness.results.budget import Estimates
from harness.results.rounds import Round
from harness.results.slurm.cluster import Cluster
from harness.trial.ranks import processes_of
from harness.trial.torchrun import nodes_for

#: From a job's start to its first trial: an interpreter, torch, transformers, on a busy file system.
STARTUP_SECONDS = 60.0
#: As much of its time limit is planned for; trials take longer than expected, too.
_SHARE_OF_LIMIT = 0.7

Seconds = Callable[[Round], float]


@dataclass(frozen=True, kw_only=True)
class Load:
    """What one job is to run."""

    rounds: tuple[Round, ...]
    nodes: int
    seconds: float
    """That it is expected to take."""


@dataclass(frozen=True, kw_only=True)
class Paper:
    """A plan for a cluster, in numbers."""

    rounds: int
    blocks: int
    jobs: int
    trials: int
    trial_hours: float
    """Of all trials, one after the other."""
    longest_job_seconds: float
    wall_seconds: float
    """From the first job's start to the last one's end, with all nodes there at once."""
    measured: float = 0.0
    """Share of the trials whose cell was timed before; the others are guessed."""
    too_long: int = 0
    """Rounds that do not fit into a job's time limit."""


def pack(rounds: Iterable[Round], seconds: Seconds, cluster: Cluster) -> list[Load]:
    """Loads for the cluster, those over most nodes first."""
    by_nodes: dict[int, list[Round]] = {}
    for _, block in groupby(rounds, key=lambda each: id(each.block)):
        group = list(block)
        by_nodes.setdefault(nodes_of(group[0], cluster), []).extend(group)
    loads = []
    for nodes, group in sorted(by_nodes.items(), reverse=True):
        slots = max(1, cluster.nodes // nodes)
        lanes = cluster.lanes if nodes == 1 else 1
        loads += _pack(group, seconds, nodes=nodes, lanes=lanes, goal=_goal(group, seconds, slots, lanes, cluster))
    return loads


def nodes_of(each: Round, cluster: Cluster) -> int:
    """Nodes that the largest cell of a round spreads over."""
    per_node = cluster.ranks_per_node
    if per_node is None:
        return 1
    cells = (trial.arm.cell.settings for trial in each.trials if trial.refusal is None)
    return max((nodes_for(processes_of(settings), per_node) for settings in cells), default=1)


def on_paper(rounds: Sequence[Round], estimates: Estimates, cluster: Cluster) -> Paper:
    """What the cluster would do, without asking it."""
    # every round of a block has the same trials: looked at once, for a plan may have a hundred thousand of them
    first = {id(each.block): each for each in rounds}
    cost = {block: sum(map(estimates.seconds, each.trials)) for block, each in first.items()}
    trials = {block: [trial for trial in each.trials if trial.refusal is None] for block, each in first.items()}
    known = {block: sum(map(estimates.knows, each)) for block, each in trials.items()}
    count = sum(len(trials[id(each.block)]) for each in rounds)

    def seconds(each: Round) -> float:
        return cost[id(each.block)]

    loads = pack(rounds, seconds, cluster)
    limit = 60 * cluster.minutes
    return Paper(
        rounds=len(rounds), blocks=len(first), jobs=len(loads),
        trials=count, measured=sum(known[id(each.block)] for each in rounds) / max(1, count),
        trial_hours=sum(map(seconds, rounds)) / 3600,
        longest_job_seconds=max((load.seconds for load in loads), default=0.0),
        wall_seconds=_makespan(loads, cluster.nodes),
        too_long=sum(seconds(each) + STARTUP_SECONDS > limit for each in rounds),
    )  # fmt: skip


def _goal(rounds: Sequence[Round], seconds: Seconds, slots: int, lanes: int, cluster: Cluster) -> float:
    """Seconds of trials that a job takes: an equal share for each slot, but no more than fits into the limit."""
    share = sum(map(seconds, rounds)) / slots
    limit = max(0.0, 60 * cluster.minutes * _SHARE_OF_LIMIT - STARTUP_SECONDS)
    return min(share, limit * lanes)


def _pack(rounds: Sequence[Round], seconds: Seconds, *, nodes: int, lanes: int, goal: float) -> list[Load]:
    """In the order of the plan: a block's rounds stay together, so that its caches are used again."""
    loads: list[list[Round]] = [[]]
    filled = 0.0
    for each in rounds:
        # half of a round more or less: so that as many jobs come out as there are slots
        if loads[-1] and filled + seconds(each) / 2 > goal:
            loads.append([])
            filled = 0.0
        loads[-1].append(each)
        filled += seconds(each)
    return [
        Load(rounds=tuple(load), nodes=nodes, seconds=_wall(list(map(seconds, load)), lanes)) for load in loads if load
    ]


def _wall(seconds: Sequence[float], lanes: int) -> float:
    return STARTUP_SECONDS + max(sum(seconds) / lanes, *seconds)


def _makespan(loads: Sequence[Load], nodes: int) -> float:
    """Each load begins on the nodes that are free first."""
    free = [0.0] * max(nodes, max((load.nodes for load in loads), default=1))
    end = 0.0
    for load in loads:
        taken = [heapq.heappop(free) for _ in range(load.nodes)]
        done = max(taken) + load.seconds
        for _ in taken:
            heapq.heappush(free, done)
        end = max(end, done)
    return end
