"""Filling a store with what a plan lacks, with real processes as trials (`tests.trial.child`)."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.environment import Device, Environment
from harness.errors import LaunchError
from harness.experiment.study import Plan
from harness.results import books, collect
from harness.results.books import Books
from harness.results.collect import Options, fill
from harness.results.events import (
    Event,
    RoundPostponed,
    RunPlanned,
    StopRequested,
    Summary,
    TrialFinished,
    TrialStarted,
)
from harness.results.export import export
from harness.results.lines import read_lines
from harness.results.record import Record
from harness.results.store import Store
from harness.results.workplace import Workplace
from harness.trial.launch import Finished, Launcher, LocalLauncher
from harness.trial.nvml import Reading
from harness.trial.outcome import Outcome
from harness.trial.spec import TrialResult
from harness.trial.supervision import Patience
from tests.results.plans import a_block, a_plan
from tests.trial.notes import living

CPU = Environment(cores=2, processor="a CPU", packages={"torch": "2.13.0"})
GPU = Device(index=0, name="NVIDIA H100", uuid="GPU-0001", memory_bytes=80 << 30, power_limit_watts=700.0)
IMPATIENT = Patience(after_sigterm_seconds=0.5, after_rank_death_seconds=0.5, after_sigkill_seconds=5.0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "results.sqlite", writable=True) as store:
        yield store


@pytest.fixture
def launcher() -> Iterator[LocalLauncher]:
    with LocalLauncher(gpu=False, modules=("json",), entry="tests.trial.child:main", patience=IMPATIENT) as launcher:
        yield launcher


class Listener:
    """Keeps the events of a run, and does something at one of them."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def of(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]


def run(
    store: Store, plan: Plan, launcher: Launcher, *, options: Options | None = None,
    environment: Environment = CPU, listener: Listener | None = None,
) -> Summary:  # fmt: skip
    return fill(store, plan, launcher, environment, options=options, on_event=listener or Listener())


def valid(store: Store) -> list[Record]:
    return list(store.records(include_superseded=False))


def places(records: list[Record]) -> list[tuple[str, int, str]]:
    return [(record.study, record.round, record.arm) for record in records]


def planned_places(plan: Plan) -> list[tuple[str, int, str]]:
    return [(trial.block.study, trial.round, trial.arm.name) for trial in plan.trials]


def test_every_planned_trial_has_one_record_in_the_order_of_the_plan(store: Store, launcher: LocalLauncher) -> None:
    plan = a_plan(a_block("first"), a_block("second", sizes=(2, 3)))
    summary = run(store, plan, launcher)
    assert places(valid(store)) == planned_places(plan)
    assert summary.outcomes == Counter({Outcome.OK: 14})
    assert (summary.planned, summary.stored_before, summary.launched, summary.left) == (14, 0, 14, 0)
    assert not summary.interrupted


def test_a_record_holds_what_was_planned_measured_and_seen(store: Store, launcher: LocalLauncher) -> None:
    plan = a_plan(a_block(sizes=(2,), rounds=1))
    run(store, plan, launcher)
    (record,) = (record for record in valid(store) if record.arm == "batch_size=2")
    trial = next(trial for trial in plan.trials if trial.arm.name == "batch_size=2")
    assert (record.round, record.position, record.seed, record.attempt) == (1, trial.position, trial.seed, 1)
    assert (record.block, record.cell_key) == (trial.block.key, trial.arm.cell.key)
    assert (record.cell["batch_size"], record.cell["devices"]) == (2, 1)
    assert (record.baseline, record.control, record.scale, record.sweep) == (False, False, "smoke", None)
    assert (record.warmup_steps, record.steps) == (2, 4)
    assert record.tokens_per_second == 500.0
    assert len(record.losses) == 3
    assert record.figures == {"of_this_kind": 7}
    assert record.evidence["attention"]["word"] == "seen"
    assert record.warnings == ["a warning of the child's"]
    assert record.environment["processor"] == "a CPU"
    assert record.wall_seconds is not None
    assert record.peak_host_bytes is not None
    assert record.missing["mfu"] == "no peak is known"
    assert record.missing["utilisation"] == "no GPU that NVML can read was used"
    assert record.missing["hfu"] == "this kind of trial does not measure it"
    assert "tokens_per_second" not in record.missing


