"""What a job does on its node: whole rounds as files, those alone that are to run there, and with what it has."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from harness.environment import Device, Environment
from harness.experiment.study import Plan
from harness.results.carrier import Orders
from harness.results.lines import read_lines
from harness.results.record import Record
from harness.results.rounds import Round, rounds_of
from harness.results.slurm import node
from harness.results.slurm.job import Job, errand_of, label
from harness.results.slurm.node import Outbox, environment_of, run_job
from harness.results.slurm.sent import Said, Sent
from harness.results.workplace import Workplace
from harness.techniques.registry import this_machine
from harness.trial.interrupts import Interrupts
from harness.trial.launch import LocalLauncher
from harness.trial.outcome import Outcome
from harness.trial.torchrun import SeveralNodes
from tests.records import many_records
from tests.results.plans import a_block, a_plan

ROOT = Path(__file__).resolve().parents[3]
CPU = Environment(cores=2, processor="a CPU", packages={"torch": "2.13.0"})


def job_of(
    plan: Plan, environment: Environment, *, looks: Mapping[str, set[int]] | None = None, **others: object
) -> Job:
    """All rounds of `plan`; `looks`: study → rounds that compare first gradients."""
    rounds = list(rounds_of(plan, environment))
    blocks = list({each.key: each.block for each in rounds}.values())
    errands = []
    for each in rounds:
        names = [trial.arm.name for trial in each.trials]
        owed = names if each.number in (looks or {}).get(each.block.study, set()) else ()
        orders = Orders(attempts=dict.fromkeys(names, 3), looks=frozenset(owed))
        errands.append(errand_of(each, blocks.index(each.block), orders))
    fields = {"name": "claimbench-1", "scale": plan.scale, "gpu": False, "seconds": 600.0, "data_folder": "data",
              "entry": "tests.trial.child:main"}  # fmt: skip
    return Job(**{**fields, "blocks": tuple(blocks), "errands": tuple(errands), **others})  # type: ignore[arg-type]


def here() -> Environment:
    """The machine that runs the tests, as a node without GPUs."""
    return replace(this_machine(), devices=())


def brought(folder: Path) -> dict[str, list[Record]]:
    """Records by the name of the file that they came in."""
    return {file.stem: read_lines(file) for file in sorted((folder / "rounds").glob("*.jsonl"))}


def gpus(host: str, count: int) -> tuple[Device, ...]:
    return tuple(Device(index=place, name="NVIDIA H100", uuid=f"GPU-{host}{place}", memory_bytes=80 << 30)
                 for place in range(count))  # fmt: skip


def test_a_job_leaves_each_of_its_rounds_whole_and_says_that_it_has_ended(tmp_path: Path) -> None:
    plan = a_plan(a_block("a"), a_block("b", rounds=1), refusals={"batch_size=2": "no GPU here"})
    job_of(plan, here()).write(tmp_path)
    run_job(str(tmp_path))
    found = brought(tmp_path)
    planned = {label(each): each for each in rounds_of(plan, here())}
    assert found.keys() == planned.keys()
    for name, records in found.items():
        order = [(trial.position, trial.arm.name, trial.seed) for trial in planned[name].trials]
        assert [(record.position, record.arm, record.seed) for record in records] == order
        assert {record.fingerprint for record in records} == {planned[name].circumstances.fingerprint}
        ended = {record.arm: (record.outcome, record.attempt) for record in records}
        assert ended == {
            "baseline": (Outcome.OK, 3), "control": (Outcome.OK, 3), "batch_size=2": (Outcome.UNSUPPORTED, 3)
        }  # fmt: skip
    assert Sent(folder=tmp_path, rounds={}).said() == Said()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["ended.json", "job.json", "rounds", "work"]


def test_a_job_that_is_started_again_leaves_what_it_has_delivered(tmp_path: Path) -> None:
    plan = a_plan(a_block("a", sizes=()))
    job_of(plan, here()).write(tmp_path)
    run_job(str(tmp_path))
    kept, again = sorted((tmp_path / "rounds").iterdir())
    before = kept.read_bytes()
    again.unlink()
    run_job(str(tmp_path))
    assert kept.read_bytes() == before
    assert again.exists()


def test_a_trial_on_a_node_has_the_limits_and_tries_of_the_run(tmp_path: Path) -> None:
    deeds = {1: "train the second time", 2: "sleep"}
    plan = a_plan(a_block("a", deeds=deeds, rounds=1))
    job_of(plan, here(), retries=1, wall_limit_seconds=1.0).write(tmp_path)
    run_job(str(tmp_path))
    (records,) = brought(tmp_path).values()
    ended = {record.arm: (record.outcome, [earlier["outcome"] for earlier in record.attempts]) for record in records}
    assert ended == {
        "baseline": (Outcome.OK, ["crash"]), "control": (Outcome.OK, ["crash"]),
        "batch_size=2": (Outcome.TIMEOUT, ["timeout"]),
    }  # fmt: skip
    assert all(record.wall_seconds < 10 for record in records), "the limit is the run's and no other"


def test_a_job_that_is_ended_delivers_no_half_round_leaves_no_cache_and_does_not_say_that_it_was_done(
    tmp_path: Path,
) -> None:
    plan = a_plan(a_block("a", sizes=(), options={"seconds": 1.0}))
    job, scratch = tmp_path / "job", tmp_path / "scratch"
    scratch.mkdir()
    job_of(plan, here()).write(job)
    process = subprocess.Popen(
        ["env", "--default-signal=INT,TERM", sys.executable, "-m", "harness.results.slurm.node", str(job)],
        cwd=ROOT, env={**os.environ, "TMPDIR": str(scratch)}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    for line in process.stdout:
        if line.endswith("round 2: baseline\n"):
            process.send_signal(signal.SIGTERM)
    process.wait(timeout=60)
    assert [records[0].round for records in brought(job).values()] == [1]
    assert not (job / "ended.json").exists()
    assert list(scratch.iterdir()) == []


def outbox(folder: Path, job: Job, interrupts: Interrupts, **others: object) -> Outbox:
    job.write(folder)
    (folder / "rounds").mkdir()
    found = Outbox(folder=folder, job=job, interrupts=interrupts, **others)  # type: ignore[arg-type]
    found.expect(job, CPU)
    return found


def records_of(each: Round, **fields: object) -> list[Record]:
    """Of a round that went well, but for `fields` of the last trial."""
    good = replace(many_records(1)[0], block=each.key, round=each.number, outcome=Outcome.OK, gradient_check={})
    names = [trial.arm.name for trial in each.trials]
    return [replace(good, arm=name, **(fields if name == names[-1] else {})) for name in names]  # type: ignore[arg-type]


def test_a_crash_as_the_job_is_being_cancelled_is_no_result(tmp_path: Path) -> None:
    """Slurm ends the processes of a job in any order: that of the trial may die before we hear of it."""
    plan = a_plan(a_block("a", rounds=1))
    (each,) = rounds_of(plan, CPU)
    with Interrupts() as interrupts:
        desk = outbox(tmp_path, job_of(plan, CPU), interrupts)
        asked = threading.Timer(0.3, lambda: interrupts.request(now=True))
        for trial, record in zip(each.trials, records_of(each, outcome=Outcome.CRASH), strict=True):
            if record.outcome is Outcome.CRASH:
                asked.start()
            desk.finished(trial, record)
        asked.join()
    assert brought(tmp_path) == {}


def test_a_crash_of_a_trial_is_its_result(tmp_path: Path) -> None:
    plan = a_plan(a_block("a", rounds=1))
    (each,) = rounds_of(plan, CPU)
    with Interrupts() as interrupts:
        desk = outbox(tmp_path, job_of(plan, CPU), interrupts)
        for trial, record in zip(each.trials, records_of(each, outcome=Outcome.CRASH), strict=True):
            assert brought(tmp_path) == {}, "no round is seen before it is whole"
            desk.finished(trial, record)
    (records,) = brought(tmp_path).values()
    assert sorted(record.arm for record in records) == sorted(trial.arm.name for trial in each.trials)


def test_a_round_that_no_longer_fits_into_what_is_left_of_the_time_is_left_for_later(tmp_path: Path) -> None:
    plan = a_plan(a_block("a"))
    first, second = rounds_of(plan, CPU)
    job = job_of(plan, CPU, seconds=600.0, expected={label(first): 100.0, label(second): 300.0})
    with Interrupts() as interrupts:
        desk = outbox(tmp_path, job, interrupts, began=time.monotonic() - 400)
        assert desk.begin(first) is not None
        assert desk.begin(second) is None, "300 s do not fit into 200 s"
        desk.end()
    assert Sent(folder=tmp_path, rounds={}).said() == Said(postponed=frozenset({label(second)}))


def test_gradients_are_compared_in_the_block_that_asks_for_it(tmp_path: Path) -> None:
    """Cells of two blocks may have the same name."""
    plan = a_plan(a_block("a"), a_block("b"))
    with Interrupts() as interrupts:
        desk = outbox(tmp_path, job_of(plan, CPU, looks={"a": {1}}), interrupts)
        asked = {label(each): orders.looks for each in rounds_of(plan, CPU) if (orders := desk.begin(each))}
    everything = frozenset({"baseline", "control", "batch_size=2"})
    # none of a's has ended: its second round is asked as well
    assert list(asked.values()) == [everything, everything, frozenset(), frozenset()]


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_job_on_the_cpu_has_no_devices(monkeypatch: pytest.MonkeyPatch, nodes: int) -> None:
    monkeypatch.setattr(node, "this_machine", lambda: replace(CPU, devices=gpus("a", 2)))
    job = job_of(a_plan(a_block()), CPU, nodes=nodes)
    assert environment_of(job) == CPU


def test_a_job_on_one_node_has_the_devices_of_that_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(node, "this_machine", lambda: replace(CPU, devices=gpus("a", 2)))
    assert environment_of(job_of(a_plan(a_block()), CPU, gpu=True)).devices == gpus("a", 2)


def srun(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """What stands in for Slurm's `srun`."""
    folder.mkdir()
    (folder / "srun").write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    (folder / "srun").chmod(0o700)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


