"""The command line, as a user meets it: what it prints, how it ends, and what it never does."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
import typer

import harness
from harness import Device as Device_
from harness import options, running
from harness.environment import Device, Environment
from harness.errors import InputError
from harness.experiment.study import Plan
from harness.results.events import OnEvent, RunPlanned, Summary
from harness.results.load import read_records
from harness.results.record import Record
from harness.results.store import Store
from harness.trial.outcome import Outcome
from tests.commands import ROOT, SMALL_MATRIX, claimbench, started
from tests.judgement.claiming import ONE_CLAIM
from tests.records import CPU, make_records

COMMANDS = ("run", "plan", "status", "report", "claims", "judge", "doctor", "export", "import")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with a small matrix."""
    (tmp_path / "matrix.yaml").write_text(SMALL_MATRIX, encoding="utf-8")
    return tmp_path


@pytest.fixture
def stored(folder: Path) -> Path:
    """The same with trials in `results.sqlite`."""
    with Store.open(folder / "results.sqlite", writable=True) as store:
        store.add_all(precision_records())
    return folder


def precision_records() -> list[Record]:
    """One study of an H100: enough for every command, and a report of it takes no time."""
    return [record for record in make_records() if record.study == "precision"]


def test_help_names_every_command(tmp_path: Path) -> None:
    said = claimbench("--help", cwd=tmp_path)

    assert said.code == 0
    assert [command for command in COMMANDS if f"\n  {command} " not in said.out] == []


