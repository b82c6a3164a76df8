"""A plan for a cluster in a few lines: rounds, jobs and hours, before anything is sent."""

from __future__ import annotations

from harness.report import formats
from harness.report.progress import duration
from harness.results.slurm.cluster import Cluster
from harness.results.slurm.packing import Paper


def paper_lines(paper: Paper, cluster: Cluster) -> list[str]:
    """What `claimbench plan --launcher slurm` prints."""
    gpus = f" of {formats.plural(cluster.gpus_per_node, 'GPU')}" if cluster.gpus_per_node else ""
    nodes = f"{formats.plural(cluster.nodes, 'node')}{gpus}"
    counts = ", ".join(
        formats.plural(number, noun)
        for number, noun in ((paper.blocks, "block"), (paper.rounds, "round"), (paper.trials, "trial"))
    )
    limit = duration(60 * cluster.minutes)
    lines = [
        f"{counts} to run in {formats.plural(paper.jobs, 'job')} on {nodes}",
        f"{_hours(paper.trial_hours)} of trials; the longest job about {duration(paper.longest_job_seconds)}"
        f" of the {limit} that it may take",
        f"all of it about {duration(paper.wall_seconds)} from the first job's start, with {nodes} at once",
        f"times: {_known(paper.measured)}",
    ]
    if paper.too_long:
        lines.append(f"{formats.plural(paper.too_long, 'round')} would take longer than a job may: raise --time")
    return lines


def _hours(hours: float) -> str:
    return f"{hours:,.1f} hours" if hours >= 1 else duration(3600 * hours)


def _known(share: float) -> str:
    """Of how many trials they are more than a guess."""
    if share in (0.0, 1.0):
        return "as measured in the store" if share else "guessed; the store holds no trial of these cells"
    return f"{formats.share(share)} of the trials as measured in the store, the others guessed"
