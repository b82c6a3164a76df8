"""The page: every number from the data, every name as text, the same bytes each time, nothing from elsewhere."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.judgement.claims import Claim
from harness.judgement.judge import judge
from harness.judgement.judged import Judgement, Word
from harness.report import render_report
from harness.report.claim_page import ClaimPage, claim_pages, primary_block
from harness.report.figures.gallery import Gallery
from harness.report.figures.studio import Studio
from harness.report.overview import overview
from harness.report.page import build, excluded_rows
from harness.report.tables import notes, studies, study_table
from harness.trial.outcome import Outcome
from tests.judgement.claiming import CELL, make_claim, make_claims, study
from tests.judgement.test_several_cells import limit, sharded
from tests.records import CPU, CellShape, StudyShape, make_records
from tests.report import samples
from tests.report.reading import Sketches, see
from tests.report.test_why import with_breakdown

ATTACK = "<script>alert(1)</script><img src=x onerror=alert(2)>"


def test_the_first_screen_says_where_when_and_how_many(judgement: Judgement, html: str) -> None:
    top = see(html[: html.index('id="claims"')]).text
    assert "NVIDIA H100 80GB HBM3" in top
    assert re.search(r"2026-03-0\d \d\d:\d\d UTC to 2026-03-0\d", top)
    assert "torch 2.13.0" in top
    words = [verdict.word for verdict in judgement.verdicts]
    assert words == [Word.CONFIRMED, Word.REFUTED_ABOVE, Word.REFUTED_BELOW, Word.NOT_RUN]
    tiles = re.findall(r"<b>(\d+)</b><span>([^<]+)</span>(?:<small>([^<]+))?", html)
    assert tiles == [
        ("1", "confirmed", ""), ("2", "refuted", "1 below, 1 above"), ("0", "inconclusive", ""), ("0", "reported", ""),
        ("0", "not testable here", ""), ("1", "not run", ""),
    ]  # fmt: skip


def test_every_measured_figure_stands_in_page_markdown_and_table(
    judgement: Judgement, html: str, markdown: str, folder: Path
) -> None:
    table = (folder / "tables" / "claims.csv").read_text(encoding="utf-8")
    for verdict in judgement.verdicts[:3]:
        assert verdict.measured
        assert html.count(verdict.measured) >= 2
        assert verdict.measured in markdown.replace("\\", "")
        assert f'"{verdict.measured}"' in table


def test_other_data_gives_other_numbers(judgement: Judgement, html: str, tmp_path: Path) -> None:
    slower, folder = samples.render(samples.run(amp=1.2), samples.claims(), tmp_path, figures=0)
    before, after = judgement.verdicts[0], slower.verdicts[0]
    assert (before.word, after.word) == (Word.CONFIRMED, Word.REFUTED_BELOW)
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert before.measured not in page
    assert after.measured in page
    assert after.measured not in html


def test_a_claim_has_its_place_its_origin_and_its_proof(html: str) -> None:
    section = html[html.index('<article class="claim" id="claim-amp-speed"') :].split("</article>", maxsplit=1)[0]
    text = see(section).text
    for words in (
        "约1.5-2倍训练速度", "Training summary", "训练代码优化总结", "§1C", "001.txt", "A blog of 2019.",
        "Baseline is fp32.", "Changed after a result was known", "2026-11-28: Was judged at batch_size=2.",
        "precision=amp-bf16 against baseline in study precision", "precision seen",
        "3 of 3 trials",
        "Parity with the baseline", "reserved ÷ baseline", "Loss curves of study precision",
    ):  # fmt: skip
        assert words in text, words
    assert 'lang="zh"' in section


def section(html: str, claim: str) -> str:
    return html[html.index(f'<article class="claim" id="claim-{claim}"') :].split("</article>", maxsplit=1)[0]


def of_markdown(markdown: str, claim: str) -> str:
    plain = markdown.replace("\\", "")
    return plain[plain.index(f"### {claim}: ") :].split("\n### ", maxsplit=1)[0]


def test_links_of_a_claim_lead_to_what_they_name(html: str) -> None:
    low, high = section(html, "flash-low"), section(html, "flash-high")
    assert '<a href="#study-attention">whole study</a>' in low
    assert '<a href="#claim-flash-high">flash-high</a>: Flash gives 2 to 4 times.' in low
    assert 'stand in <a href="#claim-flash-low">flash-low</a>.' in high, "the same loss curves are drawn once"
    sides = html[html.index('id="contradictions"') : html.index('id="sections"')]
    for name, document in (("flash-low", "D1"), ("flash-high", "D2 table")):
        assert re.search(f'<a href="#claim-{name}">{name}</a> \\({document}', sides)


def test_a_section_says_scope_and_other_baseline_and_how_to_measure_it_again(html: str, markdown: str) -> None:
    for name, words in (
        ("amp-speed", ("Against the other baseline", "precision=tf32: inert in 3 of 3 rounds", "Helped at all",
                       "claimbench run --study precision", "Was judged at batch_size=2.")),
        ("flash-high", ("Scope", "holds at 2, fails at 2 of 4 points", "claimbench run --study attention")),
    ):  # fmt: skip
        page, text = see(section(html, name)).text, of_markdown(markdown, name).replace("`", "")
        for each in words:
            assert each in page, each
            assert each in text, each
    assert "Evidence that the setting was in effect" in section(html, "amp-speed")
    assert "| precision | precision seen | 3 of 3 trials |" in of_markdown(markdown, "amp-speed")


def test_an_open_verdict_says_the_rounds_that_would_settle_it(tmp_path: Path) -> None:
    known = make_claims(make_claim())
    records = make_records([study(CellShape(settings=CELL, ratio=1.5))], rounds=3, spread=0.02)
    judgement, folder = samples.render(records, known, tmp_path, figures=0)
    (verdict,) = judgement.verdicts
    assert verdict.rounds_needed not in (None, verdict.rounds)
    text = see(section((folder / "report.html").read_text(encoding="utf-8"), "it")).text
    assert f"Rounds that would settle it{verdict.rounds_needed}" in text
    assert "Measured, 3 rounds" in text


def test_a_row_of_the_claims_has_everything_below_its_head(html: str) -> None:
    table = html[html.index('<table class="claims') :].split("</table>", maxsplit=1)[0]
    heads = [see(each).text for each in re.findall('<th scope="col".*?</th>', table)]
    assert heads == ["Claim", "Verdict", "Claimed", "Measured", "Range", "Helped", "Document"]
    rows = re.findall('<tr><th scope="row".*?</tr>', table, flags=re.DOTALL)
    first = [see(each).text for each in re.findall("<t[hd].*?</t[hd]>", rows[0], flags=re.DOTALL)]
    assert first[0].startswith("amp-speed")
    assert first[1].endswith("confirmed")
    assert first[2] == "speedup 1.5x to 2x"
    assert first[3].startswith("1.75x [")
    assert first[5:] == ["yes", "D1 §1C"]
    assert ["<svg" in row for row in rows] == [True, True, True, False]
    ranks = [re.findall('<td data-sort="(\\d+)"', row)[0] for row in rows]
    assert list(map(int, ranks)) == [0, 3, 2, 12], "by the weight of the word: confirmed, above, below, not run"


def test_what_a_page_leaves_out_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.report.page.BLOCKS_SHOWN", 6)
    monkeypatch.setattr("harness.report.page.EXCLUDED_SHOWN", 1)
    _, folder = samples.render(samples.run(), samples.claims(), tmp_path)
    html, markdown = ((folder / f"report.{kind}").read_text(encoding="utf-8") for kind in ("html", "md"))
    for page in (re.sub("</?code>", "", html), markdown):
        assert "2 more blocks in tables/cells.csv." in page, "precision, four of attention, stack, factorial, less-one"
        assert "1 more row in tables/excluded.csv." in page, "one cell inert, one out of memory"


def test_what_a_kind_measures_and_what_went_wrong_stand_with_their_study(tmp_path: Path) -> None:
    failed = CellShape(settings={"precision": "tf32"}, outcome=Outcome.OOM)
    records = [replace(each, figures={"start_seconds": 0.25, "seen_sha256": "ab"}, warnings=["a word"])
               for each in make_records([study(CellShape(settings=CELL), failed)], rounds=3)]  # fmt: skip
    _, folder = samples.render(records, make_claims(make_claim()), tmp_path, figures=0)
    html, markdown = ((folder / f"report.{kind}").read_text(encoding="utf-8") for kind in ("html", "md"))
    for page in (see(html[html.index('id="studies"') :]).text, markdown[markdown.index("## Studies") :]):
        assert "start seconds" in page
        assert "250 ms" in page
        assert "sha256" not in page
        assert "a word (3 of 3 rounds)" in page
        assert "oom in 3 of 3 rounds" in page


def test_a_claim_that_was_not_run_says_what_to_run(html: str) -> None:
    section = html[html.index('<article class="claim" id="claim-never-run"') :].split("</article>", maxsplit=1)[0]
    assert "claimbench run --study absent" in section


def test_contradictions_stand_side_by_side_on_one_curve(html: str) -> None:
    part = html[html.index('id="contradictions"') : html.index('id="sections"')]
    text = see(part).text
    assert part.count("<svg") == 1
    assert "Holds from sequence length 2048 upward; at 512 it is 1.05x, at 1024 it is 1.30x." in text
    assert "Holds at no sequence length measured (512 to 4096)" in text


def test_each_side_of_a_contradiction_has_its_own_verdict(markdown: str) -> None:
    lines = markdown.replace("\\", "").splitlines()
    for words in ("- flash-low (D1), refuted, above: Flash gives 10 to 20%. Holds at no ",
                  "- flash-high (D2 table), refuted, below: Flash gives 2 to 4 times. Holds from "):  # fmt: skip
        assert len([line for line in lines if line.startswith(words)]) == 1, words


def test_every_part_has_its_lead_and_all_its_tables(tmp_path: Path) -> None:
    known, two = make_claims(make_claim()), CellShape(settings={"parallel": "ddp", "devices": 2}, ratio=1.9)
    records = make_records([study(two)], rounds=3)
    judgement = judge(records, known)
    page = render_report(judgement, known, records, tmp_path, figures=0)
    parts = overview(judgement, known, Gallery(folder=tmp_path, studio=Studio(), budget=0)).parts
    assert max(len(part.tables) for part in parts) == 2, "the fronts of one device and of two"
    markdown = page.with_suffix(".md").read_text(encoding="utf-8").replace("\\", "")
    for text in (see(page.read_text(encoding="utf-8")).text, markdown):
        for part in parts:
            for words in (part.lead, *(table.caption for table in part.tables)):
                assert words in text, words


def test_where_the_time_went_stands_with_its_notes_and_the_baseline_stands_out(tmp_path: Path) -> None:
    known = make_claims(make_claim())
    records = [with_breakdown(each, matrix_products=70.0) for each in make_records([study()], rounds=3)]
    page = render_report(judge(records, known), known, records, tmp_path, figures=0).read_text(encoding="utf-8")
    note = "The parts of precision=bf16 add up to 70.0% of the measured step: the profiled step was another one."
    assert note in see(section(page, "it")).text
    text = of_markdown((tmp_path / "report.md").read_text(encoding="utf-8"), "it")
    assert "| cell | step | parts ÷ step |" in text
    assert note in text
    strong = re.findall('<tr class="strong"><td[^>]*>([^<]*)', page)
    assert len(strong) >= 2, "in the section of the claim and under Studies"
    assert set(strong) == {"baseline"}


def test_excluded_rounds_are_named_once_in_order_and_those_that_were_superseded_apart() -> None:
    shape = study(CellShape(settings=CELL, outcome=Outcome.CRASH))
    failed = [each for each in make_records([shape], rounds=11) if each.arm == "precision=bf16"]
    again = [replace(each, superseded=True, reason="") for each in failed if each.round in (2, 10)]
    rows = excluded_rows([*reversed(failed), *again, *again])
    assert [row[3:5] for row in rows] == [("1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11", "crash"), ("2, 10", "superseded")]


def test_excluded_trials_are_listed_with_their_reason(html: str) -> None:
    part = see(html[html.index('id="excluded"') : html.index('id="environment"')]).text
    assert part.count("CUDA out of memory") == 1, "rounds that ended alike share a row"
    assert "1, 2, 3" in part
    assert part.count("expected a flash kernel") == 1


def test_hostile_text_is_shown_as_text(tmp_path: Path) -> None:
    known = samples.claims(
        statement=f"Faster {ATTACK}", origin=ATTACK, conditions=[ATTACK],
        changed=[{"when": "2026-11-28", "what": ATTACK}],
        sources=[{"document": "D1", "section": ATTACK, "quote": f"{ATTACK} | `x` **bold**"}],
    )  # fmt: skip
    records = [
        replace(record, arm=f"{record.arm} {ATTACK}", reason=ATTACK if record.reason else "")
        if record.arm not in {"baseline", "control"}
        else record
        for record in samples.run()
    ]
    _, folder = samples.render(records, known, tmp_path, name=ATTACK)
    seen = see((folder / "report.html").read_text(encoding="utf-8"))
    assert seen.tags["script"] == 1, "the page's own"
    assert seen.tags["img"] == 0
    assert not seen.wrong
    assert seen.text.count(ATTACK) > 10
    markdown = (folder / "report.md").read_text(encoding="utf-8")
    assert "<script" not in markdown
    assert "<img" not in markdown
    assert r"\*\*bold\*\*" in markdown
    assert all("<script" not in path.read_text(encoding="utf-8") for path in (folder / "figures").glob("*.svg"))


def test_the_same_trials_give_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    _, again = samples.render(samples.run(), samples.claims(), tmp_path)
    files = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    assert files == sorted(path.relative_to(again) for path in again.rglob("*") if path.is_file())
    assert len(files) > 25
    assert [str(path) for path in files if (folder / path).read_bytes() != (again / path).read_bytes()] == []


def test_figures_and_tables_of_an_earlier_report_do_not_stay(tmp_path: Path) -> None:
    for stale in ("figures/old.svg", "figures/old.png", "tables/old.csv"):
        (tmp_path / stale).parent.mkdir(exist_ok=True)
        (tmp_path / stale).write_text("old", encoding="utf-8")
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    samples.render(samples.run()[:5], samples.claims(), tmp_path)
    assert not list(tmp_path.rglob("old.*"))
    assert (tmp_path / "notes.txt").exists(), "what is not the report's stays"


def test_the_page_needs_nothing_from_elsewhere(html: str) -> None:
    seen = see(html)
    assert all(link.startswith("#") or link == "data:," for link in seen.links)
    assert all(source.startswith("#") for source in seen.sources)
    assert "@import" not in html
    assert not re.findall(r"url\((?!#)", html)


def test_every_link_has_a_target_and_every_id_is_there_once(html: str) -> None:
    seen = see(html)
    assert not seen.wrong
    assert len(seen.ids) == len(set(seen.ids))
    targets = {link[1:] for link in [*seen.links, *seen.sources] if link.startswith("#")}
    assert targets <= set(seen.ids)


@pytest.mark.parametrize(
    "part", ["pareto", "stack", "leave-one-out", "interactions", "phases", "memory", "targets", "estimator", "noise"]
)
def test_every_section_has_its_figure(part: str, html: str) -> None:
    section = html[html.index(f'<section id="{part}"') :].split("</section>", maxsplit=1)[0]
    assert "<svg" in section
    assert 'class="gap"' not in section


def test_markdown_links_figures_that_exist(markdown: str, folder: Path) -> None:
    linked = re.findall(r"\]\((figures/[^)]+)\)", markdown)
    assert len(linked) > 8
    assert all((folder / name).exists() for name in linked)


def test_figures_beyond_the_budget_are_counted_not_hidden(tmp_path: Path) -> None:
    records, known = samples.run(), samples.claims()
    render_report(judge(records, known), known, records, tmp_path, figures=1)
    assert len(list((tmp_path / "figures").glob("*.svg"))) == 1
    assert "further figures left out: the report draws at most 1;" in (tmp_path / "report.html").read_text(
        encoding="utf-8"
    )


def test_blocks_at_one_point_are_told_apart_by_when_they_ran() -> None:
    """Two generations of a study's trials stood under one another with two baselines and nothing between them."""
    older = make_records([study()], rounds=3)
    newer = [replace(each, measuring={"version": 2}, fingerprint="2" * 16,
                     started_at=each.started_at.replace("2026-03", "2026-04")) for each in older]  # fmt: skip
    blocks = judge([*older, *newer], make_claims(make_claim())).blocks
    table = study_table("precision", blocks)
    assert table.columns[:2] == ("since", "cell")
    assert [row[0][:7] for row in table.rows] == ["2026-03"] * 3 + ["2026-04"] * 3
    assert study_table("precision", blocks[:1]).columns[0] == "cell"
    warned = [replace(each, warnings=["a word"] if each.arm == "baseline" else []) for each in (*older, *newer)]
    said = [
        each
        for each in notes(judge(warned, make_claims(make_claim())).blocks)
        if each.endswith("a word (3 of 3 rounds)")
    ]
    assert [line[:17] for line in said] == ["baseline (2026-03", "baseline (2026-04"]


