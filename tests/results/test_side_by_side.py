"""Rounds side by side on several devices of one machine, with real processes as trials (`tests.trial.child`)."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

import pytest

from harness.environment import Device, Environment
from harness.errors import EnvironmentProblem, LaunchError
from harness.experiment.study import Block, Plan
from harness.results.collect import Options, fill_by
from harness.results.events import Event, Summary, TrialFinished, TrialStarted
from harness.results.record import Record
from harness.results.rounds import rounds_of
from harness.results.sharing import STUDY, elsewhere, with_control
from harness.results.side_by_side import SideBySide, _Blocks, _Lane
from harness.results.store import Store
from harness.results.workplace import Workplace
from harness.trial.launch import Launcher, LocalLauncher
from harness.trial.nvml import Reading
from harness.trial.outcome import Outcome
from tests.results.plans import a_block, a_plan
from tests.trial.notes import living, noted

TWO = Environment(
    cores=8,
    devices=tuple(
        Device(index=index, name="NVIDIA H100", uuid=f"GPU-{index}", memory_bytes=80 << 30, power_limit_watts=700.0)
        for index in range(2)
    ),
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "results.sqlite", writable=True) as store:
        yield store


def child(variables: Mapping[str, str]) -> Launcher:
    return LocalLauncher(gpu=False, modules=("json",), entry="tests.trial.child:main", variables=variables)


def run(store: Store, plan: Plan, environment: Environment = TWO, listener: list[Event] | None = None) -> Summary:
    carrier = SideBySide(
        environment=environment, workplace=Workplace.beside(store.path), make_launcher=child, watch=lambda uuids: ()
    )
    said = listener if listener is not None else []
    return fill_by(carrier, store, plan, environment, options=Options(), on_event=said.append)


def uuid(record: Record) -> str:
    (device,) = record.environment["devices"]
    return str(device["uuid"])


class SteadyMeter:
    """A device that takes 650 W."""

    power_limit_watts = 700.0

    def read(self) -> Reading:
        now = time.monotonic()
        return Reading(at=now, utilisation=0.9, power_watts=650.0, energy_joules=650.0 * now, used_bytes=4 << 20)


@pytest.mark.parametrize(("metered", "watched", "watts"), [(2, 2, 1300.0), (1, 2, None), (2, 1, None)])
def test_energy_is_that_of_all_devices_of_a_trial_or_none(
    store: Store, metered: int, watched: int, watts: float | None
) -> None:
    """A job over several nodes reads the meters of its first node, and there those of the trial alone."""
    carrier = SideBySide(
        environment=TWO, workplace=Workplace.beside(store.path), make_launcher=child,
        watch=lambda uuids: [SteadyMeter() for _ in range(metered)], watched=lambda devices: min(devices, watched),
    )  # fmt: skip
    block = a_block(rounds=1, options={"seconds": 1.3}, settings={"devices": 2, "parallel": "ddp"})
    fill_by(carrier, store, a_plan(block), TWO, options=Options(), on_event=lambda event: None)
    for record in store.records():
        assert record.outcome is Outcome.OK, record.reason
        energy = record.energy_joules_per_token
        assert energy == (None if watts is None else pytest.approx(watts / record.tokens_per_second, rel=0.01))
        assert ("1 of its 2 devices" in record.missing.get("energy_joules_per_token", "")) is (watts is None)


def test_each_block_runs_on_one_gpu_and_the_blocks_run_at_the_same_time(store: Store) -> None:
    said: list[Event] = []
    plan = a_plan(*(a_block(name, options={"seconds": 0.3}) for name in "ab"))
    summary = run(store, plan, listener=said)
    records = list(store.records(include_superseded=False))
    devices = defaultdict(set)
    for record in records:
        devices[record.study].add(uuid(record))
    assert summary.left == 0
    assert len(records) == len(plan.trials) == 12
    assert sorted(map(sorted, devices.values())) == [["GPU-0"], ["GPU-1"]]
    assert {record.environment["side_by_side"] for record in records} == {2}
    running, most = 0, 0
    for event in said:
        running += isinstance(event, TrialStarted) - isinstance(event, TrialFinished)
        most = max(most, running)
    assert most == 2


def test_rounds_of_one_block_spread_over_gpus_and_none_of_them_splits(store: Store) -> None:
    run(store, a_plan(a_block(rounds=4, options={"seconds": 0.3})))
    devices = defaultdict(set)
    for record in store.records():
        devices[record.round].add(uuid(record))
    assert all(len(found) == 1 for found in devices.values())
    assert {next(iter(found)) for found in devices.values()} == {"GPU-0", "GPU-1"}
    assert len({record.fingerprint for record in store.records()}) == 1


def wide(rounds: int) -> Block:
    return a_block("wide", rounds=rounds, sizes=(), settings={"devices": 2, "parallel": "ddp"})


def test_blocks_of_one_device_run_before_those_of_two(store: Store) -> None:
    said: list[Event] = []
    run(store, a_plan(wide(1), a_block("narrow", rounds=1, sizes=())), listener=said)
    assert [event.trial.block.study for event in said if isinstance(event, TrialStarted)] == ["narrow"] * 2 + [
        "wide"
    ] * 2


def test_a_device_that_is_left_over_runs_no_block_of_two(store: Store) -> None:
    three = replace(TWO, devices=(*TWO.devices, replace(TWO.devices[1], index=2, uuid="GPU-2")))
    run(store, a_plan(wide(2)), environment=three)
    used = [[device["uuid"] for device in record.environment["devices"]] for record in store.records()]
    assert used == [["GPU-0", "GPU-1"]] * 4


def test_no_more_rounds_run_at_a_time_than_may(store: Store) -> None:
    """Over several nodes every round takes the first devices of each, however many are left over."""
    carrier = SideBySide(
        environment=TWO, workplace=Workplace.beside(store.path), make_launcher=child, watch=lambda uuids: (),
        most_lanes=1,
    )  # fmt: skip
    fill_by(carrier, store, a_plan(a_block("a"), a_block("b")), TWO, options=Options())
    records = list(store.records())
    assert {uuid(record) for record in records} == {"GPU-0"}
    assert all("side_by_side" not in record.environment for record in records)


def test_a_lane_without_a_block_takes_the_next_round_of_the_longest(tmp_path: Path) -> None:
    carrier = SideBySide(environment=TWO, workplace=Workplace(folder=tmp_path), make_launcher=child)
    one, two, third = (_Lane(carrier=carrier, devices=(), lanes=3, news=SimpleQueue()) for _ in range(3))
    plan = a_plan(a_block("short", rounds=3, sizes=()), a_block("long", rounds=5, sizes=()))
    blocks = _Blocks(rounds_of(plan, TWO))
    given = [blocks.next_for(lane) for lane in (one, two, third, third, one, third, one, two, two)]
    assert [(each.block.study, each.trials[0].round) if each else None for each in given] == [
        ("short", 1), ("long", 1), ("long", 2), ("long", 3), ("short", 2), ("long", 4), ("short", 3), ("long", 5), None,
    ]  # fmt: skip


def test_a_second_run_starts_nothing_whichever_gpus_it_has(store: Store) -> None:
    plan = a_plan(a_block())
    run(store, plan)
    again = run(store, plan, environment=replace(TWO, devices=TWO.devices[1:]))
    assert (again.launched, again.left) == (0, 0)


def test_threads_of_the_machine_are_shared_out(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    run(store, a_plan(a_block(deeds=dict.fromkeys((1, 2), "write a result"))))
    seen = [record.figures["environment"] for record in store.records()]
    assert {each["OMP_NUM_THREADS"] for each in seen} == {"4"}
    assert {each["CUDA_VISIBLE_DEVICES"] for each in seen} == {"0", "1"}


def test_gpus_that_differ_are_refused() -> None:
    other = replace(TWO.devices[1], power_limit_watts=500.0)
    mixed = replace(TWO, devices=(TWO.devices[0], other))
    with pytest.raises(EnvironmentProblem, match=r"NVIDIA H100 at 500 W and NVIDIA H100 at 700 W; choose .* --gpus"):
        SideBySide(environment=mixed, workplace=Workplace(folder=Path()), make_launcher=child)


def test_a_lane_that_cannot_start_ends_the_run_and_the_other_lane(store: Store) -> None:
    started = []
    place = Workplace.beside(store.path).folder

    def broken(variables: Mapping[str, str]) -> Launcher:
        started.append(1)
        if len(started) == 2:
            until = time.monotonic() + 30
            while not list(place.glob("trials/*/alive/*")) and time.monotonic() < until:
                time.sleep(0.05)  # until a trial of the other lane lives
            raise LaunchError("no process can be started")
        return child(variables)

    carrier = SideBySide(
        environment=TWO, workplace=Workplace.beside(store.path), make_launcher=broken, watch=lambda uuids: ()
    )
    plan = a_plan(*(a_block(name, deeds=dict.fromkeys((1, 2), "have children and sleep")) for name in "ab"))
    with pytest.raises(LaunchError, match="no process can be started"):
        fill_by(carrier, store, plan, TWO, options=Options())
    folders = list((place / "trials").iterdir())
    assert any(noted(folder) for folder in folders), "a trial ran on the other lane"
    assert all(living(folder) == [] for folder in folders)


def test_the_cost_of_sharing_is_measured_alone_and_together_on_each_gpu_in_turn(store: Store) -> None:
    said: list[Event] = []
    plan = with_control(a_plan(a_block(options={"seconds": 0.2})), lanes=2)
    summary = run(store, plan, listener=said)
    control = [record for record in store.records() if record.study == STUDY]
    assert summary.left == 0
    assert [sorted(each.arm for each in control if each.round == number) for number in (1, 2, 3)] == [
        ["baseline", "control", "side-by-side"]
    ] * 3
    assert [{uuid(each) for each in control if each.round == number} for number in (1, 2, 3)] == [
        {"GPU-0"}, {"GPU-1"}, {"GPU-0"},
    ]  # fmt: skip
    first = [event for event in said if isinstance(event, TrialStarted | TrialFinished)][:18]
    assert [isinstance(event, TrialStarted) for event in first] == [True, False] * 9, "one kept trial at a time"
    assert all(record.outcome is Outcome.OK for record in control)


def test_the_control_is_of_the_first_training_on_one_device_that_runs_and_comes_first() -> None:
    wide = a_block("wide", rounds=1, settings={"devices": 2, "parallel": "ddp"})
    loader = replace(a_block("loader", rounds=1), kind="loader-only")
    plain = replace(a_block("plain", rounds=1, sizes=(), settings={"batch_size": 16}), sweep={"batch_size": 16})
    plan = a_plan(wide, loader, plain, a_block("another", rounds=1))
    found = with_control(plan, lanes=5)
    control = found.trials[: -len(plan.trials)]
    assert found.trials[len(control) :] == plan.trials
    assert {trial.arm.cell.settings["batch_size"] for trial in control} == {16}, "of the study `plain`"
    assert {trial.block.study for trial in control} == {STUDY}
    assert {trial.block.kind for trial in control} == {"training"}
    assert {trial.arm.cell.number("devices") for trial in control} == {1}
    assert {len(trial.block.sweep) for trial in control} == {0}
    assert [trial.round for trial in control] == [number for number in range(1, 6) for _ in range(3)], "each GPU once"
    seeds = {trial.round: trial.seed for trial in control}
    assert len(set(seeds.values())) == 5
    refused = a_plan(plain, refusals={"baseline": "no GPU"})
    assert with_control(refused, lanes=5) is refused


def test_the_load_on_other_lanes_has_folders_of_its_own() -> None:
    (each,) = rounds_of(a_plan(a_block(rounds=1, sizes=())), TWO)
    places = [elsewhere(each, lane).trials[0].position for lane in range(4)]
    assert len({*places, *(trial.position for trial in each.trials)}) == 4 + len(each.trials)


def test_one_lane_has_no_neighbours_and_no_control() -> None:
    plan = a_plan(a_block())
    assert with_control(plan, lanes=1) is plan
