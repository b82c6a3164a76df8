"""What `pytest benchmarks` takes, and how the matrix becomes tests (`docs/benchmarks.md`)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

import harness
from benchmarks.blocks import Blocks, CellName, cells, opened
from benchmarks.replay import ReplayedClock
from harness.environment import Environment
from harness.errors import ClaimbenchError
from harness.experiment.study import Plan
from harness.report import formats
from harness.report.progress import line
from harness.results.events import Event, RunPlanned

#: Which devices a mark asks for.
DEVICES_NEEDED = {"gpu": 1, "gpus2": 2}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("claimbench", "the matrix as benchmarks")
    group.addoption("--matrix", metavar="FILE", help="The experiment: matrix.yaml.")
    group.addoption("--study", action="append", default=[], metavar="NAME", help="Only this one; may be repeated.")
    group.addoption("--rounds", type=int, metavar="N", help="Rounds of every study, in place of the matrix's.")
    group.addoption("--scale", choices=("auto", "full", "smoke"), default="auto", help="auto: full on a GPU.")
    group.addoption("--device", choices=("auto", "cuda", "cpu"), default="auto", help="auto: the GPU, if there is one.")
    group.addoption(
        "--store", metavar="FILE",
        help="Keep the trials in this SQLite file, and replay those that it has already. Without it all are measured.",
    )  # fmt: skip


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test a cell: grouped by study and sweep point, named by cell, with a clock of its own."""
    if not {"study", "point", "cell"} <= set(metafunc.fixturenames):
        return
    parameters = []
    for name, refusal in cells(_planned(metafunc.config)):
        marks = [pytest.mark.benchmark(group=name.group, timer=ReplayedClock(), disable_gc=False)]
        marks += [pytest.mark.skip(reason=f"unsupported: {refusal}")] if refusal is not None else []
        parameters.append(pytest.param(name.study, name.point, name.cell, id=name.test_id, marks=marks))
    metafunc.parametrize(("study", "point", "cell"), parameters)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What a machine cannot run says so; what takes long runs when it is asked for: `-m slow`."""
    devices = len(_machine("auto").devices)
    for item in items:
        for mark, needed in DEVICES_NEEDED.items():
            if item.get_closest_marker(mark) and devices < needed:
                item.add_marker(pytest.mark.skip(reason=f"needs {formats.plural(needed, 'GPU')}, found {devices}"))
        if item.get_closest_marker("slow") and not config.option.markexpr:
            item.add_marker(pytest.mark.skip(reason="takes minutes; run it with -m slow"))


def pytest_benchmark_update_machine_info(config: pytest.Config, machine_info: dict[str, Any]) -> None:
    """Our environment, less the commit: that stands under `commit_info`, and is no property of the machine."""
    environment = _machine(config.getoption("device")).as_json()
    machine_info["claimbench"] = {name: value for name, value in environment.items() if not name.startswith("git_")}


@pytest.fixture
def name(study: str, point: str, cell: str) -> CellName:
    """The cell that a test is about."""
    return CellName(study=study, point=point, cell=cell)


@pytest.fixture
def clock(request: pytest.FixtureRequest) -> ReplayedClock:
    """The timer that pytest-benchmark reads in this test."""
    timer = request.node.get_closest_marker("benchmark").kwargs["timer"]
    assert isinstance(timer, ReplayedClock)
    return timer


@pytest.fixture(scope="session")
def blocks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Blocks]:
    """The blocks of the matrix: each runs whole when the first of its cells is asked for."""
    config = request.config
    given = config.getoption("store")
    path = Path(given) if given else tmp_path_factory.mktemp("claimbench") / "results.sqlite"
    arguments = ("pytest", *map(str, config.invocation_params.args))
    environment = _machine(config.getoption("device"))
    with opened(_planned(config), environment, path, arguments=arguments, on_event=partial(_tell, config)) as found:
        yield found


def _tell(config: pytest.Config, event: Event) -> None:
    """A line when a block begins, since its first test takes as long as all of it; with -v one a trial too."""
    plugins = config.pluginmanager
    reporter, capture = plugins.get_plugin("terminalreporter"), plugins.get_plugin("capturemanager")
    text = line(event) if isinstance(event, RunPlanned) or config.get_verbosity() > 0 else ""
    if text and reporter is not None and capture is not None:
        with capture.global_and_fixture_disabled():
            reporter.write_line(text)


def _planned(config: pytest.Config) -> Plan:
    matrix = config.getoption("matrix") or config.rootpath / "matrix.yaml"
    chosen = (config.getoption(name) for name in ("study", "rounds", "scale", "device"))
    return _plan(Path(matrix), *(tuple(each) if isinstance(each, list) else each for each in chosen))


@cache
def _plan(matrix: Path, studies: tuple[str, ...], rounds: int | None, scale: Any, device: str) -> Plan:
    try:
        return harness.plan(matrix, studies=studies, rounds=rounds, scale=scale, environment=_machine(device))
    except ClaimbenchError as error:
        raise pytest.Collector.CollectError(str(error)) from error


@cache
def _machine(device: Any) -> Environment:
    try:
        return harness.machine(device)
    except ClaimbenchError as error:
        raise pytest.UsageError(str(error)) from error
