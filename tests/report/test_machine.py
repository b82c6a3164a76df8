"""The head of a report and its end: which machines, which code, and how to measure it again."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.judgement.judge import judge
from harness.report.machine import describe
from harness.report.reproduce import EXTRAS, again, commands
from harness.results.record import Record
from harness.results.sharing import STUDY as SHARING
from harness.trial.outcome import Outcome
from tests.commands import ROOT
from tests.judgement.claiming import make_claim, study
from tests.records import CPU, StudyShape, make_records
from tests.report import samples

PACKAGES = {"torch": "2.11.0+cu130", "transformers": "5.17.0", "peft": "0.21.0", "numpy": "2.5.2"}


def on(records: Sequence[Record], **environment: Any) -> list[Record]:
    return [replace(each, environment={**each.environment, **environment}) for each in records]


def with_gpus(name: str, *uuids: str) -> list[Record]:
    return on(make_records([study()], rounds=1), devices=[{"name": name, "uuid": each} for each in uuids])


def test_counts_of_one_kind_of_gpu_are_one_machine() -> None:
    records = with_gpus("H200", "a") + with_gpus("H200", "b", "c") + with_gpus("H200", "a", "b", "c", "d")
    machine = describe(records)
    assert machine.title == "H200: 1, 2 and 4 devices"
    assert machine.warning == "", "they are no different machines"
    assert describe([*records, *with_gpus("H200", "e")]).title == "H200: 1, 2 and 4 devices, 5 GPUs in all"


def test_several_gpus_of_one_kind_used_one_at_a_time_are_counted() -> None:
    assert describe(with_gpus("H100", "a")).title == "H100"
    assert describe(with_gpus("H100", "a") + with_gpus("H100", "b")).title == "H100, 2 GPUs in all"
    assert describe(with_gpus("H100", "a", "b")).title == "2 × H100"


def test_different_gpus_are_different_machines() -> None:
    machine = describe(with_gpus("H100", "a") + with_gpus("H200", "b"))
    assert machine.title == "H100; H200"
    assert machine.warning == "Trials of 2 different machines are shown; pairs never mix them."


def test_a_processor_beside_a_gpu_is_a_machine_of_its_own() -> None:
    records = [*make_records([study()], rounds=1, environment=CPU), *with_gpus("H100", "a")]
    machine = describe(records)
    assert set(machine.title.split("; ")) == {"H100", "CPU only: Synthetic CPU, 2 cores"}
    assert machine.warning == "Trials of 2 different machines are shown; pairs never mix them."


@pytest.mark.parametrize(("gpu", "smoke", "begins"), [
    (True, True, "Smoke scale: this run shows that every part works."),
    (False, True, "Smoke scale on a CPU: this run shows that every part works."),
    (False, False, "Run on a CPU: this run shows that every part works."),
])  # fmt: skip
def test_a_single_trial_of_the_smoke_scale_or_none_on_a_gpu_limits_all_that_is_said(
    gpu: bool, smoke: bool, begins: str
) -> None:
    records = make_records([study()], rounds=1) if gpu else make_records([study()], rounds=1, environment=CPU)
    first, *rest = records
    assert describe([*rest, replace(first, scale="smoke" if smoke else "full")]).warning.startswith(begins)


def test_the_head_says_how_many_trials_that_ended_ok_are_judged_invalid(tmp_path: Path) -> None:
    """It counted 1,467 as ok, 6 of which stood below among those that no figure stands on."""
    first, second, *rest = make_records([study()], rounds=4)
    records = [replace(first, mfu=1.2), replace(second, outcome=Outcome.INVALID, reason="a graph compiled"), *rest,
               replace(first, superseded=True)]  # fmt: skip
    count = len(rest) + 1
    judgement, _ = samples.render(records, samples.claims(), tmp_path, figures=0)
    head = f"{count + 2} trials ({count} ok, of which 1 judged invalid; 1 invalid; 1 superseded)"
    assert describe(records, excluded=judgement.excluded).trials == head
    for name in ("report.md", "report.html"):
        assert head in (tmp_path / name).read_text(encoding="utf-8")
    sound = judge(rest, samples.claims())
    assert describe(rest, excluded=sound.excluded).trials == f"{len(rest)} trials ({len(rest)} ok)"
    stored = [second, *rest]
    failed = [replace(second, outcome=Outcome.INVALID), *rest]
    assert describe(stored).trials == f"{len(stored)} trials ({len(stored)} ok)"
    excluded = judge(failed, samples.claims()).excluded
    assert describe(failed, excluded=excluded).trials == f"{len(failed)} trials ({len(rest)} ok, 1 invalid)"


def test_the_head_says_of_how_many_trials_the_code_was_committed(markdown: str, html: str) -> None:
    (first, second, third, *_) = make_records([study()], rounds=1)
    states = [*on([first], git_dirty=False), *on([second, second], git_dirty=True), *on([third], git_dirty=None)]
    said = "code: committed in 1 trial, with uncommitted changes in 2 trials, outside a git working tree in 1 trial"
    assert describe(states).code == said
    assert describe([]).code == ""
    assert re.search(r"Code: .* in [\d,]+ trials\.", markdown)
    assert re.search(r'<span class="wraps">code: [^<]* in [\d,]+ trials</span>', html)


def test_the_extras_are_those_of_the_distribution() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for extra, packages in EXTRAS.items():
        wanted = [re.split(r"[<>=~! ]", each, maxsplit=1)[0] for each in project["optional-dependencies"][extra]]
        assert list(packages) == wanted


def test_the_software_is_that_of_the_trials() -> None:
    records = on(make_records([study()], rounds=1), packages=PACKAGES)
    assert commands(records)[:-2] == ("pip install '.[train]' torch==2.11.0 transformers==5.17.0 peft==0.21.0",)
    more = on(records, packages={**PACKAGES, "deepspeed": "0.19.8", "flash-attn": "2.8.3", "tensorboard": "2.21.0"})
    plain, tools, built, *_ = commands(more)
    assert plain.startswith("pip install '.[train,export]' torch==2.11.0")
    assert plain.endswith("tensorboard==2.21.0")
    assert tools.startswith('pip install "setuptools<82"')
    assert built == "DS_BUILD_OPS=0 pip install --no-build-isolation deepspeed==0.19.8 flash-attn==2.8.3"


def test_other_versions_than_those_of_most_trials_are_said() -> None:
    most = on(make_records([study()], rounds=2), packages=PACKAGES)
    few = on(make_records([study()], rounds=1), packages={**PACKAGES, "transformers": "5.24.0"})
    lines = commands([*few, *most])
    assert "transformers==5.17.0" in lines[0]
    assert lines[1] == "# other trials had transformers 5.24.0"


def test_the_studies_and_their_rounds_are_those_of_the_trials() -> None:
    one, two, three = (StudyShape(name=name, cells=()) for name in ("one", "my own", "three"))
    records = make_records([one, three], rounds=5) + make_records([two], rounds=3)
    others = [replace(each, study=name) for each in records[:2] for name in (SHARING, "check-bf16-vs-fp32-123456")]
    runs = [line for line in commands([*others, *records]) if line.startswith("claimbench run")]
    assert runs == [
        "claimbench run --matrix matrix.yaml --rounds 5 --study one --study three",
        "claimbench run --matrix matrix.yaml --rounds 3 --study 'my own'",
    ]
    (smoke,) = [line for line in commands(make_records([one], rounds=3, scale="smoke")) if " run " in line]
    assert smoke == "claimbench run --matrix matrix.yaml --scale smoke --rounds 3 --study one"
    mixed = [*make_records([one], rounds=3, scale="smoke"), *make_records([one], rounds=2)]
    (whole,) = [line for line in commands(mixed) if " run " in line]
    assert whole == "claimbench run --matrix matrix.yaml --rounds 3 --study one", "the most rounds, not the last one's"
    assert "claimbench run --matrix matrix.yaml" in commands([])
    checked = [replace(each, study="check-bf16-vs-fp32-123456") for each in records]
    assert not [line for line in commands(checked) if line.startswith("claimbench")], (
        "its sentence is not in the trials"
    )


def test_one_commit_is_checked_out_and_changes_on_top_are_said() -> None:
    records = on(make_records([study()], rounds=1), git_commit="abc", git_dirty=False)
    assert commands(records)[0] == "git checkout abc"
    dirty = [*records[:1], *on(records[1:], git_dirty=True)]
    assert commands(dirty)[0] == "git checkout abc  # 2 trials had changes on top that were not committed"
    assert not commands([*records, *on(records, git_commit="def")])[0].startswith("git")


@pytest.mark.parametrize(
    ("fields", "command"),
    [
        ({}, "claimbench run --study precision"),
        ({"form": "order", "range": None,
          "order": [{"cell": {"a": 1}}, {"cell": {"b": 2}, "study": "zero"}, {"cell": {"c": 3}, "study": "zero"}]},
         "claimbench run --study precision --study zero"),
        ({"study": "check-bf16-123456", "check": "precision=bf16 >= 1.5x"},
         "claimbench check 'precision=bf16 >= 1.5x' --workload my.py:build --rounds 5 --store again.sqlite"),
    ],
)  # fmt: skip
def test_a_claim_names_the_one_command_that_measures_it_again(fields: dict[str, Any], command: str) -> None:
    records = [replace(each, study="check-bf16-123456", model="my.py:build") for each in make_records([study()])]
    assert again(make_claim(**fields), records) == command


def test_what_was_measured_in_the_smoke_scale_or_at_several_points_is_measured_so_again() -> None:
    smoke = make_records([study()], scale="smoke")
    assert again(make_claim(), smoke) == "claimbench run --scale smoke --study precision"
    claim = make_claim(study="check-bf16-123456", check="precision=bf16 >= 1.5x")
    swept = [
        replace(each, study=claim.study, model="tiny") for each in make_records([study(sweep=("batch_size", (8, 4)))])
    ]
    assert again(claim, swept).endswith("--workload tiny --sweep batch_size=8,4 --rounds 5 --store again.sqlite")


def test_every_page_of_a_claim_ends_with_its_command(html: str, markdown: str) -> None:
    for name in ("precision", "attention", "absent"):
        assert f"<pre>claimbench run --study {name}</pre>" in html
        assert f"Measure it again:\n\n```\nclaimbench run --study {name}\n```" in markdown
