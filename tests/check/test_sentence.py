"""What a sentence means, as a claim: settings, metric and range, and what is answered to one that means nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from harness.errors import ClaimsError, SentenceError
from harness.judgement.claims import Claim
from harness.judgement.claims_file import read_claims
from harness.judgement.sentence_names import EVERYDAY
from harness.judgement.sentence_reader import nearest, read_sentence
from harness.techniques.registry import axis_table

INFINITE = None


def claim(text: str) -> Claim:
    return read_sentence(text, axis_table()).claim(study="s", name="c")


def refused(text: str) -> str:
    with pytest.raises(SentenceError) as error:
        read_sentence(text, axis_table())
    return str(error.value)


@pytest.mark.parametrize(
    ("text", "form", "metric", "bounds"),
    [
        # speed is what is meant where nothing is said
        ("attention=flash2 vs eager >= 2x", "at-least", "speedup", (2, None)),
        ("attention=flash2 vs eager ≥2x", "at-least", "speedup", (2, None)),
        ("attention=flash2 vs eager 2x", "at-least", "speedup", (2, None)),
        ("attention=flash2 vs eager at least 2x faster", "at-least", "speedup", (2, None)),
        ("attention=flash2 vs eager twice as fast", "at-least", "speedup", (2, None)),
        ("compile=default vs off 1.3x to 2x", "range", "speedup", (1.3, 2)),
        ("compile=default 1.3-2x faster", "range", "speedup", (1.3, 2)),
        ("compile=default 2x to 2x faster", "range", "speedup", (2, 2)),
        ("compile=default 30% to 100% faster", "range", "speedup", (1.3, 2)),
        ("precision=amp-bf16 up to 2x faster", "up-to", "speedup", (2, None)),
        # slower: 20% slower is 0.8 of the speed, 1.25x slower as well
        ("checkpointing=full 20% to 30% slower", "range", "speedup", (0.7, 0.8)),
        ("checkpointing=full at most 1.25x slower", "at-least", "speedup", (0.8, None)),
        # what a technique costs "up to" so much is a limit, not a goal
        ("checkpointing=full up to 30% slower", "at-least", "speedup", (0.7, None)),
        # step time is cell over baseline
        ("checkpointing=full 1.2x to 1.3x step time", "range", "step_time_ratio", (1.2, 1.3)),
        ("checkpointing=full 20% to 30% more step time", "range", "step_time_ratio", (1.2, 1.3)),
        ("optimizer=fused >= 10% less step time", "at-most", "step_time_ratio", (None, 0.9)),
        ("optimizer=fused up to 20% less step time", "up-to", "speedup", (1.25, None)),
        ("checkpointing=full up to 20% more step time", "at-most", "step_time_ratio", (None, 1.2)),
        # memory and parameters: a percentage is a share saved, a factor how many times less
        ("checkpointing=full saves 30% to 50% peak memory", "range", "peak_saved", (0.3, 0.5)),
        ("checkpointing=full halves the peak memory", "at-least", "peak_saved", (0.5, None)),
        ("precision=bf16 2x less peak memory", "at-least", "peak_ratio", (2, None)),
        ("monitor=item <= 5% more peak memory", "at-least", "peak_saved", (-0.05, None)),
        ("checkpointing=full saves >= 60% activation memory", "at-least", "activation_saved", (0.6, None)),
        ("lora=8 >= 90% fewer trainable parameters", "at-least", "trainable_share_saved", (0.9, None)),
        ("lora=8 10x fewer trainable parameters", "at-least", "trainable_share_saved", (0.9, None)),
        # without a word for less or more: cell over baseline, so that half the memory is a half saved
        ("checkpointing=full at most half the peak memory", "at-least", "peak_saved", (0.5, None)),
        ("checkpointing=full <= 0.5x peak memory", "at-least", "peak_saved", (0.5, None)),
        ("checkpointing=full at least half the peak memory", "at-most", "peak_saved", (None, 0.5)),
        ("checkpointing=full 70% of the memory", "at-least", "peak_saved", (0.3, None)),
        ("checkpointing=full 0.5x to 0.7x peak memory", "range", "peak_saved", (0.3, 0.5)),
        ("precision=bf16 half the parameter memory", "at-least", "parameter_bytes_saved", (0.5, None)),
        ("monitor=item up to 1.1x peak memory", "at-least", "peak_saved", (-0.1, None)),
        ("monitor=item doubles the peak memory", "at-most", "peak_saved", (None, -1)),
        ("lora=8 trains 1% of the parameters", "at-least", "trainable_share_saved", (0.99, None)),
        ("optimizer=fused <= 80% of the step time", "at-most", "step_time_ratio", (None, 0.8)),
        ("checkpointing=full at least 80% of the speed", "at-least", "speedup", (0.8, None)),
        ("checkpointing=full at least half as fast", "at-least", "speedup", (0.5, None)),
        # a bare figure below 1 is at most so much: no change at all does not confirm it
        ("checkpointing=full 0.5x peak memory", "at-least", "peak_saved", (0.5, None)),
        ("optimizer=fused 0.8x step time", "at-most", "step_time_ratio", (None, 0.8)),
        ("checkpointing=full 0.8x", "at-most", "speedup", (None, 0.8)),
        ("checkpointing=full saves half the peak memory", "at-least", "peak_saved", (0.5, None)),
        # faster and slower are of the speed: of a time they say the opposite
        ("optimizer=fused 2x faster step time", "at-most", "step_time_ratio", (None, 0.5)),
        ("checkpointing=full at most 1.25x slower step time", "at-most", "step_time_ratio", (None, 1.25)),
        ("optimizer=fused 20% shorter step time", "at-most", "step_time_ratio", (None, 0.8)),
        ("optimizer=fused 20% shorter", "at-most", "step_time_ratio", (None, 0.8)),
        ("checkpointing=full 20% longer steps", "at-least", "step_time_ratio", (1.2, None)),
        # verbs, signs and phrases
        ("optimizer=fused reduces step time by 20%", "at-most", "step_time_ratio", (None, 0.8)),
        ("checkpointing=full costs 20% to 30% speed", "range", "speedup", (0.7, 0.8)),
        ("checkpointing=full costs 20% step time", "at-least", "step_time_ratio", (1.2, None)),
        ("checkpointing=full costs at most 20% more peak memory", "at-least", "peak_saved", (-0.2, None)),
        ("compile=default < 2x", "at-most", "speedup", (None, 2)),
        ("compile=default > 2x", "at-least", "speedup", (2, None)),
        ("compile=default between 2x and 4x", "range", "speedup", (2, 4)),
        ("compile=default 1.3 to 2x", "range", "speedup", (1.3, 2)),
        ("compile=default 30% to 50 faster", "range", "speedup", (1.3, 1.5)),
        ("compile=default 1.3x or more", "at-least", "speedup", (1.3, None)),
        ("compile=default no more than 10% slower", "at-least", "speedup", (0.9, None)),
        ("checkpointing=full less than half the peak memory", "at-least", "peak_saved", (0.5, None)),
        ("checkpointing=full 1.3x step time or less", "at-most", "step_time_ratio", (None, 1.3)),
        ("compile=default 2 times faster than off", "at-least", "speedup", (2, None)),
        ("compile = default >= 2x", "at-least", "speedup", (2, None)),
    ],
)
def test_a_sentence_is_a_range_on_a_metric(
    text: str, form: str, metric: str, bounds: tuple[float | None, float | None]
) -> None:
    found = claim(text)
    assert (found.form, found.metric) == (form, metric)
    assert found.bounds == pytest.approx(bounds)


@pytest.mark.parametrize(
    ("text", "cell", "baseline", "at"),
    [
        ("attention=flash2 vs eager 2x", {"attention": "flash2"}, {"attention": "eager"}, {}),
        # without vs: the default of the axis
        ("lora=8 2x", {"lora": 8}, {"lora": "off"}, {}),
        ("pin_memory=true and workers=4 vs pin_memory=false workers=0 1.1x", {"pin_memory": True, "workers": 4},
         {"pin_memory": False, "workers": 0}, {}),
        ("attention=flash2 vs eager at precision=bf16 sequence_length=2048 >= 2x", {"attention": "flash2"},
         {"attention": "eager"}, {"precision": "bf16", "sequence_length": 2048}),
        ("batch_size=64 vs 32 >= 1.5x", {"batch_size": 64}, {"batch_size": 32}, {}),
    ],
)  # fmt: skip
def test_settings_of_both_arms(text: str, cell: Any, baseline: Any, at: Any) -> None:
    found = read_sentence(text, axis_table())
    assert (dict(found.cell), dict(found.baseline), dict(found.at)) == (cell, baseline, at)


@pytest.mark.parametrize(
    "text",
    ["precision=bf16 vs fp32 at precision=tf32 >= 2x",
     "compile=default vs compile=off precision=tf32 at precision=bf16 >= 2x"],
)  # fmt: skip
def test_an_axis_of_one_arm_is_none_of_both(text: str) -> None:
    assert "precision stands after 'at' too, which is for settings of both arms" in refused(text)


@pytest.mark.parametrize("view", ["allocated", "reserved", "device", "host"])
def test_a_view_of_memory(view: str) -> None:
    assert claim(f"checkpointing=full 30% less peak {view} memory").view == view


@pytest.mark.parametrize(
    "text",
    ["attention=flash2 vs eager 20% slower", "checkpointing=full 10% to 20% more peak host memory",
     "compile=default >= 1.23456789x", "compile=default <= 0.0000123x step time", "compile=default 1234567.5x",
     "precision=bf16 2x less peak memory at sequence_length=512", "compile=default up to 20% less step time"],
)  # fmt: skip
def test_the_sentence_in_full_reads_back_as_the_same(text: str) -> None:
    found = read_sentence(text, axis_table())
    assert read_sentence(str(found), axis_table()) == found


@pytest.mark.parametrize(
    ("text", "why", "nearest"),
    [
        ("atention=flash2 vs egaer >= 2x", "unknown axis 'atention'", "attention=flash2 vs eager >= 2x faster"),
        ("compile=defualt 1.3x", "did you mean 'default'", "compile=default vs off >= 1.3x faster"),
        ("flash is 2x faster", "does not begin with a setting", "attention=flash2 vs sdpa >= 2x faster"),
        ("compile=default", "claims no figure", "compile=default vs off >= 1.1x faster"),
        ("attention=flash2 vs eager >= 2x fastr", "'fastr' says nothing", "attention=flash2 vs eager >= 2x faster"),
        ("attention=flash2 vs eager 3x to 2x", "put the smaller figure first", "attention=flash2 vs eager 2x to 3x"),
        ("attention=sdpa vs sdpa 2x", "both arms are attention=sdpa", "attention=sdpa-flash vs sdpa >= 2x"),
        ("precision=bf16 2x less device time", "write 'peak device memory'", "bf16 vs fp32 >= 2x less step time"),
        ("", "does not begin with a setting", "an example of a sentence that can be checked: 'attention=sdpa vs eager"),
        # a figure is no setting of some axis, nor is the `off` of one that of another
        (
            "FlashAttention is 2-4x faster",
            "does not begin",
            "nearest sentence that can be checked: 'attention=flash2 vs sdpa 2x to 4x faster'",
        ),
        ("FlashAttention 2-4x faster", "does not begin", "attention=flash2 vs sdpa 2x to 4x faster"),
        ("flash attention 2 is 2x faster", "does not begin", "attention=flash2 vs sdpa >= 2x faster"),
        ("compile vs off >= 1.3x", "does not begin", "compile=default vs off >= 1.3x faster"),
        ("torch.compile 30% faster", "does not begin", "compile=default vs off >= 30% faster"),
        ("AMP gives up to 2x", "does not begin", "precision=amp-bf16 vs fp32 up to 2x faster"),
        ("mixed precision is 2x faster", "does not begin", "precision=amp-bf16 vs fp32 >= 2x faster"),
        ("gradient checkpointing saves 50% memory", "does not begin", "checkpointing=full vs off >= 50% less peak mem"),
        ("DDP 1.9x faster", "does not begin", "parallel=ddp vs none >= 1.9x faster"),
        ("FSDP vs DDP 1.1x", "does not begin", "parallel=fsdp vs ddp >= 1.1x faster"),
        ("ZeRO-3 saves 60% peak memory", "does not begin", "zero=3 vs off >= 60% less peak memory"),
        ("ZeRO 2 to 4x less memory", "does not begin", "zero=2 vs off 2x to 4x less peak memory"),
        ("LoRA halves the memory", "does not begin", "lora=8 vs off >= 50% less peak memory"),
        ("QLoRA saves 75% memory", "does not begin", "quantization=nf4 lora=8 vs "),
        ("fused Adam 10% faster", "does not begin", "optimizer=fused vs foreach >= 10% faster"),
        ("dataloader workers 2x faster", "does not begin", "workers=4 vs 0 >= 2x faster"),
        ("pinned memory is 10% faster", "does not begin", "pin_memory=true vs false >= 10% faster"),
        ("the moon is made of cheese", "does not begin", "; an example of a sentence that can be checked: "),
        ("GaLore saves 60% memory", "does not begin", "; an example of a sentence that can be checked: "),
        ("2x faster", "does not begin", "; an example of a sentence that can be checked: "),
    ],
)
def test_what_does_not_parse_gets_the_nearest_sentence_that_does(text: str, why: str, nearest: str) -> None:
    message = refused(text)
    assert why in message
    assert nearest in message
    offered = re.findall(r"can be checked: '(.*)'", message)[0]
    read_sentence(offered, axis_table())


@pytest.mark.parametrize(("name", "settings"), EVERYDAY.items())
def test_an_everyday_name_stands_for_a_setting_that_there_is(name: str, settings: str) -> None:
    offered = nearest(f"{name} is 1.5x faster", axis_table())
    assert offered is not None
    found = read_sentence(offered, axis_table())
    assert dict(found.cell) == dict(read_sentence(f"{settings} 1.5x", axis_table()).cell)
    assert found.low.value == 1.5


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("lora=8 2x less more memory", "contradict each other"),
        ("checkpointing=full reduces memory by 20% more", "contradict each other"),
        ("compile=default up to at most 2x", "'up to' and '<=' contradict each other"),
        ("compile=default at most 2x to 3x", "write '2x to 3x' for a range"),
        ("compile=default >= 2x and <= 3x", "write it as '2x to 3x'"),
        # a share of it, or so much less?
        ("checkpointing=full <= 50% peak memory", "write '<= 50% of the peak memory', '<= 50% less peak memory' or"),
        ("lora=8 <= 1% trainable parameters", "write '<= 1% of the trainable parameters', '<= 1% fewer trainable"),
        ("checkpointing=full 20% step time", "write '20% of the step time', '20% less step time' or '20% more step"),
        ("checkpointing=full 30% speed", "write '30% of the speed', '30% slower' or '30% faster'"),
        ("checkpointing=full 20% slower step time", "write '20% slower' or '20% more step time'"),
        ("optimizer=fused >= 20% faster step time", "write '>= 20% faster' or '>= 20% less step time'"),
        ("checkpointing=full 2x slower memory", "write '2x more peak memory' or leave peak memory out"),
        ("checkpointing=full 20% shorter memory", "'shorter' is not said of peak memory"),
        ("checkpointing=full saves 20% speed", "write '20% faster' or '20% slower'"),
        ("checkpointing=full 0.5x less peak memory", "write '<= 0.5x peak memory' or '>= 0.5x peak memory'"),
        ("checkpointing=full 0.8x faster", "write '<= 0.8x speed' or '>= 0.8x speed'"),
        ("checkpointing=full reduces step time to 80%", "write '<= 80% of the step time' or '>= 80% of the step time'"),
        # of what?
        ("checkpointing=full costs 20% to 30%", "'costs' does not say of what"),
        ("checkpointing=full saves 30%", "'saves' does not say of what"),
        ("checkpointing=full 30% less", "'less' does not say of what"),
        # two claims, two units
        ("compile=default >= 1.3x faster and 20% less memory", "is two claims; check them one at a time"),
        ("compile=default 20% less memory and step time", "two claims; check them one at a time"),
        ("compile=default 1.3x to 50%", "'1.3x to 50%' has two units; write both in one"),
        ("compile=default 20% to 1.5x", "'20% to 1.5x' has two units; write both in one"),
        # what cannot be
        ("compile=default up to 120% less step time", "at 100% nothing is left"),
        ("compile=default up to 100% less step time", "at 100% nothing is left"),
        ("compile=default >= 150% slower", "at 100% nothing is left"),
        ("compile=default at most 100% slower", "at 100% nothing is left"),
        ("compile=default 50% to 100% slower", "at 100% nothing is left"),
        (
            "checkpointing=full saves 150% peak memory",
            "write less than 100%, or a factor such as '2x less peak memory'",
        ),
        ("checkpointing=full saves 0x activation memory", "write a figure above 0"),
        ("compile=default >= 0x faster", "write a figure above 0"),
        ("compile=default >= 0x slower", "write a figure above 0"),
        ("compile=default <= 0x peak memory", "write a figure above 0"),
        ("compile=default 0% of the step time", "write a figure above 0"),
        ("compile=default 0x to 2x", "write a figure above 0"),
        (f"compile=default {'9' * 400}x", "beyond what can be measured"),
        ("compile=default 1x peak memory", "says no difference; write '<= 1x peak memory' or '>= 1x peak memory'"),
        ("precision=bf16 not slower", "say with a figure what is, as '>= 1x speed' for not slower"),
        ("precision=bf16 is not 2x faster", "say with a figure what is"),
    ],
)
def test_what_says_too_little_or_two_things_is_told_what_to_write(text: str, why: str) -> None:
    """And nothing else is offered beside it."""
    message = refused(text)
    assert why in message
    assert "can be checked" not in message


@pytest.mark.parametrize(
    ("words", "bounds"),
    [
        ("<= 50% peak memory", [(0.5, None), (None, 0.5), (-0.5, None)]),
        (">= 20% step time", [(0.2, None), (None, 0.8), (1.2, None)]),
        (">= 30% speed", [(0.3, None), (None, 0.7), (1.3, None)]),
        ("20% slower step time", [(None, 0.8), (1.2, None)]),
        ("0.5x less peak memory", [(0.5, None), (None, 0.5)]),
        ("reduces step time to 80%", [(None, 0.8), (0.8, None)]),
        ("1x step time", [(None, 1), (1, None)]),
    ],
)
def test_each_reading_that_is_offered_can_be_checked(
    words: str, bounds: list[tuple[float | None, float | None]]
) -> None:
    """Bounds worked out by hand: on the share of memory saved, cell over baseline of the time, the speedup."""
    offered = re.findall(r"'([^']+)'", refused(f"compile=default {words}").partition("write ")[2])
    assert [claim(f"compile=default {each}").bounds for each in offered] == [pytest.approx(each) for each in bounds]


@pytest.mark.parametrize(
    "text",
    ["compile=default loses 20% to 30%", "compile=default wastes 20% step time", "compile=default -20% slower",
     "compile=default within 10% slower", "compile=default hardly 2x faster", "flash is not slower",
     "checkpointing costs 30%", "compile=default from 1.3x to 2x", "pin_memory=no >= 2x", "precision=int8 2x",
     "checkpointing=full peak memory", "compile=default 1.1x 1.2x 1.3x"],
)  # fmt: skip
def test_no_sentence_is_offered_that_may_say_the_opposite(text: str) -> None:
    """A word, a setting or a figure that is not understood is not left out to make the rest parse."""
    assert "an example of a sentence" in refused(text)


def test_a_truth_value_is_offered_as_it_is_written() -> None:
    message = refused("pin_memory=True >= 2x")
    assert "'True' is not a setting (false, true); did you mean 'true'?" in message
    assert "'pin_memory=true vs false >= 2x faster'" in message


# -- in a claims file --------------------------------------------------------------------------------------------------


def test_a_claims_file_takes_the_same_sentences(tmp_path: Path) -> None:
    """Compiled to the same claim as `claimbench check` makes, judged on the study that it fills."""
    file = tmp_path / "claims.yaml"
    file.write_text("schema: 1\nclaims:\n  mine: {check: attention=flash2 vs eager >= 2x}\n", encoding="utf-8")
    found = read_claims(file).claims["mine"]
    sentence = read_sentence("attention=flash2 vs eager >= 2x", axis_table())
    same = sentence.claim(study=sentence.study, name="mine")
    for name in ("form", "metric", "bounds", "cell", "study", "device", "statement"):
        assert getattr(found, name) == getattr(same, name), name


@pytest.mark.parametrize("at", [{}, {"precision": "bf16"}])
def test_in_a_study_of_a_matrix_both_arms_are_named_in_full(tmp_path: Path, at: dict[str, str]) -> None:
    said = "checkpointing=full saves 30% to 50% peak memory" + "".join(f" at {axis}={to}" for axis, to in at.items())
    file = tmp_path / "claims.yaml"
    file.write_text(f"schema: 1\nclaims:\n  mine: {{study: checkpointing, check: {said}}}\n", encoding="utf-8")
    found = read_claims(file).claims["mine"]
    assert (found.study, found.cell) == ("checkpointing", {"checkpointing": "full", **at})
    assert found.baseline == {"checkpointing": "off", **at}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("mine: {check: atention=flash2 vs eager >= 2x}", "claims.yaml:3:17: unknown axis 'atention'"),
        (
            "mine: {check: precision=bf16 up to 100% less step time}",
            "claims.yaml:3:17: '100% less step time' cannot be",
        ),
        (
            "mine: {check: checkpointing=full saves 0x activation memory}",
            "claims.yaml:3:17: '0x less activation memory'",
        ),
        ("mine: {check: lora=8 2x, metric: speedup}", "'metric' stands in the sentence of 'check' already"),
    ],
)
def test_what_is_wrong_in_a_claims_file_has_a_place(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "claims.yaml").write_text(f"schema: 1\nclaims:\n  {line}\n", encoding="utf-8")
    with pytest.raises(ClaimsError) as error:
        read_claims(tmp_path / "claims.yaml")
    assert message in str(error.value)
