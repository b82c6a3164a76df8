"""Slurm as the run sees it: what a job asks for, and the commands that the run calls.

submitit writes the batch script and starts our function on the node. Its folder holds pickles, so nobody else may write
there (mode 0700); what comes back comes as JSON lines, and none of its result files is ever loaded.
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import EnvironmentProblem, suggestion
from harness.trial import processes

#: States in which Slurm still has something to do for a job (squeue(1), "JOB STATE CODES").
ACTIVE = frozenset({
    "PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT",
    "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT",
})  # fmt: skip
#: Reasons for which a job would wait for ever (squeue(1), "JOB REASON CODES").
NEVER = frozenset({
    "PartitionTimeLimit", "PartitionNodeLimit", "BadConstraints", "InvalidAccount", "InvalidQOS", "AccountNotAllowed",
    "QOSNotAllowed",
    # limits of an account or a QOS on one job; those on all jobs together let it start later
    "AssocMaxWallDurationPerJobLimit", "AssocMaxNodePerJobLimit", "AssocMaxCpuPerJobLimit", "AssocMaxGRESPerJob",
    "QOSMaxWallDurationPerJobLimit", "QOSMaxNodePerJobLimit", "QOSMaxCpuPerJobLimit", "QOSMaxGRESPerJob",
})  # fmt: skip
#: sbatch waits for two minutes for a queue that is full; a job that is not taken by then is offered again later.
_SECONDS_TO_SUBMIT = 20
_FULL = (
    "temporarily unable to accept job", "job queue full", "job submit limit", "QOSMaxSubmitJobPerUserLimit",
    "AssocMaxSubmitJobLimit", "Resource temporarily unavailable",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class JobState:
    """A job as Slurm remembers it."""

    number: str = ""
    state: str = "GONE"
    """Slurm's word; `GONE`: it remembers none."""
    reason: str = ""
    """Why it waits, in Slurm's word."""

    @property
    def active(self) -> bool:
        return self.state in ACTIVE

    @property
    def ending(self) -> bool:
        """Its processes are being ended, or have ended: it begins nothing more."""
        return self.state == "COMPLETING"


GONE = JobState()


class QueueFull(Exception):  # noqa: N818 - a fact about the queue; the carrier waits, or says so
    """Slurm takes no further job now."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """What every job asks for."""

    partition: str = ""
    """Empty: the default one."""
    account: str = ""
    gpus_per_node: int = 0
    """Of a job; 0: it runs on CPUs."""
    per_node: int | None = None
    """Ranks of one trial on a node, where there are no GPUs to count; None: all of them."""
    minutes: int = 120
    """Time limit of a job."""
    nodes: int = 1
    """Nodes in use at a time."""
    extra: Mapping[str, str] = field(default_factory=dict)
    """Further options of sbatch, by their long names; an empty value is a bare flag."""

    @property
    def lanes(self) -> int:
        """Rounds of one device that a node runs side by side."""
        return max(1, self.gpus_per_node)

    @property
    def ranks_per_node(self) -> int | None:
        return self.gpus_per_node or self.per_node

    def parameters(self, name: str, nodes: int) -> dict[str, Any]:
        """As submitit takes them."""
        asked = {
            "job_name": name, "time": self.minutes, "nodes": nodes, "ntasks_per_node": 1, "use_srun": False,
            "stderr_to_stdout": True,
            # a lost job is submitted again by the run, which counts; --signal would only end a torchrun early
            "additional_parameters": {"no-requeue": True, **{key: value or True for key, value in self.extra.items()}},
        }  # fmt: skip
        named = {"partition": self.partition, "account": self.account, "gpus_per_node": self.gpus_per_node}
        return {**asked, **{key: value for key, value in named.items() if value}}


def require_slurm() -> None:
    """
    Raises:
        EnvironmentProblem: no sbatch here, or submitit is not installed.
    """
    if shutil.which("sbatch") is None:
        raise EnvironmentProblem(
            "there is no sbatch on this machine; run claimbench where Slurm's commands are (a login node), or leave"
            " --launcher slurm out"
        )
    require_submitit()


def require_submitit() -> None:
    """
    Raises:
        EnvironmentProblem: submitit is not installed.
    """
    try:
        import submitit  # noqa: F401
    except ImportError as error:
        raise EnvironmentProblem("--launcher slurm needs submitit; pip install submitit") from error


def require_partition(cluster: Cluster) -> None:
    """
    Raises:
        EnvironmentProblem: the partition does not exist, or Slurm's controller does not answer.
    """
    known = sorted(set(_ask("sinfo", "--noheader", "--format=%R").split()))
    if cluster.partition and cluster.partition not in known:
        raise EnvironmentProblem(
            f"Slurm has no partition {cluster.partition!r}{suggestion(cluster.partition, known)}; `sinfo` lists them,"
            " choose one with --partition"
        )


def require_startable(job: JobState) -> None:
    """
    Raises:
        EnvironmentProblem: it waits for what will not come.
    """
    if job.state == "PENDING" and job.reason in NEVER:
        why = f"Slurm would never start the jobs ({job.reason})"
        raise EnvironmentProblem(f"{why}; change --time, --nodes or the partition")


def batch_script(cluster: Cluster, folder: Path, *, name: str, nodes: int) -> str:
    """What sbatch would be given; works where there is no Slurm."""
    require_submitit()
    executor = _executor(folder)
    executor.update_parameters(**cluster.parameters(name, nodes))
    return str(executor._make_submission_file_text(executor._submitit_command_str, name))


def submit(
    cluster: Cluster, folder: Path, function: Callable[[str], None], argument: str, *, name: str, nodes: int
) -> str:
    """Submit one job that calls `function(argument)` on its first node; its id.

    Raises:
        QueueFull: Slurm takes no further job now.
        EnvironmentProblem: it refuses the job, in its own words.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)
    executor = _executor(folder)
    executor.update_parameters(**cluster.parameters(name, nodes))
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):  # submitit prints what sbatch says, and raises it
            return str(executor.submit(function, argument).job_id)
    except Exception as error:  # submitit's errors share no base
        text = f"{said.getvalue()} {error}".strip()
        if any(word in text for word in _FULL):
            raise QueueFull from error
        raise EnvironmentProblem(_refused(text)) from error


