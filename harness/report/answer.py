"""The answer in one table: each claim with its verdict, from the report with most rounds of it, the first of equals.

Which report that is depends on what was run and not on what it said: a claim at an edge gets one chance. Where another
report says something else, its row names it.

    python -m harness.report.answer README.md reports/evidence/h100 reports/evidence/h200

writes it into a page, between the lines `<!-- answer -->` and `<!-- /answer -->`. What is evidence under
`reports/evidence/<name>` is taken to have its report at `reports/<name>/report.md`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.errors import InputError
from harness.experiment.study import FEWEST_ROUNDS
from harness.judgement.claims import Claim, Claims
from harness.judgement.claims_file import read_claims
from harness.judgement.judge import judge
from harness.judgement.judged import ArmResult, BlockResult, Judgement, Verdict, Word
from harness.judgement.notes import BEFORE
from harness.judgement.scope import HOLDS
from harness.judgement.site import current, is_gpu
from harness.judgement.stats import MOST_ROUNDS
from harness.report import formats
from harness.report.claim_page import by_study, further_sweeps
from harness.report.contradictions import sides_of
from harness.report.fastest import TITLE as FASTEST
from harness.report.fastest import fastest, sentence, speed
from harness.report.markdown import escape_text
from harness.report.verdicts import LOOKS, rank
from harness.results.load import read_records

BEGIN, END = "<!-- answer -->", "<!-- /answer -->"
#: Words that need no further round.
DECIDED = frozenset({Word.CONFIRMED, Word.REACHED, Word.REFUTED_BELOW, Word.REFUTED_ABOVE, Word.NOT_REACHED,
                     Word.FAST_BUT_DIFFERENT, Word.EXTRAPOLATED})  # fmt: skip


def answer(claims: Claims, reports: Mapping[str, Judgement]) -> str:
    """Markdown: a row for each claim that is decided or open, and a sentence on the others.

    Args:
        reports: name → judgement of all of `claims`; the first ones count where rounds are equal.
    """
    chosen = [(claims.claims[name], *_best(name, reports)) for name in claims.claims]
    rows = [_row(claim, name, verdict, reports) for claim, name, verdict in chosen
            if verdict.word in DECIDED or verdict.word is Word.INCONCLUSIVE]  # fmt: skip
    left = Counter(verdict.word for _, _, verdict in chosen if verdict.word not in DECIDED)
    head = ["| claim | in | measured | verdict | GPU |", "|---|---|---|---|---|"]
    others = ", ".join(f"{left[word]} {word.value}" for word in LOOKS if left[word] and word is not Word.INCONCLUSIVE)
    return "\n".join([*head, *rows, *(["", f"The other claims: {others}."] if others else [])])


def where_each_holds(claims: Claims, reports: Mapping[str, Judgement]) -> list[str]:
    """Markdown: a point for each group of claims that contradict each other and have a curve in some report."""
    found: dict[tuple[str, ...], str] = {}
    for name, judgement in reports.items():
        blocks = by_study(judgement)
        for sides in (each for each in sides_of(judgement, claims) if all(side.holds for side in each)):
            said = [f"*{escape_text(side.statement)}* {escape_text(' '.join(side.holds))}" for side in sides]
            names = tuple(side.name for side in sides)
            studies = {claims.claims[each].study for each in names}
            models = ", ".join(sorted({block.model for study in studies for block in blocks.get(study, ())}))
            link = f"[curve](reports/{name}/report.md#{formats.slug(' against '.join(names))})"
            where = f"{models} on {_short(sides[0].verdict.device)}: {link}"
            found.setdefault(names, f"- {' '.join(said)} ({where})")
    return list(found.values())


def where_else_each_holds(claims: Claims, reports: Mapping[str, Judgement]) -> list[str]:
    """Markdown: a point for each claim that has a curve in a further study (`see`), from the report of its row."""
    blocks = {name: by_study(judgement) for name, judgement in reports.items()}
    found = []
    for name, claim in claims.claims.items():
        report, verdict = _best(name, reports)
        sweeps = further_sweeps(verdict, claim, blocks[report]).values()
        said = [sentence for study in sweeps for sweep in study for sentence in sweep.sentences]
        if said:
            text = f"*{escape_text(claim.statement)}* {escape_text(' '.join(said))}"
            where = _short(verdict.device) or report
            found.append(f"- {text} ({where}: [curves](reports/{report}/report.md#{_anchor(verdict)}))")
    return found


def best_cells(reports: Mapping[str, Judgement]) -> list[str]:
    """Markdown: of each model and GPU the cell on one device with the most tokens/s; most of the peak first."""
    best: dict[tuple[str, str], tuple[str, BlockResult, ArmResult]] = {}
    for name, judgement in reports.items():
        for block, arm in fastest(current(judgement.blocks)):
            key = (block.model, block.device)
            known = best.get(key)
            if is_gpu(block) and arm.cell.get("devices", 1) == 1 and (known is None or speed(arm) > speed(known[2])):
                best[key] = (name, block, arm)
    ranked = sorted(best.values(), key=lambda each: -(each[2].mfu or 0.0))
    return [f"- {escape_text(sentence(block, arm))} ([its settings](reports/{name}/report.md#{formats.slug(FASTEST)}))"
            for name, block, arm in ranked]  # fmt: skip


def _short(device: str) -> str:
    return device.removeprefix("NVIDIA ").partition(" ")[0]


def replaced(page: str, table: str) -> str:
    """The page with `table` between its two marks.

    Raises:
        InputError: it does not have them.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise InputError(f"the page has no lines {BEGIN} and {END} between which the table could stand")
    return f"{before}{begin}\n{table}\n{end}{after}"


