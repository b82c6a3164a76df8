"""What is computed across cells: Pareto fronts, stacks, products of gains, targets; each worked out by hand."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from harness.judgement.blocks import compare
from harness.judgement.judged import BlockResult, Judgement
from harness.judgement.sweep_order import natural
from harness.report.csvs import cell_rows
from harness.report.fastest import fastest_part
from harness.report.figures.gallery import Gallery
from harness.report.figures.scatter import Spot
from harness.report.figures.studio import Studio
from harness.report.frontier import front, frontier_part
from harness.report.interactions import combinations_of, interactions_part
from harness.report.leave_one_out import leave_one_out_part, wholes_of
from harness.report.measure import faster
from harness.report.order import in_reading_order
from harness.report.overview import _drawn
from harness.report.part import Part
from harness.report.pictures import memory_picture
from harness.report.stack import _pieces, stack_of, stack_part
from harness.report.tables import study_table
from harness.trial.outcome import Outcome
from tests.judgement.claiming import CELL, make_claim, make_claims
from tests.records import H100, CellShape, StudyShape, make_records
from tests.report import samples
from tests.report.reading import Sketches


@pytest.fixture(scope="module")
def blocks() -> dict[str, BlockResult]:
    return {block.study: block for block in compare(samples.run()).blocks}


def test_the_pareto_front_has_only_cells_that_no_other_beats_on_both() -> None:
    points = [(10, 100), (8, 90), (8, 95), (12, 99), (20, 130), (25, 130)]
    spots = [Spot(group="g", x=x, y=y) for x, y in points]
    assert [points[index] for index in front(spots)] == [(8, 95), (10, 100), (20, 130)]


def test_cells_of_one_device_and_of_two_are_no_rivals(tmp_path: Path) -> None:
    shape = StudyShape(name="scaling", cells=[CellShape(settings={"parallel": "ddp", "devices": 2}, ratio=1.9)])
    blocks = compare(make_records([shape], rounds=3)).blocks
    part = frontier_part(blocks, Gallery(folder=tmp_path, studio=Studio(), budget=0))
    one, two = (table.caption for table in part.tables)
    assert two == one.replace("NVIDIA H100", "2 × NVIDIA H100")
    assert [len(table.rows) for table in part.tables] == [1, 1]


def test_the_front_is_numbered_by_rising_memory_in_figure_and_table_alike() -> None:
    cells = [CellShape(settings={"batch_size": 16}, ratio=2.0), CellShape(settings={"precision": "bf16"}, ratio=1.5),
             CellShape(settings={"precision": "tf32"}, ratio=1.2)]  # fmt: skip
    gib = {"baseline": 8, "control": 1, "batch_size=16": 16, "precision=bf16": 4, "precision=tf32": 6}
    records = [replace(each, peak_reserved_bytes=gib[each.arm] << 30)
               for each in make_records([StudyShape(name="one", cells=cells)], rounds=3, spread=0.0001)]  # fmt: skip
    sketches = Sketches()
    part = frontier_part(compare(records).blocks, sketches.gallery())
    (table,) = part.tables
    assert [(row[0], row[2], row[4]) for row in table.rows] == [
        ("1", "precision=bf16", "4.00 GiB"), ("2", "batch_size=16", "16.00 GiB"),
    ]  # fmt: skip
    assert {row["cell"]: (row["peak_reserved_gib"], row["front"]) for row in part.rows} == {
        "baseline": (8, False), "batch_size=16": (16, True), "precision=bf16": (4, True), "precision=tf32": (6, False),
    }  # fmt: skip
    drawn = sketches.data("pareto-")
    assert [(each.label, each.x) for each in drawn["front"]] == [("1", 4), ("2", 16)]
    assert [(each.x, each.y) for each in drawn["spots"]] == [
        (row["peak_reserved_gib"], row["tokens_per_second"]) for row in part.rows
    ]


def test_the_fastest_cell_of_a_model_is_told_with_its_peak_and_its_step() -> None:
    shapes = [StudyShape(name=name, cells=[CellShape(settings={"compile": "default"}, ratio=ratio)])
              for name, ratio in (("slow", 1.5), ("fast", 2.0))]  # fmt: skip
    shapes.append(StudyShape(name="alone", kind="attention-only", cells=[CellShape(settings={"attention": "eager"})]))
    seconds = {"matrix_products": 0.06, "attention": 0.03, "idle": 0.0095, "copies": 0.0005}
    records = [replace(each, mfu=0.5, figures={"breakdown": {"seconds": seconds, "step_seconds": 0.1}},
                       peak_reserved_bytes=5 << 30, peak_allocated_bytes=4 << 30)
               for each in make_records(shapes, rounds=3)]  # fmt: skip
    part = fastest_part(compare(records).blocks)
    assert part.tables[0].columns[6:8] == ("MFU", "reserved")
    assert part.tables[0].rows[0][6:8] == ("50.0%", "5.00 GiB")
    (row,) = part.rows
    assert (row["study"], row["mfu"], row["attention_share"]) == ("fast", 0.5, pytest.approx(0.3))
    assert "compile=default" in str(row["cell"])
    assert "batch_size=" in str(row["cell"]), "the whole cell: its baseline is not beside it"
    (said,) = part.sentences
    assert said.endswith("50.0% of its peak; of a step 60.0% matrix products, 30.0% attention, 9.5% idle.")


def test_a_cell_that_trains_something_else_is_not_the_fastest() -> None:
    flash = CellShape(settings={"attention": "sdpa-flash"}, ratio=1.5)
    others = [CellShape(settings={"lora": 8}, ratio=3.0), CellShape(settings={"compile": "default"}, ratio=4.0)]
    records = make_records([StudyShape(name="one", cells=[flash, *others])], rounds=3)
    astray = [replace(each, losses=[loss + 5 for loss in each.losses]) if each.arm == "compile=default" else each
              for each in records]  # fmt: skip
    (row,) = fastest_part(compare(astray).blocks).rows
    assert "attention=sdpa-flash" in str(row["cell"])


def test_the_fastest_on_two_devices_is_no_rival_of_the_one_on_one_and_a_control_is_none_at_all() -> None:
    two = CellShape(settings={"parallel": "ddp", "devices": 2}, ratio=1.9)
    (block,) = compare(make_records([StudyShape(name="one", cells=[two])], rounds=3, control_ratio=1.2)).blocks
    rows = fastest_part([block]).rows
    assert [row["device"] for row in rows] == ["NVIDIA H100 80GB HBM3", "2 × NVIDIA H100 80GB HBM3"]
    speeds = {arm.name: arm.tokens_per_second for arm in block.arms}
    assert [row["tokens_per_second"] for row in rows] == [speeds["baseline"], speeds[block.arms[2].name]]


def test_a_profile_of_another_step_than_was_measured_is_not_shown() -> None:
    figures = {"breakdown": {"seconds": {"matrix_products": 0.11}, "step_seconds": 0.1}}
    records = [replace(each, figures=figures) for each in make_records([StudyShape(name="one", cells=[])], rounds=3)]
    part = fastest_part(compare(records).blocks)
    (said,) = part.sentences
    assert "of a step" not in said
    assert (
        part.tables[0].notes[0].startswith("No shares on NVIDIA H100 80GB HBM3: the parts of baseline add up to 110.0%")
    )


def test_a_part_of_a_step_is_no_rival_of_a_training_step(tmp_path: Path) -> None:
    """One layer of attention gives millions of tokens a second."""
    layer = StudyShape(name="alone", kind="attention-only", cells=[CellShape(settings={"attention": "sdpa-flash"})])
    blocks = compare(
        make_records([layer, StudyShape(name="whole", cells=[CellShape(settings={"compile": "default"})])], rounds=3)
    ).blocks
    part = frontier_part(blocks, Gallery(folder=tmp_path, studio=Studio(), budget=0))
    assert {row["study"] for row in part.rows} == {"whole"}


def test_a_piece_that_was_not_measured_is_shown_with_the_next(tmp_path: Path) -> None:
    amp, flash = {"precision": "amp-bf16"}, {"attention": "sdpa-flash"}
    shape = StudyShape(
        name="stack",
        cells=[
            CellShape(settings=amp, ratio=1.5),
            CellShape(settings={**amp, **flash}, outcome=Outcome.CRASH),
            CellShape(settings={**amp, **flash, "compile": "default"}, ratio=3.0),
        ],
    )
    blocks = compare(make_records([shape], rounds=3, spread=0.001)).blocks
    part = stack_part(blocks, Gallery(folder=tmp_path, studio=Studio(), budget=0))
    (table,) = part.tables
    assert [row[0] for row in table.rows] == ["+ precision=amp-bf16", "+ attention=sdpa-flash compile=default"]
    assert [row[1].split()[0] for row in table.rows] == ["1.50x", "2.00x"]
    assert "attention=sdpa-flash has no speed (" in part.sentences[1]


def test_a_stack_is_found_by_what_its_cells_change(blocks: dict[str, BlockResult]) -> None:
    assert [arm.name.count("=") for arm in stack_of(blocks["stack"])] == [1, 2, 3]
    assert stack_of(blocks["precision"]) == ()
    assert stack_of(blocks["factorial"]) == ()


def test_a_stack_is_the_longest_chain_whatever_else_was_measured() -> None:
    batch, fused, many = {"batch_size": 64}, {"optimizer": "fused"}, {"accumulation": 2}
    graphs, default = {"compile": "reduce-overhead"}, {"compile": "default"}
    cells = [batch, {**batch, **fused}, {**batch, **fused, **graphs}, {**batch, **fused, **many},
             {**batch, **fused, **many, **graphs}, {**batch, **fused, **many, **default},
             {**batch, **fused, **many, **default, "checkpointing": "full"}]  # fmt: skip
    shape = StudyShape(name="stack", cells=[CellShape(settings=each) for each in cells])
    (block,) = compare(make_records([shape], rounds=3)).blocks
    assert [len(arm.name.split()) for arm in stack_of(block)] == [1, 2, 3, 4, 5]
    assert stack_of(block)[3].cell["compile"] == "default"


@pytest.mark.parametrize(("others", "pieces"), [(2, 3), (3, 0)])
def test_a_study_is_a_stack_where_most_of_its_cells_are_pieces(others: int, pieces: int) -> None:
    chain = [{"compile": "default"}, {"compile": "default", "attention": "sdpa-flash"},
             {"compile": "default", "attention": "sdpa-flash", "precision": "bf16"}]  # fmt: skip
    cells = [*chain, *({"batch_size": 16 << number} for number in range(others))]
    shape = StudyShape(name="stack", cells=[CellShape(settings=each) for each in cells])
    (block,) = compare(make_records([shape], rounds=3)).blocks
    assert len(stack_of(block)) == pieces


def stacked(*memory: float, second: tuple[float, float, float] = (400, 400, 400)) -> tuple[Part, Sketches]:
    """A stack of three: compile doubles the speed, `second` is with flash, and the last is a tenth slower again."""
    names = ("compile=default", "compile=default attention=sdpa-flash",
             "compile=default attention=sdpa-flash precision=bf16")  # fmt: skip
    last: list[float | None] = [0.9 * each for each in second]
    block = rounds_of({"baseline": [100, 100, 100], **dict(zip(names, ([200] * 3, [*second], last), strict=True))})
    arms = [arm if arm.role != "cell" else replace(arm, memory_ratio={"reserved": memory[len(arm.name.split()) - 1]})
            for arm in block.arms]  # fmt: skip
    sketches = Sketches()
    return stack_part([replace(block, arms=tuple(arms))], sketches.gallery()), sketches


def test_the_bar_of_a_piece_that_may_be_nothing_is_hollow() -> None:
    _, sketches = stacked(0.9, 0.8, 0.7, second=(200, 330, 188))
    steps = sketches.data("stack-speed")["steps"]
    assert [(step.name, step.certain) for step in steps] == [
        ("baseline", True), ("compile=default", True), ("attention=sdpa-flash", False), ("precision=bf16", True),
    ]  # fmt: skip


@pytest.mark.parametrize(("memory", "same"), [((0.5, 0.5, 0.5), False), ((1.0, 1.0, 1.0), True), ((1, 1, 0.8), False)])
def test_memory_that_no_piece_changes_from_the_baselines_is_a_sentence_and_no_figure(
    memory: tuple[float, ...], same: bool
) -> None:
    part, sketches = stacked(*memory)
    assert any("peak reserved memory is the baseline's throughout" in each for each in part.sentences) is same
    assert any(name.startswith("stack-memory") for name in sketches.jobs) is not same


def test_a_combination_stands_against_the_product_of_its_parts(blocks: dict[str, BlockResult]) -> None:
    """compile 1.5x and flash 2.0x would give 3.0x; together they gave 2.4x."""
    (found,) = combinations_of(blocks["factorial"])
    assert found.product == pytest.approx(3.0, rel=0.02)
    assert found.arm.speedup is not None
    assert found.arm.speedup.value == pytest.approx(2.4, rel=0.02)
    assert combinations_of(blocks["stack"]) == (), "its parts were not measured alone"


def test_a_kind_that_counts_no_tokens_is_no_speed_to_multiply_or_to_stack() -> None:
    """Samples/s of trials that start workers anew read 0.04x beside a claim of turnarounds that are 25x shorter."""
    names = ("baseline", "compile=default", "attention=sdpa-flash", "compile=default attention=sdpa-flash",
             "compile=default attention=sdpa-flash checkpointing=full")  # fmt: skip
    stacked, less_one = rounds_of({name: [100, 100, 100] for name in names}), rounds_of(LESS_ONE)
    assert combinations_of(stacked)
    assert stack_of(stacked)
    assert wholes_of([less_one])
    stacked, less_one = untimed(stacked), untimed(less_one)
    assert stacked.arms[2].speedup is not None, "of samples/s"
    assert (combinations_of(stacked), stack_of(stacked), wholes_of([less_one])) == ((), (), [])


def untimed(block: BlockResult) -> BlockResult:
    """The block as of a kind that counts no tokens."""
    (found,) = compare([replace(each, tokens_per_second=None) for arm in block.arms for each in arm.trials]).blocks
    return found


def test_a_study_says_what_its_speeds_and_ratios_are_of(blocks: dict[str, BlockResult]) -> None:
    table = study_table("factorial", [blocks["factorial"]])
    assert table.columns[1:3] == ("tokens/s", "tokens/s ÷ baseline [95% interval]")
    records = [replace(each, tokens_per_second=None, samples_per_second=2.5 if each.baseline else 5.0)
               for arm in blocks["factorial"].arms for each in arm.trials]  # fmt: skip
    untimed = compare(records).blocks
    table = study_table("factorial", untimed)
    assert table.columns[1:3] == ("samples/s", "samples/s ÷ baseline [95% interval]")
    row = next(row for row in table.rows if row[0] == "compile=default")
    assert row[1:3] == ("5.0", "2.00x [2.00, 2.00]")
    assert cell_rows(untimed)[0]["speedup_of"] == "samples/s"


FAILED = 0.0
"""In place of tokens/s: out of memory."""
LESS_ONE: dict[str, list[float | None]] = {
    "baseline": [100, 100, 100],
    "compile=default attention=sdpa-flash optimizer=fused": [300, 330, 270],
    "attention=sdpa-flash optimizer=fused": [150, 165, 135],
    "compile=default optimizer=fused": [400, 440, 360],
    "compile=default attention=sdpa-flash": [303, 327, 271],
}
"""A stack and the stack less each of its pieces, tokens/s round by round."""


def rounds_of(speeds: dict[str, list[float | None]], device: str = "") -> BlockResult:
    """A block of cells, named by their settings, each with its tokens/s round by round; None: it did not run."""
    cells = {name: dict(part.split("=") for part in name.split()) for name in speeds if name != "baseline"}
    shape = StudyShape(name="own", cells=[CellShape(settings=cell) for cell in cells.values()])
    records = []
    for each in make_records([shape], rounds=len(speeds["baseline"])):
        name = next((name for name, cell in cells.items() if set(each.arm.split()) == set(name.split())), "baseline")
        speed = speeds[name][each.round - 1]
        if device:
            devices = [{**one, "name": device} for one in each.environment["devices"]]
            each = replace(each, environment={**each.environment, "devices": devices}, fingerprint=f"{device:0<16}")  # noqa: PLW2901
        if speed == FAILED:
            records.append(replace(each, tokens_per_second=None, outcome=Outcome.OOM, reason="CUDA out of memory"))
        elif speed is not None:
            records.append(replace(each, tokens_per_second=speed))
    (block,) = compare(records).blocks
    return block


def gallery_in(folder: Path) -> Gallery:
    return Gallery(folder=folder, studio=Studio(), budget=8)


def test_a_piece_of_a_stack_is_held_against_the_piece_before_it_round_by_round() -> None:
    """On an H200 a switch that does nothing stood as a gain of 1.23x: one of its three trials met a faster host."""
    block = rounds_of(
        {
            "baseline": [100, 100, 100],
            "compile=default": [200, 210, 190],
            "compile=default empty_cache=100": [202, 330, 188],
            "compile=default empty_cache=100 checkpointing=full": [101, 165, 94],
        }
    )
    first, second, third = _pieces(block, stack_of(block))
    assert first.gain == first.speed
    assert second.gain is not None
    assert third.gain is not None
    # logarithms of 1.01, 1.5714, 0.9895: mean 0.15045, deviation 0.26134, half an interval 0.64920
    assert second.gain.value == pytest.approx(1.1624, abs=1e-4)
    assert second.gain.low == pytest.approx(0.6073, abs=1e-4)
    assert second.gain.high == pytest.approx(2.2248, abs=1e-4)
    assert (third.gain.value, third.gain.low, third.gain.high) == pytest.approx((0.5, 0.5, 0.5))
    assert [faster(piece.gain) for piece in (first, second, third)] == [True, None, False]
    assert faster(None) is None


def test_a_combination_over_its_parts_counts_the_noise_of_the_parts_too() -> None:
    """Compilation takes back what checkpointing costs, in every round, though each gain by itself is noisy."""
    block = rounds_of(
        {
            "baseline": [100, 100, 100],
            "compile=default": [200, 150, 250],
            "checkpointing=full": [70, 75, 65],
            "compile=default checkpointing=full": [168, 135, 195],
            "attention=sdpa-flash": [110, 100, 120],
            "attention=sdpa-flash compile=default": [180, 200, 290],
        }
    )
    one, other = sorted(combinations_of(block), key=lambda each: "sdpa" in each.arm.name)
    assert one.over is not None
    assert (one.over.value, one.over.low, one.over.high) == pytest.approx((1.2, 1.2, 1.2))
    assert one.arm.speedup is not None
    assert one.arm.speedup.low is not None
    assert one.arm.speedup.low < one.product, "its own interval alone would say nothing"
    assert other.over is not None
    assert other.over.low is not None
    assert other.over.high is not None
    assert other.over.low < 1 < other.over.high


def test_combinations_are_counted_by_what_they_gave_against_the_product_of_their_parts() -> None:
    """Each part alone is twice as fast, so that their product is 4x: one gives 3x, one 5x, one 4x, one ran once."""
    parts = ("compile=default", "attention=sdpa-flash", "checkpointing=full", "optimizer=fused")
    alone = {part: [200, 200, 200] for part in parts}
    first, *others = parts
    together = {f"{first} {other}": speeds for other, speeds in zip(others, (
        [300, 300, 300], [500, 500, 500], [380, 420, 400]), strict=True)}  # fmt: skip
    once = {f"{others[0]} {others[1]}": [400, None, None]}
    sketches = Sketches()
    block = rounds_of({"baseline": [100, 100, 100], **alone, **together, **once})
    part = interactions_part([block], sketches.gallery())
    assert part.sentences[0].startswith(
        "Study own: of 4 combinations, 1 gave less than the product of the parts, 1 more, 1 the same within the "
        "interval, 1 not run together in two rounds;"
    )
    drawn = {
        frozenset(dot.name.split()): (dot.value, product) for dot, product in sketches.data("interactions")["pairs"]
    }
    assert drawn[frozenset((first, others[0]))] == pytest.approx((3.0, 4.0))
    assert drawn[frozenset((first, others[1]))] == pytest.approx((5.0, 4.0))


def test_a_stack_less_one_says_what_each_piece_is_worth_to_the_whole(tmp_path: Path) -> None:
    block = rounds_of(LESS_ONE)
    (whole,) = wholes_of([block])
    assert [piece.name for piece in whole.pieces] == ["attention=sdpa-flash", "compile=default", "optimizer=fused"]
    assert {piece.name: piece.worth.value for piece in whole.pieces if piece.worth} == pytest.approx(
        {"compile=default": 2.0, "attention=sdpa-flash": 0.75, "optimizer=fused": 0.998}, abs=0.001
    )
    assert all(piece.memory == pytest.approx(1.0, abs=0.002) for piece in whole.pieces)
    part = leave_one_out_part([block], gallery_in(tmp_path))
    assert part.sentences == (
        "Study own: attention=sdpa-flash compile=default optimizer=fused is 2.99x [2.33, 3.84] as fast as the "
        "baseline; faster with compile=default (2.00x [2.00, 2.00]); slower with attention=sdpa-flash "
        "(0.75x [0.75, 0.75]); undecided: optimizer=fused.",
    )
    (table,) = part.tables
    assert table.rows[0][:3] == ("nothing", "–", "2.99x [2.33, 3.84]")
    assert table.rows[2][:3] == ("− compile=default", "2.00x [2.00, 2.00]", "1.49x [1.17, 1.92]")


def test_what_could_not_be_left_out_is_said_with_its_reason(tmp_path: Path) -> None:
    speeds = {**LESS_ONE, "compile=default optimizer=fused": [FAILED, FAILED, FAILED]}
    part = leave_one_out_part([rounds_of(speeds)], gallery_in(tmp_path))
    assert part.sentences[0].endswith(
        "; no figure without attention=sdpa-flash (oom in 3 of 3 rounds: CUDA out of memory)."
    )
    speeds["compile=default attention=sdpa-flash optimizer=fused"] = [FAILED, FAILED, FAILED]
    part = leave_one_out_part([rounds_of(speeds)], gallery_in(tmp_path))
    assert part.sentences == (
        "Study own: attention=sdpa-flash compile=default optimizer=fused has no speed as a whole "
        "(oom in 3 of 3 rounds: CUDA out of memory).",
    )
    assert part.pictures == ()


def test_two_devices_have_a_figure_and_a_name_each(tmp_path: Path) -> None:
    speeds = LESS_ONE | {
        "compile=default": [200, 210, 190],
        "attention=sdpa-flash": [110, 120, 100],
        "optimizer=fused": [101, 102, 103],
    }
    blocks = [rounds_of(speeds, "H100"), rounds_of(speeds, "H200")]
    for part in (leave_one_out_part, interactions_part):
        made = part(blocks, gallery_in(tmp_path))
        assert len({picture.file for picture in made.pictures}) == 2
        for place, device in enumerate(("H100", "H200")):
            assert made.sentences[place].startswith(f"Study own on {device}: ")
            assert f"study own on {device}" in made.tables[place].caption


def test_a_piece_of_a_stack_that_shares_no_round_with_the_one_before_keeps_its_row(tmp_path: Path) -> None:
    block = rounds_of(
        {
            "baseline": [100, 100, 100, 100],
            "compile=default": [200, 210, None, None],
            "compile=default attention=sdpa-flash": [None, None, 150, 150],
            "compile=default attention=sdpa-flash optimizer=fused": [150, 150, 150, 150],
        }
    )
    part = stack_part([block], gallery_in(tmp_path))
    (table,) = part.tables
    assert [row[1].split()[0] for row in table.rows] == ["2.05x", "–", "1.000x"]
    first, second, *_ = part.sentences
    assert first.startswith("Study own: all together 1.50x [1.50, 1.50] the speed of the baseline;")
    assert second.startswith(
        "Study own: its pieces have 2 to 4 rounds. What is reached with a piece is of all its rounds"
    )


def test_a_stack_whose_last_piece_failed_is_not_called_all_together(tmp_path: Path) -> None:
    block = rounds_of(
        {
            "baseline": [100, 100, 100],
            "compile=default": [200, 210, 190],
            "compile=default attention=sdpa-flash": [220, 230, 210],
            "compile=default attention=sdpa-flash optimizer=fused": [FAILED, FAILED, FAILED],
        }
    )
    first, second, _ = stack_part([block], gallery_in(tmp_path)).sentences
    assert first.startswith("Study own: as far as it has a speed, up to attention=sdpa-flash, 2.20x [")
    assert second == (
        "Study own: compile=default attention=sdpa-flash optimizer=fused has no speed "
        "(oom in 3 of 3 rounds: CUDA out of memory)."
    ) or second.endswith("has no speed (oom in 3 of 3 rounds: CUDA out of memory).")


def test_pairs_that_failed_are_said_of_gains_and_of_combinations(tmp_path: Path) -> None:
    block = rounds_of(
        {
            "baseline": [100, 100, 100, 100],
            "compile=default": [200, 210, 190, 200],
            "attention=sdpa-flash": [110, 110, FAILED, 110],
            "compile=default attention=sdpa-flash": [220, FAILED, 209, 220],
        }
    )
    (found,) = combinations_of(block)
    assert found.over is not None
    assert (found.over.value, found.over.rounds, found.over.dropped) == (pytest.approx(1.0), 2, 2)
    (table,) = interactions_part([block], gallery_in(tmp_path)).tables
    assert table.rows[0][3] == "1.000x [1.000, 1.000] (2 pairs dropped)"


def test_a_stack_of_which_one_piece_was_never_left_out_is_not_shown_less_one() -> None:
    block = rounds_of({name: speeds for name, speeds in LESS_ONE.items() if "optimizer" in name or name == "baseline"})
    assert wholes_of([block]) == []


def test_the_sentences_hold_what_was_computed(html: str) -> None:
    text = re.sub(r"<[^>]+>", "", html)
    assert "Study factorial: of 1 combination, 1 gave less than the product of the parts, 0 more, 0 the same" in text
    assert re.search(r"Study stack: all together 1\.\d\dx \[.*?\] the speed of the baseline; most comes from "
                     r"precision=amp-bf16 \(1\.\d\dx \[.*?\]\), least from checkpointing=full \(0\.", text)  # fmt: skip
    assert re.search(r"(\d+) of \1 predictions lie between 1 and 1 times", text) is None, "all are 10% too low"
    assert "the lowest is 0.90x, the highest 0.90x" in text


def test_memory_and_phases_are_drawn_at_the_point_that_a_claim_names(markdown: str) -> None:
    """At the first point of ZeRO's sweep there is one device, where it shards nothing."""
    for said in ("Peak memory in study attention at sequence_length=1024, largest of all trials.",
                 "Phases of a step in study attention at sequence_length=1024."):  # fmt: skip
        assert said in markdown.replace("\\_", "_")