def test_a_claims_page_shows_the_block_that_was_judged() -> None:
    """Two generations share a block's key: the page of an inconclusive claim showed the other's failed parity."""
    older = make_records([study(CellShape(settings=CELL, ratio=1.75, loss_shift=1.0))], rounds=3)
    newer = [
        replace(each, measuring={"version": 2}, fingerprint="2" * 16) for each in make_records([study()], rounds=3)
    ]
    claims = make_claims(make_claim())
    found = judge([*older, *newer], claims)
    verdict = found.verdicts[0]
    assert verdict.word is Word.CONFIRMED
    shown = primary_block(claims.claims["it"], verdict, found.blocks)
    assert shown is not None
    assert shown.fingerprint == "2" * 16
    assert all(arm.parity.holds is not False for arm in shown.arms)


def test_notes_of_several_devices_say_which() -> None:
    here = make_records([study()], rounds=3)
    there = [
        replace(each, warnings=["a word"], environment={
            **each.environment, "devices": [{**one, "name": "NVIDIA H200"} for one in each.environment["devices"]]})
        for each in here
    ]  # fmt: skip
    said = notes(judge([*here, *there], make_claims(make_claim())).blocks)
    assert "baseline (NVIDIA H200): a word (3 of 3 rounds)" in said


def test_a_limit_is_said_to_stand_on_every_number_of_devices_that_was_measured(tmp_path: Path) -> None:
    known = make_claims(limit())
    gallery = Gallery(folder=tmp_path, studio=Studio(), budget=0)
    (page,) = claim_pages(judge(sharded((4, 12), (1, 2, 4)), known), known, gallery)
    assert page.comparison == "zero=1 against baseline in study zero at devices=1, 2, 4, on NVIDIA H100 80GB HBM3"


