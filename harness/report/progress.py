"""What a run shows while it runs: the cell that is running, trials done, time left.

A bar on a terminal; elsewhere (a log, a pipe) a line when a trial ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from harness.experiment.study import PlannedTrial
from harness.report import formats
from harness.report.terminal import block_name
from harness.results.events import (
    Event,
    Notice,
    OnEvent,
    RoundPostponed,
    RunPlanned,
    StopRequested,
    TrialFinished,
    TrialStarted,
)
from harness.trial.outcome import Outcome

if TYPE_CHECKING:
    from rich.console import Console


@contextmanager
def progress(console: Console) -> Iterator[OnEvent]:
    """What to hand to a run as its observer, while entered."""
    postponed: set[str] = set()

    def tell(event: Event) -> None:
        """Of a study whose rounds no longer fit the first is told; the run's last line counts them."""
        if isinstance(event, RoundPostponed):
            if event.study in postponed:
                return
            postponed.add(event.study)
        _print(console, line(event))

    if not console.is_terminal:
        yield tell
        return
    from rich import progress as bars

    columns = (
        bars.TextColumn("{task.description}", markup=False), bars.BarColumn(), bars.MofNCompleteColumn(),
        bars.TextColumn("{task.fields[left]}", markup=False),
    )  # fmt: skip
    with bars.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("planning", total=None, left="")

        def observe(event: Event) -> None:
            if isinstance(event, RunPlanned):
                bar.update(task, total=event.trials, completed=event.stored, left=left(event.seconds_left))
            elif isinstance(event, TrialStarted):
                again = f" (try {event.attempt})" if event.attempt > 1 else ""
                bar.update(task, description=f"{trial_name(event.trial)}{again}", left=left(event.seconds_left))
            elif isinstance(event, TrialFinished):
                bar.update(task, completed=event.done, left=left(event.seconds_left))
            if isinstance(event, RoundPostponed | StopRequested | Notice) or _went_wrong(event):
                tell(event)

        yield observe


def line(event: Event) -> str:
    """One event as a line of a log; empty for one that needs none."""
    match event:
        case RunPlanned():
            stored = f", {event.stored:,} of them in the store already" if event.stored else ""
            return f"{formats.plural(event.trials, 'trial')} planned{stored}; {left(event.seconds_left)}"
        case TrialFinished() if event.record.outcome is not Outcome.UNSUPPORTED or event.trial.round == 1:
            done = f"[{event.done}/{event.trials}] {trial_name(event.trial)}"
            return f"{done}: {result(event)}; {left(event.seconds_left)}"
        case RoundPostponed():
            needed, spare = duration(event.needed_seconds), duration(event.left_seconds)
            return f"{event.study} round {event.round} needs about {needed}, {spare} are left: another run will do it"
        case StopRequested():
            return "stopping after the trial that is running; Ctrl-C again stops now"
        case Notice():
            return event.text
        case _:
            return ""


def result(event: TrialFinished) -> str:
    """`ok, 41,230 tokens/s`, or the outcome with the first line of its reason."""
    record = event.record
    if record.outcome is Outcome.OK:
        speed = record.tokens_per_second
        return f"ok, {formats.rate(speed)} tokens/s" if speed is not None else "ok"
    reason = record.reason.strip().partition("\n")[0]
    return f"{record.outcome}: {reason}" if reason else str(record.outcome)


def trial_name(trial: PlannedTrial) -> str:
    """`attention at sequence_length=512 · attention=flash2 · round 2`."""
    return f"{block_name(trial.block.study, trial.block.sweep)} · {trial.arm.name} · round {trial.round}"


def left(seconds: float) -> str:
    """`about 12 min left`."""
    return f"about {duration(seconds)} left"


def duration(seconds: float) -> str:
    """`25 s`, `12 min`, `2 h 05 min`."""
    if seconds < 90:
        return f"{max(0, seconds):.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


def _went_wrong(event: Event) -> bool:
    return isinstance(event, TrialFinished) and event.record.outcome not in {Outcome.OK, Outcome.UNSUPPORTED}


def _print(console: Console, text: str) -> None:
    if text:
        console.print(text, markup=False, highlight=False, soft_wrap=True)
