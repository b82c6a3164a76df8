"""One process of a trial, from its spec to its result. Forked from the zygote, or started alone:

python -m harness.trial.worker SPEC
torchrun --nproc-per-node 2 -m harness.trial.worker SPEC
"""

from __future__ import annotations

import contextlib
import signal
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import DataTooShortError, WorkloadError
from harness.experiment.workloads import change_problem
from harness.techniques.base import Inert
from harness.trial.outcome import Outcome, is_out_of_host_memory, is_out_of_memory
from harness.trial.processes import leave
from harness.trial.spec import TrialResult, TrialSpec

if TYPE_CHECKING:
    from harness.environment import Environment
    from harness.trial.ranks import Ranks


def main(spec_path: Path) -> int:
    """Run the trial that `spec_path` describes on this rank; rank 0 writes the result. Returns the exit status."""
    from harness.techniques.registry import this_machine
    from harness.trial import ranks as group
    from harness.trial.ranks import Ranks

    spec = TrialSpec.read(spec_path)
    ranks = Ranks.from_environment()
    result = outcome_of(spec, ranks, this_machine())
    # a rank that failed speaks for its trial: the others are stuck in a collective or gone. The first to fail is right:
    # what the others raise then is that it has gone.
    failed = result.outcome not in (Outcome.OK, Outcome.INERT, Outcome.INVALID)
    if (failed and not Path(spec.record_path).exists()) or (ranks.first and not failed):
        result.write(Path(spec.record_path))
    if failed:
        return 1
    group.disconnect()
    return 0


def outcome_of(spec: TrialSpec, ranks: Ranks, environment: Environment) -> TrialResult:
    """Run the trial's kind; whatever it raises becomes its outcome.

    Not where its files are no longer those of the plan; such a trial was interrupted, and is run again by the next run.
    """
    changed = change_problem(spec.model, spec.data, Path(), spec.contents)
    if changed is not None:
        return TrialResult(outcome=Outcome.INTERRUPTED, reason=changed)
    return _outcome_of(spec, ranks, environment)


def _outcome_of(spec: TrialSpec, ranks: Ranks, environment: Environment) -> TrialResult:
    from harness.trial.kinds import runner

    try:
        return runner(spec.kind)(spec, ranks, environment)
    except DataTooShortError as error:
        return TrialResult(outcome=Outcome.UNSUPPORTED, reason=str(error))
    except WorkloadError as error:
        # told in words already, the traceback printed where it was raised
        return TrialResult(outcome=Outcome.CRASH, reason=str(error))
    except Inert as reason:
        return TrialResult(outcome=Outcome.INERT, reason=str(reason))
    except MemoryError:
        return TrialResult(outcome=Outcome.OOM, reason="out of host memory")
    except Exception as error:  # noqa: BLE001 - whatever a trial raises is its outcome, and is reported as such
        return _failed_for_good(error)


def _failed_for_good(error: Exception) -> TrialResult:
    """The outcome of a trial that failed, whatever its children still say; from here on they are not heard.

    torch's loader raises from its handler of SIGCHLD that a worker was killed, wherever the process is at that moment:
    also where it deals with the batch that was lost with the worker, and then that would be lost in turn.
    """
    silenced = False
    while not silenced:
        with contextlib.suppress(RuntimeError):  # it was told before it could be silenced
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            silenced = True
    return _failed(error)


def _failed(error: Exception) -> TrialResult:
    """An exception as an outcome. Out of memory is a result; anything else is a crash with its last lines."""
    traceback.print_exc()
    text = str(error).strip()
    if is_out_of_host_memory(error):
        return TrialResult(outcome=Outcome.OOM, reason="out of host memory")
    if is_out_of_memory(error):
        return TrialResult(outcome=Outcome.OOM, reason=f"out of device memory: {text.splitlines()[0] if text else ''}")
    if isinstance(error, ConnectionError | EOFError) and _from_multiprocessing(error):
        # a worker that dies after it has announced a batch is first noticed when the batch is fetched from it
        return TrialResult(
            outcome=Outcome.CRASH, reason=f"DataLoader worker ended before its batch was fetched: {text}"
        )
    first = text.splitlines()[0] if text else "no message"
    return TrialResult(outcome=Outcome.CRASH, reason=f"{type(error).__name__}: {first}")


def _from_multiprocessing(error: Exception) -> bool:
    return any("multiprocessing" in frame.filename for frame in traceback.extract_tb(error.__traceback__))


if __name__ == "__main__":
    leave(main(Path(sys.argv[1])))