def test_a_limit_is_drawn_as_a_line_beside_its_curve() -> None:
    known, sketches = make_claims(limit()), Sketches()
    claim_pages(judge(sharded((4, 12), (1, 2, 4)), known), known, sketches.gallery())
    assert [(band.low, band.high) for band in sketches.data("sweep-")["bands"]] == [(4, 4)]


def test_further_studies_that_ran_are_linked_and_the_claim_is_shown_along_their_sweeps() -> None:
    """A claim on compilation said nothing of its studies over the batch and the model."""
    further = StudyShape(name="longer", cells=[CellShape(settings=CELL, ratio=1.2)], sweep=("batch_size", (8, 16)))
    other = StudyShape(name="others", cells=[CellShape(settings={"precision": "tf32"}, ratio=1.2)])
    records = make_records([study(), further, other], rounds=3)
    it = make_claim(range=[1.7, 1.8], see=["longer", "others", "not-run"])
    sketches = Sketches()
    also = make_claim(range=[1.7, 1.8], cell={"precision": "tf32"}, also=[CELL], see=["longer"])
    (page,) = claim_pages(judge(records, make_claims(it)), make_claims(it), sketches.gallery())
    assert page.sweeps == (), "its own study sweeps nothing"
    assert [(each.study, each.anchor, len(each.sweeps)) for each in page.see] == [
        ("longer", "study-longer", 1), ("others", "study-others", 0)
    ]  # fmt: skip
    longer, others = page.see
    ((sweep, picture),) = longer.sweeps
    assert sweep.sentences == (
        "In study longer: holds at no batch size measured (8 to 16); at 8 it is 1.21x, at 16 it is 1.18x.",
    )
    assert others.sweeps == ()
    (page,) = claim_pages(judge(records, make_claims(also)), make_claims(also), sketches.gallery())
    ((named, _),) = page.see[0].sweeps
    assert named.sentences[0].startswith("In study longer, precision=bf16: holds at no batch size measured (8 to 16); ")
    assert sweep.study == "longer"
    assert picture is not None
    assert "by batch size in study longer" in picture.caption
    assert picture.file == "sweep-it-longer-batch-size"
    assert sweep.table.caption.endswith(", by batch size, in study longer")


