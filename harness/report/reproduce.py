"""The command lines that measure again what a report shows, with the software that its trials ran on."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence

from harness.experiment.study import FEWEST_ROUNDS
from harness.judgement.claims import Claim, Claims
from harness.judgement.sentence import CHECK_STUDY
from harness.judgement.site import matrix_option
from harness.report import formats
from harness.report.origin import UNKNOWN_MATRIX, Origin
from harness.results.record import Record
from harness.results.sharing import STUDY as SHARING

#: Extra of this distribution → its packages, as `pyproject.toml` has them. The last two need a torch to be built.
EXTRAS: Mapping[str, tuple[str, ...]] = {
    "train": ("torch", "transformers", "peft", "bitsandbytes", "accelerate", "tokenizers"),
    "export": ("pyarrow", "tensorboard"),
    "deepspeed": ("deepspeed",),
    "flash": ("flash-attn",),
}
BUILT = ("deepspeed", "flash")
#: The store of a sentence that is checked again.
AGAIN = "again.sqlite"
#: Before commands with `UNKNOWN_MATRIX`.
NOT_KNOWN = "# the matrix of these studies is not known: neither the trials' store nor a matrix at hand has them"
#: Where nobody looked for the matrix.
ANY = Origin()
BUILD_TOOLS = 'pip install "setuptools<82" wheel py-cpuinfo hjson ninja msgpack einops'


def commands(records: Sequence[Record], origin: Origin | None = ANY) -> tuple[str, ...]:
    """Code, packages, studies, report; the studies of `claimbench check` have sentences of their own (`again`).

    Args:
        origin: the files that have the studies; records do not name them. None: all are of `claimbench check`.
    """
    runs = _runs(records, origin) if origin else []
    return (*_checkout(records), *_installs(records), *runs, *(["claimbench report"] if runs else []))


def checks_alone(records: Sequence[Record], claims: Claims) -> bool:
    """Whether trials, or where there are none the claims, are of `claimbench check`: no matrix has their studies."""
    studies = {each.study for each in records} or {each.study for each in claims.all()}
    return bool(studies) and all(study.startswith(CHECK_STUDY) for study in studies)


def again(claim: Claim, records: Sequence[Record], origin: Origin = ANY) -> str:
    """The one command that measures what the claim stands on, in the matrix of its file, or else the trials'."""
    studies = dict.fromkeys([claim.study, *(entry.study for entry in claim.order if entry.study)])
    trials = [each for each in records if each.study in studies]
    if claim.study.startswith(CHECK_STUDY):
        model = trials[0].model if trials else "FILE.py:build"
        sentence = shlex.quote(claim.check or claim.statement)
        # beside the store that has these trials nothing would be measured
        return (
            f"claimbench check {sentence} --workload {shlex.quote(model)}{_sweep(trials)}{_rounds(trials)}"
            f"{_device(trials)} --store {AGAIN}"
        )
    matrix = claim.matrix or (origin.of(trials[0].study, trials[0].block) if trials else origin.whole)
    own = [each for each in trials if origin.of(each.study, each.block) in (matrix, origin.otherwise)]
    return f"claimbench run{matrix_option(matrix)}{_scale(own)} {_named(studies)}"


def _sweep(trials: Sequence[Record]) -> str:
    """` --sweep batch_size=8,4` where the sentence was checked at several points, in their order."""
    points: dict[str, dict[str, None]] = {}
    for axis, value in (item for each in trials for item in (each.sweep or {}).items()):
        points.setdefault(axis, {})[formats.settings({axis: value}).partition("=")[2]] = None
    return "".join(f" --sweep {axis}={','.join(values)}" for axis, values in points.items())


def _rounds(trials: Sequence[Record]) -> str:
    """As many as were run; a pilot alone has none that count."""
    rounds = max((each.round for each in trials), default=0)
    return f" --rounds {rounds}" if rounds >= FEWEST_ROUNDS else ""


def _device(trials: Sequence[Record]) -> str:
    return " --device cpu" if trials and not any(each.environment.get("devices") for each in trials) else ""


def _scale(trials: Sequence[Record]) -> str:
    return " --scale smoke" if trials and all(each.scale == "smoke" for each in trials) else ""


def _named(studies: Sequence[str] | Mapping[str, object]) -> str:
    return " ".join(f"--study {shlex.quote(study)}" for study in studies)


def _checkout(records: Sequence[Record]) -> list[str]:
    """The commit, where all trials are of one; what was changed on top of it is in no repository."""
    commits = {str(each.environment.get("git_commit") or "") for each in records}
    commit = next(iter(commits), "")
    if len(commits) != 1 or not commit.strip("0"):
        return []
    dirty = sum(1 for each in records if each.environment.get("git_dirty"))
    changed = f"  # {formats.plural(dirty, 'trial')} had changes on top that were not committed" if dirty else ""
    return [f"git checkout {commit}{changed}"]


def _installs(records: Sequence[Record]) -> list[str]:
    """The extras whose packages the trials had, at the versions of most trials."""
    versions = _versions(records)
    present = [extra for extra, packages in EXTRAS.items() if extra == "train" or any(p in versions for p in packages)]
    plain = [extra for extra in present if extra not in BUILT]
    built = [pin for extra in present if extra in BUILT for pin in _pins(EXTRAS[extra], versions)]
    pins = [pin for extra in plain for pin in _pins(EXTRAS[extra], versions)]
    lines = [" ".join([f"pip install '.[{','.join(plain)}]'", *pins])]
    if built:
        lines += [BUILD_TOOLS, f"DS_BUILD_OPS=0 pip install --no-build-isolation {' '.join(built)}"]
    others = [f"{name} {', '.join(rest)}" for name, (_, *rest) in versions.items() if rest]
    return [*lines, *([f"# other trials had {'; '.join(others)}"] if others else [])]


def _versions(records: Sequence[Record]) -> dict[str, list[str]]:
    """Package of an extra → its versions, that of most trials first, without what no index knows (`+cu130`)."""
    counts: dict[str, Counter[str]] = {}
    for packages in (each.environment.get("packages") or {} for each in records):
        for name in (name for extra in EXTRAS.values() for name in extra if name in packages):
            counts.setdefault(name, Counter())[str(packages[name]).partition("+")[0]] += 1
    return {name: [version for version, _ in seen.most_common()] for name, seen in counts.items()}


def _pins(packages: Sequence[str], versions: Mapping[str, Sequence[str]]) -> list[str]:
    return [f"{name}=={versions[name][0]}" for name in packages if name in versions]


def _runs(records: Sequence[Record], origin: Origin) -> list[str]:
    """One line for each matrix and number of rounds, with the studies that had so many, in the order in which they were
    run."""
    scale = _scale(records)
    rounds: dict[tuple[str, str], int] = {}
    for record in records:
        if record.study != SHARING and not record.study.startswith(CHECK_STUDY):
            key = (origin.of(record.study, record.block), record.study)
            rounds[key] = max(record.round, rounds.get(key, 0))
    groups: dict[tuple[str, int], list[str]] = {}
    for (matrix, study), count in rounds.items():
        groups.setdefault((matrix, count), []).append(study)
    runs = [f"claimbench run --matrix {shlex.quote(matrix)}{scale} --rounds {count} {_named(studies)}"
            for (matrix, count), studies in groups.items()]  # fmt: skip
    unknown = any(matrix == UNKNOWN_MATRIX for matrix, _ in groups)
    runs = [*([NOT_KNOWN] if unknown else []), *runs]
    return runs if records else [f"claimbench run --matrix {shlex.quote(origin.whole)}"]
