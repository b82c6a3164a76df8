"""Numbers, Markdown and the small plot in a row."""

from __future__ import annotations

import re

import pytest

from harness.judgement.judged import Verdict, Word
from harness.report import formats
from harness.report.markdown import escape_text, table
from harness.report.rangeplot import WIDTH, range_plot
from harness.report.tables import Table


@pytest.mark.parametrize(
    ("value", "text"), [(0.0143, "0.0143x"), (0.25, "0.25x"), (0.998, "0.998x"), (2.345, "2.35x"), (26.25, "26.2x")]
)
def test_a_ratio_keeps_three_figures_where_two_digits_would_leave_one(value: float, text: str) -> None:
    assert formats.ratio(value) == text


def test_the_ends_of_a_small_interval_stay_apart() -> None:
    assert formats.span(0.0112, 0.0187) == "[0.0112, 0.0187]"
    assert formats.span(1.46, 1.5) == "[1.46, 1.50]"


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (formats.ratio(1.4834), "1.48x"), (formats.ratio(0.9981), "0.998x"), (formats.ratio(12.34), "12.3x"),
        (formats.ratio(None), "–"), (formats.ratio(float("nan")), "–"),
        (formats.share(0.375), "37.5%"), (formats.rate(41230.4), "41,230"), (formats.rate(12.34), "12.3"),
        (formats.size(3 * 2**30), "3.00 GiB"), (formats.size(310 * 2**20), "310.0 MiB"),
        (formats.milliseconds(0.01234), "12.3 ms"),
        (formats.milliseconds(0.9994), "999 ms"), (formats.milliseconds(12.84), "12.8 s"),
        (formats.milliseconds(-1.4), "-1.4 s"), (formats.with_span(1.48, 1.46, 1.5), "1.48x [1.46, 1.50]"),
        (formats.with_span(1.001, 0.998, 1.004), "1.001x [0.998, 1.004]"), (formats.with_span(2, None, None), "2.00x"),
        (formats.moment("2026-03-01T09:05:00+00:00"), "2026-03-01 09:05 UTC"), (formats.moment("soon"), "soon"),
        (formats.settings({"pin_memory": True, "workers": 4}), "pin_memory=true workers=4"),
        (formats.slug("../../etc/Pass wd$"), "etc-pass-wd"), (formats.slug("训练"), "unnamed-a29c0d"),
        (formats.plural(1, "trial"), "1 trial"), (formats.plural(2000, "trial"), "2,000 trials"),
        (formats.sentence("the interval lies there"), "The interval lies there."), (formats.sentence(""), ""),
        (formats.figure("peak_bytes", 2.0**30), "1.00 GiB"), (formats.figure("call_seconds", 0.5), "500 ms"),
        (formats.figure("padding_share", 0.25), "25.0%"), (formats.figure("count", 3.0), "3"),
    ],
)  # fmt: skip
def test_numbers_in_words(shown: str, expected: str) -> None:
    assert shown == expected


def test_markdown_escapes_what_comes_from_data() -> None:
    assert escape_text("a|b *c* <d>\n`e`") == r"a\|b \*c\* &lt;d&gt; \`e\`"
    made = table(
        Table(
            caption="",
            columns=("x", "n"),
            rows=(("a|b", "1"), ("c", "2")),
            numeric=frozenset({1}),
            strong=frozenset({1}),
        )
    )
    assert made.splitlines() == ["| x | n |", "| --- | ---: |", r"| a\|b | 1 |", "| **c** | **2** |"]
    assert escape_text(made) == made, "a table that was made is not escaped again"


def verdict(
    value: float | None, low: float | None, high: float | None, interval: tuple[float, float] | None
) -> Verdict:
    return Verdict(claim="c", word=Word.CONFIRMED, reason="", helped="", claimed="", measured="", value=value,
                   interval=interval, low=low, high=high)  # fmt: skip


def test_the_plot_puts_band_and_interval_on_one_axis() -> None:
    """1 to 3 with 12% room on each side: 0.76 to 3.24 over 134 of 150 pixels."""
    drawn = range_plot(verdict(2, 1, 3, (1.5, 2.5)))
    dot = re.search(r'cx="([\d.]+)"', drawn)
    assert dot is not None
    assert float(dot[1]) == WIDTH / 2
    band = re.search(r'class="band" x="([\d.]+)" y="4" width="([\d.]+)"', drawn)
    assert band is not None
    assert float(band[1]) == pytest.approx(8 + 134 * 0.24 / 2.48, abs=0.1)
    assert float(band[2]) == pytest.approx(134 * 2 / 2.48, abs=0.2)
    assert "claimed 1 to 3; measured 2, interval 1.5 to 2.5" in drawn


def test_the_plot_shows_the_whole_interval_and_no_change_where_they_lie_outside_of_what_is_claimed() -> None:
    """0 to 5 with 12% room on each side: -0.6 to 5.6 over 134 pixels."""
    drawn = range_plot(verdict(4, 1, 3, (3.5, 5)), neutral=0)
    x = {value: pytest.approx(8 + 134 * (value + 0.6) / 6.2, abs=0.06) for value in (0, 3.5, 4, 5)}
    places = {name: [float(each) for each in re.search(pattern, drawn).groups()] for name, pattern in (  # type: ignore[union-attr]
        ("dot", r'cx="([\d.]+)"'), ("neutral", r'class="neutral" d="M([\d.]+) '),
        ("whisker", r'class="whisker good" d="M([\d.]+) [\d.]+H([\d.]+)M'),
    )}  # fmt: skip
    assert places == {"dot": [x[4]], "neutral": [x[0]], "whisker": [x[3.5], x[5]]}


def test_the_plot_of_an_open_range_reaches_the_edge_and_none_without_a_value() -> None:
    drawn = range_plot(verdict(2, 1.5, None, None), neutral=1)
    assert 'class="neutral"' in drawn
    assert 'class="whisker' not in drawn
    band = re.search(r'class="band" x="([\d.]+)" y="4" width="([\d.]+)"', drawn)
    assert band is not None
    assert float(band[1]) + float(band[2]) == pytest.approx(WIDTH - 4, abs=0.1)
    assert range_plot(verdict(None, 1, 2, None)) == ""
    assert range_plot(verdict(1, None, None, None)) == ""


def test_a_sentence_leaves_names_as_they_are() -> None:
    """`Precision=bf16: crash …` is no setting, and `My.py:build` no file."""
    for clause in (
        "precision=bf16: crash in 3 of 3 rounds", "lora=8 zero=2: oom", "my.py:build raised", "batch_size is read",
        "`claimbench check` measures it", "bf16 is faster", "1.5x is less than claimed",
    ):  # fmt: skip
        assert formats.sentence(clause) == f"{clause}."
    for clause, said in (
        ("the whole interval lies above 2x", "The whole interval lies above 2x."),
        ("two trials differ.", "Two trials differ."),
        ("half-precision", "Half-precision."),
        ("no: it was not run", "No: it was not run."),
    ):
        assert formats.sentence(clause) == said
