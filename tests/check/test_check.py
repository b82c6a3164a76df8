"""`claimbench check`, from the command line to the answer, on a CPU.

Claims that a loaded CPU settles in three rounds: bytes and counts are exact, and a speed claim is far from its edge.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import harness
from harness.checking import schedule
from harness.checking.answer import Resolution
from harness.checking.words import as_json, budget_lines, lines
from harness.judgement.judge import judge
from harness.judgement.judged import Word
from harness.judgement.why import TITLES, why_of
from harness.results.store import Store
from harness.trial.outcome import Outcome
from tests.commands import ROOT, claimbench

EXAMPLES = ROOT / "examples"
STEPS = Path(__file__).with_name("steps.py")
SMALL = "at sequence_length=32 batch_size=2"
pytestmark = pytest.mark.train


@pytest.fixture(autouse=True)
def quick(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, one_zygote: None) -> None:
    """Windows an eighth as long as a user's, where no time is judged."""
    if not request.node.get_closest_marker("alone"):
        monkeypatch.setitem(schedule.WINDOW_SECONDS, False, 0.25)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One store for the module: a second sentence about the same arms runs nothing."""
    return tmp_path_factory.mktemp("check")


def check(folder: Path, sentence: str, workload: str, *more: str) -> dict[str, Any]:
    said = claimbench(
        "check", sentence, "--workload", workload, "--rounds", "3", "--device", "cpu", "--json", *more, cwd=folder
    )
    assert said.code == 0, said.err
    found: dict[str, Any] = json.loads(said.out)
    return found


@pytest.mark.parametrize(
    ("example", "arms", "true", "false"),
    [
        ("plain_step", "checkpointing=full vs off", "saves >= 50% activation memory", "saves >= 99% activation memory"),
        ("huggingface_step", "lora=4 vs off", ">= 90% fewer trainable parameters",
         ">= 99.9% fewer trainable parameters"),
        pytest.param(
            "collator_step", "batch_size=64 vs 1 at sequence_length=32", ">= 1.2x faster", ">= 500x faster",
            marks=[pytest.mark.slow, pytest.mark.alone],
        ),
    ],
)  # fmt: skip
def test_a_true_sentence_and_a_false_one(folder: Path, example: str, arms: str, true: str, false: str) -> None:
    workload = f"{EXAMPLES}/{example}.py:build"
    arms = arms if " at " in arms else f"{arms} {SMALL}"
    first = check(folder, f"{arms} {true}", workload)
    assert first["verdict"] == "confirmed", first["reason"]
    second = check(folder, f"{arms} {false}", workload)
    assert second["verdict"] == "refuted, below", second["reason"]
    assert second["budget"]["used_seconds"] < first["budget"]["used_seconds"]
    assert second["value"] == first["value"], "judged on the same trials"


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        ("at most half the activation memory", "confirmed"),
        ("<= 0.5x activation memory", "confirmed"),
        ("at most 1% of the activation memory", "refuted, below"),
        ("at least half the activation memory", "refuted, above"),
        ("twice the activation memory", "refuted, above"),
    ],
)
def test_memory_without_a_word_for_less_is_cell_over_baseline(folder: Path, words: str, verdict: str) -> None:
    """Checkpointing keeps less than half of it and more than a hundredth."""
    found = check(folder, f"checkpointing=full vs off {SMALL} {words}", f"{EXAMPLES}/plain_step.py:build")
    assert found["verdict"] == verdict, found["reason"]


def test_the_answer_explains_itself(folder: Path) -> None:
    """Parity, memory, why: the parts of a step add up to the measured one. An ordinary store and report beside it."""
    found = check(folder, f"checkpointing=full vs off {SMALL} saves >= 50% activation memory",
                  f"{EXAMPLES}/plain_step.py:build")  # fmt: skip
    assert found["parity"]["holds"] is True
    assert found["parity"]["gradient_error"] < 1e-5
    assert [why["arm"] for why in found["why"]] == ["baseline", "checkpointing=full"]
    for why in found["why"]:
        assert sum(why["seconds"].values()) == pytest.approx(why["step_seconds"], rel=0.05)
        assert why["seconds"]["matrix_products"] > 0
        assert why["seconds"]["attention"] > 0
    assert set(found["memory"]["baseline"]) == {"host"}
    trials = harness.load(folder / found["store"])
    assert set(trials["outcome"]) == {"ok"}
    assert (folder / found["report"]).is_file()
    judged = claimbench("judge", found["store"], "--claims", _claims(folder, found["sentence"]), "--json", cwd=folder)
    assert json.loads(judged.out)[0]["verdict"] == "confirmed"


def test_the_answer_in_words(folder: Path) -> None:
    said = claimbench(
        "check", f"checkpointing=full vs off {SMALL} saves >= 50% activation memory", "--workload",
        f"{EXAMPLES}/plain_step.py:build", "--device", "cpu", cwd=folder,
    )  # fmt: skip
    for words in ("confirmed: ", "all in the store already", "parity: holds", "first gradient off by",
                  "matrix products", "evidence: 2 forwards a block", "without an interval"):  # fmt: skip
        assert words in said.out


@pytest.mark.parametrize(
    ("build", "sentence", "verdict", "reason"),
    [
        ("in_eval", "optimizer=for-loop >= 2x", "not testable here", "the model is in eval mode"),
        ("raises", "optimizer=for-loop >= 2x", "not testable here", "FileNotFoundError: weights.pt is not there"),
        ("other_data", "optimizer=for-loop >= 2x", "invalid", "build gives other data at each call"),
        ("masked", "attention=sdpa-flash vs sdpa >= 2x", "not testable here", "drop the mask in steps.py:masked"),
        # build vouches for a setting that it ignores: both arms did the same to the last digit
        ("ignores_checkpointing", "lora=8 >= 90% fewer trainable parameters", "invalid", "did exactly the same"),
        ("good", "attention=eager vs sdpa >= 2x", "invalid", "attention=eager cannot be applied to steps.py:good"),
        ("good", "attention=flash2 vs sdpa >= 2x", "not testable here", "attention=flash2 needs a GPU"),
    ],
)
def test_a_fault_is_answered_in_words(tmp_path: Path, build: str, sentence: str, verdict: str, reason: str) -> None:
    """The pilot is enough: no round is spent, and no verdict dressed up."""
    answer = harness.check(
        sentence, f"{STEPS}:{build}", budget_seconds=300, rounds=3, store=tmp_path / "check.sqlite", device="cpu"
    )
    found = as_json(answer, report="")
    assert found["verdict"] == verdict
    assert reason in found["reason"]
    assert (found["measured"], found["helped"], found["budget"]["rounds"]) == ("", "", None)


def test_a_budget_that_is_too_short_says_what_it_would_take(tmp_path: Path) -> None:
    said = claimbench("check", "optimizer=for-loop >= 2x", "--workload", f"{STEPS}:good", "--budget", "1s", "--device",
                      "cpu", cwd=tmp_path)  # fmt: skip
    assert "\nnot run: " in said.out
    assert "hree rounds need about" in said.out
    assert "of 1 s; the pilot, one short round, left no time for three rounds\n" in said.out


def test_no_more_time_is_foretold_than_the_budget_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pilot whose guesses were off by far said `about 69 min left` of a budget of 10.

    The rounds are foretold from the pilot, and none is left out for a guess.
    """
    monkeypatch.setattr("harness.results.budget._CPU_SECONDS", 1000.0)
    foretold: list[float] = []
    answer = harness.check(
        "optimizer=for-loop >= 50x",
        f"{STEPS}:good",
        budget_seconds=100,
        store=tmp_path / "check.sqlite",
        device="cpu",
        on_event=lambda event: foretold.append(getattr(event, "seconds_left", 0.0)),
    )
    assert 90 < foretold[0] <= 100
    assert max(foretold) <= 100
    assert (answer.postponed, answer.verdict.word) == (0, Word.REFUTED_BELOW)