def test_studies_are_drawn_in_the_order_of_the_claims_each_at_the_point_of_its_first() -> None:
    cell = CellShape(settings=CELL)
    shapes = [StudyShape(name=name, cells=[cell], sweep=("batch_size", (2, 8, 4))) for name in ("b", "nobody's", "a")]
    claims = make_claims(
        make_claim(id="one", study="a", at={"batch_size": 4}), make_claim(id="two", study="a", at={"batch_size": 2}),
        make_claim(id="three", study="b"),
    )  # fmt: skip
    found = _drawn(compare(make_records(shapes, rounds=3)).blocks, claims)
    assert [(block.study, block.sweep["batch_size"]) for block in found] == [("a", 4), ("b", 8), ("nobody's", 8)]


def test_without_a_named_point_the_largest_is_drawn() -> None:
    shape = StudyShape(name="zero", cells=[], sweep=("devices", (2, 16, 4)))
    (drawn,) = _drawn(compare(make_records([shape], rounds=3)).blocks, samples.claims())
    assert drawn.sweep == {"devices": 16}


def test_memory_of_several_devices_says_whose_it_is(tmp_path: Path) -> None:
    shape = StudyShape(name="zero", cells=[], sweep=("devices", (4,)))
    (block,) = compare(make_records([shape], rounds=3)).blocks
    gallery = gallery_in(tmp_path)
    picture = memory_picture(block, gallery)
    assert picture is not None
    assert picture.caption == "Peak memory in study zero at devices=4, largest of all trials, on the fullest device."