def test_baseline_and_control_are_marked(store: Store, launcher: LocalLauncher) -> None:
    run(store, a_plan(a_block(rounds=1)), launcher)
    marks = {record.arm: (record.baseline, record.control) for record in valid(store)}
    assert marks == {"baseline": (True, False), "control": (True, True), "batch_size=2": (False, False)}


def test_a_second_run_starts_nothing(store: Store, launcher: LocalLauncher) -> None:
    plan = a_plan(a_block())
    run(store, plan, launcher)
    launcher.close()
    listener = Listener()
    summary = run(store, plan, launcher, listener=listener)
    assert (summary.launched, summary.stored_before, summary.left) == (0, 6, 0)
    assert listener.of(TrialStarted) == []
    assert launcher._helper is None, "not even the process that would start trials"


def test_a_failing_cell_takes_nothing_else_with_it(store: Store, launcher: LocalLauncher) -> None:
    deeds = {2: "segfault", 3: "sleep", 4: "raise"}
    plan = a_plan(a_block(deeds=deeds, sizes=(2, 3, 4), rounds=1))
    summary = run(store, plan, launcher, options=Options(wall_limit_seconds=3))
    outcomes = {record.arm: record.outcome for record in valid(store)}
    assert outcomes == {
        "baseline": Outcome.OK, "control": Outcome.OK, "batch_size=2": Outcome.CRASH,
        "batch_size=3": Outcome.TIMEOUT, "batch_size=4": Outcome.CRASH,
    }  # fmt: skip
    assert summary.left == 0
    crashed = next(record for record in valid(store) if record.arm == "batch_size=4")
    assert crashed.reason.endswith("ValueError: the seventh layer is missing")
    assert crashed.missing["tokens_per_second"] == "the trial ended as crash"
    assert run(store, plan, launcher).launched == 0, "a failure is a result; it is repeated only when asked for"


def test_an_arm_that_cannot_run_here_is_recorded_once_and_never_launched(store: Store, launcher: LocalLauncher) -> None:
    plan = a_plan(a_block(), refusals={"batch_size=2": "needs two GPUs; run it where there are two"})
    summary = run(store, plan, launcher)
    assert summary.outcomes == Counter({Outcome.OK: 4, Outcome.UNSUPPORTED: 2})
    assert summary.launched == 4
    refused = [record for record in valid(store) if record.outcome is Outcome.UNSUPPORTED]
    assert {record.reason for record in refused} == {"needs two GPUs; run it where there are two"}
    assert run(store, plan, launcher).outcomes == Counter()


def test_an_arm_that_can_run_now_is_run_with_its_whole_round(store: Store, launcher: LocalLauncher) -> None:
    block = a_block(rounds=1)
    run(store, a_plan(block, refusals={"batch_size=2": "needs a compiler; install one"}), launcher)
    run(store, a_plan(block), launcher)
    assert {record.arm: record.outcome for record in valid(store)} == dict.fromkeys(
        ("baseline", "control", "batch_size=2"), Outcome.OK
    )
    assert store.count() == 6


def test_a_transient_failure_is_tried_again_and_every_try_is_kept(store: Store, launcher: LocalLauncher) -> None:
    plan = a_plan(a_block(deeds={2: "train the second time"}, rounds=1))
    listener = Listener()
    run(store, plan, launcher, options=Options(retries=1), listener=listener)
    (record,) = (record for record in valid(store) if record.arm == "batch_size=2")
    assert record.outcome is Outcome.OK
    assert [each["outcome"] for each in record.attempts] == ["crash"]
    assert record.attempts[0]["reason"].endswith("RuntimeError: not the first time")
    tries = [event.attempt for event in listener.of(TrialStarted) if event.trial.arm.name == "batch_size=2"]  # type: ignore[union-attr]
    assert tries == [1, 2]


def test_retrying_stored_crashes_runs_their_round_again_whole_and_removes_nothing(
    store: Store, launcher: LocalLauncher
) -> None:
    plan = a_plan(a_block("bad", deeds={2: "raise"}, rounds=1), a_block("good", rounds=1))
    run(store, plan, launcher)
    summary = run(store, plan, launcher, options=Options(retry=frozenset({Outcome.CRASH})))
    assert summary.launched == 3
    assert Counter(record.study for record in store.records()) == {"bad": 6, "good": 3}
    assert Counter(record.study for record in valid(store)) == {"bad": 3, "good": 3}
    assert {record.attempt for record in valid(store) if record.study == "bad"} == {2}