# -- Ctrl-C ------------------------------------------------------------------------------------------------------------

SENTENCE = "optimizer=for-loop >= 50x"


def stopping(folder: Path) -> str:
    """A step whose first `build` is Ctrl-C at the command that checks it."""
    (folder / "pid").write_text(str(os.getpid()), encoding="utf-8")
    (folder / "stopping.py").write_text(
        f"""
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
from tests.check.steps import good

def build(device, settings):
    pid = Path(__file__).with_name("pid")
    if pid.exists():
        os.kill(int(pid.read_text()), signal.SIGINT)
        pid.unlink()
    return good(device, settings)
""",
        encoding="utf-8",
    )
    return f"{folder}/stopping.py:build"  # the zygote stands in another folder


@pytest.mark.parametrize("as_json", [(), ("--json",)], ids=["text", "json"])
def test_ctrl_c_ends_with_130_and_how_to_go_on(tmp_path: Path, as_json: tuple[str, ...]) -> None:
    """With --json it was 0; and after a trial that ran ok, `no trial of … or 'baseline'`."""
    command = ("check", SENTENCE, "--workload", stopping(tmp_path), "--device", "cpu", *as_json)
    said = claimbench(*command, cwd=tmp_path)
    assert said.code == 130, said.out
    last = said.err.splitlines()[-1]
    assert last == f"stopped; what ran is kept in check.sqlite. To go on: {shlex.join(['claimbench', *command])}"
    assert "it was stopped in the pilot" in said.out.lower().replace("\n", " ")
    if as_json:
        found = json.loads(said.out)
        assert (found["verdict"], found["budget"]["interrupted"]) == ("not run", True)