@pytest.mark.parametrize("command", ["run", "plan", "check"])
def test_help_of_a_command_brings_nothing_that_only_running_it_needs(command: str) -> None:
    """pydantic and rich take longer than all the rest of the answer."""
    code = (
        "import atexit, sys; from harness.cli import main\n"
        "atexit.register(lambda: print({'pydantic', 'rich'} & set(sys.modules), file=sys.stderr)); main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, command, "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(f"Usage: claimbench {command}")
    assert done.stderr == "set()\n"


def test_without_a_command_it_shows_its_help(tmp_path: Path) -> None:
    said = claimbench(cwd=tmp_path)
    assert said.code == 2
    assert said.err.startswith("Usage: claimbench [OPTIONS] COMMAND")


def test_a_misspelt_command_is_answered_with_the_nearest_one(tmp_path: Path) -> None:
    said = claimbench("paln", cwd=tmp_path)

    assert said.code == 2
    assert "Did you mean 'plan'?" in said.err


def test_an_error_in_the_matrix_is_one_line_with_its_place_and_nothing_is_launched(folder: Path) -> None:
    wrong = SMALL_MATRIX.replace("{optimizer: [for-loop]}", "{optimiser: [for-loop]}")
    (folder / "matrix.yaml").write_text(wrong, encoding="utf-8")

    said = claimbench("run", cwd=folder)

    assert said.code == 2
    assert said.err == "error: matrix.yaml:8:12: unknown axis 'optimiser'; did you mean 'optimizer'?\n"
    assert said.out == ""
    assert [path.name for path in folder.iterdir()] == ["matrix.yaml"]


@pytest.mark.parametrize(
    ("name", "content", "said_so"),
    [
        (
            "m.yaml",
            SMALL_MATRIX,
            "it is no file of trials: a matrix goes to --matrix, claims go to --claims; give",
        ),
        ("out.csv", "schema,study\n1,precision\n", "it is no file of trials: what was exported so cannot be read back"),
        ("b.json", '{\n  "benchmarks": 1\n}\n', "pytest-benchmark's JSON"),
        ("notes.txt", "[1,\n2]\n", "it is no file of trials; give a store, JSON lines, or a folder of them"),
        ("trials.jsonl", "garbage\n", "not JSON at column 1; remove the line or export again"),
        ("none.jsonl", "", "it is empty: there is no trial in it"),
        ("blank.jsonl", "\n\n", "it is empty: there is no trial in it"),
        ("none.sqlite", "", "it is empty: there is no trial in it"),
    ],
)
@pytest.mark.parametrize("command", ["report", "judge", "import", "compare"])
def test_a_file_that_holds_no_trials(folder: Path, name: str, content: str, said_so: str, command: str) -> None:
    """It was told to remove the first line of its matrix, or made an empty report."""
    (folder / name).write_text(content, encoding="utf-8")
    said = claimbench(command, name, *([name] if command == "compare" else []), cwd=folder)
    assert said.code == 2
    assert said.err.startswith(f"error: {name}:")
    assert said_so in said.err
    assert sorted(path.name for path in folder.iterdir()) == sorted(["matrix.yaml", name])


@pytest.mark.parametrize("command", [["report"], ["judge"], ["export", "--to", "x.jsonl"], ["import"], ["compare"]])
def test_a_store_without_a_trial_is_an_error(stored: Path, command: list[str]) -> None:
    """It gave an empty report, an empty file that could not be read back, and a comparison with an unknown device."""
    with Store.open(stored / "none.sqlite", writable=True):
        pass
    (stored / "none.sqlite.lock").unlink(missing_ok=True)
    before = sorted(path.name for path in stored.iterdir())
    said = claimbench(command[0], "none.sqlite", *command[1:],
                      *(["results.sqlite"] if command == ["compare"] else []), cwd=stored)  # fmt: skip
    assert said.code == 2
    assert said.err == (
        "error: none.sqlite: it is empty: there is no trial in it; give another, or make some with `claimbench run`\n"
    )
    assert sorted(path.name for path in stored.iterdir()) == before


def test_a_comparison_needs_a_cell_on_both_sides(stored: Path) -> None:
    """All that is there was run again, or saved benchmarks are none."""
    with Store.open(stored / "old.sqlite", writable=True) as store:
        store.add_all(replace(each, superseded=True) for each in precision_records())
    (stored / "none.json").write_text('{"benchmarks": [], "machine_info": {}, "version": "5.0"}', encoding="utf-8")
    for name in ("old.sqlite", "none.json"):
        said = claimbench("compare", name, "results.sqlite", cwd=stored)
        assert said.code == 2
        assert said.err.startswith(f"error: {name}: there is no cell in it to compare; ")


def test_a_run_that_stored_nothing_has_no_report(folder: Path) -> None:
    said = claimbench("run", "--device", "cpu", "--time-budget", "0.001s", cwd=folder)
    assert said.code == 0
    assert "no report: results.sqlite holds no trial yet" in said.out
    assert said.out.startswith("smoke scale: sizes are cut down and ")
    assert not (folder / "reports").exists()


def test_judging_without_claims_is_an_error(stored: Path) -> None:
    """It was an empty table."""
    for more in ([], ["--json"]):
        said = claimbench("judge", *more, cwd=stored)
        assert (said.code, said.out) == (2, "")
        assert said.err == "error: there is no claims.yaml here, so there is nothing to judge; give --claims FILE\n"


@pytest.mark.parametrize(
    ("store", "said_so"),
    [
        ("matrix.yaml", "matrix.yaml: it is not a claimbench store (no SQLite file at all)"),
        ("other.sqlite", "other.sqlite: it is a database of another program"),
        (".", "it is a folder; give the path of a file"),
        ("typo/deep/x.sqlite", "typo/deep/x.sqlite: there is no folder typo; check the path, or make it"),
    ],
)
def test_a_store_that_is_none_is_left_alone(stored: Path, store: str, said_so: str) -> None:
    """`--store matrix.yaml` left a matrix.yaml.lock behind, and a misspelt path a tree of folders."""
    with sqlite3.connect(stored / "other.sqlite") as database:
        database.execute("CREATE TABLE things (x)")
    database.close()
    content = {path: path.read_bytes() for path in stored.rglob("*") if path.is_file()}

    said = claimbench("import", "results.sqlite", "--store", store, cwd=stored)

    assert said.code == 2
    assert said_so in said.err
    assert {path: path.read_bytes() for path in stored.rglob("*") if path.is_file()} == content
    assert not (stored / "typo").exists()


def test_a_new_folder_is_made_for_a_store_and_an_export_but_none_above_it(stored: Path) -> None:
    assert claimbench("import", "results.sqlite", "--store", "new/x.sqlite", cwd=stored).code == 0
    assert claimbench("export", "--to", "tables/x.csv", cwd=stored).code == 0
    for to in ("nothing/here/x.csv", "nothing/here/x.jsonl"):
        said = claimbench("export", "--to", to, cwd=stored)
        assert said.code == 2
        assert said.err == f"error: {to}: there is no folder nothing; check the path, or make it\n"
    assert not (stored / "nothing").exists()


def test_reports_on_stores_of_one_name_do_not_replace_each_other(stored: Path) -> None:
    """The second took the folder of the first without a word."""
    (stored / "elsewhere").mkdir()
    shutil.copy(stored / "results.sqlite", stored / "elsewhere/results.sqlite")
    (stored / "reports/taken").mkdir(parents=True)
    shutil.copy(stored / "results.sqlite", stored / "taken.sqlite")

    def written(*paths: str) -> str:
        return claimbench("report", "--figures", "0", *paths, cwd=stored).out

    assert written("results.sqlite") == "report: reports/results/report.html\n"
    assert written("elsewhere/results.sqlite") == "report: reports/results-2/report.html\n"
    assert written("results.sqlite", "elsewhere") == "report: reports/results-3/report.html\n"
    assert written("taken.sqlite") == "report: reports/taken-2/report.html\n"
    # the same again stays where it is
    assert written() == "report: reports/results/report.html\n"
    assert written("./elsewhere/results.sqlite") == "report: reports/results-2/report.html\n"


MISSPELT = """\
schema: 1
documents: {N: {title: Notes}}
claims:
  slow-loop:
    statement: Loops are slower.
    sources: [{document: N, quote: slower}]
    form: at-most
    metric: spedup
    bound: 1
    study: optimizer
    cell: {optimizer: for-loop}
"""


@pytest.mark.parametrize(
    ("content", "arguments", "said_so"),
    [
        (None, ["--claims", "nope.yaml"], "nope.yaml: there is no such file"),
        (None, ["--claims", "nope.yaml", "--no-report"], "nope.yaml: there is no such file"),
        (MISSPELT, [], "claims.yaml:8:13: unknown metric 'spedup'; did you mean 'speedup'?"),
        ("schema: 1\nclaims: [", [], "claims.yaml:2:"),
    ],
)
def test_an_error_in_the_claims_is_said_before_anything_is_launched(
    folder: Path, content: str | None, arguments: list[str], said_so: str
) -> None:
    """It was said after the last trial: hours of a GPU, and no report."""
    if content is not None:
        (folder / "claims.yaml").write_text(content, encoding="utf-8")
    before = sorted(folder.iterdir())

    said = claimbench("run", "--study", "optimizer", "--device", "cpu", *arguments, cwd=folder)

    assert said.code == 2
    assert said.err.startswith(f"error: {said_so}")
    assert said.out == ""
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    ("command", "option"),
    [
        *(("run", option) for option in ("--partition=gpu", "--account=lab", "--gpus-per-node=8", "--nodes=1",
                                         "--time=1h", "--slurm=qos=high")),
        *(("plan", option) for option in ("--partition=gpu", "--gpus-per-node=8", "--nodes=4", "--time=02:00:00",
                                          "--store=x.sqlite")),
    ],
)  # fmt: skip
def test_an_option_of_slurm_without_slurm_launches_nothing(folder: Path, command: str, option: str) -> None:
    """`run --partition gpu --nodes 4` ran on the login node. The default given as such is no less of a mistake."""
    said = claimbench(command, "--study", "optimizer", "--device", "cpu", option, cwd=folder)

    name = option.partition("=")[0]
    assert said.code == 2
    assert said.err == f"error: {name} counts only with --launcher slurm; add that, or leave it out\n"
    assert [path.name for path in folder.iterdir()] == ["matrix.yaml"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "--partition=gpu", "--nodes=4"], "--partition, --nodes count only with --launcher slurm"),
        (["run", "--no-sharing-control"], "--no-sharing-control is for rounds side by side: add --gpus"),
        (["plan", "--launcher=slurm", "--trials"], "--trials lists the trials of one machine"),
    ],
)
def test_other_options_that_would_be_passed_over(folder: Path, arguments: list[str], words: str) -> None:
    said = claimbench(*arguments, cwd=folder)
    assert said.code == 2
    assert words in said.err
    assert [path.name for path in folder.iterdir()] == ["matrix.yaml"]


