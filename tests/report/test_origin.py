"""A report names the matrix that its trials are of, prints its questions, and begins with what was answered."""

from __future__ import annotations

from pathlib import Path

import pytest

import harness
from harness.experiment.matrix import Matrix
from harness.report.origin import UNKNOWN_MATRIX, matrix_in
from harness.report.reproduce import NOT_KNOWN, again
from harness.results.lines import write_lines
from harness.results.store import Store
from tests.commands import claimbench
from tests.judgement.claiming import ONE_CLAIM, make_claim, trials_of
from tests.report.reading import see

ROOT = Path(__file__).parents[2]
DEFAULT = """\
schema: 1
workloads: {here: {model: gpt2-124m, sequence_length: 1024, batch_size: 8}}
studies:
  precision:
    question: What does bf16 give on a large model?
    workload: here
    axes: {precision: [bf16]}
"""
MINE = DEFAULT.replace("gpt2-124m", "tiny").replace("on a large model", "here")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with `matrix.yaml`, and another matrix whose study has the same name."""
    monkeypatch.chdir(tmp_path)
    Path("examples").mkdir()
    for name, text in (("matrix.yaml", DEFAULT), ("examples/mine.yaml", MINE), ("claims.yaml", ONE_CLAIM)):
        Path(name).write_text(text, encoding="utf-8")
    return tmp_path


def stored(path: str, *matrices: str) -> None:
    """A store with a run of each of the matrices."""
    with Store.open(path, writable=True) as store:
        for name in matrices:
            planned: Matrix = harness.read_matrix(name)
            store.begin_run(
                arguments=("run", "--matrix", name), matrix_hash=planned.hash,
                matrix_text=Path(name).read_text(encoding="utf-8"), version="0",
            )  # fmt: skip
            store.add_all(trials_of(planned))


def report(path: str) -> str:
    page = harness.render(path, "out", figures=0)
    assert not see(page.read_text(encoding="utf-8")).wrong
    return (page.parent / "report.md").read_text(encoding="utf-8")


def runs(markdown: str) -> list[str]:
    """The commands under Reproduce."""
    return [line for line in markdown[markdown.index("## Reproduce") :].splitlines() if line.startswith("claimbench r")]


def test_the_matrix_that_ran_is_named_wherever_a_command_stands(folder: Path) -> None:
    stored("r.sqlite", "examples/mine.yaml")
    markdown = report("r.sqlite")

    assert runs(markdown) == [
        "claimbench run --matrix examples/mine.yaml --rounds 5 --study precision", "claimbench report",
    ]  # fmt: skip
    assert "--matrix matrix.yaml" not in markdown
    assert "Give examples/mine.yaml one to see it here." in markdown, "it has no study d1-stack"
    assert "Measure it again:\n\n```\nclaimbench run --study precision\n```" in markdown, "the claim's is matrix.yaml"


def test_a_store_of_two_matrices_names_both(folder: Path) -> None:
    stored("r.sqlite", "examples/mine.yaml", "matrix.yaml")

    assert set(runs(report("r.sqlite"))) == {
        "claimbench run --matrix examples/mine.yaml --rounds 5 --study precision",
        "claimbench run --matrix matrix.yaml --rounds 5 --study precision", "claimbench report",
    }  # fmt: skip


def test_json_lines_are_of_the_matrix_at_hand_that_makes_their_blocks(folder: Path) -> None:
    write_lines(trials_of(harness.read_matrix("matrix.yaml")), Path("t.jsonl"))
    markdown = report("t.jsonl")

    assert runs(markdown)[0] == "claimbench run --matrix matrix.yaml --rounds 5 --study precision"
    assert "What does bf16 give on a large model?" in markdown
    assert markdown.index("## Claims") < markdown.index("## Studies")


def test_json_lines_of_no_matrix_at_hand_say_so(folder: Path) -> None:
    write_lines(trials_of(harness.read_matrix("examples/mine.yaml")), Path("t.jsonl"))
    markdown = report("t.jsonl")

    assert NOT_KNOWN in markdown
    assert runs(markdown)[0] == f"claimbench run --matrix {UNKNOWN_MATRIX} --rounds 5 --study precision"
    assert "What does bf16 give" not in markdown


def test_the_matrix_that_is_named_counts(folder: Path) -> None:
    write_lines(trials_of(harness.read_matrix("examples/mine.yaml")), Path("t.jsonl"))
    assert claimbench("report", "t.jsonl", "--output", "out", "--matrix", "examples/mine.yaml", cwd=folder).code == 0
    text = Path("out/report.md").read_text(encoding="utf-8")
    assert "What does bf16 give here?" in text
    assert "claimbench run --matrix examples/mine.yaml" in text
    wrong = claimbench("report", "t.jsonl", "--matrix", "nowhere.yaml", cwd=folder)
    assert wrong.code == 2
    assert "nowhere.yaml" in wrong.err


def test_a_matrix_that_was_edited_or_removed_since_is_still_the_one_that_ran(folder: Path) -> None:
    stored("r.sqlite", "examples/mine.yaml")
    Path("examples/mine.yaml").unlink()
    markdown = report("r.sqlite")

    assert runs(markdown)[0] == "claimbench run --matrix examples/mine.yaml --rounds 5 --study precision"
    assert "What does bf16 give here?" in markdown


def test_a_question_that_was_written_anew_is_that_of_the_newest_run(folder: Path) -> None:
    stored("r.sqlite", "examples/mine.yaml")
    Path("examples/mine.yaml").write_text(MINE.replace("give here?", "give here now?"), encoding="utf-8")
    assert "What does bf16 give here?" in report("r.sqlite"), "it was not run since"
    with Store.open("r.sqlite", writable=True) as store:
        text = Path("examples/mine.yaml").read_text(encoding="utf-8")
        arguments = ("run", "--matrix", "examples/mine.yaml")
        store.begin_run(arguments=arguments, matrix_hash="0", matrix_text=text, version="0")
    markdown = report("r.sqlite")
    assert "What does bf16 give here now?" in markdown
    assert "What does bf16 give here?" not in markdown


def test_a_study_of_two_matrices_asks_what_the_newest_does(folder: Path) -> None:
    stored("r.sqlite", "matrix.yaml", "examples/mine.yaml")
    markdown = report("r.sqlite")
    assert "What does bf16 give here?" in markdown
    assert "on a large model" not in markdown


def test_where_no_claim_was_judged_the_answers_come_first_under_their_questions(folder: Path) -> None:
    stored("r.sqlite", "examples/mine.yaml")
    markdown = report("r.sqlite")

    first = markdown[: markdown.index("## Speed against memory")]
    assert "### precision\n\nWhat does bf16 give here?\n\n| cell |" in first
    assert "confirmed" not in first
    rest = markdown[len(first) :]
    assert "No claim was judged on these trials: 1 not run." in rest
    assert rest.index("No claim was judged") < rest.index("<details>") < rest.index("### faster: not run")
    html = (folder / "out" / "report.html").read_text(encoding="utf-8")
    assert html.index("What does bf16 give here?") < html.index('id="claims"')
    assert 'class="tiles"' not in html


def test_a_claim_is_measured_again_in_its_own_matrix_or_that_of_its_trials() -> None:
    mine = make_claim()
    mine._matrix = "talks/mine.yaml"
    assert again(mine, []) == "claimbench run --matrix talks/mine.yaml --study precision"
    assert again(make_claim(), []) == "claimbench run --study precision"


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("run", "--matrix", "a.yaml"), "a.yaml"),
        (("run", "--rounds", "3", "--matrix=b.yaml"), "b.yaml"),
        (("run", "--scale", "smoke"), "matrix.yaml"),
        (("pytest", "benchmarks", "--matrix=c.yaml"), "c.yaml"),
        (("pytest", "benchmarks"), "matrix.yaml"),
        (("check", "a vs b", "--workload", "tiny"), ""),
        ((), ""),
    ],
)
def test_the_matrix_of_a_command_line(arguments: tuple[str, ...], name: str) -> None:
    assert matrix_in(arguments) == name
