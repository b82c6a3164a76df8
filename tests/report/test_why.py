"""Where the time of a step went, on the page of a claim: shares and seconds from the records, never from elsewhere."""

from __future__ import annotations

from dataclasses import replace

from harness.judgement.blocks import compare
from harness.judgement.why import TITLES, why_of
from harness.report.markdown import table as markdown_table
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
    assert table.columns == ("cell", "step", "parts ÷ step", "idle", "matrix products", "optimizer")
    assert table.rows[0] == ("baseline", "100 ms", "100.0%", "20 ms (20.0%)", "60 ms (60.0%)", "20 ms (20.0%)")
    assert table.rows[1][4] == "30 ms (30.0%)"
    cell = why_of(arms[2])
    assert cell is not None
    # 30 + 20 + 20 ms are 70% of the step: the profiled step was another one than those measured
    assert not cell.agrees
    assert table.rows[1][2] == "70.0%"
    assert table.notes == (
        "The parts of precision=bf16 add up to 70.0% of the measured step: the profiled step was another one.",
    )


def test_parts_of_a_longer_step_than_was_measured_are_told_beside_the_row() -> None:
    """Steps of two devices: in four trials of five the profiled step waited 60 ms longer for the other device."""
    records = [
        with_breakdown(each, matrix_products=60.0, communication=0.0 if each.round == 1 else 100.0,
                       idle=40.0 if each.round == 1 else 0.0)
        for each in make_records([study()], rounds=5)
    ]  # fmt: skip
    table = why_table(compare(records).blocks[0].arms[:1])
    assert table is not None
    # 60 + 4·100/5 + 40/5 = 148 ms of 100
    assert table.rows[0][2] == "148.0%"
    assert table.rows[0][3] == "8 ms (8.0%; 0.0% to 40.0% by trial)"
    assert table.notes == (
        "The parts of baseline add up to 148.0% of the measured step. They do not overlap, each instant counts once: "
        "the device was busy for 140 ms of the profiled steps, of which kernels of communication also wait for the "
        "other devices; the measured ones took 100 ms.",
    )
    assert table.notes[0] in markdown_table(table)


def test_trials_without_a_breakdown_make_no_table() -> None:
    assert why_table(compare(make_records([study()])).blocks[0].arms) is None