@pytest.mark.parametrize("name", ["a%j.sqlite", "100%.sqlite", "a\\b.sqlite"])
@pytest.mark.parametrize("command", [["run"], ["run", "--dry-run"], ["plan"]])
def test_a_store_whose_path_slurm_would_read_as_a_pattern_sends_nothing(
    folder: Path, command: list[str], name: str
) -> None:
    """`%j` became the job's number: logs and pickles lay in another folder, open to others."""
    said = claimbench(*command, "--launcher", "slurm", "--store", name, "--device", "cpu", cwd=folder)
    assert said.code == 2
    assert said.err.startswith(
        f"error: the path of the store, {folder / name}, holds {'%' if '%' in name else chr(92)!r}"
    )
    assert said.err.count("\n") == 1
    assert [path.name for path in folder.iterdir()] == ["matrix.yaml"]


@pytest.mark.parametrize("command", [["status"], ["judge"], ["report"], ["export", "--to", "x.jsonl"]])
def test_a_store_that_is_not_there_is_one_line(folder: Path, command: list[str]) -> None:
    said = claimbench(*command, cwd=folder)

    assert said.code == 2
    assert said.err.startswith("error: results.sqlite: ")
    assert said.err.count("\n") == 1
    assert "claimbench run" in said.err


def test_a_gpu_that_is_asked_for_and_not_there_is_one_line(folder: Path) -> None:
    import harness

    if harness.machine().has_gpu:
        assert claimbench("plan", "--device", "cuda", cwd=folder).code == 0
        return
    said = claimbench("run", "--device", "cuda", cwd=folder)
    assert said.code == 2
    assert said.err.startswith("error: no GPU was found")


