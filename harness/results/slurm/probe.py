"""What a node of the cluster is like: asked once, by a job of its own, for a plan is made for where it will run."""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from harness.environment import Environment
from harness.errors import EnvironmentProblem
from harness.results.slurm import cluster as slurm
from harness.results.slurm.cluster import GONE, Cluster, JobState, QueueFull
from harness.results.slurm.node import describe, environment_from
from harness.trial.interrupts import Interrupts

Tell = Callable[[str], None]

#: Drivers and packages change: after a day a node is asked again.
_SECONDS_VALID = 24 * 3600.0


def known_environment(cluster: Cluster, folder: Path) -> Environment | None:
    """As a job told within the last day; with the devices of all nodes, since a trial may spread over them."""
    path = _path(cluster, folder)
    try:
        if time.time() - path.stat().st_mtime > _SECONDS_VALID:
            return None
        found = environment_from(json.loads(path.read_bytes()))
    except (OSError, ValueError):
        return None
    node = found.devices[: cluster.gpus_per_node]
    per_node = len(node) if node and cluster.nodes > 1 else None
    return replace(found, devices=node * cluster.nodes, gpus_per_node=per_node)


def environment_of_a_node(
    cluster: Cluster, folder: Path, *, poll_seconds: float = 1.0, tell: Tell = lambda text: None
) -> Environment:
    """As known, or as a job that is submitted now tells; waits for it, and leaves no job when it is stopped.

    Args:
        tell: is told what the job waits for.

    Raises:
        EnvironmentProblem: Slurm refuses the job, would never start it, or it ended without an answer.
        KeyboardInterrupt: Ctrl-C, SIGTERM or SIGHUP.
    """
    known = known_environment(cluster, folder)
    if known is not None:
        return known
    slurm.require_slurm()
    slurm.require_partition(cluster)
    name = f"claimbench-probe-{uuid.uuid4().hex[:8]}"
    path = _path(cluster, folder)
    path.unlink(missing_ok=True)
    with Interrupts() as interrupts:
        try:
            job = slurm.submit(cluster, folder / "submitit", describe, str(path), name=name, nodes=1)
            for state in _states_until(path, name, poll_seconds, interrupts, tell):
                if not state.active and not _appears(path, poll_seconds):
                    log = slurm.log_of(folder / "submitit", job)
                    raise EnvironmentProblem(
                        f"job {job}, which looks at a node, ended without an answer; its log is {log}"
                    )
        except QueueFull as full:
            raise EnvironmentProblem("Slurm's queue is full and takes no job now; run again later") from full
        finally:
            if not path.exists():
                slurm.cancel([name])
    found = known_environment(cluster, folder)
    if found is None:
        raise EnvironmentProblem(f"{path}: what job {job} tells of its node cannot be read; remove it and run again")
    if cluster.gpus_per_node and not found.devices:
        raise EnvironmentProblem(
            "the node has no GPU that its driver shows to a job; check --partition and --gpus-per-node"
        )
    return found


def _states_until(path: Path, name: str, poll_seconds: float, interrupts: Interrupts, tell: Tell) -> Iterator[JobState]:
    """What Slurm says of the job, again and again until its answer is there; each reason to wait is told once."""
    told = {"", "None"}
    while not path.exists():
        if interrupts.soft:
            raise KeyboardInterrupt
        state = slurm.states().get(name, GONE)
        slurm.require_startable(state)
        if state.state == "PENDING" and state.reason not in told:
            tell(f"waiting for job {state.number}, which looks at a node ({state.reason})")
            told.add(state.reason)
        yield state
        interrupts.sleep(poll_seconds)


def _appears(path: Path, poll_seconds: float) -> bool:
    """A file of another machine may be seen a moment late."""
    time.sleep(2 * poll_seconds)
    return path.exists()


def _path(cluster: Cluster, folder: Path) -> Path:
    asked = json.dumps(cluster.parameters("", 1), sort_keys=True)
    return folder / f"node-{hashlib.sha256(asked.encode()).hexdigest()[:12]}.json"