def test_what_was_judged_in_the_smoke_scale_names_it_and_the_point_that_ran(tmp_path: Path) -> None:
    shape = study(sweep=("sequence_length", (32, 64)))
    known = make_claims(make_claim(at={"sequence_length": 64}, device="any"))
    gallery = Gallery(folder=tmp_path, studio=Studio(), budget=0)
    (page,) = claim_pages(judge(make_records([shape], environment=CPU, scale="smoke"), known), known, gallery)
    where = "at sequence_length=64, on Synthetic CPU, in the smoke scale (tiny shapes)"
    assert page.comparison == f"precision=bf16 against baseline in study precision {where}"


def page_of(claim: Claim, judgement: Judgement, folder: Path) -> ClaimPage:
    """The section of the only claim; no figure is drawn."""
    (page,) = claim_pages(judgement, make_claims(claim), Gallery(folder=folder, studio=Studio(), budget=0))
    return page


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"metric": "peak_ratio", "range": [0.5, 1]}, ", reserved memory, on "),
        ({"metric": "peak_ratio", "range": [0.5, 1], "view": "allocated"}, ", allocated memory, on "),
        ({"metric": "tokens_per_second", "range": [1, 2]}, "precision=bf16 in study precision, on "),
        ({"baseline": {"precision": "tf32"}}, "precision=bf16 against precision=tf32 in study precision, on "),
    ],
)
def test_what_was_compared_names_the_view_and_the_baseline_where_they_count(
    fields: dict[str, Any], words: str, tmp_path: Path
) -> None:
    claim = make_claim(**fields)
    cells = CellShape(settings=CELL, ratio=1.75), CellShape(settings={"precision": "tf32"}, ratio=1.2)
    page = page_of(claim, judge(make_records([study(*cells)], rounds=3), make_claims(claim)), tmp_path)
    assert words in page.comparison


