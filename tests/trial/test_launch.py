"""How trials end, with real processes that really die."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.errors import LaunchError
from harness.trial import launch, processes, torchrun
from harness.trial.interrupts import Interrupts
from harness.trial.launch import Finished, LocalLauncher, port_taken
from harness.trial.outcome import Outcome
from harness.trial.spec import TrialResult, TrialSpec
from harness.trial.supervision import Patience, _Watch
from harness.trial.torchrun import SeveralNodes
from tests.trial.notes import living, wait_for_notes

ROOT = Path(__file__).resolve().parents[2]
IMPATIENT = Patience(after_sigterm_seconds=0.5, after_rank_death_seconds=0.5, after_sigkill_seconds=5.0)


def a_spec(directory: Path, deed: str) -> TrialSpec:
    return TrialSpec(
        trial_id="t", kind="training", model="tiny", data="synthetic", settings={}, baseline_settings={}, seed=1,
        warmup_steps=1, steps=1, device="cpu", record_path=str(directory / "result.json"),
        cache_directory=str(directory / "cache"), data_directory=str(directory / "data"), options={"do": deed},
    )  # fmt: skip


def a_launcher(isolation: str = "zygote") -> LocalLauncher:
    return LocalLauncher(
        gpu=False, isolation=isolation, modules=("json",), entry="tests.trial.child:main", patience=IMPATIENT
    )


@pytest.fixture(params=["zygote", "spawn"])
def launcher(request: pytest.FixtureRequest) -> Iterator[LocalLauncher]:
    with a_launcher(request.param) as launcher:
        yield launcher


@pytest.fixture
def zygote() -> Iterator[LocalLauncher]:
    with a_launcher() as launcher:
        yield launcher


def run(
    launcher: LocalLauncher, directory: Path, deed: str, *, ranks: int = 1, limit: float = 30,
    interrupts: Interrupts | None = None, meanwhile: Callable[[], None] = lambda: None,
) -> Finished:  # fmt: skip
    """Run one trial while `meanwhile` goes on in a thread, and look that nothing of the trial outlives it."""
    aside = threading.Thread(target=meanwhile)
    aside.start()
    finished = launcher.run(
        a_spec(directory, deed), ranks=ranks, wall_limit_seconds=limit, environment={"COLOUR": "red"},
        interrupts=interrupts,
    )  # fmt: skip
    aside.join()
    assert living(directory) == [], "a process of the trial outlived it"
    return finished


def test_a_trial_that_writes_its_result_is_ok(launcher: LocalLauncher, tmp_path: Path) -> None:
    finished = run(launcher, tmp_path, "write a result")
    assert finished.outcome is Outcome.OK
    assert finished.reason == ""
    assert finished.result is not None
    assert finished.result.measured["tokens_per_second"] == 1000.0
    assert finished.exit_statuses == (0,)
    assert finished.pids == (finished.result.measured["pid"],)
    assert 0 < finished.wall_seconds < 30
    assert finished.peak_host_bytes is not None
    assert 2**20 < finished.peak_host_bytes < 2**33


def test_a_trial_is_a_plain_process_of_its_own(launcher: LocalLauncher, tmp_path: Path) -> None:
    finished = run(launcher, tmp_path, "write a result")
    assert finished.result is not None
    seen = finished.result.measured
    assert seen["pgid"] == seen["pid"], "leads its own process group"
    assert seen["stdin"] == ""
    assert len(seen["descriptors"]) <= 4, "standard streams and the listing's own: nothing of the helper's is open"
    assert seen["signals"]["SIGTERM"] == str(signal.SIG_DFL)
    assert "default_int_handler" in seen["signals"]["SIGINT"]
    assert seen["signals"]["SIGCHLD"] == str(signal.SIG_DFL)


def test_a_rank_sees_what_torchrun_would_set_and_the_trials_own_environment(
    launcher: LocalLauncher, tmp_path: Path
) -> None:
    finished = run(launcher, tmp_path, "write a result", ranks=2)
    assert finished.result is not None
    seen = finished.result.measured["environment"]
    assert {name: seen[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "COLOUR")} == {
        "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "COLOUR": "red",
    }  # fmt: skip
    assert 0 < int(seen["MASTER_PORT"]) < 65536
    assert seen["PYTORCH_NVML_BASED_CUDA_CHECK"] == "1"
    assert float(seen["CLAIMBENCH_REQUESTED_AT"]) == finished.started
    assert finished.exit_statuses == (0, 0)


def test_what_a_trial_brings_goes_before_what_all_have_and_that_before_ours(
    zygote: LocalLauncher, tmp_path: Path
) -> None:
    zygote.variables = {"OMP_NUM_THREADS": "7", "COLOUR": "blue"}
    finished = run(zygote, tmp_path, "write a result", ranks=2)
    assert finished.result is not None
    seen = finished.result.measured["environment"]
    assert (seen["OMP_NUM_THREADS"], seen["COLOUR"]) == ("7", "red")


@pytest.fixture
def srun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """`srun(script)` stands a shell script where `srun` is looked for, which runs in the folder that is returned."""

    def stand_in(script: str) -> Path:
        step = tmp_path / "bin" / "srun"
        step.parent.mkdir()
        step.write_text(f"#!/bin/sh\ncd {tmp_path}\n{script}\n", encoding="utf-8")
        step.chmod(0o700)
        monkeypatch.setenv("PATH", str(step.parent), prepend=os.pathsep)
        return tmp_path

    return stand_in


def two_a_node(*, nodes: int = 2) -> SeveralNodes:
    return SeveralNodes(local=a_launcher(), ranks_per_node=2, nodes=nodes)


def test_over_several_nodes_each_has_the_gpus_that_its_job_step_is_given(
    srun: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the first node's shell may be others, or too few."""
    folder = srun("env > seen; echo the network is down >&2; exit 3")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("COLOUR", "blue")
    given = {"CUDA_VISIBLE_DEVICES": "0,1", "COLOUR": "red"}
    finished = two_a_node().run(a_spec(folder, ""), ranks=4, wall_limit_seconds=30, environment=given)
    assert finished.outcome is Outcome.CRASH
    assert finished.reason == "torchrun ended with status 3.\nthe network is down"
    seen = (folder / "seen").read_text(encoding="utf-8").splitlines()
    assert "COLOUR=red" in seen
    assert not any(line.startswith("CUDA_VISIBLE_DEVICES") for line in seen)


