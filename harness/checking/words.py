"""The answer as text and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from harness.checking.answer import Answer, Resolution
from harness.checking.schedule import MOST_STEPS, SHORT_WINDOW_SECONDS, Schedule
from harness.judgement.judged import ArmResult, Interval, Parity, Word
from harness.judgement.metrics import metric_named
from harness.judgement.rows import finite, verdict_objects
from harness.judgement.why import TITLES, TOLERANCE, Why
from harness.judgement.words import measured, phrase
from harness.report import formats

if TYPE_CHECKING:
    from rich.table import Table

VIEWS = ("allocated", "reserved", "device", "host")
MEANINGS = {
    "allocated": "in tensors", "reserved": "held by torch's allocator", "device": "of the device, all of it",
    "host": "of the process on the host",
}  # fmt: skip


def lines(answer: Answer) -> Iterator[str]:
    """The answer from the top down, tables apart."""
    verdict = answer.verdict
    yield f"{answer.question.sentence}"
    device = answer.block.device if answer.block else "nothing ran"
    yield f"on {answer.question.workload.name}, {device}{_point(answer)}"
    yield ""
    # a crash keeps its last lines in the store; here its sentence is the answer
    yield f"{verdict.word}: {formats.sentence(_first_line(verdict.reason))}"
    if verdict.measured:
        helped = verdict.helped or formats.ABSENT
        yield f"claimed {verdict.claimed}; measured {verdict.measured}; helped at all: {helped}"
    if verdict.scope:
        yield verdict.scope
        yield from (_at_point(verdict.metric, point) for point in verdict.details.get("points", ()))
    yield from _busy_line(answer)
    yield from budget_lines(answer)
    cell = answer.arms.get("cell")
    if cell is not None and verdict.measured:
        yield f"evidence: {cell.evidence or formats.ABSENT}"
        yield f"parity: {parity_line(cell.parity, cell)}"


def _busy_line(answer: Answer) -> Iterator[str]:
    """What of a difference is the device's own: the host's pace is another on another machine, or beside other work."""
    if answer.busy is not None:
        own = phrase(metric_named("busy_time_ratio"), answer.busy)
        idle = " and ".join(f"{formats.share(each.share('idle'))} ({each.arm})" for each in answer.why)
        yield f"device: {own}; of a step it idled for {idle}"


def budget_lines(answer: Answer) -> Iterator[str]:
    """What ran, and what so much could and could not tell apart."""
    spent = f"{answer.seconds:.0f} s of {answer.budget_seconds:.0f} s"
    if answer.schedule is None:
        yield f"budget: {spent}; {_pilot_alone(answer)}"
        return
    schedule = answer.schedule
    left_out = len(answer.question.points) - schedule.points
    missed = f"; {formats.plural(left_out, 'sweep point')} did not fit" if left_out else ""
    missed += f"; {formats.plural(answer.postponed, 'round')} no longer fitted" if answer.postponed else ""
    missed += "; stopped before its end" if answer.interrupted else ""
    size = f"{schedule.size.rounds} rounds of {schedule.size.steps} steps{_window(answer)}"
    yield f"budget: {spent}; {size}, {_when(schedule)}{missed}"
    if answer.window_seconds is not None and answer.window_seconds < SHORT_WINDOW_SECONDS:
        yield f"window: shorter than the second in which clocks and timers become steady; {_longer(schedule)}"
    if answer.verdict.measured:
        yield f"resolution: {_resolution(answer)}"


def _window(answer: Answer) -> str:
    """` (a window of 2.1 s or more)`: the shortest of any trial, as it was measured."""
    shortest = answer.window_seconds
    return "" if shortest is None else f" (a window of {shortest:.2g} s or more)"


def _longer(schedule: Schedule) -> str:
    if schedule.size.steps >= MOST_STEPS:
        return f"{MOST_STEPS:,} steps are the most that a trial takes: make the step larger"
    return "a larger --budget, beside another --store, makes it longer"


def _resolution(answer: Answer) -> str:
    """What so many rounds can tell apart, in words."""
    found = answer.resolution
    if found is not None:
        return f"ratios differ by {formats.share(found.spread)} between rounds, {_resolved(found)}"
    if metric_named(answer.verdict.metric).statistic.has_interval:
        return "not known; it takes two rounds that ran both arms"
    return "memory and counts are compared as the largest of all trials, without an interval"


def _pilot_alone(answer: Answer) -> str:
    if answer.interrupted:
        return "stopped in the pilot, one short round"
    if answer.verdict.word is Word.NOT_RUN:
        return "the pilot, one short round, left no time for three rounds"
    return "one short round, the pilot, was enough to say so"


def _when(schedule: Schedule) -> str:
    """Who fixed the rounds, and what of them was there."""
    planned = schedule.size.rounds * schedule.points
    if not schedule.stored:
        return "fixed after the pilot"
    if schedule.stored == planned:
        return "all in the store already"
    return f"fixed by an earlier check, which left {schedule.stored} of {planned} in the store"


def _resolved(found: Resolution) -> str:
    if not math.isfinite(found.smallest_ratio):
        return f"too much for {found.rounds} of them to find a true difference, however large, four times in five"
    return (
        f"so {found.rounds} of them find a true difference of {formats.share(found.smallest_ratio - 1)} or more four "
        f"times in five; a smaller one they cannot tell from none"
    )


def parity_line(parity: Parity, cell: ArmResult) -> str:
    """Both looks: losses, and the first gradient."""
    checks = [trial.gradient_check for trial in cell.trials if trial.gradient_check]
    skipped = next((str(each["skipped"]) for each in checks if "skipped" in each), "")
    gradient = f"first gradient not compared: {skipped}" if skipped else ""
    if parity.gradient_error is not None:
        eager = formats.plain(parity.eager_error)
        gradient = f"first gradient off by {formats.plain(parity.gradient_error)} from fp32 (plain kernels by {eager})"
    losses = "" if parity.holds is None and not parity.loss_gap else parity.reason
    return "; ".join(part for part in (parity.word, losses, gradient) if part)


def memory_table(answer: Answer) -> Table | None:
    """Peak memory of both arms in every view."""
    from harness.report.terminal import add_row, empty_table

    arms = answer.arms
    if "baseline" not in arms or "cell" not in arms:
        return None
    shown = [view for view in VIEWS if any(view in arms[role].memory for role in ("baseline", "cell"))]
    table = empty_table(("peak memory", arms["baseline"].name, arms["cell"].name, "ratio"))
    for view in shown:
        sizes = [formats.size(arms[role].memory[view][0]) if view in arms[role].memory else formats.ABSENT
                 for role in ("baseline", "cell")]  # fmt: skip
        add_row(table, f"{view} ({MEANINGS[view]})", *sizes, formats.ratio(arms["cell"].memory_ratio.get(view)))
    return table if shown else None


def why_table(answer: Answer) -> Table | None:
    """Where the time of a step went in both arms."""
    from harness.report.terminal import add_row, empty_table

    if len(answer.why) < 2:
        return None
    before, after = answer.why
    table = empty_table(("where a step's time went", before.arm, after.arm, "difference"))
    for name, title in TITLES.items():
        gap = after.seconds[name] - before.seconds[name]
        add_row(table, title, _part(before, name), _part(after, name), formats.milliseconds(gap))
    whole = after.step_seconds - before.step_seconds
    add_row(table, "step, measured", formats.milliseconds(before.step_seconds),
            formats.milliseconds(after.step_seconds), formats.milliseconds(whole))  # fmt: skip
    add_row(table, "parts over step", *(formats.share(each.sum_over_step) for each in answer.why), "")
    return table


def why_note(answer: Answer) -> str:
    """Where the parts and the step do not agree."""
    apart = [each.arm for each in answer.why if not each.agrees]
    if not apart:
        return ""
    return f"the profiled step of {' and '.join(apart)} differs from the measured ones by more than {TOLERANCE:.0%}"


def as_json(answer: Answer, report: str) -> dict[str, Any]:
    """The same as data."""
    found, schedule = answer.resolution, answer.schedule
    verdict = {**verdict_objects(answer.judgement)[0], "reason": answer.verdict.reason}
    return {
        "sentence": str(answer.question.sentence), "workload": answer.question.workload.name,
        "device": answer.block.device if answer.block else None,
        "sweep": [dict(each) for each in answer.question.points],
        **{name: verdict[name] for name in ("verdict", "helped", "claimed", "measured", "value", "interval", "rounds",
                                            "rounds_needed", "reason", "scope", "metric", "range")},
        "points": [{**point, "word": str(point["word"])} for point in answer.verdict.details.get("points", ())],
        "budget": {
            "seconds": answer.budget_seconds, "used_seconds": answer.seconds, "postponed_rounds": answer.postponed,
            "steps": schedule.size.steps if schedule else None, "rounds": schedule.size.rounds if schedule else None,
            "points": schedule.points if schedule else None, "interrupted": answer.interrupted,
            "stored_rounds": schedule.stored if schedule else None,
            "window_seconds": answer.window_seconds if schedule else None,
        },
        "resolution": None if found is None else {
            "rounds": found.rounds, "spread": found.spread, "smallest_difference": finite(found.smallest_ratio - 1),
        },
        "busy_time_ratio": None if answer.busy is None else {
            "value": answer.busy.value, "low": finite(answer.busy.low), "high": finite(answer.busy.high),
        },
        "parity": parity_object(answer.arms.get("cell")),
        "memory": {role: {view: peak[0] for view, peak in arm.memory.items()} for role, arm in answer.arms.items()},
        "why": [{
            "arm": each.arm, "seconds": dict(each.seconds), "step_seconds": each.step_seconds,
            "sum_over_step": each.sum_over_step, "measured_on": each.measured_on,
        } for each in answer.why],
        "store": str(answer.store), "report": report,
    }  # fmt: skip


def parity_object(cell: ArmResult | None) -> dict[str, Any] | None:
    """Parity as plain values: null for what could not be had or is not finite."""
    if cell is None:
        return None
    parity = cell.parity
    return {
        "word": parity.word, "holds": parity.holds, "loss_gap": finite(parity.loss_gap),
        "worst_gap": finite(parity.worst_gap), "margin": finite(parity.margin),
        "gradient_error": finite(parity.gradient_error), "eager_error": finite(parity.eager_error),
        "reason": parity.reason,
    }  # fmt: skip


def _point(answer: Answer) -> str:
    first = answer.question.points[0]
    return f", at {formats.settings(first)}" if first else ""


def _at_point(metric: str, point: dict[str, Any]) -> str:
    value = ""
    if point["value"] is not None:
        interval = Interval(value=point["value"], low=point["low"], high=point["high"])
        value = measured(metric_named(metric), interval)
    return f"  {point['name']}: {' '.join(part for part in (value, str(point['word'])) if part)}"


def _part(why: Why, name: str) -> str:
    return f"{formats.milliseconds(why.seconds[name])} ({formats.share(why.share(name))})"


def _first_line(text: str) -> str:
    return text.partition("\n")[0]
