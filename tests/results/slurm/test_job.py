"""A job's file: what was planned arrives on the node as it was."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from harness.environment import Device, Environment
from harness.results.carrier import Orders
from harness.results.lines import write_lines
from harness.results.record import Record
from harness.results.rounds import Round, rounds_of
from harness.results.slurm.cluster import GONE, Cluster, JobState, batch_script
from harness.results.slurm.job import Job, errand_of, label
from harness.results.slurm.node import Outbox, environment_from
from harness.results.slurm.sent import Said, Sent
from harness.results.store import Store
from harness.trial.interrupts import Interrupts
from harness.trial.outcome import Outcome
from tests.records import many_records
from tests.results.plans import a_block, a_plan

HERE = Environment(cores=2, processor="a CPU", packages={"torch": "2.13.0"})
PLAN = a_plan(a_block("a", options={"seconds": 0.5}), a_block("b", rounds=1), refusals={"batch_size=2": "no GPU here"})


def job_of(rounds: list[Round], **others: object) -> Job:
    blocks = list({each.key: each.block for each in rounds}.values())
    errands = tuple(
        errand_of(each, blocks.index(each.block), Orders(attempts={trial.arm.name: 3 for trial in each.trials}))
        for each in rounds
    )
    fields = {"name": "claimbench-1", "scale": PLAN.scale, "gpu": False, "seconds": 600.0, "data_folder": "data"}
    return Job(**{**fields, "blocks": tuple(blocks), "errands": errands, **others})  # type: ignore[arg-type]


def test_the_first_job_of_a_store_makes_its_folders(tmp_path: Path) -> None:
    """Where a run keeps its jobs is no path that a user could mistype."""
    folder = tmp_path / "slurm" / "jobs" / "claimbench-1"
    job_of(list(rounds_of(PLAN, HERE))).write(folder)
    assert Job.read(folder).name == "claimbench-1"


def test_rounds_arrive_as_they_were_sent(tmp_path: Path) -> None:
    sent = list(rounds_of(PLAN, HERE))
    job_of(sent).write(tmp_path)
    arrived = [each for _, each in Job.read(tmp_path).rounds(HERE)]
    assert arrived == sent
    assert [trial.arm.cell.key for each in arrived for trial in each.trials] == [
        trial.arm.cell.key for each in sent for trial in each.trials
    ]
    assert [label(each) for each in arrived] == [label(each) for each in sent]


def test_a_machine_as_it_was_told() -> None:
    gpu = Device(index=3, name="NVIDIA H100", uuid="GPU-1", memory_bytes=1, compute_capability=(9, 0))
    told = replace(HERE, devices=(gpu,))
    assert environment_from(told.as_json()) == told


def test_a_node_of_another_kind_runs_nothing_and_says_what_it_is(tmp_path: Path) -> None:
    job = job_of(list(rounds_of(PLAN, HERE)))
    with Interrupts() as interrupts:
        outbox = Outbox(folder=tmp_path, job=job, interrupts=interrupts)
        outbox.expect(job, replace(HERE, processor="another CPU"))
        outbox.end()
    assert outbox.expected == {}
    said = Sent(folder=tmp_path, rounds={}).said()
    assert said is not None
    assert said.unlike["processor"] == ["another CPU", 2]


def test_rounds_that_do_not_fit_or_come_after_a_stop_are_left_for_later(tmp_path: Path) -> None:
    first, second, third = rounds_of(PLAN, HERE)
    job = job_of([first, second, third], expected={label(first): 10.0, label(second): 700.0})
    job.write(tmp_path)
    with Interrupts() as interrupts:
        outbox = Outbox(folder=tmp_path, job=job, interrupts=interrupts)
        outbox.expect(job, HERE)
        assert outbox.begin(first) == Orders(attempts={"baseline": 3, "control": 3, "batch_size=2": 3})
        assert outbox.begin(second) is None, "700 s do not fit into 600 s"
        (tmp_path / "stop").touch()
        assert outbox.begin(third) is None
        outbox.end()
    assert Sent(folder=tmp_path, rounds={}).said() == Said(postponed=frozenset({label(second), label(third)}))


def test_a_job_whose_folder_was_removed_begins_nothing(tmp_path: Path) -> None:
    """Slurm may not find every process of a job that it cancels: one that lives on has nobody to work for."""
    (first, second, *_) = rounds_of(PLAN, HERE)
    job = job_of([first, second])
    job.write(tmp_path / "job")
    with Interrupts() as interrupts:
        outbox = Outbox(folder=tmp_path / "job", job=job, interrupts=interrupts)
        outbox.expect(job, HERE)
        assert outbox.begin(first) is not None
        Sent(folder=tmp_path / "job", rounds={}).remove()
        assert outbox.begin(second) is None


def test_a_job_is_over_when_slurm_or_its_own_word_says_so_and_lost_after_a_second_look(tmp_path: Path) -> None:
    (first, *_) = rounds_of(PLAN, HERE)
    sent = Sent(folder=tmp_path, rounds={label(first): first})
    sent.look(JobState(number="7", state="RUNNING"))
    assert not sent.ended
    sent.look(GONE)
    assert not sent.ended, "its files may not be seen here yet"
    sent.look(GONE)
    assert sent.ended
    assert (sent.state.number, sent.state.state) == ("7", "GONE")


@pytest.mark.parametrize(("done", "blameless"), [(0, False), (1, True), (2, True)])
def test_rounds_that_a_job_had_no_time_for_count_as_lost_only_where_it_had_time_for_none(
    tmp_path: Path, done: int, blameless: bool
) -> None:
    """Those before them may have come back, and been stored by the run before."""
    rounds = {label(each): each for each in rounds_of(PLAN, HERE)}
    job_of(list(rounds.values())).write(tmp_path)
    left = dict(list(rounds.items())[done:])
    (tmp_path / "ended.json").write_text(json.dumps({"postponed": list(left), "unlike": {}}), encoding="utf-8")
    sent = Sent(folder=tmp_path, rounds=left)
    assert sent.out_of_time() == (left.keys() if blameless else set())


def test_a_job_that_did_not_come_to_its_own_end_had_no_lack_of_time(tmp_path: Path) -> None:
    job_of(list(rounds_of(PLAN, HERE))).write(tmp_path)
    assert Sent(folder=tmp_path, rounds={}).out_of_time() == set()


def test_a_job_that_is_being_ended_is_with_slurm_and_begins_nothing_more() -> None:
    """It may be one that the run before has cancelled: whoever waits for its rounds would find them lost."""
    ending = JobState(number="7", state="COMPLETING")
    assert (ending.active, ending.ending) == (True, True)
    running = JobState(number="7", state="RUNNING")
    assert (running.active, running.ending) == (True, False)


def leave(folder: Path, each: Round, *, arms: int | None = None, fingerprint: str = "") -> str:
    """A round's file as a job leaves it; the name of the round."""
    (folder / "rounds").mkdir(exist_ok=True)
    record = replace(
        many_records(1)[0], block=each.key, round=each.number,
        fingerprint=fingerprint or each.circumstances.fingerprint,
    )  # fmt: skip
    records = [replace(record, arm=trial.arm.name) for trial in each.trials[:arms]]
    write_lines(records, folder / "rounds" / f"{label(each)}.jsonl")
    return label(each)


