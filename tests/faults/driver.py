"""A run in a process of its own, so that a test can kill it: says on standard output what it does, a line an event.

python -m tests.faults.driver FOLDER PLAN [ENTRY]
"""

from __future__ import annotations

import sys
from pathlib import Path

from harness.environment import Environment, detect
from harness.errors import ClaimbenchError
from harness.experiment.cell import Workload
from harness.experiment.study import Block, Plan
from harness.results.collect import Options, fill
from harness.results.events import Event, RunPlanned, TrialFinished, TrialStarted
from harness.results.store import Store
from harness.trial import preload
from harness.trial.launch import ENTRY, LocalLauncher
from tests.results.plans import a_block, a_plan

TINY = Workload(name="tiny", model="tiny", data="synthetic")
#: Small enough for a trial in about a second.
SMALL = {"sequence_length": 16}


def sleepers() -> Plan:
    """Trials that never end and have children and orphans of their own."""
    deeds = dict.fromkeys((1, 2), "have children and sleep")
    return a_plan(a_block(deeds=deeds, rounds=1))


def quick() -> Plan:
    """Sixty trials of a fraction of a second, by `tests.trial.child`."""
    return a_plan(*(a_block(name, sizes=(2, 3, 4), rounds=3, options={"seconds": 0.05}) for name in "abcd"))


def short() -> Plan:
    """Fifteen trials of a fraction of a second."""
    return a_plan(a_block(sizes=(2, 3, 4), rounds=3, options={"seconds": 0.2}))


def hungry() -> Plan:
    """A block of which one cell writes two megabytes to its cache."""
    return a_plan(a_block(deeds={3: "fill its cache"}, sizes=(2, 3), rounds=3))


def brief() -> Plan:
    """Twenty-seven trials that take no time of their own."""
    return a_plan(*(a_block(name, rounds=3) for name in "abc"))


def real() -> Plan:
    """Sixty trials of the real worker."""
    return a_plan(*(_real_block(name, rounds=3) for name in "abcd"))


def few() -> Plan:
    """Nine trials of the real worker."""
    return a_plan(_real_block("a", rounds=3, sizes=(2,)))


def _real_block(name: str, *, rounds: int, sizes: tuple[int, ...] = (2, 3, 4)) -> Block:
    return a_block(name, sizes=sizes, rounds=rounds, workload=TINY, settings=SMALL, steps=3)


PLANS = {plan.__name__: plan for plan in (sleepers, quick, short, brief, hungry, real, few)}


def environment(plan: str) -> Environment:
    """The machine without its GPU; for plans of made-up trials, any machine."""
    return Environment(cores=2) if plan not in ("real", "few") else _without_gpu(detect())


def _without_gpu(here: Environment) -> Environment:
    from dataclasses import replace

    return replace(here, devices=())


def say(event: Event) -> None:
    """One line: the kind of event, and the arm."""
    if isinstance(event, RunPlanned):
        print("planned", event.trials, event.stored, flush=True)
    elif isinstance(event, TrialStarted):
        print("started", event.trial.arm.name, flush=True)
    elif isinstance(event, TrialFinished):
        print("finished", event.trial.arm.name, event.record.outcome, flush=True)


def main(folder: Path, name: str, entry: str) -> int:
    """Fill the store in `folder` with the plan."""
    plan = PLANS[name]()
    modules = preload.MODULES if entry == ENTRY else ("json",)
    try:
        with (
            Store.open(folder / "results.sqlite", writable=True) as store,
            LocalLauncher(gpu=False, modules=modules, entry=entry) as launcher,
        ):
            summary = fill(store, plan, launcher, environment(name), options=Options(retries=5), on_event=say)
    except ClaimbenchError as error:
        print("error:", error, flush=True)
        return 2
    print("done", summary, flush=True)
    return 130 if summary.interrupted else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else ENTRY))
