"""Figures of levels: whose points they are, and which trials have a level that says anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from harness.judgement.blocks import compare
from harness.judgement.judged import Judgement
from harness.report.figures import scatter
from harness.report.figures.gallery import Gallery
from harness.report.figures.scatter import Spot
from harness.report.figures.studio import Studio
from harness.report.levels import estimator_part, targets_part
from harness.results.record import Record
from tests.judgement.claiming import make_claim, make_claims
from tests.records import CellShape, StudyShape, make_records
from tests.report import samples
from tests.report.reading import Sketches


def gallery_in(folder: Path) -> Gallery:
    return Gallery(folder=folder, studio=Studio())


def judged(records: Sequence[Record]) -> Judgement:
    return Judgement(verdicts=(), blocks=compare(records).blocks, excluded=())


def test_points_of_the_estimator_are_told_apart_by_model(tmp_path: Path) -> None:
    """37 studies shared eight colours and eight signs: `d1-stack` and `attention` were one blue triangle."""
    studies = [StudyShape(name=f"study-{number}", cells=[CellShape(settings={"compile": "default"})])
               for number in range(37)]  # fmt: skip
    records = [replace(each, model="llama-1b" if each.study < "study-2" else "gpt2-124m",
                       figures={"predicted_bytes": 2.0**34}) for each in make_records(studies, rounds=1)]  # fmt: skip
    gallery = gallery_in(tmp_path)
    part = estimator_part(compare(records).blocks, samples.claims(), gallery)
    gallery.finish()
    drawn = (tmp_path / "estimator.svg").read_text(encoding="utf-8")
    assert ">llama-1b<" in drawn
    assert ">gpt2-124m<" in drawn
    assert "study-" not in drawn
    assert {row["model"] for row in part.rows} == {"llama-1b", "gpt2-124m"}


def test_no_two_entries_of_the_estimators_legend_look_alike() -> None:
    spots = [Spot(group=f"model-{number}", x=8.0, y=4.0) for number in reversed(range(20)) for _ in range(20 - number)]
    figure = Figure()
    scatter.estimator(figure, spots, low=0.8, high=1.25)
    (legend,) = figure.legends
    band, *named, rest = [text.get_text() for text in legend.get_texts()]
    assert band == "predicted ÷ measured from 0.8 to 1.25"
    assert named == [f"model-{number}" for number in range(12)], "those with most cells"
    assert rest == "8 more models"
    clouds = figure.axes[0].collections[1:13]
    looks = {(str(each.get_facecolor()), str(each.get_paths()[0].vertices.round(3).tolist())) for each in clouds}
    assert len(looks) == 12


def test_a_target_is_of_trials_that_train(tmp_path: Path) -> None:
    """Loaders by themselves, which leave the GPU idle, stood at 0% and squeezed 85% to 100% into a corner."""
    cells = [CellShape(settings={"workers": 2})]
    shapes = [StudyShape(name="training", cells=cells), StudyShape(name="loaders", cells=cells, kind="loader-only")]
    records = [replace(each, utilisation=0.93 if each.kind == "training" else 0.0)
               for each in make_records(shapes, rounds=2)]  # fmt: skip
    gallery = gallery_in(tmp_path)
    part = targets_part(judged(records), samples.claims(), gallery)
    gallery.finish()
    assert part.pictures[0].caption == "Mean GPU utilisation: the highest of 2 cells in each study that trains."
    drawn = (tmp_path / "targets-utilisation.svg").read_text(encoding="utf-8")
    assert ">training: baseline<" in drawn
    assert "loaders" not in drawn
    alone = targets_part(judged([each for each in records if each.kind != "training"]), samples.claims(), gallery)
    assert alone.pictures == ()
    assert alone.missing == "No trial that trains has GPU utilisation or device memory recorded: both need a GPU."


def test_predictions_are_counted_and_the_furthest_off_stand_first() -> None:
    """8 GiB predicted where 10 were used is 0.8, the end of what is claimed; 13 are 1.3."""
    predicted = {"baseline": 8, "control": 1, "compile=default": 13}
    records = [
        replace(each, peak_reserved_bytes=10 << 30, figures={"predicted_bytes": predicted[each.arm] << 30})
        for each in make_records([StudyShape(name="one", cells=[CellShape(settings={"compile": "default"})])], rounds=2)
    ]
    claims = make_claims(make_claim(metric="prediction_ratio", range=[0.8, 1.25]))
    sketches = Sketches()
    part = estimator_part(compare(records).blocks, claims, sketches.gallery())
    assert part.sentences == (
        "1 of 2 predictions lie between 0.8 and 1.25 times the measured peak; the lowest is 0.80x, the highest 1.30x.",
    )
    assert [row[3:] for row in part.tables[0].rows] == [
        ("compile=default", "13.00 GiB", "10.00 GiB", "1.30x"), ("baseline", "8.00 GiB", "10.00 GiB", "0.80x"),
    ]  # fmt: skip
    drawn = sketches.data("estimator")
    assert (drawn["low"], drawn["high"]) == (0.8, 1.25)
    assert {(spot.x, spot.y) for spot in drawn["spots"]} == {(10, 8), (10, 13)}


def test_the_highest_cell_of_each_study_stands_beside_the_targets() -> None:
    used = {("low", "baseline"): 0.5, ("low", "compile=default"): 0.7, ("high", "baseline"): 0.9,
            ("high", "compile=default"): 0.8}  # fmt: skip
    shapes = [StudyShape(name=name, cells=[CellShape(settings={"compile": "default"})]) for name in ("low", "high")]
    records = [
        replace(each, utilisation=used.get((each.study, each.arm), 1.0)) for each in make_records(shapes, rounds=3)
    ]
    claims = make_claims(make_claim(metric="utilisation", range=[0.8, 0.95]))
    sketches = Sketches()
    part = targets_part(judged(records), claims, sketches.gallery())
    drawn = sketches.data("targets-utilisation")
    assert [(dot.name, dot.value) for dot in drawn["values"]] == [
        ("high: baseline", pytest.approx(0.9)), ("low: compile=default", pytest.approx(0.7)),
    ]  # fmt: skip
    assert drawn["lines"] == [("it: 80.0%", 0.8), ("it: 95.0%", 0.95)]
    assert drawn["percent"] is True
    assert part.sentences[0] == (
        "it, at least 80.0% and at most 95.0%: reached by 2 of 4 cells on mean GPU utilisation."
    )