@pytest.mark.parametrize(("text", "expected"), [("90s", 90), ("25m", 1500), ("2h", 7200), ("1.5h", 5400)])
def test_lengths_of_time(text: str, expected: float) -> None:
    assert options.seconds(text) == expected


@pytest.mark.parametrize("text", ["", "x", "m", "-5m", "0", "0s", "nan", "inf", "infs", "nanm", "5d", "25", "0.5"])
def test_what_is_no_length_of_time(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="25m"):
        options.seconds(text)


def test_only_crash_and_timeout_can_be_retried(folder: Path) -> None:
    assert options.outcomes("crash,timeout") == "crash,timeout"
    said = claimbench("run", "--retry", "oom", cwd=folder)
    assert said.code == 2
    assert "only crash and timeout can" in said.err


def test_plan_shows_every_cell_and_why_one_cannot_run(folder: Path) -> None:
    said = claimbench("plan", "--device", "cpu", cwd=folder)

    # two studies of baseline, control and one cell: 6 cells in 3 rounds. Without a GPU there is no flash2, and its
    # baseline has nothing to be compared with
    assert said.out.startswith("matrix.yaml: 2 studies, 2 blocks, 6 cells, 18 trials at scale smoke; 9 of them cannot")
    assert "optimizer · small (tiny) · sequence_length=32 batch_size=2\n  baseline            3 trials\n" in said.out
    assert "  optimizer=for-loop  3 trials\n" in said.out
    assert "  attention=flash2  unsupported: attention=flash2 needs a GPU" in said.out


def test_report_draws_as_many_figures_as_asked_for(stored: Path) -> None:
    assert claimbench("report", "--figures", "0", cwd=stored).code == 0
    written = stored / "reports/results"
    assert (written / "tables/cells.csv").exists()
    assert list((written / "figures").iterdir()) == []

    assert claimbench("report", "--figures", "1", cwd=stored).code == 0
    assert sorted(file.suffix for file in (written / "figures").iterdir()) == [".png", ".svg"]


@pytest.mark.parametrize("option", [(), ("--trials",)])
def test_a_plan_says_what_the_smoke_scale_does(folder: Path, option: tuple[str, ...]) -> None:
    small = claimbench("plan", *option, "--scale", "smoke", cwd=folder).out.splitlines()
    whole = claimbench("plan", *option, "--scale", "full", cwd=folder).out.splitlines()
    assert small[1] == (
        "smoke scale: sizes are cut down and every model but a training step of your own is 'tiny', to show that the "
        "cells run; --scale full runs the matrix itself"
    )
    assert not any("smoke" in line for line in whole)


