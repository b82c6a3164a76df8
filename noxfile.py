"""Everything that is done to this repository, by name: `nox -s bench`, `nox -s tests`, `nox -l`.

Each session makes its own virtual environment with pip from `constraints.txt`. With `nox --no-venv` nothing is
installed and nothing is changed: the session runs in the environment that started nox, which is what one wants on a
machine that has the torch of its GPU already.
"""

from __future__ import annotations

import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "venv"
nox.options.reuse_existing_virtualenvs = True
nox.options.error_on_external_run = True
nox.options.sessions = ["lint", "typecheck", "tests"]

ROOT = Path(__file__).parent
EVIDENCE = ROOT / "reports" / "evidence"
#: deepspeed's setup imports torch and builds no kernels when told so; the rest is what that build asks for.
DEEPSPEED_NEEDS = ["setuptools<82", "wheel", "py-cpuinfo", "hjson", "ninja", "msgpack", "einops"]
#: Of these the table in README.md is made; of two that decide a claim, the first counts.
ANSWERS = ["h100", "h200"]
OLDER_TRANSFORMERS = "5.17.0"


@nox.session
def bench(session: nox.Session) -> None:
    """Run a matrix and write its report: `nox -s bench -- --matrix matrix.yaml`. All options of `claimbench run`."""
    install(session, ".[train]")
    claimbench(session, "run", *session.posargs)


@nox.session
def report(session: nox.Session) -> None:
    """Make every report under reports/ again from the evidence that is committed, and the table in README.md."""
    install(session, ".")
    found = sorted(path for path in EVIDENCE.glob("*") if path.is_dir() or ".jsonl" in path.suffixes)
    if not found:
        session.error(f"no evidence under {EVIDENCE.relative_to(ROOT)}: export a store there with `claimbench export`")
    for path in found:
        name = path.name.split(".")[0]
        matrix = "examples/every-setting.yaml" if name.endswith("-every-setting") else "matrix.yaml"
        claimbench(
            session, "report", str(path.relative_to(ROOT)), "--matrix", matrix, "--output", f"reports/{name}",
            *session.posargs,
        )  # fmt: skip
    answers = [f"reports/evidence/{name}" for name in ANSWERS]
    session.run(python(session), "-m", "harness.report.answer", "README.md", *answers, external=True)


@nox.session
def tests(session: nox.Session) -> None:
    """What needs no GPU: `nox -s tests -- tests/test_cli.py -k help` runs a part, `-- -m slow` what CI leaves out."""
    install(session, ".[train,test,dev,export,slurm]")
    install_deepspeed(session)
    pytest(session, *side_by_side(session), "-m", "not gpu and not gpus2 and not slow", *session.posargs)


@nox.session(name=f"tests-transformers-{OLDER_TRANSFORMERS.rpartition('.')[0]}")
def tests_older_transformers(session: nox.Session) -> None:
    """What differs between transformers versions, under the oldest one supported: checkpointing, attention, masks."""
    constraints = other_constraints(session, transformers=OLDER_TRANSFORMERS)
    build_on(session, "tests")
    install(session, ".[train,test]", constraints=constraints)
    choice = ["-m", "train and not gpu and not gpus2 and not slow", "-k", "checkpointing or attention or mask"]
    where = ["tests/techniques", "tests/trial/kinds/test_parts.py", "tests/check"]
    pytest(session, *side_by_side(session), *where, *choice, *session.posargs)


