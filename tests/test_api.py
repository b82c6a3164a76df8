"""The Python API: one path or name needs no list around it, and what the command line refuses is refused here too."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import harness
from harness.cli import app
from harness.environment import Environment
from harness.errors import EnvironmentProblem, InputError, MatrixError, RecordsError
from harness.experiment.study import Plan
from harness.results.collect import Options
from harness.results.launchers import Launcher, SeveralGpus, ThisMachine
from harness.results.lines import write_lines
from harness.results.store import Store
from harness.trial import caller
from harness.trial.nvml import Reading
from tests.commands import SMALL_MATRIX
from tests.judgement.claiming import make_claim, make_claims, study
from tests.records import CPU, make_records
from tests.training import gpus

RECORDS = make_records([study()], rounds=3)
CLAIMS = make_claims(make_claim())


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with trials and a matrix; the folder above it has a file that is no record."""
    folder = tmp_path / "runs"
    folder.mkdir()
    write_lines(RECORDS, folder / "t.jsonl")
    (folder / "matrix.yaml").write_text(SMALL_MATRIX, encoding="utf-8")
    (tmp_path / "wrong.jsonl").write_text("no record\n", encoding="utf-8")
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize("path", ["t.jsonl", "./t.jsonl", "../runs/t.jsonl", Path("t.jsonl"), ["t.jsonl"]])
def test_one_path_is_read_as_a_path_and_not_by_its_letters(stored: Path, path: Any) -> None:
    assert len(harness.read(path)) == len(RECORDS)
    assert harness.judge(path, CLAIMS).verdicts == harness.judge(RECORDS, CLAIMS).verdicts
    page = harness.render(path, claims=CLAIMS, figures=0)
    assert page == Path("reports/t/report.html")
    assert (page.parent / "sources.txt").read_text(encoding="utf-8") == "t.jsonl\n"


def test_what_stands_at_two_paths_is_one_trial_superseded_if_it_is_so_at_one(stored: Path) -> None:
    write_lines([replace(RECORDS[0], superseded=True), *RECORDS[1:3]], stored / "part.jsonl")
    for paths in (
        ["t.jsonl", "part.jsonl"],
        ["part.jsonl", "t.jsonl", "t.jsonl"],
        ["t.jsonl", *RECORDS[:2], "part.jsonl"],
    ):
        found = harness.read(paths)
        assert len(found) == len({each.identity for each in found}) == len(RECORDS)
        assert [each.identity for each in found if each.superseded] == [RECORDS[0].identity]
    assert len(harness.judge(["t.jsonl", "t.jsonl"], CLAIMS).verdicts) == len(harness.judge(RECORDS, CLAIMS).verdicts)


def test_one_source_of_a_report_is_one_line(stored: Path) -> None:
    page = harness.render(RECORDS, claims=CLAIMS, figures=0, name="mine", sources="t.jsonl")
    assert (page.parent / "sources.txt").read_text(encoding="utf-8") == "t.jsonl\n"


def test_the_name_of_one_study_is_one_name(stored: Path) -> None:
    here = harness.machine("cpu")
    planned = harness.plan(studies="optimizer", environment=here)
    assert {trial.block.study for trial in planned.trials} == {"optimizer"}
    assert planned == harness.plan(studies=["optimizer"], environment=here)
    with pytest.raises(MatrixError, match="unknown study 'optimiser'; did you mean 'optimizer'"):
        harness.plan(studies="optimiser", environment=here)