class Stopper(Listener):
    """Sends signals to this process when a trial of an arm starts."""

    def __init__(self, arm: str, *numbers: signal.Signals) -> None:
        super().__init__()
        self.arm, self.numbers = arm, list(numbers)

    def __call__(self, event: Event) -> None:
        super().__call__(event)
        if isinstance(event, TrialStarted) and event.trial.arm.name == self.arm:
            while self.numbers:
                os.kill(os.getpid(), self.numbers.pop(0))


def test_ctrl_c_once_lets_the_trial_finish_and_another_run_goes_on(store: Store, launcher: LocalLauncher) -> None:
    plan = a_plan(a_block(rounds=2))
    before = signal.getsignal(signal.SIGINT)
    stopper = Stopper("control", signal.SIGINT)
    summary = run(store, plan, launcher, listener=stopper)
    assert signal.getsignal(signal.SIGINT) is before
    assert summary.interrupted
    assert places(valid(store)) == [("study", 1, "control")]
    assert valid(store)[0].outcome is Outcome.OK
    assert len(stopper.of(StopRequested)) == 1
    again = run(store, plan, launcher)
    assert not again.interrupted
    assert Counter(places(valid(store))) == Counter(planned_places(plan)), "each trial once"
    assert store.count() == 7, "the first one stays, superseded: its round was run again whole"


def test_ctrl_c_while_an_event_is_printed_is_told_after_it(store: Store, launcher: LocalLauncher) -> None:
    """It was printed from within: `reentrant call inside <_io.BufferedWriter>` ended the run, its output and all."""
    told: list[tuple[str, str]] = []

    class Printer(Stopper):
        def __call__(self, event: Event) -> None:
            told.append(("begin", type(event).__name__))
            super().__call__(event)  # the signal arrives in here
            told.append(("end", type(event).__name__))

    summary = run(store, a_plan(a_block(rounds=2)), launcher, listener=Printer("control", signal.SIGINT))
    assert summary.interrupted
    assert all(begin == end for (_, begin), (_, end) in zip(told[::2], told[1::2], strict=True)), "none within another"
    stopped = told.index(("begin", "StopRequested"))
    assert told[stopped - 1] == ("end", "TrialStarted")


@pytest.mark.parametrize("numbers", [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM,)], ids=["twice", "SIGTERM"])
def test_ctrl_c_twice_stops_now_and_says_so_in_the_record(
    store: Store, launcher: LocalLauncher, numbers: tuple[signal.Signals, ...]
) -> None:
    plan = a_plan(a_block(deeds={2: "have children and sleep"}, rounds=1))
    began = time.monotonic()
    summary = run(store, plan, launcher, listener=Stopper("batch_size=2", *numbers))
    assert time.monotonic() - began < 20
    assert summary.interrupted
    assert summary.left >= 1
    last = valid(store)[-1]
    assert (last.arm, last.outcome) == ("batch_size=2", Outcome.INTERRUPTED)
    assert last.reason == "The run was stopped while this trial ran."
    for folder in (Workplace.beside(store.path).folder / "trials").iterdir():
        assert living(folder) == []


