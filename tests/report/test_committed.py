"""The reports under reports/ are what the evidence beside them gives today; figures apart, which take long to draw."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import median

import pytest

import harness
from harness.judgement.blocks import compare
from harness.judgement.claims_file import read_claims
from harness.judgement.judge import judge
from harness.judgement.judged import BlockResult
from harness.judgement.parity import (
    CONTROL_SHARE,
    ROUNDING_SHARE,
    Demand,
    demand_of,
    loss_gap,
    tolerance_of,
)
from harness.judgement.same_training import loss_curves
from harness.report import render_report
from harness.report.figures.studio import Studio
from harness.report.origin import matrices_at_hand, origin_of
from tests.commands import ROOT

EVIDENCE = sorted(path for path in (ROOT / "reports" / "evidence").iterdir() if path.is_dir() or ".jsonl" in path.name)


@cache
def blocks_of(card: str) -> Sequence[BlockResult]:
    """Of the evidence of a kind of GPU."""
    return compare(harness.read(ROOT / "reports" / "evidence" / card)).blocks


class Idle(Studio):
    """Draws nothing."""

    def finish(self) -> list[str]:
        asked, self._asked = self._asked, []
        return ["<svg></svg>" for _ in asked]


@pytest.mark.parametrize("evidence", EVIDENCE, ids=lambda path: path.name.partition(".")[0])
def test_a_committed_report_says_what_its_evidence_says(
    evidence: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    name = evidence.name.partition(".")[0]
    committed = ROOT / "reports" / name
    claims, records = read_claims("claims.yaml"), harness.read([evidence])
    judgement = judge(records, claims)
    matrix = "examples/every-setting.yaml" if name.endswith("-every-setting") else "matrix.yaml"
    origin = origin_of(judgement.blocks, matrices_at_hand([evidence], claims, matrix))
    render_report(judgement, claims, records, tmp_path, name=name, figures=None, studio=Idle(), origin=origin)
    texts = ["report.md", *sorted(f"tables/{path.name}" for path in (tmp_path / "tables").iterdir())]
    assert sorted(path.name for path in (committed / "tables").iterdir()) == [Path(each).name for each in texts[1:]]
    changed = [each for each in texts if (tmp_path / each).read_bytes() != (committed / each).read_bytes()]
    assert changed == [], "`nox -s report` makes the reports again"
    assert "further figure" not in (committed / "report.md").read_text(encoding="utf-8"), "the budget is too small"


def test_the_page_on_statistics_says_what_the_reports_say_of_other_machines() -> None:
    page = " ".join((ROOT / "docs" / "statistics.md").read_text(encoding="utf-8").split())
    pattern = re.compile(
        r"- (\d+) ratios: .* by ([\d.]+%) in the median and by ([\d.]+)% at most.*: (\d+), where chance alone gives"
        r" ([\d.]+); after Holm's correction: (\d+)\."
    )
    found = [pattern.search((ROOT / "reports" / card / "report.md").read_text()) for card in ("h100", "h200")]
    (h100, h200) = [match.groups() for match in found if match is not None]
    ratios, low = (sum(int(each[place]) for each in (h100, h200)) for place in (0, 3))
    chance, most = 0.05 * ratios, max(float(h100[2]), float(h200[2]))
    assert (h100[5], h200[5]) == ("0", "0")
    for said in (
        f"{ratios} ratios have two rounds or more", f"({h100[0]} on H100s, {h200[0]} on H200s;",
        f"p < 0.05 for {low}, where chance gives {chance:.1f}, and for none after Holm's correction",
        f"moved by {h100[1]} in the median on H100s and {h200[1]} on H200s", f"by up to {most}%",
    ):  # fmt: skip
        assert said in page


def test_the_page_on_statistics_counts_the_controls_that_differ_from_their_baselines() -> None:
    page = " ".join((ROOT / "docs" / "statistics.md").read_text(encoding="utf-8").split())
    intervals = []
    for card in ("h100", "h200"):
        with (ROOT / "reports" / card / "tables" / "noise.csv").open(encoding="utf-8") as file:
            intervals += [(float(row["low"]), float(row["high"])) for row in csv.DictReader(file) if row["low"]]
    apart, chance = sum(low > 1 or high < 1 for low, high in intervals), 0.05 * len(intervals)
    assert (
        f"{len(intervals)} A/A controls with an interval, which leaves out 1.00x in {apart}; chance gives {chance:.1f}"
        in page
    )


def test_the_page_on_statistics_counts_the_rounds_that_a_spike_carried_off() -> None:
    page = " ".join((ROOT / "docs" / "statistics.md").read_text(encoding="utf-8").split())
    gaps: list[tuple[str, float]] = []
    for card in ("h100", "h200"):
        for block in blocks_of(card):
            if block.control is None or block.baseline is None:
                continue
            again = [loss_gap(*pair) for pair in loss_curves(block.control.trials, block.baseline.trials)]
            for arm in (each for each in block.arms if each.role != "baseline"):
                tolerance = tolerance_of(arm.cell)
                nearly = again and 0 < median(again) <= CONTROL_SHARE * tolerance
                if nearly and demand_of(arm.cell, block.baseline.cell)[0] is Demand.EXACT:
                    pairs = loss_curves(arm.trials, block.baseline.trials)
                    gaps += [(arm.role, loss_gap(*pair) / tolerance) for pair in pairs]
    strayed = [role for role, share in gaps if share > 1]
    counted = f"Of {len(gaps)} such rounds on H100s and H200s {len(strayed)} lay beyond the tolerance"
    assert f"{counted}, {strayed.count('control')} of controls and {strayed.count('cell')} of a cell" in page
    by_chance = 1 - (1 - len(strayed) / len(gaps)) ** 5  # one of five, none of which may stray
    assert f"which fails {100 * by_chance:.0f} arms of five rounds in 100 by chance" in page
    assert by_chance < 0.05


def test_the_page_on_statistics_says_what_rounding_takes_of_what_two_seeds_differ_by() -> None:
    page = " ".join((ROOT / "docs" / "statistics.md").read_text(encoding="utf-8").split())
    shares, at_fault = [], []
    for card in ("h100", "h200"):
        for block in blocks_of(card):
            for arm in (each for each in block.arms if each.role == "cell"):
                rounding = demand_of(arm.cell, block.baseline.cell)[0] is Demand.ROUNDING if block.baseline else False
                if not rounding or arm.parity.margin is None or arm.parity.loss_gap is None:
                    continue
                # DeepSpeed's engine stepped its optimizer once before training, until the second revision of `zero`
                first = "zero" not in arm.trials[0].measuring.get("revisions", {}) and block.study == "zero"
                (at_fault if first else shares).append(arm.parity.loss_gap / arm.parity.margin * ROUNDING_SHARE)
    assert f"Of {len(shares)} cells on H100s and H200s" in page
    assert f"none took more than {max(shares):.2f} of what two seeds differ by" in page
    assert f"to {max(at_fault):.2f} by study" in page
    assert max(shares) < ROUNDING_SHARE < max(at_fault)