def test_a_job_over_several_nodes_has_the_devices_of_all_of_them_its_own_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each node tells of itself, in any order, and Slurm may say something as well."""
    ours, theirs = (replace(CPU, host=host, devices=gpus(host, 2)) for host in "ab")
    told = "\n".join(["srun: job 7 queued", json.dumps(theirs.as_json()), json.dumps(ours.as_json())])
    (tmp_path / "told").write_text(told, encoding="utf-8")
    srun(tmp_path / "bin", monkeypatch, f'echo "$@" > {tmp_path}/asked\ncat {tmp_path}/told')
    monkeypatch.setattr(node, "this_machine", lambda: ours)
    found = environment_of(job_of(a_plan(a_block()), CPU, gpu=True, nodes=2))
    assert found == replace(ours, devices=(*gpus("a", 2), *gpus("b", 2)))
    # --overlap: the job's first task is this process, and its step waits for nobody
    assert (tmp_path / "asked").read_text().startswith("--ntasks=2 --ntasks-per-node=1 --overlap ")


def test_what_a_node_tells_of_itself_depends_on_nothing_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `json.py` of the user's, say."""
    (tmp_path / "json.py").write_text("raise SystemExit('this ran')", encoding="utf-8")
    srun(tmp_path / "bin", monkeypatch, 'while [ "${1#--}" != "$1" ]; do shift; done\nexec "$@"')
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    found = environment_of(job_of(a_plan(a_block()), CPU, gpu=True, nodes=2))
    assert found.processor == here().processor