def of_folders(evidence: Sequence[Path]) -> str:
    """The table from committed evidence, and from the claims file of the working folder."""
    claims = read_claims("claims.yaml")
    reports = {path.name: judge(read_records(path), claims) for path in evidence}
    lines = [answer(claims, reports)]
    lists = {
        "Where the documents contradict each other, curves say where each is right:": where_each_holds(claims, reports),
        "Studies beside a claim's own say where else it holds:": where_else_each_holds(claims, reports),
        "The fastest training cell of each model and GPU so far, on one device:": best_cells(reports),
    }
    for head, points in lists.items():
        lines += ["", head, "", *points] if points else []
    return "\n".join(lines)


def _best(claim: str, reports: Mapping[str, Judgement]) -> tuple[str, Verdict]:
    """Name of the report and verdict: most rounds, then the first; without any round, the weightiest word."""
    return min(_verdicts(claim, reports), key=lambda each: (-each[1].rounds, rank(each[1].word) * (not each[1].rounds)))


def _row(claim: Claim, name: str, verdict: Verdict, reports: Mapping[str, Judgement]) -> str:
    # an order of techniques has no place of its own
    devices = {verdict.device} if verdict.device else {block.device for block in reports[name].blocks}
    device = ", ".join(sorted(map(_short, devices)))
    cells = (claim.statement, claim.documents, verdict.measured or formats.ABSENT)
    shown = " | ".join(str(escape_text(each)) for each in cells)
    said = [_linked(name, verdict), _what_would_settle(claim, verdict)]
    said += [_scope(verdict)] if verdict.word in DECIDED else []
    said += ["question changed after a first result"] if claim.changed else []
    said += [_as_asked(verdict)]
    said += ["older trials"] if any(BEFORE in note for note in verdict.details.get("notes", ())) else []
    said += [_other_baseline(verdict)]
    for other, found in _verdicts(verdict.claim, reports):
        judged = found.word in DECIDED or (found.word is Word.INCONCLUSIVE and found.rounds >= FEWEST_ROUNDS)
        if other != name and judged and found.word is not verdict.word:
            said.append(f"{_linked(other, found)} on {_short(found.device) or other}")
    return f"| {shown} | {', '.join(filter(None, said))} | {device} |"


def _scope(verdict: Verdict) -> str:
    """At how many points and cells the claim holds, where it is not everywhere as the verdict says."""
    holds = {point["word"] in HOLDS for point in verdict.details.get("points", ())}
    return verdict.scope.partition(";")[0] if holds - {verdict.word in HOLDS} else ""


def _other_baseline(verdict: Verdict) -> str:
    """What the claim's other baseline says, where it says something else."""
    word = verdict.details.get("other_word")
    return str(escape_text(verdict.other_baseline)) if word not in (None, verdict.word.value) else ""


def _as_asked(verdict: Verdict) -> str:
    """What the rounds that were planned say alone, where more were added and say something else."""
    word = verdict.details.get("word_asked_for")
    return f"by the rounds that were planned: {word}" if word not in (None, verdict.word.value) else ""


def _linked(name: str, verdict: Verdict) -> str:
    return f"[{verdict.word.value}](reports/{name}/report.md#{_anchor(verdict)})"


def _anchor(verdict: Verdict) -> str:
    """Of the heading of its section."""
    return formats.slug(f"{verdict.claim}: {verdict.word.value}")


def _what_would_settle(claim: Claim, verdict: Verdict) -> str:
    """Of an open verdict on an interval: a fact on which rounds disagree, or an order, is not settled by more."""
    if verdict.word is not Word.INCONCLUSIVE or claim.expect is not None or claim.form == "order":
        return ""
    if verdict.rounds < FEWEST_ROUNDS:
        return f"{FEWEST_ROUNDS} rounds at least"
    if verdict.rounds_needed is None:
        return f"not even {MOST_ROUNDS} rounds would settle it"
    return f"about {verdict.rounds_needed} rounds would settle it"


def _verdicts(claim: str, reports: Mapping[str, Judgement]) -> list[tuple[str, Verdict]]:
    return [(name, next(each for each in judgement.verdicts if each.claim == claim))
            for name, judgement in reports.items()]  # fmt: skip


def main(arguments: Sequence[str]) -> None:
    """`PAGE EVIDENCE...`: write the table into the page."""
    page, *evidence = (Path(each) for each in arguments)
    page.write_text(replaced(page.read_text(encoding="utf-8"), of_folders(evidence)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
