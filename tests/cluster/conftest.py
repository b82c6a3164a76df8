"""A Slurm of two nodes for the session (`cluster.sh`), and the means to break parts of it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.environment import Environment, detect
from harness.results.slurm import cluster as slurm
from harness.results.slurm.cluster import Cluster

SCRIPT = Path(__file__).parent / "cluster.sh"


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the cluster lives; SLURM_CONF points to it."""
    _install()
    where = tmp_path_factory.mktemp("slurm")
    os.environ["CLAIMBENCH_SLURM_PORT"] = str(_free_ports())
    _script("start", str(where))
    os.environ["SLURM_CONF"] = str(where / "slurm.conf")
    yield where
    _script("stop", str(where))
    del os.environ["SLURM_CONF"]


@pytest.fixture
def two_nodes(folder: Path) -> Iterator[Cluster]:
    """Both nodes up and idle before, and without jobs after."""
    for node in ("n1", "n2"):
        if not _alive(folder / f"slurmd-{node}.pid"):
            _script("node", str(folder), node)
    subprocess.run(["scontrol", "update", "NodeName=n[1-2]", "State=RESUME"], capture_output=True, check=False)
    until = time.monotonic() + 60
    while _states() != ["idle", "idle"]:  # what the test before it cancelled may still be ending
        assert time.monotonic() < until, f"the nodes are {_states()} and not idle"
        time.sleep(0.2)
    yield Cluster(partition="test", nodes=2, minutes=10)
    slurm.cancel([name for name, job in slurm.states().items() if job.active])


@pytest.fixture(scope="session")
def here() -> Environment:
    """The machine that both nodes are, without GPUs."""
    return replace(detect(), devices=())


@pytest.fixture
def kill_node(folder: Path) -> Callable[[str], None]:
    """The death of a node: its daemon, and the step daemons of its jobs with all that runs under them."""

    def kill(node: str) -> None:
        daemon = int((folder / f"slurmd-{node}.pid").read_text())
        for pid in (daemon, *_step_daemons(folder, node)):
            _kill_tree(pid)

    return kill


def _states() -> list[str]:
    command = ["sinfo", "--noheader", "--Node", "--format=%t"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def _install() -> None:
    if shutil.which("slurmctld") and shutil.which("munged"):
        if os.getuid() != 0:
            pytest.skip("a test cluster needs root: slurmd starts jobs as the user who submits them")
        return
    done = subprocess.run([str(SCRIPT), "install"], capture_output=True, text=True, check=False)
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["it did not say why"])[-1]
        pytest.skip(f"slurm-wlm and munge are not installed and could not be: {why}")


def _script(*arguments: str) -> None:
    done = subprocess.run([str(SCRIPT), *arguments], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def _free_ports() -> int:
    """The first of four ports in a row that nobody listens on, below those that the kernel hands out."""
    for port in range(16817, 30000, 10):
        sockets = [socket.socket() for _ in range(4)]
        try:
            for number, each in enumerate(sockets):
                each.bind(("127.0.0.1", port + number))
        except OSError:
            continue
        else:
            return port
        finally:
            for each in sockets:
                each.close()
    raise AssertionError("no four free ports in a row")


def _alive(pid_file: Path) -> bool:
    return pid_file.exists() and Path(f"/proc/{pid_file.read_text().strip()}").exists()


def _step_daemons(folder: Path, node: str) -> list[int]:
    """slurmstepd names its node in the environment of what it starts: jobs whose shell runs on this node.

    Of this cluster: each worker of pytest-xdist may have one, with nodes of the same names.
    """
    ours = (f"SLURMD_NODENAME={node}", f"SLURM_CONF={folder / 'slurm.conf'}")
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes().decode(errors="replace").split("\0")
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            name = (Path("/proc") / str(parent) / "comm").read_text().strip()
        except (OSError, ValueError, IndexError):
            continue
        if name == "slurmstepd" and all(each in environment for each in ours):
            found.append(parent)
    return found


def _kill_tree(pid: int) -> None:
    import psutil

    try:
        top = psutil.Process(pid)
        those = [top, *top.children(recursive=True)]  # the daemon first: it is to report no child's end
    except psutil.NoSuchProcess:
        return
    for each in those:
        try:
            each.kill()
        except psutil.NoSuchProcess:
            continue
