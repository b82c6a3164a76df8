"""Whatever is missing, there is a page, and it says what is missing and what to run."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from harness.errors import EnvironmentProblem
from harness.judgement.claims import Claims, Document
from harness.judgement.judge import judge
from harness.judgement.judged import Word
from harness.judgement.sentence_reader import read_sentence
from harness.report import render_report
from harness.results.record import Record
from harness.techniques.registry import axis_table
from harness.trial.outcome import Outcome
from tests.judgement.claiming import make_claim, make_claims
from tests.records import CPU, CellShape, StudyShape, make_records
from tests.report import samples
from tests.report.reading import see

RUN = "claimbench run --matrix matrix.yaml"


def page_of(folder: Path) -> str:
    seen = see((folder / "report.html").read_text(encoding="utf-8"))
    assert not seen.wrong
    return " ".join(seen.text.split())


def test_an_empty_store(tmp_path: Path) -> None:
    _, folder = samples.render([], samples.claims(), tmp_path)
    text = page_of(folder)
    assert f"Nothing is stored yet, so every claim is “not run”. Run: {RUN}" in text
    assert f"No trial is stored. Run: {RUN}" in text
    assert "Nothing is stored yet" in (folder / "report.md").read_text(encoding="utf-8")


def test_no_claim_at_all(tmp_path: Path) -> None:
    none = Claims.model_construct(schema_=1, documents={}, claims={}, file="")
    _, folder = samples.render(samples.run()[:15], none, tmp_path, figures=0)
    assert "There is no claims file here, so no claim was judged." in page_of(folder)
    assert "0 confirmed" not in (folder / "report.md").read_text(encoding="utf-8")


def test_trials_that_no_claim_stands_on(tmp_path: Path) -> None:
    """A page of claims that all were not run would hide what was."""
    own = [replace(each, study="mine") for each in samples.run() if each.study == "precision"]
    _, folder = samples.render(own, samples.claims(), tmp_path, figures=0)
    text = page_of(folder)
    assert "No claim of the claims file is about a study of these trials." in text
    assert "not run:" not in text
    markdown = (folder / "report.md").read_text(encoding="utf-8")
    assert "No claim of the claims file is about a study of these trials." in markdown
    assert "amp-speed" not in markdown
    assert "claimbench run --matrix THE-MATRIX-OF-THESE-STUDIES.yaml --rounds 3 --study mine" in markdown


def test_one_claim_only(tmp_path: Path) -> None:
    every = samples.claims()
    one = every.model_copy(update={"claims": {"amp-speed": every.claims["amp-speed"]}})
    _, folder = samples.render([each for each in samples.run() if each.study == "precision"], one, tmp_path, figures=0)
    text = page_of(folder)
    assert "Where the documents contradict each other" not in text
    assert "No study adds techniques one on top of the other" in text
    assert "No study measures a combination together with each of its parts" in text


def test_every_trial_failed(tmp_path: Path) -> None:
    nothing = {
        "outcome": Outcome.CRASH, "reason": "RuntimeError: no", "tokens_per_second": None, "step_seconds": [],
        "phases": {}, "peak_allocated_bytes": None, "peak_reserved_bytes": None, "peak_device_bytes": None,
        "losses": [], "utilisation": None, "mfu": None, "figures": {},
    }  # fmt: skip
    failed = [replace(each, **nothing) for each in samples.run()]  # type: ignore[arg-type]
    _, folder = samples.render(failed, samples.claims(), tmp_path)
    text = page_of(folder)
    for words in (
        "No cell has both tokens/s and device memory", "No trial recorded the phases of a step",
        "No A/A control has a ratio", "RuntimeError: no",
        "No claim was judged on these trials: 3 not testable here, 1 not run.",
    ):  # fmt: skip
        assert words in text, words
    assert text.index("Study precision") < text.index("No claim was judged"), "the studies are what there is to see"


def test_a_curve_without_points_says_of_which_cell(tmp_path: Path) -> None:
    """Two points of another cell stood in the table below."""
    other = [replace(each, arm="attention=sdpa", cell={**each.cell, "attention": "sdpa"})
             if each.study == "attention" and not each.baseline else each for each in samples.run()]  # fmt: skip
    _, folder = samples.render(other, samples.claims(), tmp_path)
    assert (
        "No curve of study attention: there are no two sweep points with a figure of attention=sdpa-flash. "
        f"Run: {RUN} --study attention"
    ) in page_of(folder)


def test_a_curve_of_what_was_not_run(tmp_path: Path) -> None:
    _, folder = samples.render(
        [each for each in samples.run() if each.study != "attention"], samples.claims(), tmp_path
    )
    assert f"No curve of study attention: it was not run. Run: {RUN} --study attention" in page_of(folder)


def test_a_curve_that_is_not_drawn_is_there_all_the_same(tmp_path: Path) -> None:
    known, records = samples.claims(), samples.run()
    render_report(judge(records, known), known, records, tmp_path, figures=0)
    assert "No curve" not in page_of(tmp_path)


@pytest.mark.parametrize(("amp", "said"), [(2.2, "Both hold: 2."), (1.2, "Neither holds: 1."), (1.75, "")])
def test_claims_on_one_figure_that_agree_are_one_line(tmp_path: Path, amp: float, said: str) -> None:
    """Without a sweep there is no curve, and each side ended in nothing."""
    common = {"form": "at-least", "metric": "speedup", "study": "precision", "cell": {"precision": "amp-bf16"}}
    low = make_claim(**common, id="low", range=None, bound=1.5, statement="Over 1.5 times.", contradicts=["high"])
    high = make_claim(**common, id="high", range=None, bound=2, statement="Over twice.", contradicts=["low"])
    _, folder = samples.render(samples.run(amp=amp), make_claims(low, high), tmp_path, figures=0)
    markdown = (folder / "report.md").read_text(encoding="utf-8")
    part = markdown[markdown.index("### low against high") : markdown.index("## Claim by claim")]
    if said:
        assert part.splitlines()[2].startswith(said)
        assert "Over twice" not in part
    else:
        assert "- low (D1), confirmed: Over 1.5 times." in part
        assert "- high (D1), refuted, below: Over twice." in part
    page_of(folder)


def test_a_run_without_a_gpu_says_so_at_the_top(tmp_path: Path) -> None:
    shape = StudyShape(name="precision", cells=(CellShape(settings={"precision": "amp-bf16"}, ratio=0.7),))
    records = make_records([shape], rounds=3, environment=CPU, scale="smoke")
    _, folder = samples.render(records, samples.claims(), tmp_path)
    text = page_of(folder)
    top = text[: text.index("What the documents claim")]
    assert "Smoke scale on a CPU" in top
    assert "Noise labels only; nothing here says anything about a GPU" in top
    assert "CPU only: Synthetic CPU, 2 cores" in top
    assert "not comparable" in text
    assert f"{RUN} --scale smoke --rounds 3" in text
    assert "needs a GPU" in text


SENTENCE = "precision=bf16 vs fp32 >= 1.1x faster"


def checked(rounds: int = 3) -> tuple[list[Record], Claims]:
    """Trials of `claimbench check` on a CPU, as `render` gets them, with the sentence as their one claim."""
    said = read_sentence(SENTENCE, axis_table())
    shape = StudyShape(name=said.study, cells=(CellShape(settings={"precision": "bf16"}, ratio=1.75),))
    records = make_records([shape], rounds=rounds, environment=CPU, scale="full") if rounds else []
    marks = {"first_batch_sha256": "0123abcd", "first_weights_sha256": "4567cdef"}
    records = [replace(each, figures={**each.figures, **marks}) for each in records]
    claim = said.claim(study=said.study, name=said.study)
    document = Document(title="A sentence that was to be checked")
    return records, Claims(schema=1, documents={claim.sources[0].document: document}, claims={claim.id: claim})


def test_a_check_on_a_cpu_speaks_of_that_cpu(tmp_path: Path) -> None:
    """`this run shows that every part works` stood above a real verdict, and advice to run a matrix below it."""
    records, known = checked()
    judgement, folder = samples.render(records, known, tmp_path)
    assert judgement.verdicts[0].word is Word.CONFIRMED
    text, markdown = page_of(folder), (folder / "report.md").read_text(encoding="utf-8")
    for page in (text, markdown):
        assert "Run on a CPU: the verdicts speak of this CPU" in page
        assert "every part works" not in page
        assert "claimbench run" not in page
        assert "0123abcd" not in page
        assert "4567cdef" not in page
        assert page.count(" --rounds 3 --device cpu --store again.sqlite") == 2, "with its claim, and at the end"


def test_a_check_that_was_stopped_before_a_trial(tmp_path: Path) -> None:
    records, known = checked(rounds=0)
    _, folder = samples.render(records, known, tmp_path)
    text = page_of(folder)
    assert "no trial came to its end. Give the same command again." in text
    assert "claimbench run" not in text


def test_a_study_without_a_sweep_has_no_curve_and_no_gap(tmp_path: Path) -> None:
    records = [each for each in samples.run() if each.study == "precision"]
    _, folder = samples.render(records, samples.claims(), tmp_path)
    assert not list((folder / "figures").glob("sweep-*"))
    section = (
        (folder / "report.html").read_text(encoding="utf-8").split('id="claim-amp-speed"')[-1].split("</article>")[0]
    )
    assert "Where it holds" not in section


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(EnvironmentProblem, match=r"cannot be written to .*; name another folder with --output"):
        render_report(judge([], samples.claims()), samples.claims(), [], tmp_path / "file", name="x")


def test_the_numbers_of_trials_add_up(tmp_path: Path) -> None:
    """Those that another round superseded are trials as well: 489 trials had 427 outcomes."""
    records = [replace(each, superseded=each.round == 1) for each in samples.run()]
    _, folder = samples.render(records, samples.claims(), tmp_path, figures=0)
    whole, parts = re.findall(r"([\d,]+) trials \(([^)]*)\)", page_of(folder))[0]
    assert int(whole.replace(",", "")) == sum(int(part.split()[0]) for part in parts.split(", ")) == len(records)
    assert f"{sum(each.superseded for each in records)} superseded" in parts
