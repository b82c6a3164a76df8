"""A claim about a GPU, of which there are trials on a CPU alone: nothing stands beside what is claimed."""

from __future__ import annotations

from pathlib import Path

from harness.judgement.judge import judge
from harness.judgement.judged import Word
from harness.report.contradictions import contradictions
from harness.report.figures.gallery import Gallery
from harness.report.figures.studio import Studio
from tests.records import CPU, CellShape, StudyShape, make_records
from tests.report import samples

FLASH = StudyShape(
    name="attention", baseline={"attention": "eager"}, cells=(CellShape(settings={"attention": "sdpa-flash"}),),
    sweep=("sequence_length", (512, 1024, 2048)),
)  # fmt: skip


def test_no_curve_and_no_band_of_what_is_not_comparable(tmp_path: Path) -> None:
    """The smoke scale drew the claimed band over tiny shapes of a CPU, and said where the claim holds among them."""
    for scale, environment in (("smoke", CPU), ("full", CPU)):
        folder = tmp_path / scale
        records = make_records([FLASH], rounds=3, environment=environment, scale=scale)
        judgement, _ = samples.render(records, samples.claims(), folder)
        assert {each.word for each in judgement.verdicts if each.claim.startswith("flash")} == {Word.NOT_COMPARABLE}
        assert list((folder / "figures").glob("sweep-*")) == []
        for text in ((folder / name).read_text(encoding="utf-8") for name in ("report.md", "report.html")):
            assert "Holds" not in text
            assert "claimed range as a band" not in text


def test_what_holds_wherever_it_runs_keeps_its_curve(tmp_path: Path) -> None:
    known = samples.claims()
    anywhere = {name: claim.model_copy(update={"device": "any"}) for name, claim in known.claims.items()}
    records = make_records([FLASH], rounds=3, environment=CPU, scale="full")
    samples.render(records, known.model_copy(update={"claims": anywhere}), tmp_path)
    assert list((tmp_path / "figures").glob("sweep-flash-low-*.svg"))


def test_of_two_claims_that_contradict_each_other_the_comparable_one_alone_is_drawn(tmp_path: Path) -> None:
    known = samples.claims()
    mixed = {name: claim.model_copy(update={"device": "any" if name == "flash-low" else "gpu"})
             for name, claim in known.claims.items()}  # fmt: skip
    records = make_records([FLASH], rounds=3, environment=CPU, scale="full")
    samples.render(records, known.model_copy(update={"claims": mixed}), tmp_path)
    drawn = {each.name.partition("-sequence")[0] for each in (tmp_path / "figures").glob("sweep-*")}
    assert drawn == {"sweep-flash-low"}


def test_what_would_have_to_run_to_tell_contradicting_claims_apart_is_still_said(tmp_path: Path) -> None:
    one = StudyShape(name="attention", baseline={"attention": "eager"}, cells=FLASH.cells,
                     sweep=("sequence_length", (1024,)))  # fmt: skip
    known = samples.claims()
    judgement = judge(make_records([one], rounds=3, environment=CPU, scale="smoke"), known)
    (found,) = contradictions(judgement, known, Gallery(folder=tmp_path, studio=Studio()))
    assert found.picture is None
    assert found.missing.startswith(
        "No curve of study attention: there are no two sweep points with a figure of attention=sdpa-flash. Run: "
    )
