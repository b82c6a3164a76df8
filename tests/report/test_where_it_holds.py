"""Sweeps in words: which points lie on a line, and where along it a claim holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from harness.judgement.blocks import compare
from harness.judgement.claims import Claim
from harness.judgement.judge import judge
from harness.judgement.judged import BlockResult
from harness.judgement.metrics import METRICS, metric_named
from harness.judgement.words import Bounds
from harness.report.contradictions import Contradiction, bounds_on, contradictions
from harness.report.details import details
from harness.report.families import families
from harness.report.figures import curves
from harness.report.figures.gallery import Gallery
from harness.report.figures.studio import Studio
from harness.report.measure import Reading, measured
from harness.report.order import in_reading_order
from harness.report.origin import Origin
from harness.report.overview import _drawn
from harness.report.pictures import sweep_picture
from harness.report.reproduce import ANY
from harness.report.sweeps import Curve, Point, sweeps_of, where_it_holds
from harness.results.record import Record
from harness.trial.outcome import Outcome
from tests.judgement.claiming import make_claim, make_claims, study
from tests.records import CellShape, make_records
from tests.report.reading import Sketches

SPEEDUP = METRICS["speedup"]


def curve(*points: tuple[float, float, float, float], absent: tuple[str, ...] = ()) -> Curve:
    made = tuple(Point(x=x, value=value, low=low, high=high) for x, value, low, high in points)
    return Curve(name="flash", points=made, absent=absent, primary=True)


def tight(*pairs: tuple[float, float]) -> Curve:
    return curve(*((x, value, value - 0.01, value + 0.01) for x, value in pairs))


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (tight((512, 1.05), (1024, 1.2), (2048, 2.5), (4096, 3)),
         "Holds from sequence length 2048 upward; at 512 it is 1.05x, at 1024 it is 1.20x."),
        (tight((512, 2.2), (1024, 2.1), (2048, 1.5)), "Holds up to sequence length 1024; at 2048 it is 1.50x."),
        (tight((512, 2.2), (1024, 2.1)), "Holds at every sequence length measured (512 to 1024)."),
        (tight((512, 1.1), (1024, 1.2)),
         "Holds at no sequence length measured (512 to 1024); at 512 it is 1.10x, at 1024 it is 1.20x."),
        (tight((512, 1), (1024, 2.5), (2048, 2.6), (4096, 5)),
         "Holds from sequence length 1024 to 2048; at 512 it is 1.000x, at 4096 it is 5.00x."),
        (tight((512, 2.5), (1024, 1.5), (2048, 2.5)),
         "Holds at sequence length 512 and 2048 only; at 1024 it is 1.50x."),
        (curve((512, 2.5, 2.4, 2.6), (1024, 2.05, 1.95, 2.15)),
         "Holds at sequence length 512 only; at 1024 it is 2.05x [1.95x, 2.15x] (undecided)."),
        (curve((512, 2.5, 2.4, 2.6), (1024, 2.6, 2.5, 2.7), absent=("8192 (oom)",)),
         "Holds at every sequence length measured (512 to 1024); no figure at 8192 (oom)."),
        (tight((1, 1), (2, 1.1), (4, 1.2), (8, 1.3), (16, 2.5)),
         "Holds at sequence length 16 only; at 1 it is 1.000x, at 8 it is 1.30x."),
    ],
)  # fmt: skip
def test_the_sentence(line: Curve, sentence: str) -> None:
    assert where_it_holds(line, "sequence_length", SPEEDUP, (2, 4)) == sentence


def test_a_point_that_trained_something_else_never_holds() -> None:
    points = (Point(x=1, value=2.5, low=2.4, high=2.6), Point(x=2, value=2.5, low=2.4, high=2.6, different=True))
    line = Curve(name="flash", points=points, absent=(), primary=True)
    sentence = where_it_holds(line, "batch_size", SPEEDUP, (2, 4))
    assert sentence == "Holds at batch size 1 only; at 2 it is 2.50x (fast but different)."


def test_a_point_whose_interval_ends_where_the_range_does_holds() -> None:
    line = curve((1, 2.5, 2.0, 3.0), (2, 3.5, 3.0, 4.0))
    assert where_it_holds(line, "batch_size", SPEEDUP, (2, 4)) == "Holds at every batch size measured (1 to 2)."


def test_one_sided_ranges_and_statements() -> None:
    line = tight((1, 1.5), (2, 2.5))
    assert where_it_holds(line, "batch_size", SPEEDUP, (2, None)) == "Holds at batch size 2 only; at 1 it is 1.50x."
    assert where_it_holds(line, "batch_size", SPEEDUP, (None, None)) == ""


def block(**sweep: int) -> BlockResult:
    return BlockResult(
        study="s", block=str(sweep), kind="training", workload="w", model="m", sweep=dict(sweep), scale="full",
        device="GPU", fingerprint="f", arms=(), noise_floor=None, suspect=False, rounds=3,
    )  # fmt: skip


def lines(*blocks: BlockResult) -> list[list[tuple[str, str, list[object]]]]:
    return [
        [(family.axis, family.fixed, [each.sweep[family.axis] for each in family.blocks]) for family in group]
        for group in families(blocks)
    ]


def test_a_plain_sweep_is_one_line_in_order_of_its_values() -> None:
    assert lines(block(sequence_length=2048), block(sequence_length=512)) == [[("sequence_length", "GPU", [512, 2048])]]


def test_length_and_batch_that_keep_the_tokens_are_one_line() -> None:
    points = [block(sequence_length=length, batch_size=8192 // length) for length in (512, 1024, 2048)]
    assert lines(*points) == [[("sequence_length", "8192 tokens a batch, GPU", [512, 1024, 2048])]]


def of_models(*models: tuple[str, int], batch_size: int | None = None) -> list[Record]:
    """A block of each model with its parameters, whose cell is 1.9x, 1.8x, … as fast; 0: no trial counted them."""
    found: list[Record] = []
    for index, (model, parameters) in enumerate(models):
        shape = CellShape(settings={"precision": "bf16"}, ratio=1.9 - index / 10)
        sweep = {"model": model} if batch_size is None else {"batch_size": batch_size, "model": model}
        found += [
            replace(each, sweep=sweep, model=model, block=f"{each.block}-{index}-{batch_size}",
                    parameters={"total": parameters} if parameters else {})
            for each in make_records([study(shape)], rounds=3)
        ]  # fmt: skip
    return found


def test_models_stand_in_order_of_their_parameters() -> None:
    records = of_models(("large", 9), ("unknown", 0), ("small", 1), ("middle", 5))
    it = make_claim(range=[1.75, 2], at={"model": "small"})
    judged = judge(records, make_claims(it))
    (sweep,) = sweeps_of(it, SPEEDUP, judged.blocks)
    (along,) = sweep.curves
    assert [(point.x, point.at) for point in along.points] == [
        (1, "small"),
        (2, "middle"),
        (3, "large"),
        (4, "unknown"),
    ]
    assert [round(point.value, 1) for point in along.points] == [1.7, 1.6, 1.9, 1.8]
    assert sweep.table.columns == ("cell", "small", "middle", "large", "unknown")
    assert sweep.sentences == ("Holds from model large upward; at small it is 1.68x, at middle it is 1.59x.",)
    sketches, figure = Sketches(), Figure()
    picture = sweep_picture([(judged.verdicts[0], it.bounds)], sweep, sketches.gallery())
    assert picture is not None
    assert "by model, with 95% intervals" in picture.caption
    curves.sweep(figure, **sketches.data("sweep-"))
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["small", "middle", "large", "unknown"]
    assert list(axes.get_xticks()) == [0, 1, 2, 3], "one place apart"
    assert axes.get_xlabel() == "model"


def test_models_stand_in_order_of_their_parameters_in_tables_and_scope_too() -> None:
    """`llama-1b` stood before `qwen2-0.5b` in the table of a study whose curve had them the other way round."""
    records = of_models(("b-large", 9), ("c-small", 1), ("a-middle", 5))
    it = make_claim(range=[1.5, 2], at={"model": "c-small"})
    judged = judge(records, make_claims(it))
    said = [point["sweep"]["model"] for point in judged.verdicts[0].details["points"]]
    shown = [block.sweep["model"] for block in in_reading_order(judged).blocks]
    assert said == shown == ["c-small", "a-middle", "b-large"]
    (drawn,) = _drawn(judged.blocks, make_claims(make_claim(study="elsewhere")))
    assert drawn.sweep["model"] == "b-large", "a study whose claims name no point is drawn at its largest"


def test_a_sweep_over_models_and_batches_is_a_line_for_each_model() -> None:
    records = [each for size in (8, 16) for each in of_models(("a", 1), ("b", 2), batch_size=size)]
    it = make_claim(range=[1, 2], at={"model": "a", "batch_size": 8})
    (sweep,) = sweeps_of(it, SPEEDUP, judge(records, make_claims(it)).blocks)
    assert sweep.axis == "batch_size"
    assert [curve.name for curve in sweep.curves] == ["precision=bf16 (model a)", "precision=bf16 (model b)"]
    assert [point.at for point in sweep.curves[0].points] == ["8", "16"]


def test_a_cross_of_points_is_shown_as_its_two_lines() -> None:
    cross = [(1024, 2), (1024, 8), (1024, 24), (256, 32), (4096, 2)]
    points = [block(sequence_length=length, batch_size=batch) for length, batch in cross]
    assert lines(*points) == [
        [("batch_size", "sequence length 1024, GPU", [2, 8, 24])],
        [("sequence_length", "8192 tokens a batch, GPU", [256, 1024, 4096])],
    ]


def test_a_grid_is_one_figure_with_a_line_for_each_row() -> None:
    points = [block(prefetch=prefetch, workers=workers) for prefetch in (2, 4) for workers in (1, 4, 8)]
    assert lines(*points) == [[("workers", "prefetch 2, GPU", [1, 4, 8]), ("workers", "prefetch 4, GPU", [1, 4, 8])]]


def generations(older: list[Record], newer: list[Record], *, same_version: bool = False) -> list[BlockResult]:
    first = 2 if same_version else 1
    records = [
        replace(each, measuring={"version": version}, fingerprint=mark * 16,
                started_at=each.started_at.replace("2026-03", month))
        for records, version, mark, month in ((older, first, "a", "2026-03"), (newer, 2, "b", "2026-04"))
        for each in records
    ]  # fmt: skip
    return list(judge(records, make_claims(make_claim())).blocks)


def on_curve(blocks: list[BlockResult], **fields: Any) -> list[tuple[float, float]]:
    (found,) = sweeps_of(make_claim(range=[1.1, 1.3], **fields), SPEEDUP, blocks)
    (line,) = found.curves
    return [(point.x, round(point.value, 2)) for point in line.points]


SWEPT = study(CellShape(settings={"precision": "bf16"}, ratio=1.2), sweep=("batch_size", (2, 8)))


@pytest.mark.parametrize("same_version", [False, True], ids=["made in a newer way", "run later"])
def test_a_point_that_was_run_again_stands_once_on_its_curve(same_version: bool) -> None:
    """`at 2 it is 1.16x, at 2 it is 1.19x`, and a figure with their mean."""
    first = replace(SWEPT, sweep=("batch_size", (2,)))
    older, newer = make_records([first], ratio=3.0, rounds=3), make_records([SWEPT], rounds=3, spread=0.001)
    blocks = generations(older, newer, same_version=same_version)
    assert on_curve(blocks) == [(2, 1.2), (8, 1.2)]
    assert on_curve(blocks[::-1]) == [(2, 1.2), (8, 1.2)]


def test_a_newer_block_in_which_the_cell_failed_or_has_no_baseline_leaves_the_older_point() -> None:
    tf32 = CellShape(settings={"precision": "tf32"}, ratio=1.0)
    both = replace(SWEPT, cells=(*SWEPT.cells, tf32))
    older = make_records([both], rounds=3, spread=0.001)
    crash = replace(SWEPT, cells=(replace(SWEPT.cells[0], outcome=Outcome.CRASH), tf32), sweep=("batch_size", (2,)))
    assert on_curve(generations(older, make_records([crash]))) == [(2, 1.2), (8, 1.2)]
    bare = replace(SWEPT, sweep=("batch_size", (2,)))
    blocks = generations(older, make_records([bare], ratio=3.0))
    assert on_curve(blocks, baseline={"precision": "tf32"}) == [(2, 1.2), (8, 1.2)]


def test_a_point_that_crosses_a_bound_does_not_look_as_if_it_stood_on_it() -> None:
    points = (Point(x=8, value=1.25, low=1.24, high=1.26), Point(x=24, value=1.204, low=1.198, high=1.21))
    line = Curve(name="full", points=points, absent=(), primary=True)
    sentence = where_it_holds(line, "batch_size", METRICS["step_time_ratio"], (1.2, 1.3))
    assert sentence == "Holds at batch size 8 only; at 24 it is 1.204x [1.198x, 1.21x] (undecided)."


def test_a_point_without_a_figure_says_what_became_of_the_cell_or_of_what_it_is_held_against() -> None:
    (block,) = compare(make_records([study()], rounds=3)).blocks
    out_of_memory = [
        replace(each, outcome=Outcome.OOM, tokens_per_second=None) if each.arm == "baseline" else each
        for each in make_records([study()], rounds=3)
    ]
    (without,) = compare(out_of_memory).blocks
    cell = {"precision": "bf16"}
    assert measured(block, cell, {}, SPEEDUP, "reserved").absent == ""
    assert measured(without, cell, {}, SPEEDUP, "reserved").absent == "oom"
    assert measured(block, {"precision": "tf32"}, {}, SPEEDUP, "reserved") == Reading()


@pytest.mark.parametrize(("metric", "different"), [("speedup", True), ("tokens_per_second", False)])
def test_only_figures_that_parity_gates_are_those_of_something_else(metric: str, different: bool) -> None:
    strayed = CellShape(settings={"precision": "bf16"}, ratio=1.75, loss_shift=1.0)
    (block,) = compare(make_records([study(strayed)], rounds=3)).blocks
    found = measured(block, {"precision": "bf16"}, {}, METRICS[metric], "reserved")
    assert found.interval is not None
    assert found.different is different


def test_the_list_of_points_shows_each_interval_as_the_sentence_does() -> None:
    verdict = judge(make_records([study()], rounds=3), make_claims(make_claim(range=[1.2, 1.3]))).verdicts[0]
    points = [
        {"name": f"batch_size={x}", "value": value, "low": low, "high": high, "rounds": 3, "word": word, "reason": why}
        for x, value, low, high, word, why in (
            (8, 1.25, 1.24, 1.26, "confirmed", ""), (24, 1.204, 1.198, 1.21, "inconclusive", "it crosses 1.2x"),
        )
    ]  # fmt: skip
    (shown,) = details(replace(verdict, details={"points": points}), SPEEDUP)
    assert shown.table is not None
    assert shown.table.rows == (
        ("batch_size=8", "1.25x [1.24x, 1.26x]", "3", "confirmed", ""),
        ("batch_size=24", "1.204x [1.198x, 1.21x]", "3", "inconclusive", "it crosses 1.2x"),
    )
    assert details(replace(verdict, details={"points": points[:1]}), SPEEDUP) == (), "the verdict's own alone"


@pytest.mark.parametrize(("metric", "has"), [("speedup", True), ("peak_saved", False)])
def test_only_figures_that_have_intervals_are_said_to_show_them(metric: str, has: bool, tmp_path: Path) -> None:
    it = make_claim(metric=metric, range=[0.1, 1.3])
    judged = judge(make_records([SWEPT], rounds=3), make_claims(it))
    (sweep,) = sweeps_of(it, METRICS[metric], judged.blocks)
    picture = sweep_picture([(judged.verdicts[0], it.bounds)], sweep, Gallery(folder=tmp_path, studio=Studio()))
    assert picture is not None
    assert ("with 95% intervals" in picture.caption) is has
    assert ("[" in sweep.table.rows[0][1]) is has
    (points,) = [each for each in details(judged.verdicts[0], METRICS[metric]) if each.title == "points"]
    assert points.table is not None
    assert ("[95% interval]" in points.table.columns[1]) is has


@pytest.mark.parametrize(("spread", "rounds", "said"), [(0.0, 3, False), (0.01, 1, False), (0.01, 3, True)])
def test_intervals_that_cannot_be_seen_are_not_spoken_of(
    spread: float, rounds: int, said: bool, tmp_path: Path
) -> None:
    """`with 95% intervals` stood below a curve whose rounds were alike to the byte, and below one of a single round."""
    it = make_claim(range=[0.1, 1.3])
    judged = judge(make_records([SWEPT], rounds=rounds, spread=spread, step_spread=0.0), make_claims(it))
    (sweep,) = sweeps_of(it, SPEEDUP, judged.blocks)
    picture = sweep_picture([(judged.verdicts[0], it.bounds)], sweep, Gallery(folder=tmp_path, studio=Studio()))
    assert picture is not None
    assert ("with 95% intervals" in picture.caption) is said


def test_points_of_words_are_no_line() -> None:
    assert families([replace_sweep("a"), replace_sweep("b")]) == ()


def replace_sweep(word: str) -> BlockResult:
    return replace(block(), sweep={"data": word})


def test_ranges_of_related_metrics_stand_on_one_axis() -> None:
    """7.6 times less is 1 - 1/7.6 = 86.8% saved; a ratio r of 0.5 to 0.7 saves 30 to 50%."""
    saved, fewer = METRICS["peak_saved"], claim("peak_ratio", (4, 8))
    assert bounds_on(saved, fewer) == pytest.approx((0.75, 0.875))
    assert bounds_on(saved, claim("peak_ratio", (4, None))) == (0.75, None)
    assert bounds_on(METRICS["peak_ratio"], claim("peak_saved", (0.5, 0.75))) == pytest.approx((2, 4))
    assert bounds_on(saved, claim("speedup", (1, 2))) == (None, None)


@pytest.mark.parametrize(
    ("of", "on", "bounds"),
    [
        ("figure_inverse:copy_seconds", "figure_ratio:copy_seconds", (0.25, 0.5)),  # 2 to 4 times less
        ("figure_ratio:copy_seconds", "figure_saved:copy_seconds", (-3, -1)),  # 2 to 4 times as much
        ("figure_ratio:copy_seconds", "figure_ratio:copy_seconds", (2, 4)),
        ("figure_ratio:copy_seconds", "figure_ratio:load_seconds", (None, None)),
        ("peak_bytes", "peak_saved", (None, None)),  # bytes of the cell alone are no ratio
        ("scaling_efficiency", "speedup", (None, None)),  # a share of so many devices is no ratio either
    ],
)
def test_a_range_stands_on_another_metric_where_both_are_of_one_ratio(of: str, on: str, bounds: Bounds) -> None:
    assert bounds_on(metric_named(on), claim(of, (2, 4))) == pytest.approx(bounds)


def against(
    tmp_path: Path,
    *,
    also: tuple[float, float] | None = (1.2, 1.3),
    batches: tuple[int, ...] = (2, 8),
    origin: Origin = ANY,
    **fields: Any,
) -> Contradiction:
    """Of two claims on one sweep: 1.1 to 1.2 times as fast, and another (`fields`)."""
    low = make_claim(id="low", range=[1.1, 1.2], contradicts=["high"])
    high = make_claim(**{"id": "high", "range": also, "contradicts": ["low"], **fields})
    known = make_claims(low, high)
    records = make_records([replace(SWEPT, sweep=("batch_size", batches))], rounds=3) if batches else []
    gallery = Gallery(folder=tmp_path, studio=Studio())
    (found,) = contradictions(judge(records, known), known, gallery, origin)
    return found


@pytest.mark.parametrize(
    ("fields", "drawn"),
    [
        ({}, True),
        ({"metric": "step_time_ratio"}, False),
        ({"form": "statement", "also": None}, False),
        ({"study": "another"}, False),
    ],
)
def test_claims_are_drawn_against_each_other_where_two_have_a_band(
    fields: dict[str, Any], drawn: bool, tmp_path: Path
) -> None:
    assert (against(tmp_path, **fields).picture is not None) is drawn


@pytest.mark.parametrize(("view", "drawn"), [("reserved", True), ("allocated", False)])
def test_memory_in_another_view_is_no_band(view: str, drawn: bool, tmp_path: Path) -> None:
    low = make_claim(id="low", metric="peak_saved", range=[0.1, 0.2], contradicts=["high"])
    high = make_claim(id="high", metric="peak_saved", range=[0.3, 0.4], view=view, contradicts=["low"])
    known = make_claims(low, high)
    (found,) = contradictions(judge(make_records([SWEPT], rounds=3), known), known,
                              Gallery(folder=tmp_path, studio=Studio()))  # fmt: skip
    assert (found.picture is not None) is drawn


@pytest.mark.parametrize(
    ("batches", "words"),
    [
        ((2,), "there are no two sweep points with a figure of precision=bf16. Run: claimbench run --matrix mine.yaml"),
        ((), "it was not run. Run: claimbench run --matrix whole.yaml"),
    ],
)
def test_a_curve_that_is_missing_is_run_by_the_matrix_of_the_trials(
    batches: tuple[int, ...], words: str, tmp_path: Path
) -> None:
    origin = Origin(whole="whole.yaml", by_study={"precision": "mine.yaml"})
    missing = against(tmp_path, batches=batches, origin=origin).missing
    assert missing == f"No curve of study precision: {words} --study precision"


def test_a_line_needs_two_points() -> None:
    """A figure at one length and none at the other is no curve; beside one it is shown."""
    bf16, tf32 = CellShape(settings={"precision": "bf16"}), CellShape(settings={"precision": "tf32"})
    records = [
        replace(each, outcome=Outcome.OOM, tokens_per_second=None)
        if each.arm == "precision=tf32" and each.cell["batch_size"] == 8 else each
        for each in make_records([replace(SWEPT, cells=(bf16, tf32))], rounds=3)
    ]  # fmt: skip
    blocks = compare(records).blocks
    alone = make_claim(cell={"precision": "tf32"})
    assert sweeps_of(alone, SPEEDUP, blocks) == ()
    (found,) = sweeps_of(make_claim(also=[{"precision": "tf32"}]), SPEEDUP, blocks)
    assert [(len(line.points), line.absent) for line in found.curves] == [(2, ()), (1, ("8 (oom)",))]


@pytest.mark.parametrize("turned", [False, True])
def test_of_the_two_scales_of_a_machine_the_one_with_rounds_enough_is_on_the_curve(turned: bool) -> None:
    full = make_records([SWEPT], rounds=3, spread=0.001)
    tiny = make_records([SWEPT], rounds=1, ratio=3.0, scale="smoke", fingerprint="c" * 16)
    assert on_curve(list(compare([*tiny, *full] if turned else [*full, *tiny]).blocks)) == [(2, 1.2), (8, 1.2)]


def claim(metric: str, bounds: tuple[float | None, float | None]) -> Claim:
    return Claim(
        id="c",
        statement="s",
        sources=({"document": "D", "quote": "q"},),
        form="range",
        metric=metric,
        range=bounds,
        study="s",
    )  # type: ignore[arg-type]