class PacedLauncher:
    """Trials of half a second each, by a clock that they alone move."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(books, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(collect, "Books", lambda **of_a_run: Books(**of_a_run, began=self.now))

    def run(self, *_: object, **__: object) -> Finished:
        started = self.now
        self.now += 0.5
        result = TrialResult(outcome=Outcome.OK, measured={"tokens_per_second": 500.0})
        return Finished(outcome=Outcome.OK, reason="", result=result, started=started, wall_seconds=0.5)

    def close(self) -> None:
        """It has no process."""


def test_rounds_that_do_not_fit_the_time_budget_are_left_whole(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = PacedLauncher(monkeypatch)
    run(store, a_plan(a_block("late", rounds=1)), launcher)  # now its trials' time is known: 1.5 s a round
    listener, options = Listener(), Options(time_budget_seconds=3.75)
    # the prior of the first study is 4.5 s a round; of the second's the budget holds two more
    plan = a_plan(a_block("early", rounds=1), a_block("late", rounds=4))
    summary = run(store, plan, launcher, options=options, listener=listener)
    rounds = Counter((study, number) for study, number, _ in places(valid(store)))
    assert rounds == {("late", 1): 3, ("late", 2): 3, ("late", 3): 3}, "whole rounds only"
    assert (summary.rounds_postponed, summary.left) == (2, 6)
    postponed = [(event.study, event.needed_seconds) for event in listener.of(RoundPostponed)]  # type: ignore[union-attr]
    assert postponed == [("early", 4.5), ("late", 1.5)]
    foretold = [event.seconds_left for event in listener.events if isinstance(event, RunPlanned | TrialFinished)]
    assert foretold == [3.75, 3.25, 2.75, 2.25, 1.75, 1.25, 0.75], "rounds that the budget does not hold take no time"
    assert not summary.interrupted
    assert "; 2 rounds did not fit in the time budget; 6 left" in str(summary)


def test_a_run_that_has_time_for_nothing_does_not_say_that_there_is_nothing_to_do(
    store: Store, launcher: LocalLauncher
) -> None:
    summary = run(store, a_plan(a_block(rounds=1)), launcher, options=Options(time_budget_seconds=0.01))
    assert str(summary) == (
        "3 trials planned, 0 in the store already; this run: no trial; "
        "1 round did not fit in the time budget; 3 left"
    )  # fmt: skip


def test_the_time_left_is_told_and_comes_down_to_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    listener = Listener()
    run(store, a_plan(a_block()), PacedLauncher(monkeypatch), listener=listener)
    planned, *_ = listener.events
    assert isinstance(planned, RunPlanned)
    assert (planned.trials, planned.stored, planned.seconds_left) == (6, 0, 9.0)
    finished = [event for event in listener.events if isinstance(event, TrialFinished)]
    assert [event.done for event in finished] == [1, 2, 3, 4, 5, 6]
    # the first guess was 1.5 s a trial, the first trial took a third of it
    assert [event.seconds_left for event in finished] == pytest.approx([2.5, 2.0, 1.5, 1.0, 0.5, 0.0])


class SteadyMeter:
    """A device at 700 W and 1.5 GHz."""

    power_limit_watts = 700.0

    def read(self) -> Reading:
        now = time.monotonic()
        return Reading(
            at=now, utilisation=0.5, sm_mhz=1500.0, power_watts=700.0, energy_joules=700.0 * now, used_bytes=0
        )


@pytest.mark.parametrize(("driver", "launched"), [("580.1", 3), ("590.2", 9)], ids=["same driver", "other driver"])
def test_a_machine_like_the_last_one_goes_on_with_what_it_left(
    store: Store, launcher: LocalLauncher, tmp_path: Path, driver: str, launched: int
) -> None:
    """A lent machine is bare each time. Another host and card of the kind do; what moves figures has to be the same."""
    first = replace(CPU, devices=(GPU,), driver="580.1", host="lent-17")
    run(store, a_plan(a_block(rounds=2)), launcher, environment=first)
    export(valid(store), tmp_path / "results.jsonl.gz")
    second = replace(first, devices=(replace(GPU, uuid="GPU-0002"),), driver=driver, host="lent-23")
    with Store.open(tmp_path / "next.sqlite", writable=True) as after:
        after.add_all(read_lines(tmp_path / "results.jsonl.gz"))
        summary = run(after, a_plan(a_block(rounds=3)), launcher, environment=second)
        assert (summary.launched, summary.stored_before, summary.left) == (launched, 9 - launched, 0)
        assert len(valid(after)) == 6 + launched
        assert {each.environment["host"] for each in valid(after) if each.round == 3} == {"lent-23"}


def test_what_the_device_did_is_in_the_record(store: Store, launcher: LocalLauncher) -> None:
    environment = replace(CPU, devices=(GPU,), driver="580.1")
    plan = a_plan(a_block(rounds=1, options={"seconds": 1.3}))
    run(store, plan, launcher, environment=environment, options=Options(meters=(SteadyMeter(),)))
    record = valid(store)[0]
    assert record.utilisation == pytest.approx(0.5)
    assert record.clocks["sm_mhz"] == pytest.approx(1500.0)
    assert record.energy_joules_per_token == pytest.approx(700.0 / 500.0, rel=0.05), "700 W at 500 tokens/s"
    assert [device["uuid"] for device in record.environment["devices"]] == ["GPU-0001"]


class Neighbour:
    """The machine's second GPU, which a trial of one device has nothing to do with."""

    power_limit_watts = 700.0

    def read(self) -> Reading:
        raise AssertionError("it was looked at")


