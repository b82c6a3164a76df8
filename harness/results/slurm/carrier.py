"""The carrier of a cluster: rounds travel in jobs, and come back as files that the run stores.

A run that dies leaves the folders of its jobs, and the next one goes on where it stood: what has come back is stored,
jobs that still wait or run are waited for, and only what neither holds is sent again.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.environment import Environment
from harness.errors import EnvironmentProblem, LaunchError
from harness.results import assemble
from harness.results.carrier import Desk
from harness.results.lines import read_lines
from harness.results.record import Record
from harness.results.rounds import Round
from harness.results.slurm import cluster as slurm
from harness.results.slurm.cluster import GONE, Cluster, JobState, QueueFull
from harness.results.slurm.job import Job, errand_of, label
from harness.results.slurm.node import run_job
from harness.results.slurm.packing import Load, Seconds, pack
from harness.results.slurm.sent import Said, Sent
from harness.results.tries import now

#: A job begins no round that would end within so much of its limit: what is left is for writing and ending.
_MARGIN_SECONDS = 60.0
#: A controller that restarts is waited for.
_SECONDS_WITHOUT_ANSWER = 600.0


@dataclass(kw_only=True)
class OnSlurm:
    """Rounds in jobs of a Slurm cluster."""

    cluster: Cluster
    folder: Path
    """`.claimbench/stores/<store>/slurm`, on a file system that every node sees."""
    environment: Environment
    """Of a node (`probe.environment_of_a_node`)."""
    seconds: Seconds
    """That a round is expected to take."""
    scale: str
    data_folder: Path
    isolation: str = "zygote"
    retries: int = 0
    """How often a round is sent again after its job was lost; also tries of a trial after a crash or a timeout."""
    wall_limit_seconds: float | None = None
    entry: str = ""
    """What a trial process calls; empty: the worker."""
    poll_seconds: float = 2.0
    _sent: list[Sent] = field(default_factory=list)
    _lost: Counter[str] = field(default_factory=Counter)
    """Label of a round → jobs that were lost with it."""
    _states: dict[str, JobState] = field(default_factory=dict)
    _answered: float = field(default_factory=time.monotonic)

    @property
    def width(self) -> int:
        return self.cluster.nodes * self.cluster.lanes

    def leftovers(self) -> Iterator[Sequence[Record]]:
        """What came back after an earlier run had died."""
        slurm.require_slurm()
        slurm.require_partition(self.cluster)
        for file in sorted(self.folder.glob("jobs/*/rounds/*.jsonl")):
            yield read_lines(file)
            file.unlink()  # asked for the next: this one is stored

    def carry(self, rounds: Sequence[Round], desk: Desk) -> None:
        """Send, collect, send again what was lost; until nothing is left or the run is stopped.

        A run that is stopped now ends its jobs; one whose terminal is gone leaves them to the next, as if it had died.

        Raises:
            EnvironmentProblem: Slurm refuses the jobs, takes none, or does not answer.
            LaunchError: a node is not like the one that the run was planned for.
        """
        todo = [each for each in self._adopt(rounds, desk) if not _refused(each, desk)]
        waiting = deque(pack(todo, self.seconds, self.cluster))
        try:
            while (waiting or self._sent) and not desk.interrupts.now:
                if desk.interrupts.soft:
                    waiting.clear()
                    self._ask_to_stop()
                self._send(waiting, desk)
                if self._sent:
                    desk.interrupts.sleep(self.poll_seconds)
                waiting.extend(self._collect(desk))
        finally:
            if desk.interrupts.now and not desk.interrupts.hung_up:
                self._end_jobs()

    def _adopt(self, rounds: Sequence[Round], desk: Desk) -> list[Round]:
        """Take over the jobs of an earlier run, for this plan or another; the rounds that none of them holds."""
        missing = {label(each): each for each in rounds}
        over = []
        states = slurm.states()
        for folder in sorted(self.folder.glob("jobs/*")):
            sent = Sent(folder=folder, rounds=missing, state=states.get(folder.name, GONE))
            if sent.over or sent.state.ending:
                over.append(sent)
                continue
            (folder / "stop").unlink(missing_ok=True)
            sent.take(missing)
            self._sent.append(sent)
        for sent in over:  # a job may have ended since `leftovers` looked
            self._store(sent, desk)
        if over and missing:  # its files may be seen here a moment late
            desk.interrupts.sleep(self.poll_seconds)
        for sent in over:
            self._store(sent, desk)
            sent.remove()
        return list(missing.values())

    def _store(self, sent: Sent, desk: Desk) -> None:
        """Everything that has come back of a job, whoever asked for it."""
        for each, records in sent.delivered():
            if each is None:
                desk.found(records)
            else:
                desk.delivered(each, records)

    def _send(self, waiting: deque[Load], desk: Desk) -> None:
        """As many jobs as there are nodes to use; a full queue is offered the rest later."""
        while waiting and self._has_room(waiting[0].nodes):
            sent = self._prepare(waiting[0], desk)
            if sent is not None and not self._submit(sent):
                return
            waiting.popleft()

    def _has_room(self, nodes: int) -> bool:
        return not self._sent or sum(sent.nodes for sent in self._sent) + nodes <= self.cluster.nodes

    def _submit(self, sent: Sent) -> bool:
        """False: the queue is full, but jobs of ours will leave it."""
        pickles = self.folder / "submitit"
        try:
            number = slurm.submit(self.cluster, pickles, run_job, str(sent.folder), name=sent.name, nodes=sent.nodes)
        except QueueFull as full:
            sent.remove()
            if self._sent:
                return False
            raise EnvironmentProblem(
                "Slurm's queue is full and takes no job now; what is stored is kept, run again later"
            ) from full
        except EnvironmentProblem:
            sent.remove()
            raise
        sent.state = JobState(number=number, state="PENDING")
        self._sent.append(sent)
        return True

    def _prepare(self, load: Load, desk: Desk) -> Sent | None:
        """Write the job; None when the desk wants none of its rounds."""
        begun = [(each, orders) for each in load.rounds if (orders := desk.begin(each)) is not None]
        if not begun:
            return None
        blocks = {each.key: each.block for each, _ in begun}
        places = {key: place for place, key in enumerate(blocks)}
        name = f"claimbench-{uuid.uuid4().hex[:12]}"
        Job(
            name=name, scale=self.scale, gpu=self.environment.has_gpu, nodes=load.nodes,
            per_node=self.cluster.ranks_per_node, isolation=self.isolation, entry=self.entry, retries=self.retries,
            wall_limit_seconds=self.wall_limit_seconds,
            seconds=max(_MARGIN_SECONDS, 60 * self.cluster.minutes - _MARGIN_SECONDS),
            data_folder=str(self.data_folder), blocks=tuple(blocks.values()),
            errands=tuple(errand_of(each, places[each.key], orders) for each, orders in begun),
            expected={label(each): self.seconds(each) for each, _ in begun},
        ).write(self.folder / "jobs" / name)  # fmt: skip
        rounds = {label(each): each for each, _ in begun}
        return Sent(folder=self.folder / "jobs" / name, rounds=rounds, nodes=load.nodes)

    def _collect(self, desk: Desk) -> list[Load]:
        """Store what has come back; loads to send again, of jobs that have ended without all of their rounds."""
        self._ask_slurm()
        again = []
        for sent in list(self._sent):
            sent.look(self._states.get(sent.name, GONE))
            try:
                slurm.require_startable(sent.state)
            except EnvironmentProblem:
                slurm.cancel([each.name for each in self._sent], pending_only=True)
                raise
            self._store(sent, desk)
            if sent.ended:
                self._sent.remove(sent)
                if sent.rounds and not desk.interrupts.soft:
                    again += self._after(sent, desk)
                sent.remove()
        return again

    def _after(self, sent: Sent, desk: Desk) -> list[Load]:
        """What becomes of the rounds of a job that came to its end without them."""
        said = sent.said()
        if said is not None and said.unlike:
            raise LaunchError(said.why_unlike)
        rounds = list(sent.rounds.values())
        blameless = sent.out_of_time()
        self._lost.update(set(sent.rounds) - blameless)
        again = [each for each in rounds if self._lost[label(each)] <= self.retries]
        for each in rounds:
            if self._lost[label(each)] > self.retries:
                desk.lost(each)
        if set(sent.rounds) - blameless:
            desk.notice(self._news_of(sent, said, bool(again)))
        return pack(again, self.seconds, self.cluster)

    def _news_of(self, sent: Sent, said: Said | None, again: bool) -> str:
        why = f"ended as {sent.state.state}" if said is None else "had too little time (--time)"
        left = f"{len(sent.rounds)} of its rounds not done"
        fate = "sent again" if again else "the next run will do them (or --retries)"
        last = "" if said else sent.last_line(slurm.log_of(self.folder / "submitit", sent.state.number))
        return f"Slurm job {sent.state.number} {why}, {left}: {fate}" + (f"; its log ends: {last}" if last else "")

    def _ask_slurm(self) -> None:
        """The states of all jobs at once; a controller that is away for a while leaves them as they were."""
        try:
            self._states = slurm.states()
            self._answered = time.monotonic()
        except EnvironmentProblem:
            if time.monotonic() - self._answered > _SECONDS_WITHOUT_ANSWER:
                raise

    def _ask_to_stop(self) -> None:
        """No further round begins; jobs that have not begun are not needed."""
        for sent in self._sent:
            sent.ask_to_stop()
        slurm.cancel([sent.name for sent in self._sent], pending_only=True)

    def _end_jobs(self) -> None:
        """Now. Processes that Slurm does not find (of a job that has just begun, for instance) begin no round."""
        for sent in self._sent:
            sent.ask_to_stop()
        slurm.cancel([sent.name for sent in self._sent])


def _refused(each: Round, desk: Desk) -> bool:
    """A round of which nothing can run is recorded here: it needs no node."""
    if any(trial.refusal is None for trial in each.trials):
        return False
    orders = desk.begin(each)
    if orders is None:
        return True
    for trial in each.trials:
        at = assemble.Try(attempt=orders.attempts[trial.arm.name], started_at=now())
        desk.finished(trial, assemble.unsupported(trial, at=at, circumstances=each.circumstances))
    return True
