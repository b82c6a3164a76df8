"""Several rounds at a time on the GPUs of one machine: a lane each, with a thread, a zygote and a sampler of its own.

A lane is as many devices as a block needs. It takes a block and runs its rounds one after the other; a lane that finds
no block left takes a round off another's, so a block's rounds may run on several GPUs of a kind while a round never
does. The caller's thread hands out rounds and reports what comes back; nothing else touches its desk.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from queue import SimpleQueue

from harness.environment import Device, Environment
from harness.errors import EnvironmentProblem
from harness.experiment.study import PlannedTrial
from harness.results.carrier import Desk, Orders, run_round
from harness.results.record import Record
from harness.results.rounds import Round
from harness.results.sharing import ARM, elsewhere, is_control, split
from harness.results.tries import Tries
from harness.results.workplace import Workplace
from harness.trial.interrupts import Interrupts
from harness.trial.launch import Launcher
from harness.trial.nvml import Meter, meters
from harness.trial.sampler import Sampler

Devices = tuple[Device, ...]
#: Makes the launcher of a lane, in the lane's own thread; told what its trials' environment is to hold.
MakeLauncher = Callable[[Mapping[str, str]], Launcher]


@dataclass(frozen=True, kw_only=True)
class SideBySide:
    """The carrier of a machine with several GPUs."""

    environment: Environment
    """Of the machine; its devices are the ones to use."""
    workplace: Workplace
    make_launcher: MakeLauncher
    retries: int = 0
    wall_limit_seconds: float | None = None
    watch: Callable[[Iterable[str]], Sequence[Meter]] = meters
    """Meters of devices, by UUID."""
    watched: Callable[[int], int] = lambda devices: devices
    """How many of a trial's devices its meters are read of: over several nodes those on the first."""
    most_lanes: int | None = None
    """Rounds at a time at most, however many devices are left over."""

    def __post_init__(self) -> None:
        kinds = {(device.name, device.power_limit_watts) for device in self.environment.devices}
        if len(kinds) > 1:
            found = " and ".join(sorted(f"{name} at {watts or 0:.0f} W" for name, watts in kinds))
            raise EnvironmentProblem(
                f"rounds of a block may run on any of the GPUs, which must be alike, and these are {found};"
                " choose GPUs of one kind with --gpus"
            )

    @property
    def width(self) -> int:
        return len(self._lanes(1))

    def leftovers(self) -> Iterable[Sequence[Record]]:
        """None: each trial is stored as it ends."""
        return ()

    def carry(self, rounds: Sequence[Round], desk: Desk) -> None:
        """Blocks of one device first, then those of two, and so on; lanes in parallel."""
        by_size = sorted(rounds, key=lambda each: len(each.devices))
        for size, group in groupby(by_size, key=lambda each: len(each.devices)):
            if not desk.interrupts.soft:
                self._carry(list(group), self._lanes(size or 1), desk)

    def _lanes(self, size: int) -> list[Devices]:
        devices = self.environment.devices
        if not devices:
            return [()]
        return [devices[start : start + size] for start in range(0, len(devices) - size + 1, size)][: self.most_lanes]

    def _carry(self, rounds: Sequence[Round], places: Sequence[Devices], desk: Desk) -> None:
        news: SimpleQueue[_News] = SimpleQueue()
        lanes = [_Lane(carrier=self, devices=devices, lanes=len(places), news=news) for devices in places]
        desk.interrupts.followers += [lane.interrupts for lane in lanes]
        for lane in lanes:
            lane.start()
        try:
            controls = [each for each in rounds if is_control(each.block)]
            for number, each in enumerate(controls):
                _measure_sharing(each, number, lanes, news, desk)
            _hand_out(_Blocks([each for each in rounds if not is_control(each.block)]), lanes, news, desk)
        finally:
            desk.interrupts.followers.clear()
            for lane in lanes:
                lane.end()


@dataclass(kw_only=True)
class _News:
    """What a lane says."""

    lane: _Lane
    trial: PlannedTrial | None = None
    attempt: int = 0
    """Of a trial that begins."""
    record: Record | None = None
    """Of a trial that has ended."""
    error: BaseException | None = None
    """Neither trial nor error: the lane has run what it was given."""


