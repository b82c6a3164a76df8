"""Holds claims against the blocks of a matrix: every study, cell and sweep point that a claim names must exist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.errors import suggestion
from harness.experiment.problems import Problems
from harness.experiment.study import Arm, Block
from harness.judgement.claims import Claim, Claims, Entry, Settings, show_settings
from harness.judgement.metrics import FACT, FIGURE_PREFIXES
from harness.judgement.places import find_arm, fits
from harness.judgement.sentence import CHECK_STUDY
from harness.trial.kinds import KINDS, figures_of

Path = list[str | int]


@dataclass(frozen=True, kw_only=True)
class _PlannedArm:
    name: str
    settings: Mapping[str, object]


def check_against(claims: Claims, blocks: Sequence[Block], problems: Problems) -> None:
    """Note in `problems` everything that a claim names and the blocks lack."""
    studies: dict[str, list[Block]] = {}
    for block in blocks:
        studies.setdefault(block.study, []).append(block)
    for claim in claims.all():
        _Check(studies=studies, problems=problems, claim=claim).run()


def check_figures(claim: Claim, kinds: Mapping[str, str], problems: Problems) -> None:
    """Note an expected value of what is no figure, and a figure that no trial leaves: none of the kinds of the studies
    that answer the claim, or, where one of these is not known, none at all. Unknown kinds may leave any.

    Args:
        kinds: study → kind.
    """
    if claim.expect is not None and not (claim.metric or "").startswith(FACT):
        problems.add(
            f"an expected value is one of a kind's own figures: give '{FACT}NAME'", ["claims", claim.id, "metric"]
        )
    studies = {entry.study or claim.study for entry in claim.order} or {claim.study}
    asked = {kinds[study] for study in studies} if studies <= kinds.keys() else set(KINDS)
    if not asked <= KINDS.keys():
        return
    known = figures_of(asked)
    whose = f"kind {' or '.join(sorted(asked))}" if len(asked) < len(KINDS) else "any kind"
    for index, name in enumerate((claim.metric or "", *claim.shows)):
        at: Path = ["shows", index - 1] if index else ["metric"]
        prefix, colon, figure = name.partition(":")
        if f"{prefix}{colon}" in FIGURE_PREFIXES and not {figure, figure.partition(".")[0]} & known:
            hint = suggestion(figure, sorted(known), "docs/claims.md")
            problems.add(f"no trial of {whose} has a figure {figure!r}{hint}", ["claims", claim.id, *at])


@dataclass(frozen=True, kw_only=True)
class _Check:
    studies: Mapping[str, Sequence[Block]]
    problems: Problems
    claim: Claim

    def run(self) -> None:
        claim, path = self.claim, ["claims", self.claim.id]
        if claim.check and claim.study.startswith(CHECK_STUDY):
            return  # measured by `claimbench check`, not by the matrix
        if not self._study_exists(claim.study, [*path, "study"]):
            return
        sizes = claim.form == "limit"
        primary = self._blocks(claim.study, claim.at, [*path, "at"], single=not sizes)
        everywhere = self.studies[claim.study]
        self._cell(everywhere if sizes else primary, claim.cell, [*path, "cell"])
        self._cell(primary, claim.baseline, [*path, "baseline"])
        for index, cell in enumerate(claim.also):
            self._cell(everywhere, cell, [*path, "also", index])
        if claim.other_baseline is not None:
            self._cell(primary, claim.other_baseline, [*path, "other_baseline"])
        for index, entry in enumerate(claim.order):
            self._entry(entry, [*path, "order", index])
        for index, study in enumerate(claim.see):
            self._study_exists(study, [*path, "see", index])

    def _entry(self, entry: Entry, path: Path) -> None:
        study = entry.study or self.claim.study
        if not self._study_exists(study, [*path, "study"]):
            return
        at = entry.at or (self.claim.at if study == self.claim.study else {})
        blocks = self._blocks(study, at, [*path, "at"], single=True)
        for cell in entry.cells:
            self._cell(blocks, cell, path)
        self._cell(blocks, entry.baseline, [*path, "baseline"])

    def _study_exists(self, study: str, path: Path) -> bool:
        if study not in self.studies:
            self.problems.add(f"unknown study {study!r}{suggestion(study, self.studies, '`claimbench plan`')}", path)
        return study in self.studies

    def _blocks(self, study: str, at: Settings, path: Path, *, single: bool) -> Sequence[Block]:
        """The blocks of the study at the claim's sweep point."""
        blocks = self.studies[study]
        swept = list(dict.fromkeys(axis for block in blocks for axis in block.sweep))
        unknown = [axis for axis in at if axis not in swept]
        if unknown:
            words = suggestion(unknown[0], swept) if swept else "; remove it"
            self.problems.add(f"study {study!r} does not sweep {unknown[0]!r}{words}", [*path, unknown[0]], key=True)
            return []
        here = [block for block in blocks if fits(block.sweep, at)]
        if not here:
            points = ", ".join(show_settings(block.sweep) for block in blocks)
            self.problems.add(f"study {study!r} has no point {show_settings(at)}; its points: {points}", path)
        if single and len(here) > 1:
            missing = [axis for axis in swept if axis not in at]
            self.problems.add(f"study {study!r} sweeps {', '.join(missing)}; name the primary point under 'at'", path)
        return here

    def _cell(self, blocks: Sequence[Block], cell: Settings, path: Path) -> None:
        """Note a cell that none of the blocks has; nothing when the point itself was wrong already."""
        if not blocks:
            return
        axes = blocks[0].baseline.cell.settings
        for axis in cell:
            if axis not in axes:
                self.problems.add(
                    f"unknown axis {axis!r}{suggestion(axis, axes, '`claimbench doctor`')}", [*path, axis], key=True
                )
                return
        if not any(find_arm(_planned(block.arms), cell) for block in blocks):
            names = list(dict.fromkeys(arm.name for block in blocks for arm in block.arms if arm.name != "control"))
            wanted = show_settings(cell)
            hint = suggestion(wanted, names, "`claimbench plan`")
            self.problems.add(f"study {blocks[0].study!r} has no cell {wanted!r}{hint}", path)


def _planned(arms: Sequence[Arm]) -> list[_PlannedArm]:
    return [_PlannedArm(name=arm.name, settings=arm.cell.settings) for arm in arms]