def test_what_was_judged_at_a_point_that_the_claim_does_not_name_says_which(tmp_path: Path) -> None:
    claim = make_claim()
    found = judge(make_records([study(sweep=("sequence_length", (4096,)))], rounds=3), make_claims(claim))
    assert " in study precision at sequence_length=4096, on " in page_of(claim, found, tmp_path).comparison


def test_a_claim_shows_its_own_study_and_leads_to_it(tmp_path: Path) -> None:
    claim = make_claim(study="Precision_of all")
    found = judge(make_records([study(name="Precision_of all")], rounds=3), make_claims(claim))
    page = page_of(claim, found, tmp_path)
    (shown,) = studies(found.blocks)
    assert page.study_anchor == shown.anchor
    assert page.measured is not None

    (block,) = found.blocks
    other = replace(found, blocks=(replace(block, another="its matrix has other cells"),))
    page = page_of(claim, other, tmp_path)
    assert (page.study_anchor, page.measured, page.why) == ("", None, None)


@pytest.mark.parametrize(
    ("baseline", "cells"),
    [
        ({}, ["baseline", "precision=bf16"]),
        ({"precision": "fp32"}, ["baseline", "precision=bf16"]),
        ({"precision": "tf32"}, ["baseline", "precision=tf32", "precision=bf16"]),
    ],
)
def test_where_the_time_went_begins_with_what_the_cell_is_held_against(
    baseline: dict[str, str], cells: list[str], tmp_path: Path
) -> None:
    shapes = CellShape(settings=CELL, ratio=1.75), CellShape(settings={"precision": "tf32"}, ratio=1.2)
    claim = make_claim(baseline=baseline)
    records = [with_breakdown(each, matrix_products=100.0) for each in make_records([study(*shapes)], rounds=3)]
    page = page_of(claim, judge(records, make_claims(claim)), tmp_path)
    assert page.why is not None
    assert [row[0] for row in page.why.rows] == cells


