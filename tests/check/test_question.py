"""From a sentence, a workload and a budget to trials: nothing here starts a process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.checking.question import Question, Size, ask
from harness.checking.schedule import ArmTimes, Schedule, TooShort, schedule
from harness.environment import Environment, detect
from harness.errors import SentenceError, WorkloadError
from tests.records import CPU, H100

SENTENCE = "checkpointing=full saves 30% to 50% peak memory"
STEP = "def build(device, settings):\n    raise RuntimeError('run in the parent')\n"


@pytest.fixture
def step(tmp_path: Path) -> str:
    (tmp_path / "my.py").write_text(STEP, encoding="utf-8")
    return f"{tmp_path}/my.py:build"


def cpu() -> Environment:
    return replace(detect(), devices=())


def test_a_block_of_baseline_control_and_cell(step: str) -> None:
    plan = ask(f"{SENTENCE} at sequence_length=64", step).plan(cpu(), Size(warmup_steps=3, steps=5, rounds=4))
    assert [sorted(trial.arm.name for trial in plan.trials if trial.round == each) for each in range(1, 5)] == [
        ["baseline", "checkpointing=full", "control"]
    ] * 4
    block = plan.trials[0].block
    assert block.options["named"] == ["checkpointing", "sequence_length"]
    assert {arm.cell["sequence_length"] for arm in block.arms} == {64}
    assert block.baseline.cell.workload.data == "own"


def test_a_changed_file_is_another_question(step: str) -> None:
    size = Size(warmup_steps=3, steps=5, rounds=3)
    before = ask(SENTENCE, step).plan(cpu(), size).trials[0].block.key
    Path(step.rpartition(":")[0]).write_text(f"{STEP}# changed\n", encoding="utf-8")
    assert ask(SENTENCE, step).plan(cpu(), size).trials[0].block.key != before


@pytest.mark.parametrize(("coding", "encoding"), [("latin-1", "latin-1"), ("utf-8", "utf-8"), ("", "utf-8-sig")])
def test_a_step_is_read_in_the_encoding_that_its_head_names(tmp_path: Path, coding: str, encoding: str) -> None:
    """As Python and a matrix read it."""
    head = f"# -*- coding: {coding} -*-\n" if coding else ""
    text = f"{head}# von Jürgen\ndef build(device, settings):\n    return 1, 2, 3\n"
    (tmp_path / "my.py").write_text(text, encoding=encoding)
    question = ask(SENTENCE, f"{tmp_path}/my.py:build")
    assert question.source == text
    with pytest.raises(WorkloadError, match="cannot be applied to my"):
        ask("workers=4 vs 0 >= 1.2x", f"{tmp_path}/my.py:build")


def test_whatever_is_asked_is_in_the_hash(step: str) -> None:
    """By it a later check finds what an earlier one has fixed."""
    question = ask(SENTENCE, step)
    others = [
        ask("checkpointing=full 20% slower", step), ask(SENTENCE, "tiny"), ask(SENTENCE, step, "batch_size=2,4"),
        replace(question, source=f"{STEP}# changed\n"),
        replace(question, workload=replace(question.workload, contents="of files of its own")),
    ]  # fmt: skip
    assert len({question.hash, *(each.hash for each in others)}) == 6
    assert ask(SENTENCE, step).hash == question.hash


def test_sentences_about_the_same_arms_share_their_trials(step: str) -> None:
    size = Size(warmup_steps=3, steps=5, rounds=3)
    plans = [ask(text, step).plan(cpu(), size) for text in (SENTENCE, "checkpointing=full 20% slower")]
    assert len({plan.trials[0].block.key for plan in plans}) == 1


def test_sentences_about_the_same_arms_elsewhere_are_studies_of_their_own(step: str) -> None:
    """A study is judged on the best of its blocks: what was measured at another precision would answer."""
    studies = {ask(f"{SENTENCE}{at}", step).study for at in ("", " at precision=bf16", " at precision=amp-bf16")}
    assert len(studies) == 3


@pytest.mark.parametrize(
    ("sweep", "points"),
    [
        ("sequence_length=512..4096", [512, 1024, 2048, 4096]),
        ("sequence_length=4096..512", [4096, 2048, 1024, 512]),
        ("sequence_length=100..300", [100, 200, 300]),
        ("batch_size=8, 24, 2", [8, 24, 2]),
        ("precision=bf16,fp32", ["bf16", "fp32"]),
        ("clip=0.5,1.5", [0.5, 1.5]),
        (f"batch_size={','.join(map(str, range(1, 13)))}", [*range(1, 13)]),
        ("pin_memory=false,true", [False, True]),
    ],
)
def test_a_sweep_is_a_range_doubled_through_or_a_list(step: str, sweep: str, points: list[Any]) -> None:
    question = ask(SENTENCE, step, sweep)
    assert [next(iter(point.values())) for point in question.points] == points
    plan = question.plan(cpu(), Size(warmup_steps=3, steps=5, rounds=3))
    assert len(plan.trials) == 9 * len(points)


def test_a_pilot_is_of_the_first_point_alone_and_no_trial_of_it_counts_in_the_rounds(step: str) -> None:
    question, size = ask(SENTENCE, step, "sequence_length=512..2048"), Size(warmup_steps=3, steps=5, rounds=1)
    pilot, whole = (question.plan(cpu(), size, pilot=each) for each in (True, False))
    assert [[dict(trial.block.sweep)["sequence_length"] for trial in plan.trials] for plan in (pilot, whole)] == [
        [512] * 3, [*[512] * 3, *[1024] * 3, *[2048] * 3]
    ]  # fmt: skip
    assert pilot.trials[0].block.options["named"] == ["checkpointing", "sequence_length"]
    assert pilot.trials[0].block.key != whole.trials[0].block.key


@pytest.mark.parametrize(("machine", "view"), [(CPU, "host"), (H100, "reserved")])
def test_without_a_gpu_memory_is_the_host_s(machine: Environment, view: str) -> None:
    (claim,) = ask(SENTENCE, "tiny").claims(machine).all()
    assert (claim.view, claim.device) == (view, "any")


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        ("sequence_length", "write an axis and its settings"),
        ("sequence_lenght=1..4", "did you mean 'sequence_length'"),
        ("checkpointing=off,full", "the sentence fixes checkpointing already"),
        ("sequence_length=a..b", "whole numbers at both ends"),
        ("sequence_length=2..1048576", "up to 12 different settings"),
        ("sequence_length=64,64", "up to 12 different settings"),
        ("pin_memory=True,False", "'True' is not a setting (false, true); did you mean 'true'?"),
    ],
)
def test_a_sweep_that_is_none(step: str, sweep: str, message: str) -> None:
    with pytest.raises(SentenceError) as error:
        ask(SENTENCE, step, sweep)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        ("absent.py:build", "there is no file absent.py"),
        ("my.py", "name the function too, as in my.py:build"),
        ("my.py:bild", "--workload: model 'my.py:bild': it has no function 'bild'; did you mean 'build'?"),
        ("broken.py:build", "model 'broken.py:build': cannot be read as Python (line 1: "),
        ("my.py:", "--workload: model 'my.py:': name one function of the file after the colon, as in my.py:build"),
        ("my.py:1st", "name one function of the file after the colon, as in my.py:build"),
        ("value.py:STEPS", "'STEPS' in it is a value; name the function that returns model, batches and loss"),
        ("value.py:named", "'named' in it is a value"),
        ("value.py:second", "'second' in it is a value"),
        ("gpt2-123m", "did you mean 'gpt2-124m'"),
    ],
)
def test_a_workload_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workload: str, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.py").write_text(STEP, encoding="utf-8")
    (tmp_path / "value.py").write_text("STEPS = 3\nnamed: str = 'x'\nfirst, second = make(), 2\n", encoding="utf-8")
    (tmp_path / "broken.py").write_text("def build(:\n", encoding="utf-8")
    with pytest.raises(WorkloadError) as error:
        ask(SENTENCE, workload)
    assert message in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "build = make()", "build, other = make(), 2", "build = lambda device, settings: (1, 2, 3)",
        "build = 1\ndef build(): ...",
        "build = None\nfrom steps import *", "build = None\ndef fill():\n    global build\n    build = print",
    ],
)  # fmt: skip
def test_what_may_be_a_function_is_left_to_the_trial(tmp_path: Path, text: str) -> None:
    (tmp_path / "my.py").write_text(text, encoding="utf-8")
    ask(SENTENCE, f"{tmp_path / 'my.py'}:build")


@pytest.mark.parametrize(
    ("sentence", "sweep", "words"),
    [
        ("workers=2 vs 0 >= 1.1x", None, "workers=2 cannot be applied to my.py:build from outside: the batches are"),
        ("lora=8 2x at parallel=ddp devices=2", None, "parallel=ddp cannot be applied to my.py:build from outside"),
        ("pin_memory=false vs true 1.1x", None, "pin_memory=true cannot be applied"),
        ("lora=8 2x", "workers=0,2", "workers=2 cannot be applied"),
    ],
)
def test_what_a_bare_tuple_cannot_honour_is_said_at_once(
    tmp_path: Path, sentence: str, sweep: str | None, words: str
) -> None:
    """It was said by the pilot, a minute later. A step that may honour the setting is left to it."""
    file = tmp_path / "my.py"
    file.write_text("def build(device, settings):\n    return 1, 2, 3\n", encoding="utf-8")
    with pytest.raises(WorkloadError) as error:
        ask(sentence, f"{file}:build", sweep)
    assert words in str(error.value)
    assert "to honours of the TrainingStep that it returns" in str(error.value)

    file.write_text("def build(device, settings):\n    return TrainingStep(model=1)\n", encoding="utf-8")
    ask(sentence, f"{file}:build", sweep)
    ask(sentence, "tiny", sweep)


# -- how much fits -----------------------------------------------------------------------------------------------------


def fitting(seconds: float, *, step: float = 0.1, around: float = 3.0, sweep: str | None = None,
            rounds: int | None = None, gpu: bool = True) -> Schedule | TooShort:  # fmt: skip
    question: Question = ask(SENTENCE, "tiny", sweep)
    times = [ArmTimes(step_seconds=step, around_seconds=around)] * 3
    return schedule(question, times, seconds=seconds, gpu=gpu, rounds=rounds)


def test_as_many_rounds_as_fit_between_three_and_seven() -> None:
    # 30 steps fill 3 s; a trial takes 3 + (8 + 30 + 3)·0.1 = 7.1 s, a round 21.3 s, the gradient check 9 s once
    for seconds, rounds in ((1000, 7), ((5 * 21.3 + 9) / 0.9 + 1, 5), ((3 * 21.3 + 9) / 0.9 + 1, 3)):
        found = fitting(seconds)
        assert isinstance(found, Schedule)
        assert (found.size.rounds, found.size.steps, found.size.warmup_steps) == (rounds, 30, 8)


def test_with_less_time_a_window_is_shorter_before_three_rounds_are_given_up() -> None:
    found = fitting((3 * 21.3 + 9) / 0.9 - 1)
    assert isinstance(found, Schedule)
    # 10 steps: a round is 3·(3 + 2.1) = 15.3 s, so that a fourth fits into the 63 s that are left
    assert (found.size.rounds, found.size.steps) == (4, 10)


def test_a_window_is_a_second_before_it_is_shorter_and_then_as_long_as_fits() -> None:
    """On a CPU a third of two seconds came next, then five steps of a millisecond: a window of 5 ms."""
    # steps of 10 ms: 200 fill 2 s; a round of a one-second window is 3·(3 + (8 + 100 + 3)·0.01) = 12.33 s
    second = (3 * 12.33 + 9) / 0.9
    for seconds, steps in ((second + 1, 100), (second - 1.05, 89)):
        found = fitting(seconds, step=0.01, gpu=False)
        assert isinstance(found, Schedule)
        # 0.9 · 1.05 s less is 0.315 s less for a round, 0.105 s for a trial: 10.5 of its steps
        assert (found.size.rounds, found.size.steps) == (3, steps)


def test_fast_steps_fill_a_second() -> None:
    """Of 1.2 ms 200 were the most, which took a quarter of one."""
    found = fitting(1000, step=0.0012, gpu=False)
    assert isinstance(found, Schedule)
    assert found.size.steps == 1000


def test_where_three_rounds_do_not_fit_it_says_how_long_they_need() -> None:
    found = fitting(30)
    assert isinstance(found, TooShort)
    # with 5 steps a round is 3·(3 + 1.6) = 13.8 s
    assert found.needed_seconds == pytest.approx((3 * 13.8 + 9) / 0.9)


def test_a_sweep_runs_as_far_as_three_rounds_of_its_points_fit() -> None:
    found = fitting(400, sweep="sequence_length=512..8192", step=0.2)
    assert isinstance(found, Schedule)
    assert 1 <= found.points < 5
    assert found.size.rounds >= 3


def test_rounds_that_are_asked_for_are_run_whatever_the_budget() -> None:
    found = fitting(30, rounds=9)
    assert isinstance(found, Schedule)
    assert found.size.rounds == 9


def test_a_point_of_a_sweep_takes_as_much_longer_as_its_sizes_are_larger() -> None:
    # at 1024 a step is twice one at 512: 3·(3 + 41·0.2) = 33.6 s a round beside 21.3 s
    both = (3 * (21.3 + 33.6) + 9) / 0.9
    for seconds, points in ((both + 1, 2), (both - 1, 1)):
        found = fitting(seconds, sweep="sequence_length=512..1024")
        assert isinstance(found, Schedule)
        assert (found.points, found.size.steps) == (points, 30)


def test_one_arm_of_slow_steps_makes_the_warm_up_of_all_shorter() -> None:
    times = [ArmTimes(step_seconds=step, around_seconds=3.0) for step in (0.1, 0.1, 0.6)]
    found = schedule(ask(SENTENCE, "tiny"), times, seconds=10_000, gpu=True)
    assert isinstance(found, Schedule)
    assert (found.size.warmup_steps, found.size.steps) == (4, 30)
