"""The first step of a window on a GPU: kept, and in none of the speeds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.results.as_now import as_now
from harness.results.export import export
from harness.results.first_step import FEWEST_STEPS, without_first_step
from harness.results.load import import_records, read_records
from harness.results.record import Record
from harness.results.store import Store
from tests.records import CPU, make_records

STEPS = [0.25, *[0.05] * 9]
"""Ten steps in 0.7 s: 0.07 s a step, 0.05 without the first."""
PARTS = {"measured_on": "gpu", "step_seconds": 0.07, "sum_over_step": 1.0, "profiled_seconds": 0.04,
         "seconds": {"attention": 0.01, "matrix_products": 0.03, "idle": 0.03}}  # fmt: skip


def stored_before(**fields: object) -> Record:
    """A trial of ten steps of 700 tokens, as an earlier version stored it."""
    figures = {"useful_tokens_per_second": 5000.0, "useful_share": 0.5, "breakdown": PARTS}
    record = replace(
        make_records(rounds=1)[0], step_seconds=list(STEPS), tokens_per_second=10_000.0, samples_per_second=10.0,
        mfu=0.25, hfu=0.5, energy_joules_per_token=0.07, figures=figures,
    )  # fmt: skip
    return replace(record, **fields)  # type: ignore[arg-type]


def test_speeds_are_those_of_the_other_steps_and_the_first_is_kept() -> None:
    found = without_first_step(stored_before())
    assert found.step_seconds == STEPS[1:]
    assert found.figures["first_step_seconds"] == 0.25
    assert found.tokens_per_second == pytest.approx(14_000)
    assert found.samples_per_second == pytest.approx(14)
    assert (found.mfu, found.hfu) == pytest.approx((0.35, 0.7))
    assert found.energy_joules_per_token == 0.07, "metered over the window"
    assert found.figures["useful_tokens_per_second"] == pytest.approx(7000)
    assert found.figures["useful_share"] == 0.5


def test_it_is_no_idle_time_either() -> None:
    parts = without_first_step(stored_before()).figures["breakdown"]
    assert parts["seconds"] == pytest.approx({"attention": 0.01, "matrix_products": 0.03, "idle": 0.01})
    assert (parts["step_seconds"], parts["sum_over_step"]) == pytest.approx((0.05, 1.0))
    over = {**PARTS, "seconds": {"attention": 0.02, "matrix_products": 0.04, "idle": 0.01}}
    parts = without_first_step(stored_before(figures={"breakdown": over})).figures["breakdown"]
    assert parts["seconds"]["idle"] == 0
    assert parts["sum_over_step"] == pytest.approx(1.2)
    host = {**PARTS, "measured_on": "cpu"}
    assert without_first_step(stored_before(figures={"breakdown": host})).figures["breakdown"] == host


def test_of_several_ranks_the_slowest_ones_window_is_put_right() -> None:
    """Rank 1 took 0.05 s longer to begin: its window gave 700 x 10 / 0.75 s, and its other steps are rank 0's."""
    ranks = [{"rank": 0, "window_seconds": 0.7}, {"rank": 1, "window_seconds": 0.75}]
    found = without_first_step(stored_before(ranks=ranks, tokens_per_second=7000 / 0.75))
    assert found.tokens_per_second == pytest.approx(14_000)


def test_it_is_left_out_once() -> None:
    found = without_first_step(stored_before())
    assert without_first_step(found) is found


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "attention-only"},
        {"warmup_steps": 0},  # the study wants what comes first
        {"step_seconds": STEPS[: FEWEST_STEPS - 1]},
        {"step_seconds": []},
        {"step_seconds": [0.1] * 9 + [0.0]},
        {"environment": {"processor": "a CPU", "devices": []}},  # no queue
    ],
)
def test_other_records_stay_as_they_are(fields: dict[str, object]) -> None:
    record = stored_before(**fields)
    assert without_first_step(record) is record


def test_a_record_without_speeds_keeps_none() -> None:
    bare = stored_before(tokens_per_second=None, samples_per_second=None, mfu=None, hfu=None,
                         energy_joules_per_token=None, figures={})  # fmt: skip
    found = without_first_step(bare)
    assert found.tokens_per_second is None
    assert found.figures == {"first_step_seconds": 0.25}


def test_files_and_stores_of_an_earlier_version_are_read_so(tmp_path: Path) -> None:
    export([stored_before()], tmp_path / "old.jsonl.gz")
    (read,) = read_records(tmp_path / "old.jsonl.gz")
    assert read == as_now(stored_before())
    with Store.open(tmp_path / "old.sqlite", writable=True) as store:
        store.add_all([stored_before()])
    assert read_records(tmp_path / "old.sqlite") == [read]
    with Store.open(tmp_path / "old.sqlite") as store:
        assert list(store.records()) == [read], "by whatever door"
    with Store.open(tmp_path / "new.sqlite", writable=True) as store:
        assert import_records(tmp_path / "old.jsonl.gz", store) == (1, 0)
    assert read_records(tmp_path / "new.sqlite") == [read], "and not a second time"


def test_on_a_cpu_the_first_step_counts() -> None:
    for record in make_records(rounds=1, environment=CPU):
        assert without_first_step(record) is record
