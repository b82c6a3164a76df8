"""Where the time of a step went, on the page of a claim: shares and seconds from the records, never from elsewhere."""

from __future__ import annotations

from dataclasses import replace

from harness.judgement.compare import compare
from harness.judgement.why import TITLES, why_of
from harness.report.why import why_table
from harness.results.record import Record
from tests.judgement.claiming import study
from tests.records import make_records


def with_breakdown(record: Record, **milliseconds: float) -> Record:
    seconds = {name: milliseconds.get(name, 0.0) / 1000 for name in TITLES}
    found = {"seconds": seconds, "step_seconds": 0.1, "sum_over_step": 1.0, "measured_on": "gpu"}
    return replace(record, figures={**record.figures, "breakdown": found})


def test_a_row_a_cell_and_a_column_for_what_takes_time() -> None:
    records = [
        with_breakdown(each, matrix_products=60.0 if each.baseline else 30.0, optimizer=20.0, idle=20.0)
        for each in make_records([study()])
    ]
    arms = compare(records).blocks[0].arms
    table = why_table([arms[0], arms[2]])
    assert table is not None
    assert table.columns == ("cell", "step", "matrix products", "optimizer", "idle", "parts ÷ step")
    assert table.rows[0] == ("baseline", "100 ms", "60 ms (60.0%)", "20 ms (20.0%)", "20 ms (20.0%)", "100.0%")
    assert table.rows[1][2] == "30 ms (30.0%)"
    cell = why_of(arms[2])
    assert cell is not None
    # 30 + 20 + 20 ms are 70% of the step: the profiled step was another one than those measured
    assert not cell.agrees
    assert table.rows[1][-1] == "70.0%"


def test_trials_without_a_breakdown_make_no_table() -> None:
    assert why_table(compare(make_records([study()])).blocks[0].arms) is None