def test_plan_shows_every_trial_in_its_order(folder: Path) -> None:
    said = claimbench("plan", "--trials", "--study", "optimizer", cwd=folder)

    rounds = [part.splitlines() for part in said.out.split("\n\n")[1:]]
    assert [lines[0].rpartition(" · ")[0] for lines in rounds] == [f"optimizer · round {n}" for n in (1, 2, 3)]
    arms = [[line.split()[1] for line in lines[1:]] for lines in rounds]
    assert all(sorted(order) == ["baseline", "control", "optimizer=for-loop"] for order in arms)
    assert len({tuple(order) for order in arms}) == 3, "the order is another in each round"


def test_rounds_and_study_narrow_a_plan(folder: Path) -> None:
    said = claimbench("plan", "--study", "optimizer", "--rounds", "5", cwd=folder)
    assert said.out.startswith("matrix.yaml: 1 study, 1 block, 3 cells, 15 trials")


def test_status_counts_rounds_outcomes_and_what_is_missing(stored: Path) -> None:
    said = claimbench("status", "--device", "cpu", cwd=stored)

    assert "2 studies, 2 blocks" in said.out
    lines = {line.split()[0]: line for line in said.out.splitlines() if line.strip()}
    # synthetic trials are of other studies than this matrix: all that it plans is missing, 3 rounds of 3 arms
    assert "for this machine as it is now (cpu): missing is what a run here adds" in said.out
    assert "not in matrix.yaml at scale smoke" in said.out
    assert lines["optimizer"].split()[-1] == "9"
    assert "5" in lines["precision"]
    assert "ok" in lines["precision"]


def test_judge_gives_a_list_of_objects(stored: Path) -> None:
    said = claimbench("judge", "--json", "--claims", ROOT / "claims.yaml", cwd=stored)

    verdicts = json.loads(said.out)
    needed = {"claim", "document", "verdict", "helped", "claimed", "measured", "interval", "rounds", "reason"}
    assert len(verdicts) > 40
    assert [each["claim"] for each in verdicts if needed - set(each)] == []


def test_judge_prints_a_table_and_the_count_of_each_verdict(stored: Path) -> None:
    said = claimbench("judge", "--claims", ROOT / "claims.yaml", cwd=stored)
    assert "amp-speed" in said.out
    assert " not run" in said.out.splitlines()[-1]


def test_claims_are_held_against_the_matrix_that_is_named_before_their_own(folder: Path) -> None:
    (folder / "claims.yaml").write_text(ONE_CLAIM.replace("matrix: matrix", "matrix: mine"), encoding="utf-8")
    text = SMALL_MATRIX.replace("  optimizer:", "  precision:").replace("optimizer: [for-loop]", "precision: [bf16]")
    (folder / "mine.yaml").write_text(text, encoding="utf-8")
    assert claimbench("claims", cwd=folder).code == 0
    said = claimbench("claims", "--matrix", "matrix.yaml", cwd=folder)
    assert said.code == 2
    assert "unknown study 'precision'" in said.err


def test_claims_are_listed_and_held_against_the_matrix(folder: Path) -> None:
    (folder / "claims.yaml").write_text(
        "schema: 1\ndocuments: {N: {title: Notes}}\nclaims:\n  slow-loop:\n    statement: Loops are slower.\n"
        "    sources: [{document: N, quote: slower}]\n    form: at-most\n    metric: speedup\n    bound: 1\n"
        "    study: optimiser\n    cell: {optimizer: for-loop}\n",
        encoding="utf-8",
    )

    said = claimbench("claims", cwd=folder)

    assert said.code == 2
    assert said.err == "error: claims.yaml:10:12: unknown study 'optimiser'; did you mean 'optimizer'?\n"


def test_export_and_import_lose_and_double_nothing(stored: Path) -> None:
    assert claimbench("export", "--to", "trials.jsonl.gz", cwd=stored).code == 0

    first = claimbench("import", "trials.jsonl.gz", "--store", "other.sqlite", cwd=stored)
    again = claimbench("import", "trials.jsonl.gz", "--store", "other.sqlite", cwd=stored)

    count = len(precision_records())
    assert first.out == f"{count} trials added to other.sqlite, 0 were there already\n"
    assert again.out == f"0 trials added to other.sqlite, {count} were there already\n"
    ours, theirs = read_records(stored / "results.sqlite"), read_records(stored / "other.sqlite")
    assert sorted(map(repr, ours)) == sorted(map(repr, theirs))