@pytest.mark.parametrize("call", [harness.read, harness.judge, harness.render])
def test_no_trials_at_all_are_an_error(stored: Path, call: Callable[[list[str]], object]) -> None:
    with pytest.raises(RecordsError, match="no trials were given; give a store, JSON lines, or a folder of them"):
        call([])
    assert not (stored / "reports").exists()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: harness.machine("gpu"), "device: there is no 'gpu'; use auto, cuda or cpu"),  # type: ignore[arg-type]
        (lambda: harness.plan(scale="tiny"), "scale: there is no 'tiny'; use auto, full or smoke"),  # type: ignore[arg-type]
        (lambda: _run(isolation="fork"), "isolation: there is no 'fork'; use zygote or spawn"),
        (lambda: _run(options=Options(retries=-1)), "retries: -1 is out of range; use 0 or more"),
        (lambda: _run(options=Options(wall_limit_seconds=0)),
         "wall_limit_seconds: 0 is out of range; use seconds above 0"),
        (lambda: _run(options=Options(time_budget_seconds=float("nan"))),
         "time_budget_seconds: nan is out of range; use seconds above 0"),
        (lambda: harness.check("compile=default vs off >= 1.3x", "tiny", rounds=1),
         "rounds: 1 is out of range; use 3 or more"),
        (lambda: harness.check("compile=default vs off >= 1.3x", "tiny", budget_seconds=-5),
         "budget_seconds: -5 is out of range; use seconds above 0"),
        (lambda: harness.render("t.jsonl", figures=-1), "figures: -1 is out of range; use 0 or more"),
    ],
)  # fmt: skip
def test_what_the_command_line_refuses_is_refused(stored: Path, call: Callable[[], object], message: str) -> None:
    before = sorted(stored.iterdir())
    with pytest.raises(InputError) as error:
        call()
    assert str(error.value) == message
    assert sorted(stored.iterdir()) == before


class _Torch:
    """A torch that has used the GPU, or has not."""

    def __init__(self, *, used: bool) -> None:
        self.cuda = self
        self._used = used

    def is_initialized(self) -> bool:
        return self._used


class _Meter:
    """A device with one process on it."""

    power_limit_watts = None

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def read(self) -> Reading:
        return Reading(at=0.0, processes={self._pid: 1 << 30})


@pytest.mark.parametrize(
    "launcher", [lambda two: ThisMachine(environment=two), lambda two: SeveralGpus(environment=two)]
)
@pytest.mark.parametrize(("used", "seen"), [(True, False), (False, True)])
def test_a_process_that_has_used_the_gpu_is_told_so_before_any_trial(
    stored: Path, monkeypatch: pytest.MonkeyPatch, launcher: Callable[[Environment], Launcher], used: bool, seen: bool
) -> None:
    _put_on_device(monkeypatch, used=used, seen=seen)
    two = gpus(2)
    with pytest.raises(EnvironmentProblem, match=f"this process .pid {os.getpid()}. has used the GPU") as error:
        harness.run(harness.plan(environment=two), "new.sqlite", launcher=launcher(two))
    assert "restart it (in a notebook: its kernel)" in str(error.value)
    monkeypatch.setattr(harness, "machine", lambda device="auto": two)
    with pytest.raises(EnvironmentProblem, match="has used the GPU"):
        harness.check("compile=default vs off >= 1.3x", "tiny", store="check.sqlite")


@pytest.mark.parametrize("launcher", [ThisMachine, SeveralGpus])
def test_without_torch_nothing_is_launched_and_what_to_install_is_said(
    stored: Path, monkeypatch: pytest.MonkeyPatch, launcher: Callable[..., Launcher]
) -> None:
    """Every trial crashed with "The process ended with status 1", was stored, and was not run again."""
    monkeypatch.setattr(caller, "_installed", lambda name: name != "torch")
    here = gpus(2)
    with pytest.raises(EnvironmentProblem, match="torch is not installed, without which nothing trains; pip install"):
        harness.run(harness.plan(environment=here), "new.sqlite", launcher=launcher(environment=here))
    with pytest.raises(EnvironmentProblem, match="torch is not installed"):
        harness.check("compile=default vs off >= 1.3x", "tiny", store="check.sqlite", device="cpu")
    with pytest.raises(RecordsError, match="it is empty"):
        harness.read("new.sqlite")
    shown = CliRunner().invoke(app, ["doctor", "--device", "cpu"])
    assert "torch is not installed" in " ".join(shown.output.split())
    assert not re.search(r"\byes\b", shown.output)


