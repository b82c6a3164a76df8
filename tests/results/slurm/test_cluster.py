"""What is asked of Slurm's commands, and what is made of their words; stand-ins for them answer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.errors import EnvironmentProblem
from harness.results.slurm import cluster as slurm
from harness.results.slurm.cluster import Cluster, JobState, QueueFull


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Comes first where commands are looked for."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    return folder


def stand_in(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    (folder / name).chmod(0o700)


def submit(folder: Path) -> str:
    return slurm.submit(Cluster(), folder / "submitit", print, "words", name="claimbench-1", nodes=1)


def test_jobs_are_told_apart_by_name_whatever_another_is_called(bin_folder: Path) -> None:
    lines = ("claimbench-1|7|RUNNING|None", "a|b|8|PENDING|Resources", "c|9|PENDING|(null)", "", "slurm_load: no|more")
    stand_in(bin_folder, "squeue", f"printf '%s\\n' {' '.join(repr(line) for line in lines)}")
    assert slurm.states() == {
        "claimbench-1": JobState(number="7", state="RUNNING", reason="None"),
        "a|b": JobState(number="8", state="PENDING", reason="Resources"),
        "c": JobState(number="9", state="PENDING", reason="(null)"),
    }


def test_slurm_that_does_not_answer_is_said_in_its_last_words(bin_folder: Path) -> None:
    stand_in(bin_folder, "squeue", "echo first >&2; echo 'Unable to contact slurm controller' >&2; exit 1")
    with pytest.raises(EnvironmentProblem, match=r"does not answer \(Unable to contact slurm controller\); what is"):
        slurm.states()


@pytest.mark.parametrize(("pending_only", "asked"), [(False, ""), (True, " --state=PENDING")])
def test_jobs_of_the_user_are_cancelled_by_name(
    bin_folder: Path, tmp_path: Path, pending_only: bool, asked: str
) -> None:
    stand_in(bin_folder, "scancel", f'echo "$@" >> {tmp_path}/asked; exit 1')
    slurm.cancel(["claimbench-1", "claimbench-2"], pending_only=pending_only)
    user = slurm._user()
    assert (tmp_path / "asked").read_text().splitlines() == [
        f"--user={user}{asked} --name=claimbench-{number}" for number in (1, 2)
    ]


@pytest.mark.parametrize(
    "said",
    [
        "Slurm temporarily unable to accept job, sleeping and retrying",
        "sbatch: error: QOSMaxSubmitJobPerUserLimit",
        "sbatch: error: Batch job submission failed: Resource temporarily unavailable",
    ],
)
def test_a_full_queue_is_no_refusal(bin_folder: Path, tmp_path: Path, said: str) -> None:
    stand_in(bin_folder, "sbatch", f"echo '{said}' >&2; exit 1")
    with pytest.raises(QueueFull):
        submit(tmp_path)


def test_a_refusal_is_told_in_the_last_sentence_of_sbatch(bin_folder: Path, tmp_path: Path) -> None:
    stand_in(bin_folder, "sbatch", "echo 'sbatch: a hint' >&2; echo 'sbatch: error: no such account' >&2; exit 1")
    with pytest.raises(EnvironmentProblem, match=r"Slurm refused the job \(no such account\)"):
        submit(tmp_path)


def test_what_submitit_pickles_is_closed_to_others_even_where_the_folder_was_there(
    bin_folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "submitit").mkdir(mode=0o755)
    stand_in(bin_folder, "sbatch", "echo 'Submitted batch job 17'")
    assert submit(tmp_path) == "17"
    assert (tmp_path / "submitit").stat().st_mode & 0o777 == 0o700
    assert slurm.log_of(tmp_path, "17") == tmp_path / "17_0_log.out"


@pytest.mark.parametrize(("state", "reason", "starts"), [
    ("PENDING", "PartitionTimeLimit", False), ("PENDING", "QOSMaxGRESPerJob", False), ("PENDING", "Resources", True),
    ("PENDING", "AssocGrpGRES", True), ("RUNNING", "PartitionTimeLimit", True),
])  # fmt: skip
def test_a_job_that_waits_for_what_will_not_come_is_an_error(state: str, reason: str, starts: bool) -> None:
    job = JobState(number="7", state=state, reason=reason)
    if starts:
        slurm.require_startable(job)
        return
    with pytest.raises(EnvironmentProblem, match=reason):
        slurm.require_startable(job)


def test_a_job_asks_for_nothing_that_was_not_named() -> None:
    asked = Cluster(minutes=30).parameters("claimbench-1", 2)
    assert asked.keys().isdisjoint({"partition", "account", "gpus_per_node"})
    assert (asked["time"], asked["nodes"], asked["additional_parameters"]) == (30, 2, {"no-requeue": True})


def test_ranks_of_a_node_are_its_gpus_or_what_was_said() -> None:
    assert Cluster(gpus_per_node=4, per_node=2).ranks_per_node == 4
    assert Cluster(per_node=2).ranks_per_node == 2
    assert Cluster().ranks_per_node is None
    assert [Cluster(gpus_per_node=count).lanes for count in (0, 1, 8)] == [1, 1, 8]
