"""The matrix on a real Slurm of two nodes: each trial once, blocks whole, whatever dies in between."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.environment import Environment
from harness.errors import EnvironmentProblem, LaunchError
from harness.results.collect import fill
from harness.results.events import Event, Notice, RunPlanned, TrialFinished
from harness.results.slurm import cluster as slurm
from harness.results.slurm.cluster import Cluster
from harness.results.slurm.probe import environment_of_a_node, known_environment
from harness.results.store import Store
from harness.trial.launch import LocalLauncher
from harness.trial.outcome import Outcome
from tests.cluster.driver import narrow, quick, real, run, slow, slower, wide
from tests.faults.runs import check_complete, losses
from tests.results.plans import a_block, a_plan

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]

#: These signals are heard by a command, whatever the tests were started to ignore.
HEARD = ("env", "--default-signal=HUP,INT")


def job_names(*, running: bool = False) -> dict[str, str]:
    """Job name → its node, of jobs of rounds."""
    command = ["squeue", "--states=" + ("RUNNING" if running else "all"), "--noheader", "--format=%j|%N"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return dict(line.split("|") for line in lines if line.startswith("claimbench-") and "probe" not in line)


def probes() -> list[str]:
    """Numbers of jobs that wait or run to look at a node."""
    lines = subprocess.run(
        ["squeue", "--noheader", "--format=%j|%A"], capture_output=True, text=True, check=True
    ).stdout.split()
    return [number for name, number in (line.split("|") for line in lines) if name.startswith("claimbench-probe-")]


def trials_begun(folder: Path) -> dict[str, int]:
    """Job number → trials that stand in its log, of jobs of a run that have begun one."""
    logs = (folder / ".claimbench" / "stores" / "results.sqlite" / "slurm" / "submitit").glob("*_log.out")
    begun = {log.name.partition("_")[0]: log.read_text().count(" round ") for log in logs}
    return {number: count for number, count in begun.items() if count}


def rounds_begun(folder: Path) -> int:
    """Jobs of a run in whose logs a trial stands."""
    return len(trials_begun(folder))


def node_with_most_to_do(folder: Path) -> str:
    """The node of the job that has begun fewest trials: on a busy machine the other may be nearly done."""
    begun = trials_begun(folder)
    command = ["squeue", f"--jobs={min(begun, key=lambda number: begun[number])}", "--noheader", "--format=%N"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def wait_for(what: Callable[[], object], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "waited too long"
        time.sleep(0.2)


class Parent:
    """`tests.cluster.driver` in a process of its own."""

    def __init__(self, folder: Path, plan: str, *, retries: int = 0) -> None:
        command = [*HEARD, sys.executable, "-m", "tests.cluster.driver", str(folder), plan, str(retries)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        self.lines: list[str] = []

    def finish(self) -> str:
        """Everything that it says up to its end."""
        said, _ = self.process.communicate(timeout=120)
        return said

    def wait_for_a_round(self) -> None:
        """Until one round has come back."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith("finished")


def jobs_of(folder: Path) -> Path:
    """Where the jobs of a run lie."""
    return folder / ".claimbench" / "stores" / "results.sqlite" / "slurm" / "jobs"


def kill_after_a_round(folder: Path, plan: str) -> None:
    """The end of a run whose two jobs run on, with one round stored."""
    parent = Parent(folder, plan)
    parent.wait_for_a_round()
    parent.process.kill()
    parent.process.wait()
    assert len(job_names(running=True)) == 2, "jobs go on without the run"