@pytest.mark.parametrize(
    ("ranks", "of_job", "nodes", "a_node"), [(4, 2, 2, 2), (4, 3, 2, 2), (3, 3, 3, 1), (3, 4, 3, 1)]
)
def test_a_step_over_nodes_takes_as_many_as_it_fills(
    ranks: int, of_job: int, nodes: int, a_node: int, srun: Callable[[str], Path]
) -> None:
    """Where nodes of the job are left over, the step asks for its own alone. No rank is started anew by itself."""
    folder = srun('echo "$@" > told')
    two_a_node(nodes=of_job).run(a_spec(folder, ""), ranks=ranks, wall_limit_seconds=30, environment={})
    told = (folder / "told").read_text(encoding="utf-8").split()
    for option in (f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", "--kill-on-bad-exit=1"):
        assert option in told, option
    assert ("--exact" in told) is (nodes < of_job)
    for option in (f"--nnodes={nodes}", f"--nproc-per-node={a_node}", "--max-restarts=0"):
        assert option in told, option


def test_a_trial_that_fits_on_one_node_needs_no_step(srun: Callable[[str], Path]) -> None:
    folder, several = srun("exit 3"), two_a_node()
    finished = several.run(a_spec(folder, "write a result"), ranks=2, wall_limit_seconds=30, environment={})
    several.close()
    assert (finished.outcome, finished.exit_statuses) == (Outcome.OK, (0, 0))


def test_what_an_earlier_try_wrote_is_not_the_result_of_a_step_that_failed(srun: Callable[[str], Path]) -> None:
    folder = srun("exit 3")
    TrialResult(outcome=Outcome.OOM, reason="no room").write(folder / "result.json")
    finished = two_a_node().run(a_spec(folder, ""), ranks=4, wall_limit_seconds=30, environment={})
    assert (finished.outcome, finished.reason) == (Outcome.CRASH, "torchrun ended with status 3.")
    assert finished.result is None


@pytest.mark.parametrize("deaf", [False, True])
@pytest.mark.parametrize("outcome", [Outcome.TIMEOUT, Outcome.INTERRUPTED])
def test_a_step_over_nodes_that_is_stopped_or_takes_too_long_is_ended(
    srun: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, outcome: Outcome, deaf: bool
) -> None:
    """`srun` ends its step on every node where it is told to; one that does not listen is killed."""
    folder = srun(("trap '' TERM; " if deaf else "") + "echo > began; exec sleep 60")
    monkeypatch.setattr(torchrun, "_SECONDS_TO_END", 0.5)
    interrupts, stopped = Interrupts(), outcome is Outcome.INTERRUPTED

    def stop() -> None:
        until = time.monotonic() + 20
        while not (folder / "began").exists() and time.monotonic() < until:
            time.sleep(0.05)
        interrupts.request(now=stopped)

    aside = threading.Thread(target=stop)
    aside.start()
    finished = two_a_node().run(
        a_spec(folder, ""), ranks=4, wall_limit_seconds=30 if stopped else 3, environment={}, interrupts=interrupts
    )
    aside.join()
    assert (finished.outcome, finished.result) == (outcome, None)
    assert finished.exit_statuses == (-signal.SIGKILL if deaf else -signal.SIGTERM,)
    assert finished.wall_seconds < 20


def test_a_zygote_shares_what_it_imported_and_nothing_of_one_trial_reaches_the_next(
    zygote: LocalLauncher, tmp_path: Path
) -> None:
    first, second = (run(zygote, tmp_path / name, "write a result") for name in ("one", "two"))
    assert first.result is not None
    assert second.result is not None
    assert first.pids != second.pids
    assert "json" in second.result.measured["modules"]
    assert second.wall_seconds < 2


@pytest.mark.parametrize("isolation", ["zygote", "spawn"])
def test_nothing_in_the_working_folder_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolation: str
) -> None:
    """A `torch.py` of the user's, say: these are imported by the helper, by a fresh interpreter and by a trial."""
    for name in ("psutil", "shadow", "harness", "json", "random"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('this ran')", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    with LocalLauncher(
        gpu=False, isolation=isolation, modules=("json", "shadow"), entry="tests.trial.child:main"
    ) as launcher:
        finished = run(launcher, tmp_path / "trial", "write a result")
    assert (finished.outcome, finished.reason) == (Outcome.OK, "")


