"""The fingerprint: two trials with the same one could have run one after the other on the same machine.

It counts what moves figures (device name and count, power cap, driver, torch, the packages of the techniques used, the
code that measures) and leaves out what only tells where and when (UUID, host, commit), which is recorded all the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harness import software
from harness.environment import Device, Environment
from harness.experiment.cell import Cell
from harness.techniques.base import Technique
from harness.trial.spec import MEASURING_VERSION, MEASURING_VERSIONS

#: Every trial stands on these: the framework, its compiler, and the model code.
ALWAYS = ("torch", "transformers", "triton")
ABSENT = "absent"


def packages_used(techniques: Iterable[Technique], cells: Iterable[Cell]) -> tuple[str, ...]:
    """Distributions that any of `cells` runs on (all cells of a block: one fingerprint), and those that bring them."""
    techniques, cells = tuple(techniques), tuple(cells)
    used = {name for each in techniques for cell in cells for name in each.uses(cell)}
    own = {each.distribution for each in techniques for cell in cells if each.distribution and each.active(cell)}
    return tuple(sorted(used | own | set(ALWAYS)))


def revisions_of(techniques: Iterable[Technique], cells: Iterable[Cell]) -> dict[str, int]:
    """Techniques that do something else for one of `cells` than they first did, by their first axis."""
    cells = tuple(cells)
    found = {each.axes[0].name: max(each.revision(cell) for cell in cells) for each in techniques if each.axes}
    return {name: revision for name, revision in found.items() if revision > 1}


def measuring(kind: str, revisions: Mapping[str, int]) -> dict[str, Any]:
    """How trials of a kind are made at present: of trials made otherwise the newer count."""
    return {"version": MEASURING_VERSIONS.get(kind, MEASURING_VERSION), "revisions": dict(revisions)}


def fingerprint_parts(
    environment: Environment, *, devices: Sequence[Device], packages: Iterable[str] = ALWAYS, kind: str = "training",
    revisions: Mapping[str, int] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """What the fingerprint is made of, in words: for `compare`, which says what differs.

    Args:
        devices: those that the block uses; none: it runs on the CPU, whose name and cores then stand in.
        packages: see `packages_used`. An absent one counts as such, so that installing it reruns what needed it.
        kind: of the block's trials.
        revisions: see `revisions_of`.
    """
    names = sorted(software.normalised(name) for name in packages)
    processor = [] if devices else [environment.processor, environment.cores]
    made = measuring(kind, revisions or {})
    return {
        "devices": [[device.name, device.power_limit_watts] for device in devices],
        "processor": processor,
        "driver": environment.driver if devices else None,
        "packages": {name: environment.packages.get(name, ABSENT) for name in names},
        "measuring": made["version"],
        **({"revisions": made["revisions"]} if revisions else {}),
    }


def fingerprint(
    environment: Environment, *, devices: Sequence[Device], packages: Iterable[str] = ALWAYS, kind: str = "training",
    revisions: Mapping[str, int] | None = None,
) -> str:  # fmt: skip
    """16 hexadecimal digits over `fingerprint_parts`."""
    parts = fingerprint_parts(environment, devices=devices, packages=packages, kind=kind, revisions=revisions)
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