def test_a_trial_of_one_device_is_not_charged_with_the_power_of_two(store: Store, launcher: LocalLauncher) -> None:
    environment = replace(CPU, devices=(GPU, replace(GPU, index=1, uuid="GPU-0002")), driver="580.1")
    plan = a_plan(a_block(rounds=1, sizes=(), options={"seconds": 1.3}))
    run(store, plan, launcher, environment=environment, options=Options(meters=(SteadyMeter(), Neighbour())))
    assert valid(store)[0].clocks["power_watts"] == pytest.approx(700.0, rel=0.05)


def test_a_trial_sees_its_device_and_its_cells_caches_alone(store: Store, launcher: LocalLauncher) -> None:
    environment = replace(CPU, devices=(GPU, replace(GPU, index=1, uuid="GPU-0002")))
    plan = a_plan(a_block(deeds={1: "write a result", 2: "write a result"}, rounds=1))
    run(store, plan, launcher, environment=environment)
    seen = {record.arm: record.figures["environment"] for record in valid(store)}
    named = {(each["CUDA_DEVICE_ORDER"], each["CUDA_VISIBLE_DEVICES"]) for each in seen.values()}
    assert named == {("PCI_BUS_ID", "0")}, "by number: DeepSpeed reads no UUID"
    caches = {arm: (each["TORCHINDUCTOR_CACHE_DIR"], each["TRITON_CACHE_DIR"]) for arm, each in seen.items()}
    assert caches["baseline"] == caches["control"] != caches["batch_size=2"]


def test_stores_in_one_folder_share_their_data_and_nothing_else(tmp_path: Path) -> None:
    """Two runs of one plan at a time: neither writes where the other reads, nor takes its caches away."""
    trial = a_plan(a_block(rounds=1)).trials[0]
    ours, theirs = (Workplace.beside(tmp_path / name) for name in ("a.sqlite", "b.sqlite"))
    assert ours.data == theirs.data
    mine, other = (place.spec(trial, fingerprint="f", attempt=1, gpu=False) for place in (ours, theirs))
    assert mine.data_directory == other.data_directory
    assert mine.record_path != other.record_path
    ours.clear_caches()
    assert not Path(mine.cache_directory).exists()
    assert Path(other.cache_directory).exists()


def test_only_what_failed_is_left_in_the_workplace(store: Store, launcher: LocalLauncher) -> None:
    plan = a_plan(a_block(deeds={2: "raise"}, rounds=1))
    run(store, plan, launcher)
    workplace = Workplace.beside(store.path).folder
    (left,) = (workplace / "trials").iterdir()
    assert "the seventh layer is missing" in (left / "rank0.stderr").read_text()
    assert not (workplace / "caches").exists()


def test_what_was_compiled_stays_while_rounds_are_left_or_another_plan_of_the_cells_follows(
    store: Store, launcher: LocalLauncher
) -> None:
    """A run that a budget cuts short would compile all of it anew when it goes on."""
    caches, plan = Workplace.beside(store.path).caches, a_plan(a_block(rounds=1))
    caches.mkdir(parents=True)
    for options, left, kept in (
        (Options(time_budget_seconds=0.01), 3, True), (Options(keep_caches=True), 0, True), (Options(), 0, False),
    ):  # fmt: skip
        assert run(store, plan, launcher, options=options).left == left
        assert caches.exists() is kept


def test_a_workplace_that_cannot_be_written_is_one_sentence(store: Store, launcher: LocalLauncher) -> None:
    (store.path.parent / ".claimbench").write_text("in the way")
    with pytest.raises(LaunchError, match=r"\.claimbench.*mend that and run again, what is stored is kept"):
        run(store, a_plan(a_block()), launcher)