def test_a_checkout_that_is_not_installed_is_found_where_the_run_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir(ROOT)
    assert processes.findable({})["PYTHONPATH"] == str(ROOT)
    with a_launcher("spawn") as launcher:
        assert run(launcher, tmp_path / "trial", "write a result").outcome is Outcome.OK
    monkeypatch.chdir(tmp_path)
    assert processes.findable({"A": "b"}) == {"A": "b"}


@pytest.mark.parametrize(("losses", "outcome"), [(1, Outcome.OK), (2, Outcome.OK), (9, Outcome.CRASH)])
def test_a_port_that_another_program_took_is_exchanged_twice(
    zygote: LocalLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, losses: int, outcome: Outcome
) -> None:
    """Taken for real, between the moment when it was found free and that when rank 0 listens at it."""
    free_port, others = processes.free_port, []

    def taken_meanwhile() -> int:
        port = free_port()
        if len(others) < losses:
            others.append(socket.create_server(("127.0.0.1", port)))
        return port

    monkeypatch.setattr(processes, "free_port", taken_meanwhile)
    finished = run(zygote, tmp_path, "listen at its port", ranks=2)
    for each in others:
        each.close()
    assert finished.outcome is outcome
    assert len(others) == min(losses, 3)
    assert ("address already in use" in finished.reason) == (outcome is Outcome.CRASH)