def test_ctrl_c_while_no_trial_runs_says_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pressed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(harness, "machine", pressed)
    said = claimbench("check", SENTENCE, "--workload", "tiny", cwd=tmp_path)
    assert said.code == 130
    assert said.err.startswith("stopped; ")
    assert said.err.endswith(f"To go on: claimbench check '{SENTENCE}' --workload tiny\n")


@pytest.mark.parametrize(("trials", "word", "reason"), [
    (1, Word.NOT_RUN, "it was stopped before a first round was whole"),
    (6, Word.INCONCLUSIVE, "2 rounds are too few to judge"),
])  # fmt: skip
def test_ctrl_c_among_the_rounds(tmp_path: Path, trials: int, word: Word, reason: str) -> None:
    """Fewer than three rounds give no verdict, and the same command goes on."""
    arguments: dict[str, Any] = {
        "sentence": f"{SENTENCE} at sequence_length=16 batch_size=2", "workload": "tiny", "device": "cpu", "rounds": 3,
        "store": tmp_path / "check.sqlite",
    }  # fmt: skip
    begun = 0

    def press(event: Any) -> None:
        nonlocal begun
        begun += type(event).__name__ == "TrialStarted"
        if type(event).__name__ == "TrialStarted" and begun == 3 + trials:  # the pilot has three
            os.kill(os.getpid(), signal.SIGINT)

    answer = harness.check(**arguments, on_event=press)
    assert answer.interrupted
    assert answer.verdict.word is word
    assert reason in answer.verdict.reason
    assert len(answer.records) == trials
    again = harness.check(**arguments)
    assert (again.interrupted, again.verdict.word) == (False, Word.REFUTED_BELOW)


# -- a check that was cut short ----------------------------------------------------------------------------------------


#: Fifty times, so that the verdict is the same on a machine where speeds spread by 40%.
AT_TWO_SIZES: dict[str, Any] = {
    "sentence": "optimizer=for-loop >= 50x at sequence_length=16", "workload": "tiny", "sweep": "batch_size=4,2",
    "device": "cpu",
}  # fmt: skip


