"""Input of somebody who means harm: names that would be paths or commands, and what the code never does with a file."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import harness
from harness.report.exports import export
from harness.results.lines import write_lines
from harness.results.record import Record
from tests.commands import ROOT, claimbench
from tests.records import make_records

#: Calls that would run what stands in a file or in a text, by how the code spells them.
FORBIDDEN_CALLS = frozenset({
    "eval", "exec", "compile", "__import__", "os.system", "os.popen", "os.execl", "os.execlp", "os.execvp",
    "subprocess.getoutput", "subprocess.getstatusoutput", "pickle.load", "pickle.loads", "pickle.Unpickler",
    "marshal.load", "marshal.loads", "shelve.open", "joblib.load", "dill.load", "cloudpickle.load", "pd.read_pickle",
    "yaml.load", "yaml.unsafe_load", "torch.hub.load", "importlib.import_module", "runpy.run_path",
})  # fmt: skip
#: (file, call) that may, and why.
ALLOWED = {
    ("harness/trial/preload.py", "importlib.import_module"): "what a zygote imports: names of a table in that file",
    (
        "harness/trial/kinds/__init__.py",
        "importlib.import_module",
    ): "a kind's module: names of a table in that file",
}
#: Keyword → values with which a call would run code, or a shell.
FORBIDDEN_KEYWORDS = {"shell": True, "trust_remote_code": True, "allow_pickle": True, "weights_only": False}

HOSTILE = "../../$(touch pwned);`touch pwned`|<b>&'\"\n\x1b[2J"
MODULES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "harness").rglob("*.py"))


def calls(module: str) -> Iterator[tuple[str, ast.Call]]:
    """Every call in a module, with its function as it is written."""
    for node in ast.walk(ast.parse((ROOT / module).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


@pytest.mark.parametrize("module", MODULES)
def test_nothing_runs_what_stands_in_a_file(module: str) -> None:
    for name, call in calls(module):
        where = f"{module}:{call.lineno}: {name}"
        assert name not in FORBIDDEN_CALLS or (module, name) in ALLOWED, where
        keywords = {each.arg: ast.unparse(each.value) for each in call.keywords}
        for keyword, value in FORBIDDEN_KEYWORDS.items():
            assert keywords.get(keyword) != str(value), where
        if name == "torch.load":
            assert keywords.get("weights_only") == "True", where
        if name.startswith("subprocess.") and call.args:
            assert not isinstance(call.args[0], ast.Constant | ast.JoinedStr), f"{where}: a list of words, no line"


def test_the_exceptions_are_still_needed() -> None:
    used = {(module, name) for module in MODULES for name, _ in calls(module)}
    assert ALLOWED.keys() <= used


@pytest.fixture
def hostile() -> list[Record]:
    """Records whose every name is hostile, as an imported file may have them."""
    return [
        replace(record, study=f"{HOSTILE} {record.study}", workload=HOSTILE, model=HOSTILE, data=HOSTILE,
                sweep={HOSTILE: HOSTILE}, block=HOSTILE, cell_key=HOSTILE, reason=HOSTILE,
                fingerprint=f"{HOSTILE}{record.fingerprint}",
                arm=record.arm if record.baseline else f"{HOSTILE} {record.arm}")
        for record in make_records(rounds=3)
    ]  # fmt: skip


def below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_names_never_become_paths_or_commands(hostile: list[Record], tmp_path: Path) -> None:
    work = tmp_path / "deep" / "er" / "place"
    work.mkdir(parents=True)
    write_lines(hostile, work / "hostile.jsonl")
    for command in (
        ("import", "hostile.jsonl"), ("status",), ("report",), ("export", "--to", "again.jsonl"),
        ("judge", "--claims", ROOT / "claims.yaml"),
    ):  # fmt: skip
        said = claimbench(*command, cwd=work)
        assert said.code == 0, said.err
        assert "Traceback" not in said.err
        assert "\x1b[2J" not in said.out + said.err, "a terminal would obey it"
    outside = {name for name in below(tmp_path) if not name.startswith("deep/er/place/")}
    assert outside == set()
    names = below(work)
    assert any(name.startswith("reports/") for name in names)
    assert all(name.isascii() and not set(name) & set("$;`|<>&'\"\n ") for name in names)
    assert not any("pwned" in Path(name).name and Path(name).suffix == "" for name in names)


def test_names_of_dashboard_runs_stay_below_their_folder(hostile: list[Record], tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    folder = tmp_path / "deep" / "runs"
    assert export(hostile, "tensorboard", folder) > 0
    assert all(name.startswith("deep/runs/") for name in below(tmp_path))


def test_a_report_of_two_studies_that_differ_by_a_strange_letter_has_both(tmp_path: Path) -> None:
    records = [
        replace(record, study=study, block=f"{record.block}{study}")
        for record in make_records(rounds=3) if record.study == "precision" for study in ("训练", "推理")
    ]  # fmt: skip
    page = Path(harness.render(records, tmp_path / "report")).parent
    text = (page / "report.html").read_text(encoding="utf-8")
    assert "训练" in text
    assert "推理" in text
    ids = [each.split('"')[0] for each in text.split(' id="')[1:]]
    assert len(ids) == len(set(ids)), sorted(each for each in ids if ids.count(each) > 1)