def launcher_of(job: Job, environment: Environment, folder: Path) -> object:
    return node._carrier(job, Workplace(folder=folder), environment).make_launcher({"OMP_NUM_THREADS": "3"})


def test_trials_of_a_job_are_started_as_the_run_asked_for_it(tmp_path: Path) -> None:
    environment = replace(CPU, devices=gpus("a", 2))
    plan = a_plan(a_block())
    default = launcher_of(job_of(plan, CPU, entry=""), CPU, tmp_path)
    assert isinstance(default, LocalLauncher)
    assert (default.gpu, default.isolation, default.entry) == (False, "zygote", "harness.trial.worker:main")
    other = launcher_of(job_of(plan, CPU, gpu=True, isolation="spawn", per_node=2), environment, tmp_path)
    assert isinstance(other, LocalLauncher), "one node needs no job step"
    assert (other.gpu, other.isolation, other.entry) == (True, "spawn", "tests.trial.child:main")
    assert other.variables == {"OMP_NUM_THREADS": "3"}
    several = launcher_of(job_of(plan, CPU, gpu=True, nodes=3, per_node=2), environment, tmp_path)
    assert isinstance(several, SeveralNodes)
    assert (several.nodes, several.ranks_per_node) == (3, 2)


def test_rounds_run_side_by_side_on_a_node_and_one_at_a_time_over_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three ranks on three nodes of two GPUs: one on each, so that a second trial would share the same three GPUs."""
    monkeypatch.setattr(node, "this_machine", lambda: replace(CPU, devices=gpus("a", 2)))
    monkeypatch.setattr(node, "meters", tuple)
    place, plan = Workplace(folder=tmp_path), a_plan(a_block())
    one = node._carrier(job_of(plan, CPU, gpu=True, per_node=2), place, replace(CPU, devices=gpus("a", 2)))
    assert (one.width, [one.watched(devices) for devices in (1, 2)]) == (2, [1, 2])
    assert one.watch(["GPU-a0", "GPU-a1"]) == ("GPU-a0", "GPU-a1")
    six = tuple(device for host in "abc" for device in gpus(host, 2))
    several = node._carrier(job_of(plan, CPU, gpu=True, nodes=3, per_node=2), place, replace(CPU, devices=six))
    assert several.width == 1
    assert [several.watched(devices) for devices in (0, 1, 2, 3, 4, 6)] == [0, 1, 2, 1, 2, 2]
    assert several.watch(device.uuid for device in six) == ("GPU-a0", "GPU-a1"), "those of other nodes are not seen"