def cut_short(folder: Path, name: str, kept: int, *, noted: bool) -> Path:
    """A store with the first rounds alone of a check of four rounds at each of two points.

    `noted`: with the run that says how many were fixed; a store that was imported has none.
    """
    whole = folder / "whole.sqlite"
    if not whole.exists():
        harness.check(**AT_TWO_SIZES, rounds=4, store=whole)
    with Store.open(whole) as source, Store.open(folder / name, writable=True) as store:
        (run,) = source.runs()
        if noted:
            store.begin_run(arguments=(), matrix_hash=run.matrix_hash, matrix_text=run.matrix_text, version="0")
        records = list(source.records())
        assert len(records) == 4 * 2 * 3
        store.add_all(records[: kept * 3])
    return folder / name


@pytest.mark.parametrize(
    ("kept", "noted", "rounds"),
    [(6, True, 4), (6, False, 4), (2, True, 4), (2, False, 3)],
    ids=["second point", "second point, imported", "first point", "first point, imported"],
)
def test_a_check_that_was_cut_short_goes_on(folder: Path, kept: int, noted: bool, rounds: int) -> None:
    """Without a pilot, with trials of the same length, to the number of rounds that was fixed."""
    store = cut_short(folder, f"short-{kept}-{noted}.sqlite", kept, noted=noted)
    before = harness.read([store])
    started: list[Any] = []

    answer = harness.check(
        **AT_TWO_SIZES, store=store, budget_seconds=600, on_event=lambda event: started.append(type(event).__name__)
    )

    assert answer.schedule is not None
    assert (answer.schedule.size.rounds, answer.schedule.points, answer.schedule.stored) == (rounds, 2, kept)
    assert started.count("TrialStarted") == 3 * (2 * rounds - kept)
    after = harness.read([store])
    assert after[: len(before)] == before
    assert not any(record.superseded for record in after)
    assert (answer.verdict.rounds, answer.postponed) == (rounds, 0)
    assert f"fixed by an earlier check, which left {kept} of {2 * rounds} in the store\n" in "\n".join(lines(answer))


def test_without_time_to_go_on_the_stored_rounds_are_judged(folder: Path) -> None:
    """They were dropped: the pilot ran anew, left no time, and the verdict was `not run`."""
    store = cut_short(folder, "no-time.sqlite", 6, noted=True)
    answer = harness.check(**AT_TWO_SIZES, store=store, budget_seconds=0.01)
    assert answer.verdict.word is Word.REFUTED_BELOW
    assert (answer.verdict.rounds, answer.postponed, len(answer.records)) == (4, 2, 18)


def test_more_rounds_that_are_asked_for_are_added_to_those_that_are_stored(folder: Path) -> None:
    store = cut_short(folder, "more.sqlite", 4, noted=True)
    arguments = {**AT_TWO_SIZES, "sweep": "batch_size=4", "store": store}
    answer = harness.check(**arguments, rounds=5, budget_seconds=0.01)
    assert (answer.verdict.rounds, len(answer.records)) == (5, 15)


def test_a_difference_that_no_round_can_tell_is_said_without_a_number(folder: Path) -> None:
    """It was `a true difference of – or more`, and with --json an error of the JSON writer."""
    store = cut_short(folder, "unknown.sqlite", 8, noted=True)
    answer = harness.check(**AT_TWO_SIZES, store=store)
    answer = replace(answer, resolution=Resolution(rounds=4, spread=1.2, smallest_ratio=math.inf))
    assert list(budget_lines(answer))[-1] == (
        "resolution: ratios differ by 120.0% between rounds, too much for 4 of them to find a true difference, however "
        "large, four times in five"
    )
    found = json.loads(json.dumps(as_json(answer, report=""), allow_nan=False))
    assert found["resolution"]["smallest_difference"] is None