@pytest.mark.parametrize(
    ("absent", "words"),
    [
        ((), ""),
        (("transformers",), "transformers is not installed, without which nothing trains; pip install transformers"),
        (
            ("torch", "transformers"),
            "torch and transformers are not installed, without which nothing trains; pip install torch transformers",
        ),
    ],
)
def test_what_is_lacking_is_what_cannot_be_imported(
    monkeypatch: pytest.MonkeyPatch, absent: tuple[str, ...], words: str
) -> None:
    """In a process that has imported none of it yet, as the command line is."""
    for name in ("torch", "transformers"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    find = importlib.util.find_spec
    monkeypatch.setattr(caller, "find_spec", lambda name: None if name in absent else find(name))
    assert caller.lacking() == words


def test_a_process_without_torch_is_looked_for_on_each_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """What uses the GPU need not be torch, and need not be on the first one."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    here, asked = gpus(2), []
    here = replace(here, devices=tuple(replace(each, uuid=f"GPU-{each.index}") for each in here.devices))

    def on(*pids: int) -> None:
        monkeypatch.setattr(caller, "meters", lambda uuids: (asked.append([*uuids]), *map(_Meter, pids))[1:])

    on(os.getppid(), os.getppid())
    caller.keep_off(here)
    on(os.getppid(), os.getpid())
    with pytest.raises(EnvironmentProblem, match="has used the GPU"):
        caller.keep_off(here)
    assert asked == [["GPU-0", "GPU-1"]] * 2


@pytest.mark.parametrize(("count", "used", "seen"), [(1, False, False), (0, True, True)])
def test_another_process_on_the_gpu_and_a_run_on_the_cpu_are_no_matter_of_the_caller(
    monkeypatch: pytest.MonkeyPatch, count: int, used: bool, seen: bool
) -> None:
    _put_on_device(monkeypatch, used=used, seen=seen)
    caller.keep_off(gpus(count))


def _put_on_device(monkeypatch: pytest.MonkeyPatch, *, used: bool, seen: bool) -> None:
    """A torch that has used the GPU or not, and a GPU on which NVML sees this process or its parent."""
    pid = os.getpid() if seen else os.getppid()
    monkeypatch.setitem(sys.modules, "torch", _Torch(used=used))
    monkeypatch.setattr(caller, "meters", lambda uuids: tuple(_Meter(pid) for _ in uuids))


def _run(**how: Any) -> object:
    return harness.run(harness.plan(environment=harness.machine("cpu")), "new.sqlite", **how)


class Idle:
    """A launcher, and a carrier, that runs nothing, and keeps the options that it is given."""

    width = 1

    def __init__(self) -> None:
        self.options: Options | None = None

    def machine(self, store: Path) -> Environment:
        return CPU

    def prepared(self, plan: Plan) -> Plan:
        return plan

    @contextmanager
    def carrier(self, plan: Plan, store: Store, options: Options) -> Iterator[Idle]:
        self.options = options
        yield self

    def leftovers(self) -> tuple[()]:
        return ()

    def carry(self, rounds: object, desk: object) -> None: ...


@pytest.mark.parametrize(("how", "arguments", "retries"), [
    ({}, ("run", "--matrix", "matrix.yaml"), 2),
    ({"arguments": ("run", "--study", "x"), "options": Options(retries=5)}, ("run", "--study", "x"), 5),
])  # fmt: skip
def test_a_run_is_kept_with_its_command_and_its_end_and_tries_again_as_the_matrix_says(
    stored: Path, how: dict[str, Any], arguments: tuple[str, ...], retries: int
) -> None:
    Path("matrix.yaml").write_text(SMALL_MATRIX.replace("rounds: 3", "rounds: 3\nretries: 2", 1), encoding="utf-8")
    launcher = Idle()
    summary = harness.run(harness.plan(environment=CPU), "new.sqlite", launcher=launcher, **how)
    assert (summary.launched, summary.left) == (0, summary.planned)
    assert launcher.options is not None
    assert launcher.options.retries == retries
    with Store.open("new.sqlite") as kept:
        (run,) = kept.runs()
    assert run.arguments == arguments
    assert run.finished_at is not None
    assert run.finished_at >= run.started_at


def test_only_a_folder_that_was_not_named_holds_what_its_report_is_on(stored: Path) -> None:
    named = harness.render("t.jsonl", "named", figures=0).parent
    free = harness.render("t.jsonl", figures=0).parent
    assert not (named / "sources.txt").exists()
    assert (free / "sources.txt").exists()
