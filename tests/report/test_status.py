"""What `status` says is missing is what a run on this machine would add: held against a store, as a run asks it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.environment import Environment
from harness.experiment.study import Plan
from harness.report.status import Section, sections
from harness.results.record import Record
from harness.results.rounds import rounds_of
from harness.results.store import Store
from harness.trial.outcome import Outcome
from tests.records import A100, CPU, H100, make_records
from tests.results.plans import a_block, a_plan

TEMPLATE = make_records(rounds=1)[0]
#: Three arms in three rounds: 9 trials.
PLAN = a_plan(a_block(rounds=3))
ELSEWHERE = replace(CPU, host="another", memory_bytes=1)
"""Another host of the same kind: one fingerprint, two environments."""


def trials(machine: Environment, *, plan: Plan = PLAN, by_arm: Mapping[str, Any] | None = None) -> list[Record]:
    """A record for each trial of a plan as `machine` would make it. `by_arm`: arm → outcome, where it is not ok."""
    return [
        replace(
            TEMPLATE, study=each.block.study, block=each.key, arm=trial.arm.name, round=trial.round, position=0,
            sweep=None, fingerprint=each.circumstances.fingerprint, environment=each.circumstances.environment,
            outcome=(by_arm or {}).get(trial.arm.name, Outcome.OK), started_at=f"{machine.host}",
        )
        for each in rounds_of(plan, machine)
        for trial in each.trials
    ]  # fmt: skip


def seen(records: Iterable[Record], plan: Plan = PLAN, here: Environment = CPU) -> list[tuple[str, list[Any]]]:
    """The first word of each title, with (complete, rounds, missing) of each of its blocks."""
    found: list[Section] = list(sections(records, plan, here))
    return [(one.title.split()[0], [(b.complete, b.rounds, b.missing) for b in one.blocks]) for one in found]


def a_run_would_add(records: Iterable[Record], folder: Path, plan: Plan = PLAN, here: Environment = CPU) -> int:
    """As a run counts it, by the store."""
    with Store.open(folder / "s.sqlite", writable=True) as store:
        store.add_all(records)
        return sum(len(each.trials) for each in rounds_of(plan, here) if not each.is_stored(store, ()))


HALVES = [
    *(each for each in trials(CPU) if each.round != 2 or each.arm == "baseline"),
    *(each for each in trials(ELSEWHERE) if each.round == 2 and each.arm != "baseline"),
]
REFUSED = trials(CPU, by_arm={"batch_size=2": Outcome.UNSUPPORTED})
REFUSING = a_plan(a_block(rounds=3), refusals={"batch_size=2": "it needs what is not here"})


@pytest.mark.parametrize(
    ("records", "plan", "complete", "missing"),
    [
        pytest.param(trials(CPU), PLAN, 3, 0, id="all of this machine"),
        pytest.param(trials(CPU)[:-1], PLAN, 2, 3, id="a trial short: its round is run again whole"),
        pytest.param([], PLAN, 0, 9, id="nothing"),
        pytest.param(trials(H100), PLAN, 0, 9, id="another machine's alone"),
        pytest.param(HALVES, PLAN, 2, 3, id="a round of two halves from two hosts"),
        pytest.param(trials(ELSEWHERE), PLAN, 3, 0, id="another host of the same kind"),
        pytest.param(REFUSED, PLAN, 0, 9, id="could not run, and now can"),
        pytest.param(REFUSED, REFUSING, 3, 0, id="cannot run still"),
        pytest.param([each for each in REFUSED if each.outcome is Outcome.OK], REFUSING, 0, 9,
                     id="cannot run, and no record says so"),
        pytest.param(trials(CPU, by_arm={"control": Outcome.CRASH}), PLAN, 3, 0, id="a crash is a result"),
        pytest.param(trials(CPU, by_arm={"control": Outcome.INTERRUPTED}), PLAN, 0, 9, id="interrupted is none"),
        pytest.param([replace(each, superseded=True) for each in trials(CPU)], PLAN, 0, 9, id="superseded"),
    ],
)  # fmt: skip
def test_missing_is_what_a_run_here_would_add(
    tmp_path: Path, records: list[Record], plan: Plan, complete: int, missing: int
) -> None:
    assert seen(records, plan)[0] == ("for", [(complete, 3, missing)])
    assert a_run_would_add(records, tmp_path, plan) == missing


def test_trials_of_another_machine_stand_apart_and_say_which() -> None:
    found = list(sections([*trials(H100), *trials(CPU)[:3]], PLAN, CPU))
    ours, theirs = found
    assert "(cpu)" in ours.title
    assert [(each.complete, each.missing) for each in ours.blocks] == [(1, 6)]
    assert f"({H100.devices[0].name})" in theirs.title
    assert "does not count for a run here" in theirs.title
    assert [(each.complete, each.rounds, each.missing) for each in theirs.blocks] == [(3, 3, None)]


def test_each_other_machine_has_a_section_with_its_own_blocks() -> None:
    _, *others = sections([*trials(H100), *trials(A100)], PLAN, CPU)
    assert [[block.device for block in each.blocks] for each in others] == [
        [H100.devices[0].name], [A100.devices[0].name],
    ]  # fmt: skip
    assert [each.blocks[0].device in each.title for each in others] == [True, True]


def test_blocks_of_no_plan_come_last_and_alone_without_a_matrix() -> None:
    other = replace(TEMPLATE, block="unknown", study="other")
    assert seen([other, *trials(CPU)]) == [("for", [(3, 3, 0)]), ("not", [(1, None, None)])]
    (alone,) = sections([other], None, None)
    assert (alone.title, [each.study for each in alone.blocks]) == ("", ["other"])