def command(folder: Path, *options: str) -> subprocess.Popen[str]:
    """`claimbench run` of a matrix of one study, three cells and three rounds, in jobs of the cluster."""
    matrix = folder / "matrix.yaml"
    matrix.write_text(
        "schema: 1\nrounds: 3\nworkloads: {small: {model: tiny, data: synthetic, sequence_length: 16, batch_size: 1}}\n"
        "studies: {attention: {workload: small, axes: {attention: [eager]}, warmup_steps: 2, steps: 100000}}\n"
    )
    where = ["--matrix", str(matrix), "--store", str(folder / "results.sqlite"), "--launcher", "slurm", "--time", "10m"]
    return subprocess.Popen(
        [*HEARD, sys.executable, "-m", "harness.cli", "run", *where, *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_the_same_trials_once_each_on_two_nodes_with_the_losses_of_a_local_run(
    tmp_path: Path, two_nodes: Cluster, here: Environment, session_launcher: LocalLauncher
) -> None:
    plan, before = real(), job_names()
    summary = run(tmp_path, plan, here, entry="")
    assert (summary.left, summary.outcomes) == (0, Counter({Outcome.OK: 6}))
    remote = check_complete(tmp_path, plan)
    jobs = {name: node for name, node in job_names().items() if name not in before}
    assert sorted(jobs.values()) == ["n1", "n2"]

    local = tmp_path / "local"
    with Store.open(local / "results.sqlite", writable=True) as store:
        fill(store, plan, session_launcher, here)
    assert losses(remote) == losses(check_complete(local, plan))
    assert all(record.losses for record in remote)

    hosts = defaultdict(set)
    for record in remote:
        hosts[record.block, record.round].add((record.environment["host"], record.fingerprint))
    assert all(len(each) == 1 for each in hosts.values()), "no round is split"
    pickles = tmp_path / ".claimbench" / "stores" / "results.sqlite" / "slurm" / "submitit"
    assert stat.S_IMODE(pickles.stat().st_mode) == 0o700
    assert list((tmp_path / ".claimbench" / "stores" / "results.sqlite" / "slurm" / "jobs").iterdir()) == []
    assert run(tmp_path, plan, here).launched == 0, "a second run sends nothing"


def test_a_cancelled_job_is_sent_again_up_to_retries(tmp_path: Path, two_nodes: Cluster, here: Environment) -> None:
    before = job_names()
    parent = Parent(tmp_path, "slow", retries=1)
    wait_for(lambda: rounds_begun(tmp_path) == 2)
    slurm.cancel([min(set(job_names(running=True)) - set(before))])
    text = parent.finish()
    assert "ended as CANCELLED" in text
    assert "sent again" in text
    assert parent.process.returncode == 0, text
    check_complete(tmp_path, slow())


def test_without_retries_the_next_run_does_what_a_cancelled_job_left(
    tmp_path: Path, two_nodes: Cluster, here: Environment
) -> None:
    before = job_names()
    parent = Parent(tmp_path, "slow")
    wait_for(lambda: len(set(job_names(running=True)) - set(before)) == 2)
    slurm.cancel([min(set(job_names(running=True)) - set(before))])
    said = parent.finish()
    assert "the next run will do them (or --retries)" in said
    assert "2 rounds lost; 6 left" in said
    again = run(tmp_path, slow(), here)
    assert (again.stored_before, again.left) == (6, 0)
    check_complete(tmp_path, slow())


def test_a_command_that_lost_a_job_ends_as_an_error_with_what_to_do(tmp_path: Path, two_nodes: Cluster) -> None:
    before = job_names()
    process = command(tmp_path, "--no-report")
    wait_for(lambda: set(job_names(running=True)) - set(before))
    slurm.cancel(list(set(job_names()) - set(before)))
    out, error = process.communicate(timeout=120)
    assert process.returncode == 2, error
    assert "3 rounds lost; 9 left" in " ".join(out.split())
    assert error.splitlines()[-1].startswith(
        "error: rounds that were lost with their Slurm jobs: 3. What ran is kept in"
    )
    assert "run the same command again (--retries 1 sends such rounds again at once)" in error


def test_a_node_that_dies_loses_no_round(
    tmp_path: Path, two_nodes: Cluster, here: Environment, kill_node: Callable[[str], None]
) -> None:
    parent = Parent(tmp_path, "slower", retries=1)
    wait_for(lambda: rounds_begun(tmp_path) == 2)
    assert sorted(job_names(running=True).values()) == ["n1", "n2"]
    kill_node(node_with_most_to_do(tmp_path))
    text = parent.finish()
    assert "ended as NODE_FAIL" in text
    assert parent.process.returncode == 0, text
    check_complete(tmp_path, slower())


def test_a_run_that_is_killed_leaves_its_jobs_and_the_next_takes_them_over(
    tmp_path: Path, two_nodes: Cluster, here: Environment
) -> None:
    before = job_names()
    kill_after_a_round(tmp_path, "slow")
    summary = run(tmp_path, slow(), here)
    assert summary.left == 0
    records = check_complete(tmp_path, slow())
    assert len(records) == 12
    with Store.open(tmp_path / "results.sqlite") as store:
        assert store.count() == 12, "no trial ran twice"
    assert len(set(job_names()) - set(before)) == 2, "no job was sent twice"


def test_rounds_of_a_run_that_was_killed_are_stored_by_a_run_of_another_plan(
    tmp_path: Path, two_nodes: Cluster, here: Environment
) -> None:
    """Its jobs run on under the other plan, of which no round is theirs."""
    kill_after_a_round(tmp_path, "slow")
    other = a_block("c", options={"seconds": 0.2})
    summary = run(tmp_path, a_plan(other), here)
    assert (summary.planned, summary.left, summary.outcomes) == (6, 0, Counter({Outcome.OK: 6}))
    check_complete(tmp_path, a_plan(*{trial.block.key: trial.block for trial in slow().trials}.values(), other))
    again = run(tmp_path, slow(), here)
    assert (again.stored_before, again.launched) == (12, 0)


def test_rounds_of_jobs_that_end_as_the_next_run_begins_are_stored(
    tmp_path: Path, two_nodes: Cluster, here: Environment
) -> None:
    """After it has looked for what came back, and before it looks for jobs: while it prepares data, for instance."""
    before = job_names()
    kill_after_a_round(tmp_path, "slow")

    def wait_at_the_plan(event: Event) -> None:
        if isinstance(event, RunPlanned):
            wait_for(lambda: len(list(jobs_of(tmp_path).glob("*/ended.json"))) == 2)

    assert run(tmp_path, slow(), here, on_event=wait_at_the_plan).left == 0
    check_complete(tmp_path, slow())
    with Store.open(tmp_path / "results.sqlite") as store:
        assert store.count() == 12, "no trial ran twice"
    assert len(set(job_names()) - set(before)) == 2, "no job was sent twice"
    assert list(jobs_of(tmp_path).iterdir()) == []


def test_a_cell_that_was_added_after_a_run_was_killed_is_measured_in_whole_rounds(
    tmp_path: Path, two_nodes: Cluster, here: Environment
) -> None:
    """What its jobs bring back is of the same blocks and lacks the cell: it is stored, and its rounds run again."""
    assert {trial.block.key for trial in wide().trials} == {trial.block.key for trial in narrow().trials}
    kill_after_a_round(tmp_path, "narrow")
    summary = run(tmp_path, wide(), here)
    assert (summary.left, summary.outcomes) == (0, Counter({Outcome.OK: 16}))
    check_complete(tmp_path, wide())
    with Store.open(tmp_path / "results.sqlite") as store:
        assert store.count() == 12 + 16


def test_ctrl_c_once_lets_rounds_that_run_come_back_and_twice_cancels_them(
    tmp_path: Path, two_nodes: Cluster, here: Environment
) -> None:
    parent = Parent(tmp_path, "slow")
    wait_for(lambda: rounds_begun(tmp_path) == 2)
    os.kill(parent.process.pid, signal.SIGINT)
    text = parent.finish()
    assert parent.process.returncode == 130
    assert text.count("finished") == 6, "the two rounds that ran are whole, the others were not begun"
    parent = Parent(tmp_path, "slow")
    wait_for(lambda: rounds_begun(tmp_path) > 2)
    os.kill(parent.process.pid, signal.SIGINT)
    time.sleep(0.5)
    os.kill(parent.process.pid, signal.SIGINT)
    parent.finish()
    wait_for(lambda: not job_names(running=True))
    assert run(tmp_path, slow(), here).left == 0
    check_complete(tmp_path, slow())


def test_a_run_whose_terminal_is_closed_leaves_its_jobs_to_the_next(
    tmp_path: Path, two_nodes: Cluster, here: Environment
) -> None:
    before = job_names()
    parent = Parent(tmp_path, "slow")
    parent.wait_for_a_round()
    os.kill(parent.process.pid, signal.SIGHUP)
    parent.finish()
    assert parent.process.returncode == 130
    assert len(job_names(running=True)) == 2
    assert run(tmp_path, slow(), here).left == 0
    check_complete(tmp_path, slow())
    with Store.open(tmp_path / "results.sqlite") as store:
        assert store.count() == 12, "no trial ran twice"
    assert len(set(job_names()) - set(before)) == 2, "no job was sent twice"


def test_sigterm_cancels_all_jobs_and_lets_what_slurm_does_not_find_of_them_begin_nothing(
    tmp_path: Path, two_nodes: Cluster
) -> None:
    before = job_names()
    parent = Parent(tmp_path, "slower")
    wait_for(lambda: len(set(job_names(running=True)) - set(before)) == 2)
    parent.process.terminate()
    parent.finish()
    assert parent.process.returncode == 130
    wait_for(lambda: not job_names(running=True))
    assert [(job / "stop").exists() for job in jobs_of(tmp_path).iterdir()] == [True, True]


def test_a_run_that_is_started_again_at_once_waits_for_no_job_that_was_cancelled(
    tmp_path: Path, two_nodes: Cluster, here: Environment
) -> None:
    """Slurm may still be ending them."""
    parent = Parent(tmp_path, "slow")
    parent.wait_for_a_round()
    parent.process.terminate()
    parent.finish()
    summary = run(tmp_path, slow(), here)
    assert (summary.left, summary.rounds_lost) == (0, 0)
    check_complete(tmp_path, slow())


def test_two_ranks_on_two_nodes_meet_under_torchrun_and_no_other_job_is_sent_meanwhile(
    tmp_path: Path, two_nodes: Cluster, here: Environment
) -> None:
    """As many nodes are in use at a time as were asked for: a cluster may have more."""
    sizes: dict[str, Any] = {"workload": real().trials[0].arm.cell.workload, "sizes": (), "rounds": 1, "steps": 3}
    wide = a_block("wide", **sizes, settings={"sequence_length": 16, "devices": 2, "parallel": "ddp"})
    narrow = a_block("narrow", **sizes, settings={"sequence_length": 16})
    plan = a_plan(*(replace(block, arms=block.arms[:1]) for block in (narrow, wide)))
    jobs: dict[str, int] = {}

    def count(event: Event) -> None:
        if isinstance(event, TrialFinished):
            jobs[event.trial.block.study] = len(list(jobs_of(tmp_path).iterdir()))

    summary = run(tmp_path, plan, here, cluster=replace(two_nodes, per_node=1), entry="", on_event=count)
    (record,) = (each for each in check_complete(tmp_path, plan) if each.study == "wide")
    assert summary.outcomes == Counter({Outcome.OK: 2}), record.reason
    assert record.evidence["parallel"]["holds"]
    assert len(record.ranks) == 2
    (nodes,) = {node for node in job_names().values() if "[" in node}
    assert nodes == "n[1-2]"
    assert jobs == {"wide": 1, "narrow": 1}


def test_nothing_in_the_working_folder_is_imported_by_a_job(
    tmp_path: Path, two_nodes: Cluster, here: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `json.py` of the user's, say: jobs start where the run was started."""
    for name in ("json", "random", "harness", "torch"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('this ran')", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    assert run(tmp_path, a_plan(a_block(rounds=1)), here).outcomes == Counter({Outcome.OK: 3})


def test_a_checkout_that_is_not_installed_is_found_by_jobs_of_a_run_that_was_started_there(
    tmp_path: Path, two_nodes: Cluster, here: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir(ROOT)
    assert run(tmp_path, a_plan(a_block(rounds=1)), here).outcomes == Counter({Outcome.OK: 3})


def test_a_node_tells_what_it_is_like_once(tmp_path: Path, two_nodes: Cluster, here: Environment) -> None:
    assert known_environment(two_nodes, tmp_path) is None
    told = environment_of_a_node(replace(two_nodes, nodes=1), tmp_path, poll_seconds=0.5)
    assert (told.processor, told.cores, told.packages) == (here.processor, here.cores, here.packages)
    assert known_environment(replace(two_nodes, nodes=1), tmp_path) == told


def test_a_node_of_another_kind_is_refused_with_what_it_is(
    tmp_path: Path, two_nodes: Cluster, here: Environment
) -> None:
    other = replace(here, processor="another CPU")
    with pytest.raises(LaunchError, match=r"a node is not like the one .* --slurm constraint=h100"):
        run(tmp_path, a_plan(a_block(rounds=1)), other)


def test_no_such_partition_is_said_with_a_suggestion(tmp_path: Path, two_nodes: Cluster, here: Environment) -> None:
    with pytest.raises(EnvironmentProblem, match=r"no partition 'tets'; did you mean 'test'\?"):
        run(tmp_path, quick(), here, cluster=replace(two_nodes, partition="tets"))


def test_what_slurm_refuses_is_said_in_its_own_words(tmp_path: Path, two_nodes: Cluster, here: Environment) -> None:
    with pytest.raises(EnvironmentProblem, match=r"Slurm refused the job \(.*Invalid license specification.*\)"):
        run(tmp_path, quick(), here, cluster=replace(two_nodes, extra={"licenses": "none-such:1"}))
    with pytest.raises(EnvironmentProblem, match=r"Slurm refused the job \(unrecognized option '--none-such"):
        run(tmp_path, quick(), here, cluster=replace(two_nodes, extra={"none-such": "1"}))


def test_a_job_that_would_wait_for_ever_is_said(tmp_path: Path, two_nodes: Cluster, here: Environment) -> None:
    """The partition lets a job run for an hour; Slurm takes a longer one all the same, and never starts it."""
    with pytest.raises(EnvironmentProblem, match=r"would never start the jobs \(PartitionTimeLimit\); change --time"):
        run(tmp_path, quick(), here, cluster=replace(two_nodes, minutes=90))


def test_a_first_job_that_would_wait_for_ever_is_said_and_cancelled(tmp_path: Path, two_nodes: Cluster) -> None:
    with pytest.raises(EnvironmentProblem, match=r"would never start the jobs \(PartitionTimeLimit\); change --time"):
        environment_of_a_node(replace(two_nodes, minutes=90), tmp_path, poll_seconds=0.2)
    wait_for(lambda: not probes())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_says_what_its_first_job_waits_for_and_cancels_it_when_it_is_stopped(
    tmp_path: Path, two_nodes: Cluster, number: signal.Signals
) -> None:
    with command(tmp_path, "--slurm", "hold=") as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        (job,) = probes()
        assert said == f"waiting for job {job}, which looks at a node (JobHeldUser)\n"
        process.send_signal(number)
        rest = process.stderr.read()
    assert process.returncode == 130
    assert rest.startswith("stopped; ")
    wait_for(lambda: not probes())


def test_a_full_queue_is_said(
    tmp_path: Path, two_nodes: Cluster, here: Environment, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's limit needs an accounting database: here it is the whole queue's."""
    monkeypatch.setattr(slurm, "_SECONDS_TO_SUBMIT", 4)  # sbatch itself would go on for two minutes
    notices: list[Event] = []
    configuration = folder / "slurm.conf"
    text = configuration.read_text()
    configuration.write_text(text.replace("MaxJobCount=100", "MaxJobCount=1"))
    subprocess.run(["scontrol", "reconfigure"], check=True)
    try:
        with pytest.raises(EnvironmentProblem, match="Slurm's queue is full and takes no job now"):
            run(tmp_path, quick(), here, on_event=notices.append)
    finally:
        configuration.write_text(text)
        subprocess.run(["scontrol", "reconfigure"], check=True)
    assert not [each for each in notices if isinstance(each, Notice)]
    assert list((tmp_path / ".claimbench" / "stores" / "results.sqlite" / "slurm" / "jobs").iterdir()) == []
