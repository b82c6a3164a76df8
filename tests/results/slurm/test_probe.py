"""What a node was found to be like is kept for a day, and holds for what was asked of Slurm."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from harness.environment import Device, Environment
from harness.results.slurm.cluster import Cluster
from harness.results.slurm.probe import _path, environment_of_a_node, known_environment

GPUS = tuple(Device(index=place, name="NVIDIA H100", uuid=f"GPU-{place}", memory_bytes=80 << 30) for place in range(4))
NODE = Environment(cores=8, processor="a CPU", devices=GPUS)
CLUSTER = Cluster(partition="gpu", gpus_per_node=4, nodes=2)


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """The file in which a job has told of a node."""
    path = _path(CLUSTER, tmp_path)
    shown = replace(NODE, devices=(*GPUS, replace(GPUS[0], index=4)))  # one more than was asked for
    path.write_text(json.dumps(shown.as_json()), encoding="utf-8")
    return path


def test_a_plan_may_spread_over_the_devices_of_all_nodes(kept: Path) -> None:
    found = known_environment(CLUSTER, kept.parent)
    assert found == replace(NODE, devices=GPUS * 2, gpus_per_node=len(GPUS))
    assert environment_of_a_node(CLUSTER, kept.parent) == found, "no Slurm is asked"
    more = known_environment(replace(CLUSTER, nodes=3), kept.parent)
    assert more == replace(NODE, devices=GPUS * 3, gpus_per_node=len(GPUS)), "nodes of a kind, however many"
    assert known_environment(replace(CLUSTER, nodes=1), kept.parent) == replace(NODE, devices=GPUS), "one node has all"


@pytest.mark.parametrize(
    "other",
    [{"partition": "old"}, {"account": "lab"}, {"gpus_per_node": 2}, {"extra": {"constraint": "h100"}}],
)
def test_what_was_asked_for_otherwise_may_be_another_node(kept: Path, other: dict[str, object]) -> None:
    assert known_environment(replace(CLUSTER, **other), kept.parent) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(("hours", "known"), [(23, True), (25, False)])
def test_a_node_is_asked_again_after_a_day(kept: Path, hours: int, known: bool) -> None:
    then = time.time() - hours * 3600
    os.utime(kept, (then, then))
    assert (known_environment(CLUSTER, kept.parent) is not None) is known


@pytest.mark.parametrize("text", ["", "{", "[]", '{"cores": "many"}'])
def test_an_answer_that_cannot_be_read_is_none(kept: Path, text: str) -> None:
    kept.write_text(text, encoding="utf-8")
    assert known_environment(CLUSTER, kept.parent) is None
