"""The noise floor: what the controls show, and what they could not have shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.judgement.blocks import compare
from harness.judgement.judged import BlockResult
from harness.report.figures import bars, controls
from harness.report.figures.gallery import Gallery
from harness.report.figures.studio import Studio
from harness.report.noise import noise_part, reach_of
from harness.report.part import Part
from harness.report.tables import notes
from harness.results.record import Record
from harness.trial.outcome import Outcome
from tests.judgement.claiming import make_claim, verdict_on
from tests.judgement.claiming import study as precision
from tests.records import STARTED, StudyShape, make_records
from tests.report.reading import Sketches
from tests.shapes import H100


def with_control(name: str, ratios: Sequence[float]) -> list[Record]:
    """A study whose control is off by these ratios, round by round."""
    return off(make_records([precision() if name == "precision" else StudyShape(name=name, cells=())],
                            rounds=len(ratios)), ratios)  # fmt: skip


def off(records: Sequence[Record], ratios: Sequence[float]) -> list[Record]:
    speeds = {each.round: each.tokens_per_second or 0.0 for each in records if each.arm == "baseline"}
    return [replace(each, tokens_per_second=speeds[each.round] * ratios[each.round - 1]) if each.control else each
            for each in records]  # fmt: skip


def part_of(records: Sequence[Record], folder: Path) -> Part:
    with Studio() as studio:
        return noise_part(compare(records).blocks, Gallery(folder=folder, studio=studio, budget=0))


def row_of(part: Part, study: str) -> dict[str, str]:
    table = part.tables[0]
    return next(dict(zip(table.columns, row, strict=True)) for row in table.rows if row[0] == study)


def test_a_control_says_which_offset_it_could_have_shown(tmp_path: Path) -> None:
    part = part_of(with_control("fine", (0.9999, 1.0, 1.0001)) + with_control("rough", (0.98, 1.0, 1.02)), tmp_path)
    # ln: s = 0.0001 and 0.0200; t(0.975, 2)/√3 = 2.484, of two controls t(0.9875, 2)/√3 = 3.586
    assert (row_of(part, "fine")["could show, by itself"], row_of(part, "fine")["control"]) == ("0.0%", "ok")
    rough = row_of(part, "rough")
    assert (rough["could show, by itself"], rough["could show, corrected"]) == ("5.1%", "7.4%")
    assert rough["control"] == "too coarse to tell"
    middling = part_of(
        with_control("fine", (0.9999, 1.0, 1.0001)) + with_control("so-so", (0.985, 1.0, 1.015)), tmp_path
    )
    # s = 0.0150: 3.8% by itself, 5.5% of two
    assert row_of(middling, "so-so")["control"] == "ok by itself"
    assert "1 of 2 could not have shown one of 5%" in part.sentences[1]
    three = with_control("fine", (0.9999, 1.0, 1.0001)) + with_control("finer", (0.9998, 1.0, 1.0002))
    usual = part_of(three + with_control("rough", (0.98, 1.0, 1.02)), tmp_path).sentences[1]
    assert "The control in the middle could have shown an offset of 0.1%" in usual
    assert "The control in the middle could have shown an offset of 7.4%" in part.sentences[1]


def test_two_blocks_of_one_name_are_told_apart_by_when_they_began_or_by_their_device(tmp_path: Path) -> None:
    once, other = with_control("again", (0.99, 1.0, 1.01)), StudyShape(name="again", cells=())
    longer = make_records([other], rounds=3, steps=40, started=STARTED + timedelta(days=1, hours=2))
    elsewhere = make_records([StudyShape(name="once", cells=())], rounds=3)
    h200 = replace(H100, devices=(replace(H100.devices[0], name="NVIDIA H200"),))
    there = make_records([StudyShape(name="once", cells=())], rounds=3, environment=h200, fingerprint="0" * 16)
    names = [row[0] for row in part_of([*once, *longer, *elsewhere, *there], tmp_path).tables[0].rows]
    began = [min(each.started_at for each in records)[:16].replace("T", " ") for records in (once, longer)]
    assert began[0] != began[1]
    assert sorted(names) == [*(f"again, since {each}" for each in sorted(began)),
                             f"once on {H100.devices[0].name}", "once on NVIDIA H200"]  # fmt: skip


def test_controls_that_could_all_have_shown_it_are_not_called_coarse(tmp_path: Path) -> None:
    part = part_of(with_control("fine", (0.9999, 1.0, 1.0001)), tmp_path)
    assert part.sentences[1].endswith("every one of them an offset of 5%.")


def test_a_control_apart_from_1_by_itself_is_named_though_the_correction_clears_it(tmp_path: Path) -> None:
    apart = with_control("apart", (1.04, 1.05, 1.06))  # t = 8.6: p = 0.013, of five controls 0.066
    others = [each for name in "abcd" for each in with_control(name, (0.995, 1.0, 1.005))]
    part = part_of(apart + others, tmp_path)
    assert part.sentences[1].startswith("None is suspect after Holm's correction.")
    assert part.sentences[2].startswith(
        "Standing out by itself, without the correction (by chance 0.3 of 5 would): apart"
    )
    assert row_of(part, "apart")["control"] == "stands out by itself"
    assert row_of(part, "a")["control"] == "ok", "it could have shown 2.9%"


def test_a_verdict_says_that_its_control_stands_out() -> None:
    records = with_control("precision", (1.04, 1.05, 1.06))
    suspect = verdict_on(make_claim(), records)
    assert "the study is suspect: its A/A control" in suspect.reason, "alone in its run it needs no correction"
    others = [each for name in "abcd" for each in with_control(name, (0.995, 1.0, 1.005))]
    found = verdict_on(make_claim(), records + others)
    assert "came out at 1.050x [1.025x, 1.08x]: apart from 1 by itself, not after correction" in found.reason
    assert "suspect" not in found.reason


@pytest.fixture
def strayed() -> list[Record]:
    """In one round of five the control's losses lie 0.037 nats from those of the baseline that it repeats."""
    return [replace(each, losses=[loss + 0.037 for loss in each.losses]) if each.control and each.round == 2 else each
            for each in make_records([precision()], rounds=5)]  # fmt: skip