@nox.session
def versions(session: nox.Session) -> None:
    """A matrix under the oldest transformers supported and under the pinned one, compared: what changed, and by how
    much. `nox -s versions -- --matrix examples/small.yaml`; all options of `claimbench run`."""
    if borrowed(session):
        session.error("it installs two versions of transformers, which --no-venv forbids; run it without")
    arguments = session.posargs or ["--matrix", "examples/small.yaml"]
    stores = []
    for constraints in (other_constraints(session, transformers=OLDER_TRANSFORMERS), "constraints.txt"):
        install(session, ".[train]", constraints=constraints)
        store = Path(session.create_tmp()) / f"run-{len(stores) + 1}.sqlite"
        store.unlink(missing_ok=True)  # of an earlier session: both runs are to be of today
        claimbench(session, "run", "--no-report", *arguments, "--store", str(store))
        stores.append(str(store))
    session.run(python(session), "-m", "harness.cli", "compare", *stores, external=True, success_codes=[0, 1])


@nox.session
def lint(session: nox.Session) -> None:
    """Style, and that imports only point up the list of rooms."""
    install(session, "ruff", "import-linter")
    session.run(python(session), "-m", "ruff", "check", ".", external=True)
    session.run(python(session), "-m", "ruff", "format", "--check", ".", external=True)
    session.run("lint-imports", external=True)


@nox.session
def typecheck(session: nox.Session) -> None:
    """mypy, strict. torch is not needed: nothing is known of its types either way."""
    install(session, ".", "mypy", "pandas-stubs")
    session.run(python(session), "-m", "mypy", external=True)


def install(session: nox.Session, *what: str, constraints: str = "constraints.txt") -> None:
    """pip install in the session's own environment; nothing with `--no-venv`."""
    if not borrowed(session):
        editable = [("-e", each) if each.startswith(".") else (each,) for each in what]
        session.install("-c", constraints, *(word for words in editable for word in words))


def build_on(session: nox.Session, other: str) -> None:
    """Let the environment see the packages of another session's, where that is there: pip installs what differs."""
    if borrowed(session):
        return
    own = Path(session.virtualenv.location)
    (ours,) = own.glob("lib/python*/site-packages")
    theirs = own.parent / other / ours.relative_to(own)
    if theirs.is_dir():
        (ours / f"of-{other}.pth").write_text(f"import site; site.addsitedir({str(theirs)!r})\n", encoding="utf-8")


def install_deepspeed(session: nox.Session) -> None:
    """deepspeed after torch, without building a kernel (that would need nvcc)."""
    if borrowed(session):
        return
    session.install("-c", "constraints.txt", *DEEPSPEED_NEEDS)
    build = {"DS_BUILD_OPS": "0"}
    session.install("--no-build-isolation", "-c", "constraints.txt", "deepspeed", env=build)


def other_constraints(session: nox.Session, **versions: str) -> str:
    """A copy of constraints.txt with some packages at another version."""
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    for package, version in versions.items():
        text = re.sub(rf"^{re.escape(package)}==.*$", f"{package}=={version}", text, flags=re.MULTILINE)
    copy = Path(session.create_tmp()) / "constraints.txt"
    copy.write_text(text, encoding="utf-8")
    return str(copy)


def claimbench(session: nox.Session, *arguments: str) -> None:
    """The command line, as a module: also where the package is on the path without being installed."""
    session.run(python(session), "-m", "harness.cli", *arguments, external=True)


def pytest(session: nox.Session, *arguments: str) -> None:
    # the tiny model, in several processes at a time: a second thread gains nothing and takes a core from the others
    threads = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    session.run(python(session), "-m", "pytest", *arguments, env=threads, external=True)


def side_by_side(session: nox.Session) -> list[str]:
    """Options of pytest-xdist: two workers, a file to each in turn; none where it is not at hand, or one core.

    A third worker on two cores saves a tenth of the time, and makes them busier than tests of seconds can bear.
    """
    at_hand = not borrowed(session) or find_spec("xdist") is not None
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"] if at_hand and cores > 1 else []


def borrowed(session: nox.Session) -> bool:
    """True with `--no-venv`: the environment is someone else's."""
    return session.venv_backend == "none"


def python(session: nox.Session) -> str:
    """The interpreter of the session, or with `--no-venv` the one that runs nox (it may have no plain `python`)."""
    return sys.executable if borrowed(session) else "python"