def test_cells_stand_in_reading_order() -> None:
    shape = StudyShape(
        name="batch",
        cells=[CellShape(settings={"batch_size": size}) for size in (128, 64, 4)],
        sweep=("sequence_length", (2048, 512)),
    )
    blocks = compare(make_records([shape], rounds=3)).blocks
    ordered = in_reading_order(Judgement(verdicts=(), blocks=blocks, excluded=())).blocks
    assert [block.sweep["sequence_length"] for block in ordered] == [512, 2048]
    names = ["baseline", "control", "batch_size=4", "batch_size=64", "batch_size=128"]
    assert [[arm.name for arm in block.arms] for block in ordered] == [names, names]


def test_small_changes_stand_before_large_ones_whatever_they_are_called() -> None:
    whole = {"attention": "sdpa-flash", "compile": "default", "precision": "bf16"}
    cells = [whole, {"attention": "sdpa-flash", "compile": "default"}, {"precision": "bf16"}]
    blocks = compare(make_records([StudyShape(name="one", cells=[CellShape(settings=each) for each in cells])])).blocks
    (block,) = in_reading_order(Judgement(verdicts=(), blocks=blocks, excluded=())).blocks
    changed = [{axis for axis in whole if axis in arm.name} for arm in block.arms]
    assert changed == [set(), set(), {"precision"}, {"attention", "compile"}, set(whole)]


def test_sweep_points_of_one_device_stand_together() -> None:
    shape = StudyShape(name="batch", cells=[], sweep=("sequence_length", (2048, 512)))
    other = replace(H100, devices=(replace(H100.devices[0], name="A GPU"),))
    records = [*make_records([shape]), *make_records([shape], environment=other, fingerprint="b" * 16)]
    blocks = in_reading_order(Judgement(verdicts=(), blocks=compare(records).blocks, excluded=())).blocks
    assert [(block.device, block.sweep["sequence_length"]) for block in blocks] == [
        ("A GPU", 512), ("A GPU", 2048), ("NVIDIA H100 80GB HBM3", 512), ("NVIDIA H100 80GB HBM3", 2048),
    ]  # fmt: skip


def test_natural_order_of_numbers_in_names() -> None:
    assert sorted(["b=128", "b=64", "a", "b=8.5"], key=natural) == ["a", "b=8.5", "b=64", "b=128"]
