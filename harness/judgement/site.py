"""Where in the records a claim is judged, and whether anything can be judged there at all."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.experiment.scale import SMOKE
from harness.experiment.study import FEWEST_ROUNDS
from harness.judgement.claims import Claim, show_settings
from harness.judgement.judged import ArmResult, BlockResult, Word
from harness.judgement.metrics import Metric
from harness.judgement.places import find_arm, fits
from harness.judgement.quantities import numeric
from harness.judgement.sentence import CHECK_STUDY
from harness.judgement.validity import on_gpu
from harness.trial.outcome import Outcome

#: What `claimbench run` runs without `--matrix`.
DEFAULT_MATRIX = "matrix.yaml"
#: What is said wherever a figure of that scale stands.
IN_SMOKE = "in the smoke scale (tiny shapes)"


@dataclass(frozen=True, kw_only=True, eq=False)
class Site:
    """A cell and the arm that it is compared with, in one block."""

    block: BlockResult
    arm: ArmResult
    baseline: ArmResult

    @property
    def arms(self) -> tuple[ArmResult, ...]:
        """Those that the figure stands on: a baseline that is judged by itself stands there once."""
        return (self.arm,) if self.arm is self.baseline else (self.arm, self.baseline)


@dataclass(frozen=True, kw_only=True)
class Absent:
    """There is nothing to judge: the verdict that says so."""

    word: Word
    reason: str


@dataclass(frozen=True, kw_only=True)
class _Arm:
    """An arm as `find_arm` looks at it."""

    name: str
    settings: Mapping[str, object]
    result: ArmResult


def blocks_of(
    study: str, device: str, blocks: Iterable[BlockResult], claim: Claim | None = None
) -> list[BlockResult] | Absent:
    """The blocks of a study that a claim may be judged on, the best first (`_rank`).

    Args:
        claim: that is judged, for what to do where there are none.
    """
    named = [block for block in blocks if block.study == study]
    own = [block for block in named if not block.another]
    if not own:
        why = named[0].another if named else f"no trial of study {study!r} is stored"
        return Absent(word=Word.NOT_RUN, reason=f"{why}; {_remedy(study, claim)}")
    usable = [block for block in own if device == "any" or is_gpu(block)]
    if not usable and not any(ok_count(arm) for block in own for arm in block.arms):
        usable = own  # nothing was measured: why not is the answer
    if not usable:
        scale = f" {IN_SMOKE}" if own[0].scale == SMOKE else ""
        reason = f"it was measured on {own[0].device}{scale}; the claim speaks of a GPU at full scale"
        return Absent(word=Word.NOT_COMPARABLE, reason=reason)
    return sorted(usable, key=_worth, reverse=True)


def _remedy(study: str, claim: Claim | None) -> str:
    """What measures the study: one of `claimbench check` is measured by asking its sentence again."""
    if study.startswith(CHECK_STUDY):
        asked = shlex.quote(claim.check or claim.statement) if claim else "SENTENCE"
        return f"`claimbench check {asked} --workload FILE.py:build` measures it"
    return f"`claimbench run{matrix_option(claim.matrix if claim else '')} --study {study}` runs it"


def matrix_option(matrix: str) -> str:
    """` --matrix mine.yaml`; nothing where it is not known, or the one that the command takes by itself."""
    return "" if matrix in ("", DEFAULT_MATRIX) else f" --matrix {shlex.quote(matrix)}"


def is_gpu(block: BlockResult) -> bool:
    return bool(block.arms) and on_gpu(block.arms[0].trials[0])


def machine_of(block: BlockResult) -> tuple[str, str]:
    """What the points of a sweep must have in common to stand on one curve."""
    return block.device, block.scale


def at_point(blocks: Sequence[BlockResult], at: Mapping[str, object]) -> list[BlockResult] | Absent:
    """The blocks that ran at a sweep point: in the smoke scale points are smaller, and none stands for another."""
    here = [block for block in blocks if fits(block.sweep, at)]
    if here:
        return here
    reason = f"study {blocks[0].study!r} was not run at {show_settings(at)}" if blocks else "it was not run"
    for smoke, where in ((True, f"{IN_SMOKE} it"), (False, "it")):
        same = (block for block in blocks if (block.scale == SMOKE) == smoke)
        if ran := list(dict.fromkeys(show_settings(block.sweep) for block in same)):
            reason += f"; {where} ran at {' and at '.join(ran)}"
    return Absent(word=Word.NOT_RUN, reason=reason)


def find(block: BlockResult, changes: Mapping[str, object]) -> ArmResult | None:
    """The arm of the block with these settings."""
    arms = [_Arm(name=arm.name, settings=arm.cell, result=arm) for arm in block.arms if arm.role != "control"]
    found = find_arm(arms, changes)
    return found.result if found else None


def locate(claim: Claim, blocks: Sequence[BlockResult]) -> Site | Absent:
    """The claim's primary cell at its primary point; of several blocks the one of most `worth`."""
    here = at_point(blocks, claim.at)
    if isinstance(here, Absent):
        return here
    sites = [site for block in here if (site := site_in(block, claim.cell, claim.baseline)) is not None]
    if not sites:
        return Absent(word=Word.NOT_RUN, reason=f"study {claim.study!r} has {_lacking(claim, here)}")
    return max(sites, key=worth)


