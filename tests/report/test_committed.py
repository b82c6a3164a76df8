"""The reports under reports/ are what the evidence beside them gives today; figures apart, which take long to draw."""

from __future__ import annotations

from pathlib import Path

import pytest

import harness
from harness.judgement.claims_file import read_claims
from harness.judgement.judge import judge
from harness.report import render_report
from harness.report.figures.studio import Studio
from harness.report.origin import matrices_at_hand, origin_of
from tests.commands import ROOT

EVIDENCE = sorted(path for path in (ROOT / "reports" / "evidence").iterdir() if path.is_dir() or ".jsonl" in path.name)


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
    origin = origin_of(judgement.blocks, matrices_at_hand([evidence], claims))
    render_report(judgement, claims, records, tmp_path, name=name, figures=None, studio=Idle(), origin=origin)
    texts = ["report.md", *sorted(f"tables/{path.name}" for path in (tmp_path / "tables").iterdir())]
    assert sorted(path.name for path in (committed / "tables").iterdir()) == [Path(each).name for each in texts[1:]]
    changed = [each for each in texts if (tmp_path / each).read_bytes() != (committed / each).read_bytes()]
    assert changed == [], "`nox -s report` makes the reports again"
