"""Loss curves beside the baseline's: what is subtracted from what, over which rounds, and what stands beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from harness.judgement.blocks import compare
from harness.judgement.judged import BlockResult
from harness.report.figures import curves
from harness.report.figures.curves import LossLine
from harness.report.figures.drawing import Job
from harness.report.figures.gallery import Gallery
from harness.report.figures.studio import Studio
from harness.report.losses import common_margin, loss_lines, losses_picture
from harness.results.record import Record
from harness.trial.outcome import Outcome
from tests.records import CellShape, StudyShape, make_records

#: Loss of the baseline in each of four rounds: seeds lie a whole nat apart.
SEEDS = {1: 1.0, 2: 2.0, 3: 3.0, 4: 6.0}
WORKERS, MORE = {"workers": 1}, {"workers": 4}
LORA = {"lora": 8}


def block_of(*cells: dict[str, object], **losses: dict[int, Sequence[float | None]]) -> BlockResult:
    """Cells that lie 0.01 above the baseline in every round, two steps each; `losses` by arm and round replace them."""
    shapes = tuple(CellShape(settings=settings) for settings in cells)  # type: ignore[arg-type]
    records = make_records([StudyShape(name="loaders", cells=shapes)], rounds=len(SEEDS))
    (block,) = compare(_given(each, losses) for each in records).blocks
    return block


def _given(record: Record, losses: dict[str, dict[int, Sequence[float | None]]]) -> Record:
    above = 0.0 if record.baseline else 0.01
    plain = [SEEDS[record.round] + above, SEEDS[record.round] / 2 + above]
    found = losses.get(record.arm.replace("=", "_"), {}).get(record.round, plain)
    return replace(record, losses=found, outcome=record.outcome if found else Outcome.INVALID)


def line(block: BlockResult, name: str) -> LossLine:
    return next(each for each in loss_lines(block) if each.name == name)


def caption(block: BlockResult, folder: Path) -> str:
    picture = losses_picture(block, Gallery(folder=folder, studio=Studio()))
    assert picture is not None
    return picture.caption


def test_an_arm_that_lacks_rounds_is_held_against_the_baseline_of_its_own_rounds() -> None:
    """Three rounds of a monitor against ten of the baseline were drawn up to 0.5 nats apart; they lay within 0.002."""
    block = block_of(WORKERS, MORE, workers_4={1: [], 4: []})
    fewer = line(block, "workers=4")
    assert fewer.gap == pytest.approx([0.01, 0.01])
    assert (fewer.gap_rounds, line(block, "workers=1").gap_rounds) == (2, 4)
    assert line(block, "workers=1").gap == pytest.approx([0.01, 0.01])


def test_losses_of_all_curves_are_means_over_the_same_rounds(tmp_path: Path) -> None:
    block = block_of(WORKERS, MORE, workers_4={1: [], 4: []})
    assert [(each.label, each.rounds) for each in loss_lines(block)] == [
        ("baseline", 2), ("workers=1 (4 rounds)", 2), ("workers=4 (2 rounds)", 2),
    ]  # fmt: skip
    assert line(block, "baseline").losses == pytest.approx([2.5, 1.25])
    assert line(block, "workers=4").losses == pytest.approx([2.51, 1.26])
    assert "mean over the 2 rounds that all have; below, the distance from the baseline within each round, " \
        "mean over the rounds that both have." in caption(block, tmp_path)  # fmt: skip
    same = block_of(WORKERS, MORE)
    assert "mean over 4 rounds; below, the distance from the baseline within each round." in caption(same, tmp_path)
    assert [each.label for each in loss_lines(same)] == ["baseline", "workers=1", "workers=4"]


def test_arms_without_a_common_round_keep_their_own() -> None:
    block = block_of(WORKERS, MORE, workers_1={3: [], 4: []}, workers_4={1: [], 2: []})
    assert line(block, "workers=1").losses == pytest.approx([1.51, 0.76])
    assert line(block, "workers=4").losses == pytest.approx([4.51, 2.26])
    assert line(block, "workers=4").gap == pytest.approx([0.01, 0.01])
    assert line(block, "baseline").rounds == 4


def test_controls_and_arms_that_share_no_round_are_not_drawn(tmp_path: Path) -> None:
    block = block_of(WORKERS, MORE, workers_4=dict.fromkeys(SEEDS, ()))
    assert any(arm.role == "control" for arm in block.arms)
    assert [each.name for each in loss_lines(block)] == ["baseline", "workers=1"]
    alone = block_of(WORKERS, workers_1=dict.fromkeys(SEEDS, ()))
    assert loss_lines(alone) == []
    assert losses_picture(alone, Gallery(folder=tmp_path, studio=Studio())) is None


def test_rounds_in_which_the_baseline_diverged_are_left_out_and_a_diverged_cell_ends() -> None:
    block = block_of(WORKERS, baseline={4: [6.0, None]}, workers_1={1: [1.02, None]})
    found = line(block, "workers=1")
    assert found.gap_rounds == 3
    assert found.gap[0] == pytest.approx((0.02 + 0.01 + 0.01) / 3)
    assert str(found.gap[1]) == "nan"


def test_a_band_is_drawn_only_where_one_margin_holds_for_every_curve(tmp_path: Path) -> None:
    """Cells that owe no parity were drawn in the band of another cell."""
    same = block_of(WORKERS, MORE)
    assert margin_of(same) == 0.002
    assert "a bound on the mean distance of the two curves of a round over all its steps" in caption(same, tmp_path)
    other = block_of(WORKERS, LORA)
    assert margin_of(other) is None
    assert "margin" not in caption(other, tmp_path)
    assert [each.label for each in loss_lines(other)] == ["baseline", "workers=1", "lora=8 (other work)"]
    assert margin_of(block_of(WORKERS, {"attention": "sdpa-flash"})) is None, "two margins"


def margin_of(block: BlockResult) -> float | None:
    return common_margin([arm for arm in block.arms if arm.role == "cell"])


def test_the_figure_has_the_gaps_below_and_the_band_if_there_is_one() -> None:
    lines = loss_lines(block_of(WORKERS, MORE, workers_4={1: [], 4: []}))
    for margin, bands in ((0.02, 1), (None, 0)):
        figure = Figure()
        curves.losses(figure, lines, margin=margin)
        upper, lower = figure.axes
        assert [list(each.get_ydata()) for each in upper.lines] == [list(each.losses) for each in lines]
        assert [list(each.get_ydata()) for each in lower.lines[1:3]] == [list(each.gap) for each in lines[1:]]
        assert len(lower.patches) == bands


def test_a_picture_can_be_drawn_by_another_process(tmp_path: Path) -> None:
    with Studio() as studio:
        drawing = partial(curves.losses, lines=loss_lines(block_of(WORKERS)), margin=0.002)
        studio.ask(Job(path=tmp_path / "losses", drawing=drawing, size=(6.6, 4.1)))
        (svg,) = studio.finish()
    assert "margin of parity" in svg