def states() -> dict[str, JobState]:
    """Every job of the user's that Slurm remembers, by name.

    Raises:
        EnvironmentProblem: the controller does not answer.
    """
    lines = _ask("squeue", f"--user={os.getuid()}", "--states=all", "--noheader", "--format=%j|%A|%T|%r").splitlines()
    rows = [line.rsplit("|", 3) for line in lines if line.count("|") >= 3]
    return {name: JobState(number=number, state=state, reason=reason) for name, number, state, reason in rows}


def cancel(names: list[str], *, pending_only: bool = False) -> None:
    """Cancel jobs by name; those that are gone are no error."""
    only = ["--state=PENDING"] if pending_only else []
    for name in names:
        command = ["scancel", f"--user={_user()}", *only, f"--name={name}"]
        # in a session of its own: a further Ctrl-C would end scancel, and leave the job
        subprocess.run(command, capture_output=True, check=False, start_new_session=True)


def log_of(folder: Path, number: str) -> Path:
    """Where a job's output goes."""
    return folder / f"{number}_0_log.out"


def _executor(folder: Path) -> Any:
    from submitit.slurm.slurm import SlurmExecutor

    class Executor(SlurmExecutor):
        """submitit's, which also makes a script where there is no Slurm, and does not wait for a full queue."""

        @classmethod
        def affinity(cls) -> int:
            return 2

        def _make_submission_command(self, submission_file_path: Path) -> list[str]:
            return ["timeout", str(_SECONDS_TO_SUBMIT), "sbatch", str(submission_file_path)]

    executor = Executor(folder=folder, max_num_timeout=0, python=shlex.join(processes.PYTHON))
    path = processes.findable(os.environ).get("PYTHONPATH")
    if path:
        executor.update_parameters(setup=[f"export PYTHONPATH={shlex.quote(path)}"])
    return executor


def _refused(text: str) -> str:
    """Slurm's own last sentence, with what to do."""
    said = [
        line.rpartition("sbatch:")[2].split("error:", 1)[-1].strip() for line in text.splitlines() if "sbatch:" in line
    ]
    why = said[-1] if said else text.strip().splitlines()[-1] if text.strip() else "it did not say why"
    return f"Slurm refused the job ({why}); change the options of --launcher slurm, `sinfo` says what there is"


def _ask(*command: str) -> str:
    try:  # in a session of its own: a Ctrl-C is for the run, and no reason for Slurm not to answer
        return subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=60, start_new_session=True
        ).stdout
    except FileNotFoundError as error:
        raise EnvironmentProblem(f"there is no {command[0]} on this machine; run claimbench on a login node") from error
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        said = str(error.stderr or "no answer").strip().splitlines()
        raise EnvironmentProblem(
            f"Slurm does not answer ({said[-1] if said else 'no reason given'}); what is stored is kept, run again when"
            " it does"
        ) from error


def _user() -> str:
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name