def _lacking(claim: Claim, blocks: Sequence[BlockResult]) -> str:
    """Which of a claim's two arms no block has; an arm without its block's baseline is there under its name."""
    names = {arm.name for block in blocks for arm in block.arms}
    wanted = {show_settings(each): each for each in (claim.cell, claim.baseline)}
    absent = [name for name, each in wanted.items()
              if name not in names and not any(find(block, each) for block in blocks)]  # fmt: skip
    words = [repr(name) for name in absent or wanted]
    return f"no trial of {' or '.join(words)}" if absent else f"no trials of {' and '.join(words)} in one block"


def worth(site: Site) -> tuple[bool, bool, bool, int, int, str]:
    """Of several blocks with one cell at one point that of most worth counts, wherever it is shown (`_rank`)."""
    return _rank(site.block, min(ok_count(site.arm), ok_count(site.baseline)))


def _worth(block: BlockResult) -> tuple[bool, bool, bool, int, int, str]:
    """The same of a block, whichever of its arms is looked at."""
    return _rank(block, max((ok_count(arm) for arm in block.arms), default=0))


def one_a_point(
    cell: Mapping[str, object],
    baseline: Mapping[str, object],
    blocks: Iterable[BlockResult],
    usable: Callable[[Site], bool] = lambda site: True,
) -> dict[tuple[str, str, str], Site]:
    """The site of a cell at each sweep point of each machine: of several blocks there the one that counts (`worth`).

    Args:
        usable: what a figure can be had from counts before what has none.
    """
    best: dict[tuple[str, str, str], tuple[bool, Site]] = {}
    for block in blocks:
        site, key = site_in(block, cell, baseline), (show_settings(block.sweep), *machine_of(block))
        if site is None:
            continue
        good = usable(site)
        if key not in best or (good, *worth(site)) > (best[key][0], *worth(best[key][1])):
            best[key] = (good, site)
    return {key: site for key, (_, site) in best.items()}


def current(blocks: Sequence[BlockResult]) -> tuple[BlockResult, ...]:
    """Without the blocks that another one stands for: the same block, run again on such a machine, of more worth, and
    with an ok trial of each arm that has one here."""
    ranked = [(block, _worth(block)) for block in blocks]
    return tuple(
        block for block, rank in ranked
        if not any(better > rank and _stands_for(other, block) for other, better in ranked)
    )  # fmt: skip


def _stands_for(other: BlockResult, block: BlockResult) -> bool:
    if other.block != block.block or machine_of(other) != machine_of(block):
        return False
    measured = [{arm.name for arm in each.arms if ok_count(arm)} for each in (block, other)]
    return measured[0] <= measured[1]


def site_in(block: BlockResult, cell: Mapping[str, object], baseline: Mapping[str, object]) -> Site | None:
    arm, other = find(block, cell), find(block, baseline)
    return Site(block=block, arm=arm, baseline=other) if arm and other else None


def standing(site: Site, metric: Metric | None) -> Absent | None:
    """Why the site gives no figure: no trial of an arm is ok. None when it may be judged."""
    alone = metric is None or metric.statistic.of_the_cell_alone
    for arm in (site.arm,) if alone else (site.arm, site.baseline):
        if not ok_count(arm):
            return _failed(arm, site)
    return None


def ok_count(arm: ArmResult) -> int:
    return arm.outcomes.get(Outcome.OK, 0)


def _failed(arm: ArmResult, site: Site) -> Absent:
    """The verdict on an arm of which every trial failed."""
    who = "the baseline" if arm is site.baseline and arm is not site.arm else f"{arm.name}"
    spoiled = {Outcome.INERT: "could not be shown to be in effect", Outcome.INVALID: "cannot be trusted"}
    for outcome, words in spoiled.items():
        if arm.outcomes.get(outcome):
            return Absent(word=Word.INVALID, reason=f"{who} {words}: {arm.reason}")
    return Absent(word=Word.NOT_TESTABLE, reason=f"{who}: {arm.reason}")


def _rank(block: BlockResult, rounds: int) -> tuple[bool, bool, bool, int, int, str]:
    """A GPU first; then what was measured at all, what has rounds enough for a verdict, of these the newer way of
    making trials, more rounds, and the later run."""
    return is_gpu(block), rounds > 0, rounds >= FEWEST_ROUNDS, generation(block), rounds, _newest(block)


def generation(block: BlockResult) -> int:
    """Rises with each change of how the block's trials are made: what is made otherwise now counts no more."""
    made = made_how(block)
    return made.version + sum(revision - 1 for revision in made.revisions.values())


@dataclass(frozen=True, kw_only=True)
class Made:
    """How trials were made, as `results.fingerprint.measuring` notes it."""

    version: int
    revisions: Mapping[str, int]
    """By a technique's first axis; those that are not named are at their first."""


def made_how(block: BlockResult) -> Made:
    """Of a version that did not say: the first."""
    found = block.arms[0].trials[0].measuring if block.arms else None
    known = found if isinstance(found, dict) else {}
    revisions = known.get("revisions")
    numbers = {str(axis): numeric(value) for axis, value in revisions.items()} if isinstance(revisions, dict) else {}
    return Made(
        version=int(numeric(known.get("version")) or 1),
        revisions={axis: int(number) for axis, number in numbers.items() if number is not None},
    )


def _newest(block: BlockResult) -> str:
    return max(trial.started_at for arm in block.arms for trial in arm.trials)
