"""A trial forked from the zygote and one in a fresh interpreter are the same trial."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.environment import detect
from harness.results.collect import fill
from harness.results.record import Record
from harness.results.store import Store
from harness.trial.launch import LocalLauncher
from harness.trial.outcome import Outcome
from tests.faults.driver import SMALL, TINY
from tests.results.plans import a_block, a_plan

pytestmark = pytest.mark.train


def the_baseline(folder: Path, launcher: LocalLauncher) -> Record:
    """One trial of the real worker."""
    block = a_block(sizes=(), rounds=1, workload=TINY, settings={**SMALL, "workers": 1})
    plan = a_plan(replace(block, arms=block.arms[:1]))
    with Store.open(folder / launcher.isolation / "results.sqlite", writable=True) as store:
        fill(store, plan, launcher, replace(detect(), devices=()))
        (record,) = store.records()
    return record


def test_both_isolations_compute_the_same(tmp_path: Path, session_launcher: LocalLauncher) -> None:
    assert session_launcher.isolation == "zygote"
    forked = the_baseline(tmp_path, session_launcher)
    with LocalLauncher(gpu=False, isolation="spawn") as launcher:
        fresh = the_baseline(tmp_path, launcher)
    assert (forked.outcome, fresh.outcome) == (Outcome.OK, Outcome.OK), (forked.reason, fresh.reason)
    assert forked.losses == fresh.losses
    assert forked.gradient_norms == fresh.gradient_norms
    assert forked.model_state_bytes == fresh.model_state_bytes
    assert forked.parameters == fresh.parameters
    assert forked.fingerprint == fresh.fingerprint
    assert forked.missing.keys() == fresh.missing.keys()