def test_report_says_where_it_is(stored: Path) -> None:
    said = claimbench("report", cwd=stored)

    assert said.out == "report: reports/results/report.html\n"
    assert (stored / "reports/results/report.html").stat().st_size > 0


def test_doctor_has_a_row_for_every_setting(tmp_path: Path) -> None:
    from harness.techniques.registry import axis_table

    said = claimbench("doctor", "--device", "cpu", cwd=tmp_path)

    rows = [line.split() for line in said.out.splitlines() if line.strip()]
    shown = {(row[0], row[1]) for row in rows if len(row) > 1}
    wanted = {(axis.name, str(setting).lower()) for axis in axis_table().values() for setting in axis.settings}
    assert wanted - shown == set()


def test_nothing_but_trials_imports_torch(stored: Path) -> None:
    """The parent answers at once because it never loads what only trials need."""
    code = f"""
import sys
import harness
assert not [name for name in sys.modules if name.partition(".")[0] in ("pandas", "rich", "pydantic", "numpy")]
from pathlib import Path
planned = harness.plan("matrix.yaml")
harness.judge(["results.sqlite"], {str(ROOT / "claims.yaml")!r})
harness.render(["results.sqlite"], "out", claims={str(ROOT / "claims.yaml")!r})
assert "torch" not in sys.modules and "transformers" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], cwd=stored, check=True)


@dataclass
class Handed:
    """What `claimbench run` hands to the public API; the store has trials, and nothing is launched."""

    summary: Summary
    plan: Plan | None = None
    how: dict[str, Any] = field(default_factory=dict)
    render: dict[str, Any] = field(default_factory=dict)

    def run(self, plan: Plan, store: Path, **how: Any) -> Summary:
        self.plan, self.how = plan, how
        return self.summary

    def write(self, store: Path, **how: Any) -> Path:
        self.render = how
        return Path("report.html")


@pytest.fixture
def handed(stored: Path, monkeypatch: pytest.MonkeyPatch) -> Handed:
    found = Handed(Summary(planned=9, stored_before=9))
    monkeypatch.setattr(harness, "run", found.run)
    monkeypatch.setattr(harness, "render", found.write)
    return found


def test_the_options_of_a_run_reach_it(stored: Path, handed: Handed) -> None:
    text = SMALL_MATRIX.replace("rounds: 3", "rounds: 3\nretries: 2", 1)
    (stored / "matrix.yaml").write_text(text, encoding="utf-8")
    base = ("run", "--device", "cpu", "--study", "optimizer")
    assert claimbench(*base, cwd=stored).code == 0
    plain = handed.how["options"]
    assert (plain.time_budget_seconds, plain.wall_limit_seconds) == (None, None)
    assert (plain.retries, plain.retry) == (2, frozenset()), "as the matrix states"

    said = claimbench(*base, "--time-budget", "25m", "--wall-limit", "90s", "--retries", "0", "--retry",
                      "crash,timeout", "--rounds", "4", "--scale", "full", "--isolation", "spawn",
                      cwd=stored)  # fmt: skip
    assert said.code == 0
    how = handed.how["options"]
    assert (how.time_budget_seconds, how.wall_limit_seconds, how.retries) == (1500, 90, 0)
    assert how.retry == {Outcome.CRASH, Outcome.TIMEOUT}
    assert handed.how["launcher"].isolation == "spawn"
    assert handed.plan is not None
    assert {(trial.block.study, trial.block.rounds) for trial in handed.plan.trials} == {("optimizer", 4)}
    assert handed.plan.scale == "full"


def test_the_report_of_a_run_is_on_the_claims_that_were_named(stored: Path, handed: Handed) -> None:
    (stored / "mine.yaml").write_text(ONE_CLAIM.replace("matrix: matrix.yaml\n", ""), encoding="utf-8")
    assert claimbench("run", "--device", "cpu", "--claims", "mine.yaml", cwd=stored).code == 0
    assert list(handed.render["claims"].claims) == ["faster"]


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({}, 0, ""),
        ({"interrupted": True}, 130, "stopped; what ran is kept in results.sqlite. To go on: claimbench run"),
        ({"rounds_lost": 2}, 2, "rounds that were lost with their Slurm jobs: 2. What ran is kept in results.sqlite;"),
        ({"rounds_lost": 2}, 2, "(--retries 2 sends such rounds again at once)"),
    ],
)
def test_how_a_run_ends(stored: Path, handed: Handed, changes: dict[str, Any], code: int, words: str) -> None:
    handed.summary = replace(handed.summary, **changes)
    said = claimbench("run", "--device", "cpu", "--retries", "1", cwd=stored)
    assert said.code == code
    assert words in said.err
    assert "report: report.html" in said.out


@pytest.mark.parametrize(
    ("option", "uuids"), [("all", ["GPU-a", "GPU-b", "GPU-c"]), ("0,2", ["GPU-a", "GPU-c"]), ("1", ["GPU-b"])]
)
def test_rounds_side_by_side_run_on_the_gpus_that_were_named(
    stored: Path, handed: Handed, monkeypatch: pytest.MonkeyPatch, option: str, uuids: list[str]
) -> None:
    gpus = tuple(Device(index=place, name="H100", uuid=f"GPU-{name}", memory_bytes=80 << 30)
                 for place, name in enumerate("abc"))  # fmt: skip
    monkeypatch.setattr(harness, "machine", lambda device="auto": Environment(devices=gpus, cores=8))
    for control, more in ((True, ()), (False, ("--no-sharing-control",))):
        claimbench("run", "--gpus", option, *more, cwd=stored)
        launcher = handed.how["launcher"]
        assert [device.uuid for device in launcher.environment.devices] == uuids
        assert launcher.control is control


@pytest.mark.parametrize(("gpus", "device", "scale"), [(4, "auto", "full"), (0, "auto", "smoke"), (4, "cpu", "smoke")])
def test_a_plan_for_a_cluster_is_at_full_scale_where_its_nodes_have_gpus(
    folder: Path, gpus: int, device: Device_, scale: str
) -> None:
    where = running._cluster(device=device, isolation="zygote", gpus_per_node=gpus, nodes=1, time="1h")
    assert (where.cluster.gpus_per_node, where.cluster.per_node) == ((0, gpus) if device == "cpu" else (gpus, None))
    planned, _ = running._plan_for_cluster(
        where, folder / "matrix.yaml", folder / "results.sqlite", study=None, rounds=None, scale="auto"
    )
    assert planned.scale == scale
    assert not [trial for trial in planned.trials if trial.refusal], "of a node of which nothing is known all can run"


def test_the_options_of_status_and_compare_count(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "18 trials at scale smoke" in claimbench("status", "--device", "cpu", cwd=stored).out
    said = claimbench("status", "--device", "cpu", "--rounds", "4", "--scale", "full", cwd=stored)
    assert "24 trials at scale full" in said.out
    missing = claimbench("status", "--matrix", "gone.yaml", cwd=stored)
    assert missing.code == 2
    assert "gone.yaml" in missing.err
    asked: list[str] = []

    def machine(device: str = "auto") -> Environment:
        asked.append(device)
        return CPU

    monkeypatch.setattr(harness, "machine", machine)
    assert claimbench("status", "--device", "cpu", cwd=stored).code == 0
    assert asked == ["cpu"]
    same = claimbench("compare", "results.sqlite", "results.sqlite", "--threshold", "0", cwd=stored)
    assert "(threshold 0%)" in same.out


def test_the_options_of_a_check_reach_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[tuple[str, ...], dict[str, Any]]] = []

    def check(*words: str, **how: Any) -> NoReturn:
        given.append((words, how))
        raise InputError("enough")

    monkeypatch.setattr(harness, "check", check)
    said = claimbench("check", "lora=8 >= 2x", "--workload", "tiny", "--budget", "5m", "--sweep", "batch_size=2,4",
                      "--rounds", "4", "--wall-limit", "90s", "--device", "cpu", "--store", "own.sqlite",
                      cwd=folder)  # fmt: skip
    assert (said.code, said.err) == (2, "error: enough\n")
    ((words, how),) = given
    assert words == ("lora=8 >= 2x", "tiny")
    wanted = {"budget_seconds": 300, "sweep": "batch_size=2,4", "rounds": 4, "wall_limit_seconds": 90, "device": "cpu",
              "store": Path("own.sqlite")}  # fmt: skip
    assert {name: how[name] for name in wanted} == wanted
    claimbench("check", "lora=8 >= 2x", "--workload", "tiny", cwd=folder)
    assert given[1][1]["budget_seconds"] == 600


@pytest.mark.train
def test_run_fills_the_store_writes_the_report_and_a_second_run_starts_no_trial(folder: Path, one_zygote: None) -> None:
    first = claimbench("run", "--study", "optimizer", "--device", "cpu", cwd=folder)

    assert first.code == 0, first.err
    assert "[9/9] optimizer" in first.out
    assert "about" in first.out
    assert "min left" in first.out or "s left" in first.out
    assert first.out.endswith("report: reports/results/report.html\n")
    records = read_records(folder / "results.sqlite")
    assert [record.outcome for record in records] == [Outcome.OK] * 9
    assert sorted({record.round for record in records}) == [1, 2, 3]

    second = claimbench("run", "--study", "optimizer", "--device", "cpu", "--no-report", cwd=folder)

    assert "9 in the store already; this run: nothing to do" in second.out
    assert read_records(folder / "results.sqlite") == records


@pytest.mark.train
def test_a_configuration_of_ones_own_with_ones_own_text_runs_at_the_smoke_scale(folder: Path, one_zygote: None) -> None:
    shape = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    (folder / "config.json").write_text(json.dumps(shape), encoding="utf-8")
    (folder / "text.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 200, encoding="utf-8")
    text = SMALL_MATRIX[: SMALL_MATRIX.index("  attention:")]
    # the whole path: the zygote that is lent was started in another folder
    text = text.replace("tiny, data: synthetic", f"config.json, data: {folder / 'text.txt'}")
    (folder / "matrix.yaml").write_text(text, encoding="utf-8")
    ran = claimbench("run", "--no-report", "--device", "cpu", cwd=folder)
    assert ran.code == 0, ran.err
    assert "this run: 9 ok" in ran.out


@pytest.mark.train
def test_ctrl_c_ends_after_the_trial_that_runs_and_says_how_to_go_on(folder: Path, one_zygote: None) -> None:
    command = ("run", "--study", "optimizer", "--device", "cpu", "--no-report")
    with started(*command, cwd=folder) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("[1/9]"):
                break
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=120)

    assert process.returncode == 130, errors
    assert "stopping after the trial that is running" in rest
    assert errors.endswith(
        "stopped; what ran is kept in results.sqlite. "
        "To go on: claimbench run --study optimizer --device cpu --no-report\n"
    )
    assert 1 <= len(read_records(folder / "results.sqlite")) <= 3

    went_on = claimbench(*command, cwd=folder)

    assert went_on.code == 0
    judged = [record for record in read_records(folder / "results.sqlite") if not record.superseded]
    assert sorted((record.round, record.arm) for record in judged if record.outcome is Outcome.OK) == [
        (number, arm) for number in (1, 2, 3) for arm in ("baseline", "control", "optimizer=for-loop")
    ]


@pytest.mark.train
@pytest.mark.parametrize("command", [
    ("run", "--study", "optimizer"),
    ("check", "checkpointing=full vs off >= 10% slower", "--workload", "tiny"),
])  # fmt: skip
def test_what_is_stopped_before_its_first_trial_has_no_report_and_no_error(
    folder: Path, one_zygote: None, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    @contextmanager
    def stopping(_: object) -> Iterator[OnEvent]:
        """Ctrl-C as soon as the run says what it will do."""
        yield lambda event: os.kill(os.getpid(), signal.SIGINT) if isinstance(event, RunPlanned) else None

    monkeypatch.setattr("harness.report.progress.progress", stopping)
    said = claimbench(*command, "--device", "cpu", cwd=folder)
    assert said.code == 130
    assert "report: none: no trial ended" in said.out or "no report: results.sqlite holds no trial yet" in said.out
    assert "error" not in said.err
    assert not (folder / "reports").exists()
