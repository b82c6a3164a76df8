"""`tables/*.csv`: what people compute with. Each column holds what its head says, with seven digits."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from harness.judgement.blocks import compare
from harness.judgement.judged import Judgement, Parity
from harness.report.csvs import cell_rows, claim_rows, figure_rows, write_csv
from tests.judgement.claiming import CELL, study
from tests.records import CellShape, make_records


def rows_of(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / "tables" / f"{name}.csv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.mark.parametrize(
    ("table", "value", "low", "high"),
    [
        ("claims", "value", "interval_low", "interval_high"),
        ("cells", "speedup", "speedup_low", "speedup_high"),
        ("interactions", "over_product", "over_product_low", "over_product_high"),
        ("leave-one-out", "worth", "worth_low", "worth_high"),
        ("stack", "own_gain", "own_gain_low", "own_gain_high"),
        ("noise", "control", "low", "high"),
    ],
)
def test_an_interval_lies_around_its_value(table: str, value: str, low: str, high: str, folder: Path) -> None:
    found = [[float(row[each]) for each in (low, value, high)] for row in rows_of(folder, table) if row[value]]
    assert found
    assert all(first < middle < last for first, middle, last in found)


def test_a_row_of_a_claim_has_what_was_claimed_and_found(judgement: Judgement, folder: Path) -> None:
    """1.75 times as fast, in three rounds; 1.5x to 2x is claimed."""
    first, _, high, absent = rows_of(folder, "claims")
    assert (first["claim"], first["verdict"], first["helped"]) == ("amp-speed", "confirmed", "yes")
    assert float(first["value"]) == pytest.approx(1.75, rel=0.01)
    assert (first["claimed_low"], first["claimed_high"], first["rounds"], first["rounds_needed"]) == (
        "1.5",
        "2",
        "3",
        "",
    )
    assert (first["study"], first["cell"], first["device"]) == (
        "precision", "precision=amp-bf16", "NVIDIA H100 80GB HBM3",
    )  # fmt: skip
    assert high["scope"].startswith("holds at 2, fails at 2 of 4 points")
    assert (absent["verdict"], absent["value"], absent["interval_low"], absent["rounds"]) == ("not run", "", "", "0")
    (open_still,) = claim_rows([replace(judgement.verdicts[0], rounds=3, rounds_needed=17)])
    assert (open_still["rounds"], open_still["rounds_needed"]) == (3, 17)


def test_a_row_of_a_cell_has_its_speed_its_peaks_and_its_parity() -> None:
    shape = CellShape(settings=CELL, ratio=1.75)
    records = [
        replace(each, mfu=0.3, hfu=0.4, peak_allocated_bytes=1 << 30, peak_reserved_bytes=2 << 30,
                peak_device_bytes=3 << 30, phases={"forward": 0.1, "backward": 0.2})
        for each in make_records([study(shape, sweep=("batch_size", (8,)))], rounds=3, spread=0.001)
    ]  # fmt: skip
    (block,) = compare(records).blocks
    arm = replace(block.arms[2], parity=Parity(word="holds", holds=True, loss_gap=0.01, worst_gap=0.02))
    (row,) = cell_rows([replace(block, arms=(arm,))])
    assert (row["study"], row["sweep"], row["cell"], row["role"]) == ("precision", "batch_size=8", arm.name, "cell")
    assert (row["outcomes"], row["rounds"], row["speedup_of"]) == ("ok=3", 3, "tokens/s")
    assert row["speedup"] == pytest.approx(1.75, rel=0.01)
    assert (row["mfu"], row["hfu"]) == pytest.approx((0.3, 0.4))
    peaks = [row[f"peak_{view}_bytes"] for view in ("allocated", "reserved", "device")]
    assert peaks == [1 << 30, 2 << 30, 3 << 30]
    assert (row["loss_gap"], row["worst_loss_gap"]) == (0.01, 0.02)
    assert (row["forward_seconds"], row["backward_seconds"]) == pytest.approx((0.1, 0.2))


def test_a_row_of_a_figure_says_at_which_point() -> None:
    shape = study(sweep=("batch_size", (2, 8)))
    records = [replace(each, figures={"seconds": each.cell["batch_size"]}) for each in make_records([shape], rounds=3)]
    found = [(row["batch_size"], row["figure"], row["mean"]) for row in figure_rows(compare(records).blocks)]
    assert found == [(2, "seconds", 2.0)] * 3 + [(8, "seconds", 8.0)] * 3


def test_a_file_has_the_columns_of_all_rows_and_seven_digits(tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", [{"one": 1234567.8, "two": None}, {"one": 0.12345678, "three": False}])
    assert (tmp_path / "a.csv").read_text(encoding="utf-8") == "one,two,three\n1234568,,\n0.1234568,,False\n"