def test_the_answer_tells_the_devices_own_time_apart_from_the_pace_of_the_host(folder: Path) -> None:
    answer = harness.check(**AT_TWO_SIZES, store=cut_short(folder, "busy.sqlite", 8, noted=True))
    assert answer.busy is None, "a CPU has no device that waits for it"
    assert as_json(answer, report="")["busy_time_ratio"] is None
    assert not any(line.startswith("device: ") for line in lines(answer))
    assert answer.block is not None

    def profiled(trial: Any, busy: float) -> Any:
        seconds = dict.fromkeys(TITLES, 0.0) | {"matrix_products": busy, "idle": 0.1 - busy}
        found = {"measured_on": "gpu", "profiled_seconds": busy, "seconds": seconds, "step_seconds": 0.1}
        return replace(trial, figures={**trial.figures, "breakdown": {**found, "sum_over_step": 1.0}})

    busy = {"baseline": 0.08, "control": 0.08, "cell": 0.06}
    arms = tuple(replace(arm, trials=tuple(profiled(each, busy[arm.role]) for each in arm.trials))
                 for arm in answer.block.arms)  # fmt: skip
    shown = tuple(why for arm in arms if arm.role != "control" and (why := why_of(arm)) is not None)
    answer = replace(answer, block=replace(answer.block, arms=arms), why=shown)
    assert answer.busy is not None
    assert answer.busy.value == pytest.approx(0.75)
    assert (
        "device: busy time ratio 0.75x; of a step it idled for 20.0% (baseline) and 40.0% (optimizer=for-loop)"
        in list(lines(answer))
    )
    assert as_json(answer, report="")["busy_time_ratio"]["value"] == pytest.approx(0.75)


def test_the_answer_says_how_long_its_windows_were(folder: Path) -> None:
    """Steps of milliseconds were measured for 10 ms, and nothing said so."""
    answer = harness.check(**AT_TWO_SIZES, store=cut_short(folder, "window.sqlite", 8, noted=True))
    records = [replace(each, step_seconds=[0.5] * 4) for each in answer.records]
    records[3] = replace(records[3], step_seconds=[0.5, 0.5, 0.25])
    said = list(budget_lines(replace(answer, records=tuple(records))))
    assert " steps (a window of 1.2 s or more), all in the store already" in said[0]
    assert [line.partition(":")[0] for line in said] == ["budget", "resolution"]
    records[3] = replace(records[3], step_seconds=[0.01] * 2)
    short = replace(answer, records=tuple(records))
    said = list(budget_lines(short))
    assert " steps (a window of 0.02 s or more)" in said[0]
    assert said[1].endswith("a larger --budget, beside another --store, makes it longer")
    assert as_json(short, report="")["budget"]["window_seconds"] == pytest.approx(0.02)
    assert answer.schedule is not None
    most = replace(answer.schedule, size=replace(answer.schedule.size, steps=schedule.MOST_STEPS))
    assert list(budget_lines(replace(short, schedule=most)))[1].endswith("make the step larger")


def test_what_was_not_measured_has_no_resolution(folder: Path) -> None:
    """Of a speed whose trials had all crashed it was `memory and counts are compared as the largest …`."""
    answer = harness.check(**AT_TWO_SIZES, store=cut_short(folder, "crashed.sqlite", 8, noted=True))
    crashed = [replace(each, outcome=Outcome.CRASH, reason="it fell over") for each in answer.records]
    judged = judge(crashed, answer.claims)
    failed = replace(answer, judgement=judged, records=tuple(crashed), resolution=None)
    assert failed.verdict.word is Word.NOT_TESTABLE
    assert [line.partition(":")[0] for line in budget_lines(failed)] == ["budget"]
    once = [each for each in answer.records if each.round == 1]
    single = replace(answer, judgement=judge(once, answer.claims), records=tuple(once), resolution=None)
    assert list(budget_lines(single))[-1] == "resolution: not known; it takes two rounds that ran both arms"


def test_what_cannot_be_asked_launches_nothing(tmp_path: Path) -> None:
    for arguments, words in (
        (("atention=flash2 vs eager 2x", "--workload", "tiny"), "the nearest sentence that can be checked"),
        (("lora=8 2x", "--workload", "my.py:build"), "there is no file my.py"),
    ):
        said = claimbench("check", *arguments, cwd=tmp_path)
        assert said.code == 2
        assert words in said.err
        assert list(tmp_path.iterdir()) == []


def _claims(folder: Path, sentence: str) -> Path:
    file = folder / "own.yaml"
    file.write_text(json.dumps({"schema": 1, "claims": {"mine": {"check": sentence}}}), encoding="utf-8")
    return file