def test_a_control_that_fails_parity_is_told_in_the_noise_section(strayed: list[Record], tmp_path: Path) -> None:
    part = part_of(strayed, tmp_path)
    assert "The control of precision fails parity" in part.sentences[-1]
    assert "0.037 nats apart" in part.sentences[-1]
    assert row_of(part, "precision")["control"].endswith("fails parity")


def test_a_control_that_fails_parity_is_told_beside_the_verdicts_of_its_block(strayed: list[Record]) -> None:
    found = verdict_on(make_claim(), strayed)
    assert "its A/A control fails parity, the baseline run twice did not train the same" in found.reason
    blocks: Sequence[BlockResult] = compare(strayed).blocks
    assert any("control" in note and "fails parity: the losses lie 0.037" in note for note in notes(blocks))
    assert "control fails parity" not in verdict_on(make_claim(), make_records([precision()])).reason


WIDE = [
    ("fine", 1.001, 0.999, 1.003),
    *((f"s-{place}", 1.0, 0.95, 1.06) for place in range(8)),
    ("wide", 1.3, 0.5, 3.7),
]


def drawn(dots: Sequence[bars.Dot], reach: float) -> Axes:
    figure = Figure(figsize=(6.6, 4))
    controls.controls(figure, dots, x_label="x", reach=reach)
    (axes,) = figure.axes
    return axes