@dataclass(kw_only=True, eq=False)
class _Lane:
    """One thread with its devices. The kernel ties a zygote to the thread that forked it, so it lives throughout."""

    carrier: SideBySide
    devices: Devices
    lanes: int
    news: SimpleQueue[_News]
    interrupts: Interrupts = field(default_factory=Interrupts)
    block: str = ""
    """Key of the block whose rounds it runs."""
    _given: SimpleQueue[tuple[Round, Orders] | None] = field(default_factory=SimpleQueue)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="lane", daemon=True)
        self._thread.start()

    def give(self, each: Round, orders: Orders) -> None:
        """A round to run here."""
        placed = each.on(self.devices, self.carrier.environment, side_by_side=self.lanes)
        self._given.put((placed, orders))

    def end(self) -> None:
        """Stop what runs, wait until no process of the lane lives."""
        self._given.put(None)
        self.interrupts.request(now=True)
        if self._thread is not None:
            self._thread.join()
        self.interrupts.close()

    def _run(self) -> None:
        try:
            launcher = self.carrier.make_launcher(self._variables())
            try:
                while (given := self._given.get()) is not None:
                    run_round(self._tries(launcher), *given, started=self._started, finished=self._finished)
                    self.news.put(_News(lane=self))
            finally:
                launcher.close()
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that owns the run
            self.news.put(_News(lane=self, error=error))

    def _tries(self, launcher: Launcher) -> Tries:
        carrier = self.carrier
        return Tries(
            launcher=launcher, workplace=carrier.workplace, interrupts=self.interrupts,
            sampler=Sampler(carrier.watch(device.uuid for device in self.devices)), watched=carrier.watched,
            retries=carrier.retries, wall_limit_seconds=carrier.wall_limit_seconds,
        )  # fmt: skip

    def _variables(self) -> dict[str, str]:
        """A lane's share of the machine's threads: lanes with all of them each would wait for each other."""
        if self.lanes == 1 or "OMP_NUM_THREADS" in os.environ:
            return {}
        return {"OMP_NUM_THREADS": str(max(1, self.carrier.environment.cores // self.lanes))}

    def _started(self, trial: PlannedTrial, attempt: int) -> None:
        self.news.put(_News(lane=self, trial=trial, attempt=attempt))

    def _finished(self, trial: PlannedTrial, record: Record) -> None:
        self.news.put(_News(lane=self, trial=trial, record=record))


class _Blocks:
    """Rounds still to hand out, by block, in the order of the plan."""

    def __init__(self, rounds: Sequence[Round]) -> None:
        self._left: dict[str, list[Round]] = {}
        for each in rounds:
            self._left.setdefault(each.key, []).append(each)
        self._taken: set[str] = set()

    def next_for(self, lane: _Lane) -> Round | None:
        """The lane's own block goes on; then one that nobody has; then the next round of the longest that is left.

        Always a block's next round: those of a run that is cut short are its first ones.
        """
        left = [key for key, rounds in self._left.items() if rounds]
        if not left:
            return None
        fresh = [key for key in left if key not in self._taken]
        if lane.block in left:
            block = lane.block
        elif fresh:
            block = lane.block = fresh[0]
            self._taken.add(block)
        else:
            block = max(left, key=lambda key: len(self._left[key]))
        return self._left[block].pop(0)


def _hand_out(blocks: _Blocks, lanes: Sequence[_Lane], news: SimpleQueue[_News], desk: Desk) -> None:
    """Keep every lane busy until nothing is left, or the run is stopped and every lane has come to rest."""
    idle, busy = list(lanes), 0
    while True:
        while idle and not desk.interrupts.soft and (each := blocks.next_for(idle[0])) is not None:
            orders = desk.begin(each)
            if orders is not None:
                idle.pop(0).give(each, orders)
                busy += 1
        if not busy:
            return
        said = news.get()
        if _report(said, desk):
            idle.append(said.lane)
            busy -= 1


def _measure_sharing(each: Round, number: int, lanes: Sequence[_Lane], news: SimpleQueue[_News], desk: Desk) -> None:
    """A round of the sharing control: alone on one lane, then the same trial on all lanes at once, one of them kept."""
    orders = None if desk.interrupts.soft else desk.begin(each)
    if orders is None:
        return
    ours = lanes[number % len(lanes)]
    for part in split(each):
        those = list(lanes) if part.trials[0].arm.name == ARM else [ours]
        for index, lane in enumerate(those):
            lane.give(part if lane is ours else elsewhere(part, index), orders)
        resting = 0
        while resting < len(those):
            said = news.get()
            resting += _report(said, desk, keep=said.lane is ours)
        if desk.interrupts.soft:
            return


def _report(said: _News, desk: Desk, *, keep: bool = True) -> bool:
    """Pass news on; True when the lane is at rest again.

    Raises:
        What the lane raised.
    """
    if said.error is not None:
        raise said.error
    if said.trial is None:
        return True
    if keep and said.record is not None:
        desk.finished(said.trial, said.record)
    elif keep:
        desk.started(said.trial, said.attempt)
    return False
