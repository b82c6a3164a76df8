"""The same cells on several devices of a kind: when their ratios differ by more than their rounds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.judgement.agreement import Agreement, agreements
from harness.judgement.blocks import compare
from harness.report.agreement import agreement_part
from harness.results.record import Record
from tests.judgement.claiming import CELL, study
from tests.records import CellShape, make_records


def on(
    device: str, ratio: float, *, first_round: int, rounds: int = 3, seed: int = 0, another: bool = False
) -> list[Record]:
    cells = [CellShape(settings=each, ratio=ratio) for each in (CELL, {"precision": "tf32"})]
    records = make_records([study(*cells[: 1 + another])], rounds=rounds, seed=seed, spread=0.005)
    return [
        replace(each, round=each.round + first_round - 1, environment={
            **each.environment, "devices": [{**gpu, "uuid": device} for gpu in each.environment["devices"]],
        })
        for each in records
    ]  # fmt: skip


def cell_of(records: list[Record]) -> Agreement:
    return next(each for each in agreements(compare(records).blocks) if each.arm.role == "cell")


def test_devices_that_differ_are_told_apart() -> None:
    found = cell_of(on("GPU-a", 1.5, first_round=1) + on("GPU-b", 2.0, first_round=4, seed=1))
    assert found.means == pytest.approx((1.5, 2.0), rel=0.02)
    assert found.rounds == (3, 3)
    assert found.moved == pytest.approx(1 / 3, abs=0.03)
    assert found.p < 0.001


def test_devices_that_are_alike_seem_different_as_often_as_chance_has_it() -> None:
    apart, runs = 0, 200
    for seed in range(runs):
        pair = on("GPU-a", 1.5, first_round=1, seed=2 * seed) + on("GPU-b", 1.5, first_round=4, seed=2 * seed + 1)
        apart += cell_of(pair).p < 0.05
    assert 0.015 <= apart / runs <= 0.10


def test_a_single_round_on_a_device_says_nothing() -> None:
    assert agreements(compare(on("GPU-a", 1.5, first_round=1)).blocks) == []
    one_more = on("GPU-a", 1.5, first_round=1) + on("GPU-b", 2.0, first_round=4, rounds=1)
    assert agreements(compare(one_more).blocks) == []


def test_the_report_says_how_many_differ_and_how_many_would_by_chance() -> None:
    part = agreement_part(compare(on("GPU-a", 1.5, first_round=1) + on("GPU-b", 2.0, first_round=4, seed=1)).blocks)
    (sentence,) = part.sentences
    assert sentence.startswith("2 ratios: from the device with the least to the one with the most they move by ")
    assert sentence.endswith(
        "Those that differ between devices by more than their rounds explain (p < 0.05): 1, where chance alone gives "
        "0.1; after Holm's correction: 1."
    )
    assert part.tables[0].rows[0][1] == "precision=bf16"
    assert part.tables[0].rows[0][3] == "3, 3"
    least, most = (
        float(row[4].removesuffix("%")) for row in sorted(part.tables[0].rows, key=lambda row: row[1] != "control")
    )
    assert f"by {(least + most) / 2:.1f}% in the median and by {most:.1f}% at most." in sentence
    assert [part.tables[0].columns[index] for index in sorted(part.tables[0].numeric)] == ["most over least", "p"]
    assert [row["cell"] for row in part.rows] == ["control", "precision=bf16"]


def test_the_report_counts_those_that_differ_and_not_those_that_do_not() -> None:
    """Two cells differ between the devices, the control does not."""
    here = on("GPU-a", 1.5, first_round=1, another=True)
    there = on("GPU-b", 2.0, first_round=4, seed=1, another=True)
    (sentence,) = agreement_part(compare(here + there).blocks).sentences
    assert sentence.startswith("3 ratios: ")
    assert "(p < 0.05): 2, where chance alone gives " in sentence
    assert sentence.endswith("; after Holm's correction: 2.")


def test_the_report_says_what_is_missing_where_one_device_ran_everything() -> None:
    part = agreement_part(compare(on("GPU-a", 1.5, first_round=1)).blocks)
    assert "what another machine would give is not known" in part.missing
