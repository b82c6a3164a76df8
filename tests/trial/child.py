"""Trial processes that misbehave on purpose: `options["do"]` says how, or `options["deeds"]` by batch size."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from harness.trial.outcome import Outcome
from harness.trial.spec import TrialResult, TrialSpec


def main(spec_path: Path) -> int:
    """The entry that the launcher calls instead of the real worker."""
    spec = TrialSpec.read(spec_path)
    rank = int(os.environ["RANK"])
    deed = spec.options["do"] if "do" in spec.options else spec.options["deeds"][str(spec.settings["batch_size"])]
    return int(_DEEDS[deed](spec, rank) or 0)


def _write_result(spec: TrialSpec, rank: int) -> None:
    if rank == 0:
        measured = {
            "pid": os.getpid(),
            "pgid": os.getpgid(0),
            "environment": dict(os.environ),
            "stdin": os.read(0, 1).decode(),
            "descriptors": sorted(int(name) for name in os.listdir("/proc/self/fd")),
            "signals": {
                name: str(signal.getsignal(getattr(signal, name))) for name in ("SIGTERM", "SIGINT", "SIGCHLD")
            },
            "modules": sorted(sys.modules),
            "tokens_per_second": 1000.0,
        }
        TrialResult(outcome=Outcome.OK, measured=measured).write(Path(spec.record_path))


def _listen_at_its_port(spec: TrialSpec, rank: int) -> None:
    """As torch does for rank 0, whose words name the port."""
    port = int(os.environ["MASTER_PORT"])
    if rank == 0:
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError as error:
            raise RuntimeError(f"port: {port}, name: EADDRINUSE, message: address already in use") from error
    _write_result(spec, rank)


def _exit_with_words(spec: TrialSpec, rank: int) -> None:
    sys.exit("the corpus is missing; run fetch.sh first")


def _train(spec: TrialSpec, rank: int) -> None:
    """What a real trial says of itself, with losses that depend on the seed and the cell alone."""
    began = time.monotonic()
    time.sleep(float(spec.options.get("seconds", 0.0)))
    if rank == 0:
        draw = random.Random(f"{spec.seed} {sorted(spec.settings.items())}")
        TrialResult(
            outcome=Outcome.OK,
            measured={"tokens_per_second": 500.0, "losses": [draw.random() for _ in range(3)], "of_this_kind": 7},
            missing={"mfu": "no peak is known"},
            evidence={"attention": {"holds": True, "word": "seen", "facts": {}, "reason": ""}},
            warnings=["a warning of the child's"],
            window=(began, time.monotonic()),
        ).write(Path(spec.record_path))


def _look_at_its_gradient(spec: TrialSpec, rank: int) -> None:
    """Compare it if that is asked for; a round whose seed is among `failing_seeds` ends before."""
    if spec.seed in spec.options["failing_seeds"]:
        raise RuntimeError("not this round")
    check = {"gradient_check": {"error": 0.9, "eager_error": 0.005}} if spec.gradient_check else {}
    TrialResult(outcome=Outcome.OK, measured={"tokens_per_second": 500.0, **check}).write(Path(spec.record_path))


def _fill_its_cache(spec: TrialSpec, rank: int) -> None:
    """What a compiler leaves there: two megabytes."""
    (Path(spec.cache_directory) / "kernels").write_bytes(bytes(2 << 20))
    _train(spec, rank)


def _train_the_second_time(spec: TrialSpec, rank: int) -> int:
    """Crash first; train when the same trial is tried again."""
    mark = Path(spec.record_path).parent / "was here"
    if not mark.exists():
        mark.touch()
        raise RuntimeError("not the first time")
    _train(spec, rank)
    return 0


def _sleep(spec: TrialSpec, rank: int) -> None:
    _leave_a_note(spec, rank)
    time.sleep(600)


def _ignore_sigterm(spec: TrialSpec, rank: int) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _sleep(spec, rank)


def _raise(spec: TrialSpec, rank: int) -> None:
    raise ValueError("the seventh layer is missing")


def _segfault(spec: TrialSpec, rank: int) -> None:
    ctypes.string_at(0)


def _kill_itself(spec: TrialSpec, rank: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _say_nothing(spec: TrialSpec, rank: int) -> None:
    """End well, but without a result."""


def _exit_with_three(spec: TrialSpec, rank: int) -> int:
    sys.stderr.write("".join(f"line {number}\n" for number in range(40)))
    return 3


def _have_children(spec: TrialSpec, rank: int) -> None:
    """A forked child in the group, one in a session of its own, and an orphan that another program left."""
    for leave_the_group in (False, True):
        if os.fork() == 0:
            if leave_the_group:
                os.setsid()
            _leave_a_note(spec, rank)
            time.sleep(600)
            os._exit(0)
    orphan = subprocess.Popen(["sh", "-c", "setsid sleep 600 & echo $!"], stdout=subprocess.PIPE, text=True)
    assert orphan.stdout is not None
    _leave_a_note(spec, rank, pid=int(orphan.stdout.readline()))
    orphan.wait()


def _have_children_and_end(spec: TrialSpec, rank: int) -> None:
    _have_children(spec, rank)
    _write_result(spec, rank)


def _have_children_and_sleep(spec: TrialSpec, rank: int) -> None:
    _have_children(spec, rank)
    _sleep(spec, rank)


def _rank_one_dies(spec: TrialSpec, rank: int) -> None:
    if rank == 1:
        raise RuntimeError("rank one has had enough")
    _sleep(spec, rank)


def _run_out_of_memory(spec: TrialSpec, rank: int) -> int:
    TrialResult(outcome=Outcome.OOM, reason="out of device memory").write(Path(spec.record_path))
    return 1


def _be_inert(spec: TrialSpec, rank: int) -> None:
    TrialResult(outcome=Outcome.INERT, reason="no kernel of it ran").write(Path(spec.record_path))


def _rank_one_runs_out_of_memory(spec: TrialSpec, rank: int) -> int:
    if rank == 1:
        TrialResult(outcome=Outcome.OOM, reason="out of device memory").write(Path(spec.record_path))
        return 1
    _sleep(spec, rank)
    return 0


def _rank_one_dies_and_rank_zero_is_content(spec: TrialSpec, rank: int) -> int:
    _write_result(spec, rank)
    return rank


def _result_then_hang(spec: TrialSpec, rank: int) -> None:
    _write_result(spec, rank)
    _sleep(spec, rank)


def _half_a_result(spec: TrialSpec, rank: int) -> None:
    Path(spec.record_path).write_text('{"outcome": "ok", "mea', encoding="utf-8")


def _compute(spec: TrialSpec, rank: int) -> None:
    """A matrix product large enough for OpenMP's threads, which hang where the zygote had used them."""
    before = set(sys.modules)
    import torch
    import transformers  # noqa: F401

    value = float((torch.ones(512, 512) @ torch.ones(512, 512)).sum())
    measured = {"value": value, "imported_after_fork": sorted(set(sys.modules) - before)}
    if rank == 0:
        TrialResult(outcome=Outcome.OK, measured=measured).write(Path(spec.record_path))


