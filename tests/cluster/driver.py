"""A run on the test cluster in a process of its own, so that a test can kill it.

python -m tests.cluster.driver FOLDER PLAN [RETRIES]
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from harness.environment import Environment, detect
from harness.experiment.cell import Workload
from harness.experiment.study import Block, Plan
from harness.results.collect import Options, fill_by
from harness.results.events import Notice, OnEvent, Summary, TrialFinished
from harness.results.slurm.carrier import OnSlurm
from harness.results.slurm.cluster import Cluster
from harness.results.store import Store
from harness.results.workplace import Workplace
from tests.results.plans import a_block, a_plan

TINY = Workload(name="tiny", model="tiny", data="synthetic")
CHILD = "tests.trial.child:main"
TWO_NODES = Cluster(partition="test", nodes=2, minutes=10)


def quick() -> Plan:
    """Trials of a fraction of a second, by `tests.trial.child`: two blocks, two rounds, twelve trials."""
    return a_plan(*(a_block(name, options={"seconds": 0.2}) for name in "ab"))


def slow() -> Plan:
    """The same, of a second each: time enough to break something."""
    return a_plan(*(a_block(name, options={"seconds": 1.0}) for name in "ab"))


def slower() -> Plan:
    """The same, of three seconds each: both jobs run for long after the second has begun, on a busy machine too."""
    return a_plan(*(a_block(name, options={"seconds": 3.0}) for name in "ab"))


def wide() -> Plan:
    """As `slow`, with one cell more."""
    return a_plan(*_wide_blocks())


def narrow() -> Plan:
    """The blocks of `wide` before that cell was added."""
    return a_plan(*(replace(block, arms=block.arms[:-1]) for block in _wide_blocks()))


def _wide_blocks() -> list[Block]:
    return [a_block(name, sizes=(2, 4), options={"seconds": 1.0}) for name in "ab"]


def real() -> Plan:
    """The real worker: two blocks of a round each, six trials."""
    return a_plan(*(_real_block(name) for name in "ab"))


def _real_block(name: str) -> Block:
    return a_block(name, workload=TINY, settings={"sequence_length": 16}, steps=3, rounds=1)


PLANS = {"quick": quick, "slow": slow, "slower": slower, "narrow": narrow, "real": real}


def run(
    folder: Path, plan: Plan, environment: Environment, *, cluster: Cluster = TWO_NODES, retries: int = 0,
    entry: str = CHILD, on_event: OnEvent = lambda event: None,
) -> Summary:  # fmt: skip
    """Fill the store in `folder`, in jobs of the cluster."""
    with Store.open(folder / "results.sqlite", writable=True) as store:
        place = Workplace.beside(store.path)
        carrier = OnSlurm(
            cluster=cluster, folder=place.folder / "slurm", environment=environment, scale=plan.scale,
            data_folder=place.data, seconds=lambda each: 10.0, retries=retries, entry=entry, poll_seconds=0.5,
        )  # fmt: skip
        return fill_by(carrier, store, plan, environment, options=Options(retries=retries), on_event=on_event)


def say(event: object) -> None:
    """One line an event."""
    if isinstance(event, TrialFinished):
        print("finished", event.trial.block.study, event.trial.round, event.trial.arm.name, flush=True)
    elif isinstance(event, Notice):
        print("notice", event.text, flush=True)


if __name__ == "__main__":
    entry = "" if sys.argv[2] == "real" else CHILD
    retries = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    done = run(
        Path(sys.argv[1]),
        PLANS[sys.argv[2]](),
        replace(detect(), devices=()),
        retries=retries,
        entry=entry,
        on_event=say,
    )
    print("done", done, flush=True)
    sys.exit(130 if done.interrupted else 0)
