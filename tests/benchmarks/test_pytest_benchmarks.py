"""`pytest benchmarks` on real trials: what pytest-benchmark and its own tools read is what the store holds."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median, stdev
from typing import Any

import pytest

import harness
from harness.results.record import Record
from harness.results.store import Store
from tests.benchmarks.outside import ROOT, installed
from tests.commands import claimbench

pytestmark = pytest.mark.train

#: A cell that runs, one that cannot without a GPU, and one whose technique is not in effect. `run_pytest` asks for
#: three rounds in place of these four.
MATRIX = """\
schema: 1
rounds: 4
workloads:
  small: {model: tiny, data: synthetic, sequence_length: 32, batch_size: 2}
baseline: {stream: cached}
studies:
  optimizer:
    workload: small
    axes: {optimizer: [for-loop]}
    warmup_steps: 2
    steps: 4
  attention:
    workload: small
    sweep: {sequence_length: [16]}
    axes: {attention: [flash2]}
    warmup_steps: 2
    steps: 4
  nothing:
    workload: small
    axes: {does_nothing: ["on"]}
    warmup_steps: 2
    steps: 4
"""


@dataclass(frozen=True, kw_only=True)
class Session:
    """One `pytest benchmarks` that has ended."""

    folder: Path
    code: int
    output: str
    environment: dict[str, str]

    @property
    def file(self) -> Path:
        return self.folder / "out.json"

    @property
    def store(self) -> Path:
        return self.folder / "kept.sqlite"

    def content(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.file.read_text(encoding="utf-8"))
        return found

    def benchmark(self, test_id: str) -> dict[str, Any]:
        tests = {each["name"]: each for each in self.content()["benchmarks"]}
        found: dict[str, Any] = tests[f"test_cell[{test_id}]"]
        return found

    def trials(self, study: str, arm: str) -> list[Record]:
        records = harness.read([self.store])
        return [record for record in records if (record.study, record.arm) == (study, arm)]


def run_pytest(folder: Path, environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable, "-m", "pytest", "benchmarks/test_matrix.py", "--matrix", str(folder / "matrix.yaml"),
        "--store", str(folder / "kept.sqlite"), "--device", "cpu", "--rounds", "3", "-p", "no:cacheprovider",
        *arguments,
    ]  # fmt: skip
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    folder = tmp_path_factory.mktemp("session")
    environment = installed(folder)
    (folder / "matrix.yaml").write_text(MATRIX, encoding="utf-8")
    done = run_pytest(folder, environment, "-v", "--benchmark-json", str(folder / "out.json"))
    return Session(folder=folder, code=done.returncode, output=done.stdout + done.stderr, environment=environment)


def test_every_cell_is_a_test_grouped_by_study_and_named_by_cell(session: Session) -> None:
    groups = {each["name"]: each["group"] for each in session.content()["benchmarks"]}
    assert groups == {
        "test_cell[optimizer/baseline]": "optimizer",
        "test_cell[optimizer/control]": "optimizer",
        "test_cell[optimizer/optimizer=for-loop]": "optimizer",
        "test_cell[nothing/baseline]": "nothing",
        "test_cell[nothing/control]": "nothing",
    }
    assert session.benchmark("optimizer/baseline")["params"] == {"study": "optimizer", "point": "", "cell": "baseline"}


@pytest.mark.parametrize("arm", ["baseline", "control", "optimizer=for-loop"])
def test_statistics_are_those_of_the_stored_steps(session: Session, arm: str) -> None:
    steps = [seconds for trial in session.trials("optimizer", arm) for seconds in trial.step_seconds]
    stats = session.benchmark(f"optimizer/{arm}")["stats"]
    assert len(steps) == 3 * 4
    assert stats["data"] == steps
    assert (stats["median"], stats["min"], stats["max"]) == (median(steps), min(steps), max(steps))
    assert (stats["rounds"], stats["iterations"]) == (len(steps), 1)
    assert stats["stddev"] == pytest.approx(stdev(steps))
    assert stats["ops"] == pytest.approx(len(steps) / sum(steps))


def test_what_is_known_beside_the_steps_stands_in_extra_info(session: Session) -> None:
    trials = session.trials("optimizer", "optimizer=for-loop")
    info = session.benchmark("optimizer/optimizer=for-loop")["extra_info"]
    assert [each["tokens_per_second"] for each in info["trials"]] == [each.tokens_per_second for each in trials]
    assert info["peak_host_bytes"] == max(each.peak_host_bytes or 0 for each in trials)
    assert (info["peak_allocated_bytes"], info["peak_reserved_bytes"], info["mfu"]) == (None, None, None)
    assert (info["outcome"], info["role"], info["parity"]) == ({"ok": 3}, "cell", "holds")
    assert info["evidence"]
    assert len(info["noise_floor"]["observed"]) == 3


def test_machine_info_holds_our_environment(session: Session) -> None:
    record = session.trials("optimizer", "baseline")[0]
    found = session.content()["machine_info"]["claimbench"]
    assert found["packages"] == record.environment["packages"]
    assert found["devices"] == []
    assert "git_commit" not in found, "the commit is no property of the machine: a comparison would warn of each"


def test_an_unsupported_cell_is_skipped_with_its_reason(session: Session) -> None:
    lines = [line for line in session.output.splitlines() if line.startswith("SKIPPED")]
    assert sum("flash-attn" in line or "flash2" in line for line in lines) >= 1
    assert all("unsupported: " in line for line in lines)
    assert not session.trials("attention", "attention=flash2"), "nothing of a block without a cell is run"


def test_an_inert_cell_fails_with_its_reason(session: Session) -> None:
    assert session.code == 1
    assert "1 failed, 5 passed" in session.output
    assert "inert in 3 of 3 rounds: " in session.output
    assert "expected something, saw nothing" in session.output


def test_the_plan_is_carried_out_as_ever_once(session: Session) -> None:
    records = harness.read([session.store])
    assert sorted((r.round, r.position) for r in records if r.study == "optimizer") == [
        (number, position) for number in (1, 2, 3) for position in (0, 1, 2)
    ]
    with Store.open(session.store) as store:
        (run,) = store.runs()
    assert run.finished_at is not None
    assert run.arguments[0] == "pytest"


def test_trials_that_the_store_has_are_replayed_and_not_run_again(session: Session) -> None:
    before = len(harness.read([session.store]))
    again = session.folder / "again.json"
    done = run_pytest(session.folder, session.environment, "--study", "optimizer", "--benchmark-json", str(again))
    assert done.returncode == 0, done.stdout
    assert "9 trials planned, 9 of them in the store already" in done.stdout
    assert len(harness.read([session.store])) == before
    tests = {each["name"]: each["stats"]["data"] for each in json.loads(again.read_text())["benchmarks"]}
    assert tests["test_cell[optimizer/control]"] == session.benchmark("optimizer/control")["stats"]["data"]


def test_the_number_of_rounds_can_be_given(session: Session) -> None:
    assert "rounds: 4" in (session.folder / "matrix.yaml").read_text(encoding="utf-8")
    assert [record.round for record in session.trials("optimizer", "control")] == [1, 2, 3]


def test_pytest_benchmark_reads_the_file(session: Session) -> None:
    command = [sys.executable, "-m", "pytest_benchmark", "compare", str(session.file), "--sort", "name", "--csv"]
    done = subprocess.run(
        [*command, str(session.folder / "table")], cwd=session.folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "optimizer/optimizer=for-loop" in done.stdout
    (table,) = session.folder.glob("table*.csv")
    assert len(table.read_text().splitlines()) == 1 + 5


def test_pytest_benchmark_draws_the_file(session: Session) -> None:
    command = [sys.executable, "-m", "pytest_benchmark", "compare", str(session.file), "--histogram"]
    done = subprocess.run(
        [*command, str(session.folder / "drawn")], cwd=session.folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    drawn = {path.name: path.read_text(encoding="utf-8") for path in session.folder.glob("drawn*.svg")}
    assert len(drawn) == 2, "one a group"
    assert any("optimizer=for-loop" in picture for picture in drawn.values())


def test_the_file_and_the_store_are_the_same_run_to_compare(session: Session) -> None:
    said = claimbench("compare", session.store, session.file, cwd=session.folder)
    assert said.code == 0, said.err
    assert "optimizer · optimizer=for-loop" in said.out
    assert "package" not in said.out


def test_a_matrix_that_is_wrong_is_one_sentence(session: Session) -> None:
    wrong = session.folder / "wrong.yaml"
    wrong.write_text(MATRIX.replace("optimizer: [for-loop]", "optimizer: [forlop]"), encoding="utf-8")
    done = run_pytest(session.folder, session.environment, "--matrix", str(wrong))
    assert done.returncode != 0
    assert "did you mean 'for-loop'?" in done.stdout
    assert "Traceback" not in done.stdout