def test_one_wide_control_does_not_flatten_the_others() -> None:
    """An axis up to 3.74 showed intervals of 1% no wider than their signs."""
    dots = [bars.Dot(name=name, value=value, low=low, high=high) for name, value, low, high in WIDE]
    assert reach_of(dots) == pytest.approx(1.06 * 1.01), "nine tenths of ten intervals are nine"
    assert reach_of([bars.Dot(name="below", value=0.9, low=0.8, high=0.95)]) == pytest.approx(1.25 * 1.01)
    axes = drawn(dots, reach_of(dots))
    assert (axes.get_xscale(), axes.get_xlim()) == ("log", pytest.approx((1 / 1.0706, 1.0706)))
    assert [text.get_text() for text in axes.texts] == ["0.50", "3.70"]
    arrows = {line.get_marker() for line in axes.lines if list(line.get_ydata()) == [9]}
    assert {"<", ">"} <= arrows
    assert "o" not in arrows, "its middle lies beyond the axis as well"


def test_an_axis_goes_five_per_cent_each_way_however_quiet_the_machine() -> None:
    dots = [bars.Dot(name="still", value=1.0, low=0.9999, high=1.0001)]
    assert reach_of(dots) == 1.05
    assert len(drawn(dots, 1.05).texts) == 0, "no arrow"


@pytest.mark.parametrize(
    ("reach", "shown"),
    [(1.05, [0.96, 0.98, 1.0, 1.02, 1.04]), (1.53, [0.8, 1.0, 1.2, 1.4]), (40.0, [1.0, 11.0, 21.0, 31.0])],
)
def test_the_axis_has_round_numbers_on_it(reach: float, shown: list[float]) -> None:
    assert controls.ticks(reach) == shown


def test_the_figure_shows_the_controls_furthest_from_1_and_marks_those_that_stand_out() -> None:
    quiet = [each for place in range(30) for each in with_control(f"q-{place:02}", (0.99 - place / 1e4, 1.0, 1.01))]
    loud = with_control("loud", (1.04, 1.05, 1.06))
    sketches = Sketches()
    part = noise_part(compare([*quiet, *loud]).blocks, sketches.gallery())
    assert not part.sentences[1].startswith("Suspect")
    drawn = sketches.data("noise-floor")["values"]
    assert [dot.name for dot in drawn] == ["loud", *(f"q-{place:02}" for place in range(29, 2, -1))]
    assert [dot.name for dot in drawn if dot.marked] == ["loud"]
    # ln: mean 0.04875, s 0.00953, t(0.975, 2)/√3 = 2.484: up to 1.0751
    assert part.sentences[0] == "31 controls; the interval of the widest reaches 7.5% from 1."
    assert "the 28 furthest from 1 of 31" in part.pictures[0].caption
    assert len(part.tables[0].rows) == len(part.rows) == 31


def test_rounds_of_a_control_are_those_in_which_it_made_a_pair(tmp_path: Path) -> None:
    records = with_control("short", (0.995, 1.0, 1.005))
    crashed = [
        replace(each, outcome=Outcome.CRASH, tokens_per_second=None) if each.control and each.round == 3 else each
        for each in records
    ]
    assert row_of(part_of(records, tmp_path), "short")["rounds"] == "3"
    assert row_of(part_of(crashed, tmp_path), "short")["rounds"] == "2"


def test_what_a_control_could_have_shown_stands_in_the_table_as_well(tmp_path: Path) -> None:
    part = part_of(with_control("fine", (0.9999, 1.0, 1.0001)) + with_control("rough", (0.98, 1.0, 1.02)), tmp_path)
    rough = next(row for row in part.rows if row["study"] == "rough")
    assert (rough["offset_shown"], rough["offset_shown_corrected"]) == pytest.approx((0.0510, 0.0743), abs=0.001)


@pytest.mark.parametrize(("rounds", "said"), [(1, False), (3, True)])
def test_an_interval_is_spoken_of_where_there_is_one(rounds: int, said: bool, tmp_path: Path) -> None:
    blocks = compare(with_control("fine", (0.99, 1.0, 1.01)[:rounds])).blocks
    studio = Studio()
    (picture,) = noise_part(blocks, Gallery(folder=tmp_path, studio=studio)).pictures
    (svg,) = studio.finish()
    assert ("95% interval" in svg) is said
    assert "The axis is logarithmic" in picture.caption