def test_what_a_report_of_few_figures_leaves_out_are_loss_curves_and_never_where_documents_contradict_each_other(
    markdown: str,
) -> None:
    """The curve of `flash-low` against `flash-high` was left out for loss curves when a report came to its budget."""
    records, known = samples.run(), samples.claims()
    judgement = judge(records, known)

    def asked(budget: int) -> tuple[list[str], int, int]:
        sketches = Sketches()
        gallery = Gallery(folder=Path(), studio=sketches, budget=budget)
        page = build(judgement, known, records, gallery, name="few")
        return list(sketches.jobs), page.left_out, page.budget

    everything, none_left_out, _ = asked(1000)
    losses = [name for name in everything if name.startswith("losses-")]
    assert (none_left_out, len(losses)) == (0, 2)
    assert everything[-2:] == losses
    assert everything[0].startswith("sweep-flash-low-and-flash-high-")
    for budget in (1, len(everything) - 2):
        assert asked(budget) == (everything[:budget], len(everything) - budget, budget)
    assert "further figure" not in markdown


def test_what_the_planned_rounds_say_alone_stands_beside_the_figure_of_all(
    judgement: Judgement, tmp_path: Path
) -> None:
    alone = {"rounds_asked_for": "3 of 26; those alone give 1.40x: refuted, below", "word_asked_for": "refuted, below"}
    first = replace(judgement.verdicts[0], details={**judgement.verdicts[0].details, **alone})
    judged = replace(judgement, verdicts=(first, *judgement.verdicts[1:]))
    render_report(judged, samples.claims(), samples.run(), tmp_path, figures=0)
    markdown = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert markdown.count("- Rounds that were planned: 3 of 26; those alone give 1.40x: refuted, below\n") == 1
    assert "- Measured, 3 rounds: 1.7" in markdown
    page = see((tmp_path / "report.html").read_text(encoding="utf-8")).text
    assert page.count("Rounds that were planned") == 1
    assert page.count("3 of 26; those alone give 1.40x: refuted, below") == 1
