"""The keys by which a store knows blocks and cells: what measures otherwise is another one, and nothing else is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.experiment.cell import Workload
from tests.results.plans import OWN_STEP, a_block


def test_a_block_that_measures_otherwise_is_another_block() -> None:
    """A store would pair a round of 30 steps with one of 300, or take one for the other."""
    block = a_block()
    others = [
        replace(block, steps=block.steps + 1), replace(block, warmup_steps=0), replace(block, kind="loader-only"),
        replace(block, study="another"), replace(block, sweep={"sequence_length": 512}),
        replace(block, options={**block.options, "seconds": 3}), a_block(settings={"precision": "bf16"}),
        a_block(workload=replace(OWN_STEP, contents="of its files")),
    ]  # fmt: skip
    keys = {block.key, *(each.key for each in others)}
    assert len(keys) == 1 + len(others)


def test_more_rounds_or_fewer_cells_are_the_same_block() -> None:
    block = a_block()
    assert replace(block, rounds=9).key == block.key
    assert replace(block, arms=block.arms[:2]).key == block.key


@pytest.mark.parametrize("changes", [{"model": "gpt2-350m"}, {"data": "stdlib"}])
def test_a_cell_of_another_model_or_of_other_data_is_another_cell(changes: dict[str, str]) -> None:
    cell = replace(a_block().baseline.cell, workload=Workload(name="w", model="gpt2-124m", data="synthetic"))
    assert replace(cell, workload=replace(cell.workload, **changes)).key != cell.key
    assert replace(cell, workload=replace(cell.workload, name="other")).key == cell.key, "a name measures nothing"