def test_another_port_than_that_of_the_ranks_is_the_steps_own_matter(tmp_path: Path) -> None:
    said = "OSError: port: 2950, name: EADDRINUSE, message: address already in use"
    assert port_taken(2950, said, tmp_path)
    assert not port_taken(29500, said, tmp_path)
    assert not port_taken(2950, "ValueError: 2950", tmp_path)
    (tmp_path / "rank0.stderr").write_text(said)
    assert port_taken(2950, "Rank 1 of 2 ended with status 1.", tmp_path)


def test_the_words_of_an_exit_are_kept(launcher: LocalLauncher, tmp_path: Path) -> None:
    finished = run(launcher, tmp_path, "exit with words")
    assert finished.outcome is Outcome.CRASH
    assert finished.exit_statuses == (1,)
    assert finished.reason == "The process ended with status 1.\nthe corpus is missing; run fetch.sh first"


def test_an_exception_keeps_its_words(launcher: LocalLauncher, tmp_path: Path) -> None:
    finished = run(launcher, tmp_path, "raise")
    assert finished.outcome is Outcome.CRASH
    assert finished.exit_statuses == (1,)
    assert finished.reason.startswith("The process ended with status 1.\n")
    assert finished.reason.endswith("ValueError: the seventh layer is missing")
    assert finished.result is None


def test_the_last_twenty_lines_of_standard_error_are_kept(launcher: LocalLauncher, tmp_path: Path) -> None:
    finished = run(launcher, tmp_path, "exit with 3")
    assert finished.outcome is Outcome.CRASH
    assert finished.stderr_tail.splitlines() == [f"line {number}" for number in range(20, 40)]
    assert finished.reason.startswith("The process ended with status 3.\nline 20\n")


def test_a_segmentation_fault_is_a_crash_with_the_signals_name_and_the_stack(
    launcher: LocalLauncher, tmp_path: Path
) -> None:
    finished = run(launcher, tmp_path, "segfault")
    assert finished.outcome is Outcome.CRASH
    assert finished.reason.startswith("The process was killed by SIGSEGV.")
    assert "in _segfault" in finished.stderr_tail
    assert finished.exit_statuses == (-signal.SIGSEGV,)


def test_a_sigkill_from_elsewhere_is_a_crash_that_says_so(launcher: LocalLauncher, tmp_path: Path) -> None:
    finished = run(launcher, tmp_path, "kill itself")
    assert finished.outcome is Outcome.CRASH
    assert finished.reason == "The process was killed by SIGKILL, sent neither by claimbench nor for lack of memory."


