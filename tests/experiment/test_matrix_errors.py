"""Everything that can be wrong with a matrix: one line each, with file, line, column and the nearest valid word."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.experiment.conftest import HEAD

Problems = Callable[[str], list[str]]

STUDY = "studies:\n  a:\n    workload: small\n"

CASES = {
    "unknown axis": (
        HEAD + STUDY + "    axes: {atention: [flash2]}\n",
        ["matrix.yaml:9:12: unknown axis 'atention'; did you mean 'attention'?"],
    ),
    "misspelt value": (
        HEAD + STUDY + "    axes:\n      attention: [flsh2]\n",
        [
            "matrix.yaml:10:19: attention: 'flsh2' is not a setting (sdpa, eager, sdpa-flash, sdpa-efficient, "
            "sdpa-cudnn, sdpa-math, flash2); did you mean 'flash2'?"
        ],
    ),
    "a number where a word belongs": (
        HEAD + STUDY + "    axes: {precision: 16}\n",
        ["matrix.yaml:9:23: precision: 16 is not a setting (fp32, tf32, amp-bf16, amp-fp16, bf16, ds-bf16)"],
    ),
    "a truth value as Python writes it": (
        HEAD + STUDY + "    axes: {pin_memory: 'True'}\n",
        ["matrix.yaml:9:24: pin_memory: 'True' is not a setting (false, true); did you mean 'true'?"],
    ),
    "a word where a truth value belongs": (
        HEAD + STUDY + "    axes: {pin_memory: maybe}\n",
        ["matrix.yaml:9:24: pin_memory: 'maybe' is not a setting (false, true)"],
    ),
    "a truth value where a word belongs": (
        HEAD + STUDY + "    axes: {precision: true}\n",
        ["matrix.yaml:9:23: precision: true is not a setting (fp32, tf32, amp-bf16, amp-fp16, bf16, ds-bf16)"],
    ),
    "text where a number belongs": (
        HEAD + STUDY + "    axes: {batch_size: ['8']}\n",
        ["matrix.yaml:9:25: batch_size: '8' is a text; write 8, without quotes"],
    ),
    "a number in quotes that is one of the words too": (
        HEAD + STUDY + "    axes: {zero: ['1']}\n",
        ["matrix.yaml:9:19: zero: '1' is a text; write 1, without quotes"],
    ),
    "a number in quotes that would be out of range": (
        HEAD + STUDY + "    axes: {workers: ['9000']}\n",
        ["matrix.yaml:9:22: workers: '9000' is not a setting (an integer from 0 to 256)"],
    ),
    "a switch in quotes": (
        HEAD + STUDY + "    axes: {pin_memory: ['true']}\n",
        ["matrix.yaml:9:25: pin_memory: 'true' is a text; write true, without quotes"],
    ),
    "a number out of range": (
        HEAD + STUDY + "    axes: {batch_size: [0]}\n",
        ["matrix.yaml:9:25: batch_size: 0 is out of range (an integer from 1 to 1048576)"],
    ),
    "a fraction where a whole number belongs": (
        HEAD + STUDY + "    axes: {batch_size: 8.5}\n",
        ["matrix.yaml:9:24: batch_size: 8.5 must be a whole number"],
    ),
    "a setting without a value": (
        HEAD + STUDY + "    baseline: {checkpointing: }\n    axes: {compile: default}\n",
        ["matrix.yaml:9:16: checkpointing: must be one setting (off, full, reentrant), not nothing"],
    ),
    "a mapping for a setting": (
        HEAD + STUDY + "    axes: {attention: {flash2: true}}\n",
        [
            "matrix.yaml:9:23: attention: must be one setting (sdpa, eager, sdpa-flash, sdpa-efficient, sdpa-cudnn, "
            "sdpa-math, flash2), not a mapping"
        ],
    ),
    "wrong type of a field": (
        HEAD + STUDY + "    axes: {attention: flash2}\n    steps: many\n    smoke: 1\n",
        [
            "matrix.yaml:10:12: steps: must be a whole number, not 'many'",
            "matrix.yaml:11:12: smoke: must be true or false, not 1",
        ],
    ),
    "unknown key of a study": (
        HEAD + STUDY + "    axis: {attention: flash2}\n",
        ["matrix.yaml:9:5: unknown key 'axis'; did you mean 'axes'?"],
    ),
    "unknown key at the top": (
        "round: 5\n" + HEAD + STUDY + "    axes: {attention: flash2}\n",
        ["matrix.yaml:1:1: unknown key 'round'; did you mean 'rounds'?"],
    ),
    "duplicate key": (
        HEAD + STUDY + "    workload: small\n    axes: {attention: flash2}\n",
        ["matrix.yaml:9:5: duplicate key 'workload' (first on line 8); one of the two must go"],
    ),
    "empty study": (
        HEAD + STUDY,
        ["matrix.yaml:7:3: study 'a' compares nothing; give it axes or combinations"],
    ),
    "a study of nothing": (
        HEAD + "studies:\n  a:\n",
        ["matrix.yaml:7:3: a: must be a mapping (`key: value` lines), not nothing"],
    ),
    "a list without settings": (
        HEAD + STUDY + "    axes: {attention: []}\n",
        ["matrix.yaml:9:23: attention: the list is empty; name a setting"],
    ),
    "one round": (
        HEAD.replace("rounds: 3", "rounds: 1") + STUDY + "    axes: {attention: flash2}\n",
        ["matrix.yaml:2:9: rounds: 1 is out of range; use 3 or more"],
    ),
    "one round in a study": (
        HEAD + STUDY + "    axes: {attention: flash2}\n    rounds: 1\n",
        ["matrix.yaml:10:13: rounds: 1 is out of range; use 3 to 1000"],
    ),
    "too many rounds in a study": (
        HEAD + STUDY + "    axes: {attention: flash2}\n    rounds: 1001\n",
        ["matrix.yaml:10:13: rounds: 1001 is out of range; use 3 to 1000"],
    ),
    "one round in a study of a kind that needs nothing to compare, where it compares": (
        HEAD + STUDY + "    kind: estimator\n    axes: {attention: flash2}\n    rounds: 1\n",
        ["matrix.yaml:11:13: rounds: 1 is out of range; use 3 to 1000"],
    ),
    "no workload": (
        HEAD + "studies:\n  a:\n    axes: {attention: flash2}\n",
        ["matrix.yaml:7:3: 'workload' is missing; add it"],
    ),
    "unknown workload": (
        HEAD + STUDY.replace("small", "smal") + "    axes: {attention: flash2}\n",
        ["matrix.yaml:8:15: unknown workload 'smal'; did you mean 'small'?"],
    ),
    "unknown design": (
        HEAD + STUDY + "    design: cumulativ\n    axes: {attention: flash2}\n",
        [
            "matrix.yaml:9:13: design: 'cumulativ' is not one of one-at-a-time, factorial, cumulative, leave-one-out; "
            "did you mean 'cumulative'?"
        ],
    ),
    "unknown kind": (
        HEAD + STUDY + "    kind: loader_only\n    axes: {workers: 4}\n",
        ["matrix.yaml:9:11: unknown kind 'loader_only'; did you mean 'loader-only'?"],
    ),
    "missing data file": (
        HEAD.replace("model: tiny,", "model: tiny, data: corpus.txt,") + STUDY + "    axes: {attention: flash2}\n",
        [
            "matrix.yaml:4:30: data 'corpus.txt': there is no such file beside the matrix; known: stdlib, stdlib-bpe, "
            "synthetic"
        ],
    ),
    "misspelt data": (
        HEAD.replace("model: tiny,", "model: tiny, data: stdlb,") + STUDY + "    axes: {attention: flash2}\n",
        ["matrix.yaml:4:30: data 'stdlb': there is no such file beside the matrix; did you mean 'stdlib'?"],
    ),
    "misspelt model": (
        HEAD.replace("tiny", "gpt2-124") + STUDY + "    axes: {attention: flash2}\n",
        [
            "matrix.yaml:4:18: unknown model 'gpt2-124'; did you mean 'gpt2-124m'? (or a config.json, a folder, "
            "file.py:build)"
        ],
    ),
    "missing model file": (
        HEAD.replace("tiny", "shapes/config.json") + STUDY + "    axes: {attention: flash2}\n",
        ["matrix.yaml:4:18: model 'shapes/config.json': there is no file shapes/config.json beside the matrix"],
    ),
    "a step without its function": (
        HEAD.replace("tiny", "step.py") + STUDY + "    axes: {attention: flash2}\n",
        ["matrix.yaml:4:18: model 'step.py': name the function too, as in step.py:build"],
    ),
    "a path that leaves the project": (
        HEAD.replace("model: tiny,", "model: tiny, data: /etc/hostname,") + STUDY + "    axes: {attention: flash2}\n",
        [
            "matrix.yaml:4:30: data '/etc/hostname': the path leaves the folder of the matrix; put the file, or a "
            "link to it, beside the matrix"
        ],
    ),
    "no model": (
        HEAD.replace("model", "modle") + STUDY + "    axes: {attention: flash2}\n",
        [
            "matrix.yaml:4:3: 'model' is missing; add it",
            "matrix.yaml:4:11: unknown axis 'modle'; did you mean 'model'?",
        ],
    ),
    "a name that would be a path": (
        HEAD + "studies:\n  ../a;rm:\n    workload: small\n    axes: {attention: flash2}\n",
        [
            "matrix.yaml:7:3: the name '../a;rm' will not do; use letters, digits, '.', '_', '+' and '-' (80 at most)"
        ],
    ),
    "a name that would turn the line around": (
        HEAD + STUDY.replace("small", '"small\\u202e"') + "    axes: {attention: flash2}\n    \"a\\nb\u200b\": 1\n",
        [
            "matrix.yaml:8:15: unknown workload 'small\\u202e'; did you mean 'small'?",
            "matrix.yaml:10:5: unknown key 'a\\nb\\u200b'; known: workload, kind, design, baseline, axes, sweep, "
            "points, combinations, rounds, warmup_steps, steps, options, smoke, question",
        ],
    ),
    "another schema": (
        HEAD.replace("schema: 1", "schema: 2") + STUDY + "    axes: {attention: flash2}\n",
        ["matrix.yaml:1:9: schema: 2 is not one of 1"],
    ),
    "no schema": (
        HEAD.replace("schema: 1", "# none") + STUDY + "    axes: {attention: flash2}\n",
        ["matrix.yaml:2:1: 'schema' is missing; add it"],
    ),
    "no studies": (
        HEAD + "studies: {}\n",
        ["matrix.yaml:6:10: studies: is empty; add an entry"],
    ),
    "not YAML": (
        HEAD + "studies: [a\n",
        [
            "matrix.yaml:7:1: this is not YAML: while parsing a flow sequence expected ',' or ']', but got "
            "'<stream end>'; check indentation, quotes and brackets here"
        ],
    ),
    "not a mapping": (
        "- studies\n",
        ["matrix.yaml:1:1: the file must be a mapping (`key: value` lines), not a list"],
    ),
    "more trials than anyone runs": (
        HEAD + STUDY + "    design: factorial\n    axes:\n"
        + "".join(
            f"      {axis}: {list(range(100, 200))}\n" for axis in ("batch_size", "sequence_length", "workers")
        ),
        ["matrix.yaml:7:3: with this study the matrix has more than 1,000,000 trials; name fewer settings"],
    ),
    "more trials than anyone runs, over two studies": (
        HEAD + "studies:\n" + "".join(
            f"  {name}:\n    workload: small\n    design: factorial\n    axes:\n"
            f"      accumulation: {list(range(100, 160))}\n      prefetch: {list(range(100, 160))}\n"
            f"      workers: {list(range(100, 160))}\n"
            for name in ("a", "b")  # of 61 · 61 · 61 cells and a control each, in 3 rounds
        ),
        ["matrix.yaml:14:3: with this study the matrix has more than 1,000,000 trials; name fewer settings"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_an_error_names_its_place_and_what_to_do(problems: Problems, name: str) -> None:
    text, expected = CASES[name]
    assert problems(text) == expected


def test_everything_that_is_wrong_is_said_at_once_in_the_order_of_the_file(problems: Problems) -> None:
    text = """\
        schema: 1
        rounds: 2
        workloads:
          small: {model: tiny, sequence_lenght: 64}
        baseline: {precison: fp32}
        studies:
          a:
            workload: smal
            axes: {compile: defualt}
          b:
            workload: small
        """
    assert [line.split(";")[0] for line in problems(text)] == [
        "matrix.yaml:2:9: rounds: 2 is out of range",
        "matrix.yaml:4:24: unknown axis 'sequence_lenght'",
        "matrix.yaml:5:12: unknown axis 'precison'",
        "matrix.yaml:8:15: unknown workload 'smal'",
        "matrix.yaml:9:21: compile: 'defualt' is not a setting (off, default, reduce-overhead, max-autotune)",
        "matrix.yaml:10:3: study 'b' compares nothing",
    ]


def test_a_file_with_endless_mistakes_ends_after_thirty(problems: Problems) -> None:
    wrong = "".join(f"      nonsense{index}: 1\n" for index in range(1000))
    lines = problems(HEAD + STUDY + "    axes:\n" + wrong)
    assert len(lines) == 31
    assert lines[-1].endswith("and perhaps more; mend these first")


def test_a_link_beside_the_matrix_may_lead_elsewhere(tmp_path: Path, problems: Problems) -> None:
    (tmp_path / "text.txt").symlink_to("/etc/hostname")
    lines = problems(HEAD.replace("model: tiny,", "model: tiny, data: text.txt,") + STUDY)
    assert lines == ["matrix.yaml:7:3: study 'a' compares nothing; give it axes or combinations"]