def test_what_comes_back_of_a_job_is_taken_for_what_was_asked_where_it_is_all_of_that(tmp_path: Path) -> None:
    """The fourth round is another plan's, the second lacks a cell, the third is of another machine."""
    first, second, third = rounds_of(PLAN, HERE)
    (strange,) = rounds_of(a_plan(a_block("c", rounds=1)), HERE)
    sent = Sent(folder=tmp_path, rounds={label(each): each for each in (first, second, third)})
    sent.others = {label(strange)}
    leave(tmp_path, first)
    leave(tmp_path, second, arms=2)
    leave(tmp_path, third, fingerprint="0" * 16)
    leave(tmp_path, strange)
    found = {}
    for each, records in sent.delivered():
        name = f"{records[0].block}-r{records[0].round}"
        assert (tmp_path / "rounds" / f"{name}.jsonl").exists(), "until it is stored"
        found[name] = each
    assert found == {label(first): first, label(second): None, label(third): None, label(strange): None}
    assert list((tmp_path / "rounds").iterdir()) == []
    assert (sent.rounds.keys(), sent.others) == ({label(second), label(third)}, set())


def test_a_job_of_a_run_before_is_waited_for_with_all_its_rounds_those_of_this_plan_as_answers(tmp_path: Path) -> None:
    """The plan has been given a cell in its second block since, and a round that no job holds."""
    first, second, third = rounds_of(PLAN, HERE)
    job_of([first, second, third], nodes=2).write(tmp_path)
    wider = replace(third, trials=(*third.trials, replace(third.trials[0], arm=replace(third.block.arms[0], name="d"))))
    missing = {label(first): first, label(third): wider, "new": second}
    sent = Sent(folder=tmp_path, rounds={})
    sent.take(missing)
    assert (sent.rounds, sent.others) == ({label(first): first}, {label(second), label(third)})
    assert missing == {label(third): wider, "new": second}
    assert sent.nodes == 2