def test_a_sigkill_of_the_kernels_memory_killer_is_out_of_memory(
    zygote: LocalLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = iter(
        [7, 8]
    )  # the kernel's counter before and after: making the kernel do it would take the test with it
    monkeypatch.setattr(processes, "memory_kills", lambda: next(readings))
    finished = run(zygote, tmp_path, "kill itself")
    assert finished.outcome is Outcome.OOM
    assert finished.reason == "The process was killed by the kernel because the host ran out of memory."


def test_an_end_without_a_result_is_a_crash(launcher: LocalLauncher, tmp_path: Path) -> None:
    finished = run(launcher, tmp_path, "say nothing")
    assert finished.outcome is Outcome.CRASH
    assert finished.reason == "Ended with status 0 but wrote no result."


def test_half_a_result_is_no_result(launcher: LocalLauncher, tmp_path: Path) -> None:
    finished = run(launcher, tmp_path, "half a result")
    assert finished.outcome is Outcome.CRASH
    assert "Its result could not be read" in finished.reason


def test_the_result_of_an_earlier_try_is_not_taken_for_this_ones(zygote: LocalLauncher, tmp_path: Path) -> None:
    assert run(zygote, tmp_path, "write a result").outcome is Outcome.OK
    assert run(zygote, tmp_path, "say nothing").outcome is Outcome.CRASH


def test_a_trial_that_never_ends_is_a_timeout_that_names_its_ranks(launcher: LocalLauncher, tmp_path: Path) -> None:
    finished = run(launcher, tmp_path, "sleep", ranks=2, limit=1)
    assert finished.outcome is Outcome.TIMEOUT
    assert finished.reason == "Not done after 1 s and killed; still running: ranks 0, 1."
    assert finished.exit_statuses == (-signal.SIGTERM, -signal.SIGTERM)


def test_the_wall_limit_is_from_when_the_processes_were_asked_for(
    zygote: LocalLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deadlines: list[float] = []
    plain = launch.supervise

    def noted(helper: Any, **how: Any) -> Any:
        deadlines.append(how["deadline"])
        return plain(helper, **how)

    monkeypatch.setattr(launch, "supervise", noted)
    finished = run(zygote, tmp_path, "write a result", limit=30)
    assert deadlines == [finished.started + 30]


def test_a_child_that_ignores_sigterm_is_killed_after_the_grace(launcher: LocalLauncher, tmp_path: Path) -> None:
    finished = run(launcher, tmp_path, "ignore SIGTERM", limit=1.5)
    assert finished.outcome is Outcome.TIMEOUT
    assert finished.exit_statuses == (-signal.SIGKILL,)
    assert 1.9 < finished.wall_seconds < 6


def test_a_rank_that_dies_ends_the_others_and_is_named(launcher: LocalLauncher, tmp_path: Path) -> None:
    finished = run(launcher, tmp_path, "rank one dies", ranks=2)
    assert finished.outcome is Outcome.CRASH
    assert finished.reason.startswith("Rank 1 of 2 ended with status 1; rank 0 did not end by itself and was killed.\n")
    assert finished.reason.endswith("RuntimeError: rank one has had enough")
    assert finished.exit_statuses == (-signal.SIGTERM, 1)
    assert finished.wall_seconds < 10


def test_of_ranks_that_die_the_first_is_named_and_the_largest_counts() -> None:
    now = time.monotonic()
    patience = Patience(after_rank_death_seconds=5.0)
    watch = _Watch(helper=None, ranks=3, patience=patience, due=now + 60, deadline=now + 60)  # type: ignore[arg-type]
    for rank, status, peak in ((2, 0, 100), (1, -11, 300), (0, 1, 200)):
        watch.handle({"is": "ended", "rank": rank, "status": status, "peak_host_bytes": peak})
    assert (watch.ending.first_dead, watch.ending.peak_host_bytes) == (1, 300)
    assert watch.due <= time.monotonic() + 5.0, "the others have that long to end by themselves"


def test_a_failure_that_another_rank_wrote_down_is_the_trials(zygote: LocalLauncher, tmp_path: Path) -> None:
    finished = run(zygote, tmp_path, "rank one runs out of memory", ranks=2)
    assert (finished.outcome, finished.reason) == (Outcome.OOM, "out of device memory")
    assert finished.exit_statuses == (-signal.SIGTERM, 1)


def test_a_good_result_of_a_job_that_lost_a_rank_is_not_believed(zygote: LocalLauncher, tmp_path: Path) -> None:
    finished = run(zygote, tmp_path, "rank one dies, rank zero is content", ranks=2)
    assert (finished.outcome, finished.reason) == (Outcome.CRASH, "Rank 1 of 2 ended with status 1.")
    assert finished.result is None


@pytest.mark.parametrize("deed", ["have children and end", "have children and sleep"])
def test_nothing_that_a_trial_started_outlives_it(launcher: LocalLauncher, tmp_path: Path, deed: str) -> None:
    finished = run(launcher, tmp_path, deed, limit=2.5)
    assert len(list((tmp_path / "alive").iterdir())) >= 3, (
        "the test saw children in the group, outside it, and an orphan"
    )
    assert finished.outcome is (Outcome.OK if deed.endswith("end") else Outcome.TIMEOUT)


def test_a_result_counts_though_the_process_hangs_afterwards(zygote: LocalLauncher, tmp_path: Path) -> None:
    finished = run(zygote, tmp_path, "result, then hang", limit=1)
    assert finished.outcome is Outcome.OK
    assert finished.warnings == ("rank 0 did not end after the result was written and was killed",)


@pytest.mark.parametrize("who", ["zygote_pid", "keeper_pid"])
def test_a_sigkill_of_the_helper_costs_one_trial_and_the_next_gets_another(
    launcher: LocalLauncher, tmp_path: Path, who: str
) -> None:
    run(launcher, tmp_path / "zero", "write a result")
    assert launcher._helper is not None
    victim = getattr(launcher._helper, who)

    def kill_it() -> None:
        wait_for_notes(tmp_path / "one", 3)
        os.kill(victim, signal.SIGKILL)

    finished = run(launcher, tmp_path / "one", "have children and sleep", meanwhile=kill_it)
    assert finished.outcome is Outcome.CRASH
    assert finished.wall_seconds < 10
    assert run(launcher, tmp_path / "two", "write a result").outcome is Outcome.OK


def test_a_helper_killed_between_two_trials_is_replaced(launcher: LocalLauncher, tmp_path: Path) -> None:
    run(launcher, tmp_path / "one", "write a result")
    assert launcher._helper is not None
    os.kill(launcher._helper.zygote_pid, signal.SIGKILL)
    assert run(launcher, tmp_path / "two", "write a result").outcome is Outcome.OK


SLOW_TO_START = """\
import os, pathlib, signal, time
here = pathlib.Path(__file__).parent
number = len(list(here.glob("start-*")))
(here / f"start-{{number}}").write_text(str(os.getpid()))
if number < {kills}:
    os.kill({victim}, signal.SIGKILL)
    time.sleep(60)
"""


@pytest.mark.parametrize("victim", ["os.getpid()", "os.getppid()"], ids=["zygote", "keeper"])
def test_a_helper_killed_while_it_starts_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, victim: str
) -> None:
    (tmp_path / "slow_module.py").write_text(SLOW_TO_START.format(kills=2, victim=victim))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with LocalLauncher(gpu=False, modules=("slow_module",), entry="tests.trial.child:main") as launcher:
        assert run(launcher, tmp_path / "trial", "write a result").outcome is Outcome.OK
    assert len(list(tmp_path.glob("start-*"))) == 3


def test_a_helper_that_is_killed_each_time_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_module.py").write_text(SLOW_TO_START.format(kills=9, victim="os.getpid()"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    spec = a_spec(tmp_path / "trial", "sleep")
    with (
        LocalLauncher(gpu=False, modules=("slow_module",), entry="tests.trial.child:main") as launcher,
        pytest.raises(LaunchError, match="was killed by SIGKILL before it was ready"),
    ):
        launcher.run(spec, ranks=1, wall_limit_seconds=5, environment={})
    assert len(list(tmp_path.glob("start-*"))) == 3


def test_a_stopped_run_kills_the_trial_at_once(launcher: LocalLauncher, tmp_path: Path) -> None:
    interrupts = Interrupts()

    def stop_it() -> None:
        wait_for_notes(tmp_path, 1)
        interrupts.request(now=True)

    finished = run(launcher, tmp_path, "ignore SIGTERM", interrupts=interrupts, meanwhile=stop_it)
    assert finished.outcome is Outcome.INTERRUPTED
    assert finished.reason == "The run was stopped while this trial ran."
    assert finished.wall_seconds < 10


def test_a_soft_stop_lets_the_trial_finish(zygote: LocalLauncher, tmp_path: Path) -> None:
    interrupts = Interrupts()
    interrupts.request(now=False)
    assert run(zygote, tmp_path, "write a result", interrupts=interrupts).outcome is Outcome.OK


def test_the_process_ids_are_told_while_the_trial_runs(zygote: LocalLauncher, tmp_path: Path) -> None:
    told: list[tuple[int, ...]] = []
    finished = zygote.run(
        a_spec(tmp_path, "write a result"), ranks=2, wall_limit_seconds=30, environment={}, on_forked=told.append
    )
    assert told == [finished.pids]
    assert len(finished.pids) == 2


def test_a_helper_that_cannot_start_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "harness").mkdir()
    (tmp_path / "harness" / "__init__.py").write_text("raise RuntimeError('a broken installation')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with a_launcher() as launcher, pytest.raises(LaunchError, match="a broken installation"):
        launcher.run(a_spec(tmp_path / "t", "sleep"), ranks=1, wall_limit_seconds=5, environment={})
