"""Trials over several nodes: torchrun on each node of a Slurm job, which meet where the job says.

Runs on the first node of the job. A cell that fits on one node runs there through the local zygote; a larger one is a
job step (`srun`) that starts one torchrun a node. Slurm gives each step its node's GPUs, torchrun numbers the ranks.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.trial import processes
from harness.trial.classify import FAILURES, last_lines
from harness.trial.interrupts import Interrupts
from harness.trial.launch import ENTRY, Finished, Launcher
from harness.trial.outcome import Outcome
from harness.trial.spec import TrialResult, TrialSpec
from harness.trial.supervision import OnForked

#: Between two looks at a step that runs; its figures come from its own clocks.
_POLL_SECONDS = 0.2
#: srun ends its step when it is told to; when it does not, it is killed, and Slurm ends the step.
_SECONDS_TO_END = 20.0


@dataclass(frozen=True, kw_only=True)
class SeveralNodes:
    """The launcher of a job with several nodes."""

    local: Launcher
    """For cells that fit on one node."""
    ranks_per_node: int
    nodes: int
    entry: str = ENTRY.partition(":")[0]
    """Module that torchrun starts on each rank, with the path of the spec."""

    def run(
        self, spec: TrialSpec, *, ranks: int, wall_limit_seconds: float, environment: Mapping[str, str],
        interrupts: Interrupts | None = None, on_forked: OnForked | None = None,
    ) -> Finished:  # fmt: skip
        """As `LocalLauncher.run`. What the ranks print lies in `rank0.stdout` and `rank0.stderr`, all together."""
        if ranks <= self.ranks_per_node:
            return self.local.run(
                spec, ranks=ranks, wall_limit_seconds=wall_limit_seconds, environment=environment,
                interrupts=interrupts, on_forked=on_forked,
            )  # fmt: skip
        directory = Path(spec.record_path).parent
        directory.mkdir(parents=True, exist_ok=True)
        spec.write(directory / "spec.json")
        Path(spec.record_path).unlink(missing_ok=True)
        # each node has GPUs of its own: those that Slurm gives to the step there
        ours = {name: value for name, value in environment.items() if name != "CUDA_VISIBLE_DEVICES"}
        started = time.monotonic()
        with (directory / "rank0.stdout").open("wb") as output, (directory / "rank0.stderr").open("wb") as errors:
            step = subprocess.Popen(
                self._command(spec, ranks), env=processes.findable({**os.environ, **ours}), stdin=subprocess.DEVNULL,
                stdout=output, stderr=errors, start_new_session=True,
            )  # fmt: skip
            why = _wait(step, started + wall_limit_seconds, interrupts)
        tail = "\n".join(last_lines(directory / "rank0.stderr"))
        outcome, reason, result = _ending(step.returncode, why, Path(spec.record_path), wall_limit_seconds)
        return Finished(
            outcome=outcome, reason=f"{reason}\n{tail}" if outcome is Outcome.CRASH and tail else reason,
            result=result, exit_statuses=(step.returncode,), stderr_tail=tail, started=started,
            wall_seconds=time.monotonic() - started,
        )  # fmt: skip

    def close(self) -> None:
        """End the local zygote."""
        self.local.close()

    def _command(self, spec: TrialSpec, ranks: int) -> list[str]:
        """One torchrun a node; the first node of the job, where this runs, is where they meet."""
        nodes = nodes_for(ranks, self.ranks_per_node)
        name = f"{os.environ.get('SLURM_JOB_ID', '0')}-{spec.trial_id}"
        meeting = f"{socket.gethostname()}:{processes.free_port()}"
        step = ["srun", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", "--kill-on-bad-exit=1"]
        shared_out = ["--overlap", "--exact"] if nodes < self.nodes else ["--overlap"]
        torchrun = [
            *processes.interpreter("torch.distributed.run"), f"--nnodes={nodes}", f"--nproc-per-node={ranks // nodes}",
            "--rdzv-backend=c10d", f"--rdzv-endpoint={meeting}", f"--rdzv-id={name}", "--max-restarts=0",
        ]  # fmt: skip
        spec_path = str(Path(spec.record_path).parent / "spec.json")
        # torchrun's own way to start a module imports from the working folder
        return [*step, *shared_out, *torchrun, "--no-python", *processes.interpreter(self.entry), spec_path]


def nodes_for(ranks: int, per_node: int) -> int:
    """Over how many nodes a trial spreads: as few as hold it with the same number of ranks on each."""
    return next(nodes for nodes in range(1, ranks + 1) if ranks % nodes == 0 and ranks // nodes <= per_node)


def _wait(step: subprocess.Popen[bytes], deadline: float, interrupts: Interrupts | None) -> Outcome | None:
    """Wait for its end; why it was ended by us, or None."""
    while step.poll() is None:
        if interrupts is not None and interrupts.now:
            return _end(step, Outcome.INTERRUPTED)
        if time.monotonic() >= deadline:
            return _end(step, Outcome.TIMEOUT)
        time.sleep(_POLL_SECONDS)
    return None


def _end(step: subprocess.Popen[bytes], why: Outcome) -> Outcome:
    step.send_signal(signal.SIGTERM)  # srun ends the step on every node
    try:
        step.wait(timeout=_SECONDS_TO_END)
    except subprocess.TimeoutExpired:
        step.kill()
        step.wait()
    return why


def _ending(
    status: int, why: Outcome | None, record_path: Path, wall_limit_seconds: float
) -> tuple[Outcome, str, TrialResult | None]:
    """What the end means: a failure is written by whichever rank failed; that all is well needs all of them."""
    if why is Outcome.INTERRUPTED:
        return why, "The run was stopped while this trial ran.", None
    if why is Outcome.TIMEOUT:
        return why, f"Not done after {wall_limit_seconds:g} s and killed, on every node.", None
    result = TrialResult.read(record_path) if record_path.exists() else None
    if result is not None and (status == 0 or result.outcome in FAILURES):
        return result.outcome, result.reason, result
    if status == 0:
        return Outcome.CRASH, "Ended with status 0 but wrote no result.", None
    return Outcome.CRASH, f"torchrun ended with status {status}.", None