def _leave_a_note(spec: TrialSpec, rank: int, pid: int | None = None) -> None:
    """A file named after a living process, so that the test can look for it."""
    notes = Path(spec.record_path).parent / "alive"
    notes.mkdir(exist_ok=True)
    (notes / str(pid or os.getpid())).touch()


_DEEDS = {
    "listen at its port": _listen_at_its_port,
    "exit with words": _exit_with_words,
    "look": _look_at_its_gradient,
    "train": _train,
    "fill its cache": _fill_its_cache,
    "train the second time": _train_the_second_time,
    "write a result": _write_result,
    "sleep": _sleep,
    "ignore SIGTERM": _ignore_sigterm,
    "raise": _raise,
    "segfault": _segfault,
    "kill itself": _kill_itself,
    "say nothing": _say_nothing,
    "exit with 3": _exit_with_three,
    "have children and end": _have_children_and_end,
    "have children and sleep": _have_children_and_sleep,
    "run out of memory": _run_out_of_memory,
    "be inert": _be_inert,
    "rank one dies": _rank_one_dies,
    "rank one runs out of memory": _rank_one_runs_out_of_memory,
    "rank one dies, rank zero is content": _rank_one_dies_and_rank_zero_is_content,
    "result, then hang": _result_then_hang,
    "compute": _compute,
    "half a result": _half_a_result,
}
