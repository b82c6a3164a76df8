"""What a record of an earlier version becomes when it is read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.judgement.quantities import state_per_parameter
from harness.results.as_now import DOUBLED, MISSED, PADDED, UNSEEN, WITH_WEIGHTS
from harness.results.lines import read_lines, write_lines
from harness.results.record import Record
from harness.results.store import Store
from harness.trial.device import too_short
from tests.records import many_records


def stored(batching: str, share: float, mfu: float, hfu: float) -> Record:
    (record,) = many_records(1)
    return replace(record, kind="training", cell={**record.cell, "batching": batching}, mfu=mfu, hfu=hfu,
                   figures={**record.figures, "useful_share": share})  # fmt: skip


@pytest.mark.parametrize(
    ("batching", "share", "mfu", "kept"),
    [
        ("padded", 0.6, 0.14, False),
        ("token-budget", 0.6, 0.14, False),
        ("padded", 0.6, 0.08, True),
        ("packed", 1.0, 0.14, True),
        ("fixed", 1.0, 0.14, True),
        ("fixed", 0.6, 0.14, True),
    ],
)
def test_an_mfu_that_counted_padding_is_none_any_more(
    tmp_path: Path, batching: str, share: float, mfu: float, kept: bool
) -> None:
    hfu = 0.14
    record = stored(batching, share, mfu, hfu)
    write_lines([record], tmp_path / "a.jsonl")
    (read,) = read_lines(tmp_path / "a.jsonl")
    with Store.open(tmp_path / "a.sqlite", writable=True) as store:
        store.add(record)
        (again,) = store.records()
    for found in (read, again):
        assert found.mfu == (mfu if kept else None)
        assert found.hfu == hfu
        assert (found.missing.get("mfu") == PADDED) is not kept
        assert found.tokens_per_second == record.tokens_per_second


@pytest.mark.parametrize(
    ("others", "first", "kept"), [(18, 0.05, False), (19, 0.05, True), (18, 0.1, True), (19, "0.05", False)]
)
def test_utilisation_and_energy_of_a_window_under_a_second_are_none_any_more(
    tmp_path: Path, others: int, first: object, kept: bool
) -> None:
    """The first step stands by itself in what is stored, and belongs to the window that was metered."""
    (record,) = many_records(1)
    clocks = {"sm_mhz": 1980.0, "power_watts": 620.0}
    told = replace(record, step_seconds=[0.05] * others, figures={**record.figures, "first_step_seconds": first},
                   utilisation=0.93, energy_joules_per_token=0.004, clocks=clocks)  # fmt: skip
    write_lines([told], tmp_path / "a.jsonl")
    (read,) = read_lines(tmp_path / "a.jsonl")
    if kept:
        assert (read.utilisation, read.energy_joules_per_token, read.clocks) == (0.93, 0.004, clocks)
    else:
        assert (read.utilisation, read.energy_joules_per_token) == (None, None)
        assert read.clocks == {"sm_mhz": 1980.0, "power_watts": None}
        assert read.missing["utilisation"] == read.missing["energy_joules_per_token"] == too_short(0.95)


@pytest.mark.parametrize(("seen", "kept"), [(5 * 2**30, False), (6 * 2**30, True), (7 * 2**30, True), (None, True)])
def test_a_peak_of_the_device_below_what_was_reserved_was_missed(tmp_path: Path, seen: int | None, kept: bool) -> None:
    (record,) = many_records(1)
    write_lines([replace(record, peak_reserved_bytes=6 * 2**30, peak_device_bytes=seen)], tmp_path / "a.jsonl")
    (read,) = read_lines(tmp_path / "a.jsonl")
    assert read.peak_device_bytes == (seen if kept else None)
    assert read.peak_reserved_bytes == 6 * 2**30
    assert (read.missing.get("peak_device_bytes") == MISSED) is not kept


@pytest.mark.parametrize(("held", "kept"), [(0.0, False), (-512.0, False), (3636.0, True)])
def test_activations_that_the_allocator_did_not_see_are_none_any_more(tmp_path: Path, held: float, kept: bool) -> None:
    (record,) = many_records(1)
    states = {"parameters": 12.0, "activations": held}
    write_lines([replace(record, model_state_bytes=states)], tmp_path / "a.jsonl")
    (read,) = read_lines(tmp_path / "a.jsonl")
    assert read.model_state_bytes == (states if kept else {"parameters": 12.0})
    assert read.missing.get("activations") == (None if kept else UNSEEN)


@pytest.mark.parametrize(
    ("cell", "states", "gpu", "kept"),
    [
        ({"parallel": "fsdp", "devices": 2}, {}, True, False),
        ({"parallel": "fsdp", "devices": 1}, {}, True, False),
        ({"zero": 3, "devices": 2}, {}, True, False),
        ({"zero": 3, "devices": 1}, {}, True, True),
        ({"zero": 2, "devices": 2}, {}, True, True),
        ({"zero": 3, "devices": 2}, {"gathered": 5.0}, True, True),
        ({"zero": 3, "devices": 2}, {}, False, True),
    ],
)
def test_activations_among_which_gathered_weights_were_counted_are_none_any_more(
    tmp_path: Path, cell: dict[str, Any], states: dict[str, float], gpu: bool, kept: bool
) -> None:
    (record,) = many_records(1)
    environment = record.environment if gpu else {**record.environment, "devices": []}
    record = replace(record, cell={**record.cell, **cell}, environment=environment,
                     model_state_bytes={**states, "activations": 3634.0})  # fmt: skip
    write_lines([record], tmp_path / "a.jsonl")
    (read,) = read_lines(tmp_path / "a.jsonl")
    assert ("activations" in read.model_state_bytes) is kept
    assert read.missing.get("activations") == (None if kept else WITH_WEIGHTS)


@pytest.mark.parametrize(
    ("config", "states", "kept"),
    [("as-printed", {}, False), ("as-printed", {"gathered": 0.0}, True), ("ours", {}, True)],
)
def test_gradients_that_counted_twice_under_a_loss_scale_are_none_any_more(
    tmp_path: Path, config: str, states: dict[str, float], kept: bool
) -> None:
    (record,) = many_records(1)
    held = {**states, "parameters": 237.0, "gradients": 475.0, "before_step": 2136.0, "after_step": 1661.0}
    record = replace(record, cell={**record.cell, "deepspeed_config": config}, model_state_bytes=held,
                     ranks=[{"rank": 0, "model_state_bytes": held}], parameters={"total": 118, "trainable": 118},
                     figures={**record.figures, "bytes_per_parameter": 18.0})  # fmt: skip
    write_lines([record], tmp_path / "a.jsonl")
    (read,) = read_lines(tmp_path / "a.jsonl")
    for found in (read.model_state_bytes, read.ranks[0]["model_state_bytes"]):
        assert found == (held if kept else {"parameters": 237.0, "after_step": 1661.0})
    assert ("bytes_per_parameter" in read.figures) is kept
    assert read.missing.get("model_state_ratio") == (None if kept else DOUBLED)
    assert state_per_parameter(read) == (pytest.approx(2136 / 118) if kept else None)