def test_a_job_that_runs_rounds_of_another_plan_alone_is_waited_for(tmp_path: Path) -> None:
    sent = Sent(folder=tmp_path, rounds={}, others={"another-r1"})
    (tmp_path / "ended.json").write_text('{"postponed": [], "unlike": {}}', encoding="utf-8")
    running = JobState(number="7", state="RUNNING")
    sent.look(running)
    assert not sent.ended
    sent.others.clear()
    assert sent.ended, "by its own word, before Slurm has noticed"


def test_looks_at_a_job_that_runs_do_not_count(tmp_path: Path) -> None:
    sent = Sent(folder=tmp_path, rounds={}, others={"another-r1"})
    for state in (JobState(state="PENDING"), JobState(state="RUNNING"), GONE):
        sent.look(state)
        assert not sent.ended


@pytest.mark.parametrize(
    ("text", "line"), [("first\nlast \n\n  \n", "last"), ("", ""), (None, ""), ("x" * 300, "x" * 200)]
)
def test_the_last_words_of_a_job(tmp_path: Path, text: str | None, line: str) -> None:
    log = tmp_path / "7_0_log.out"
    if text is not None:
        log.write_text(text, encoding="utf-8")
    assert Sent(folder=tmp_path, rounds={}).last_line(log) == line


@pytest.fixture
def whole() -> list[Record]:
    """A round of a block, as a job would leave it."""
    records = many_records(20)
    first = records[0]
    return [each for each in records if (each.block, each.round) == (first.block, first.round)]


def test_a_round_that_comes_back_twice_is_kept_once(tmp_path: Path, whole: list[Record]) -> None:
    with Store.open(tmp_path / "results.sqlite", writable=True) as store:
        assert store.add_round(whole)
        assert store.add_round(whole)
        again = [replace(record, started_at="2031-01-01T00:00:00.000+00:00") for record in whole]
        assert not store.add_round(again), "another run of a round that is there already"
        assert store.count() == len(whole)


def test_a_round_that_comes_back_replaces_what_an_unfinished_run_left(tmp_path: Path, whole: list[Record]) -> None:
    half = replace(whole[0], started_at="2021-01-01T00:00:00.000+00:00", outcome=Outcome.INTERRUPTED)
    with Store.open(tmp_path / "results.sqlite", writable=True) as store:
        store.add(half)
        assert store.add_round(whole)
        valid = list(store.records(include_superseded=False))
        assert sorted(record.arm for record in valid) == sorted(record.arm for record in whole)
        assert store.count() == len(whole) + 1, "nothing stored is removed"


def test_the_batch_script_asks_for_what_the_options_say(tmp_path: Path) -> None:
    cluster = Cluster(
        partition="gpu", account="lab", gpus_per_node=8, minutes=120, extra={"qos": "high", "exclusive": ""}
    )
    lines = batch_script(cluster, tmp_path, name="claimbench-1", nodes=2).splitlines()
    asked = {line.removeprefix("#SBATCH --") for line in lines if line.startswith("#SBATCH")}
    wanted = {
        "partition=gpu", "account=lab", "gpus-per-node=8", "time=120", "qos=high", "exclusive", "nodes=2",
        "ntasks-per-node=1", "no-requeue", "job-name=claimbench-1",
    }  # fmt: skip
    assert wanted <= asked
    (command,) = (line for line in lines if "submitit.core" in line)
    assert command.startswith(shlex.quote(sys.executable)), "on the first node alone: no srun"
