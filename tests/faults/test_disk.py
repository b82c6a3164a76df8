"""A run on a disk that is too small for it: data, caches, folders of trials, store and report all lie there.

One clear error, what was stored stays readable, and with room another run completes the rest.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.results.store import Store
from harness.trial.outcome import Outcome
from tests.commands import SMALL_MATRIX, claimbench
from tests.faults.disks import enlarge, fill, small_disk
from tests.faults.driver import brief, hungry
from tests.faults.runs import CHILD, Run, check_complete

ROOM = 64 << 10  # kilobytes


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", kilobytes=512) as folder:
        yield folder


def stored(folder: Path) -> list[tuple[str, int, str]]:
    with Store.open(folder / "results.sqlite") as store:
        assert store.problems() == []
        return [(record.study, record.round, record.arm) for record in store.records()]


@pytest.mark.parametrize("kilobytes", [60, 140], ids=["before the first trial", "in the middle"])
def test_a_disk_that_fills_up_ends_the_run_with_a_sentence_and_nothing_stored_is_lost(
    disk: Path, kilobytes: int
) -> None:
    enlarge(disk, kilobytes=kilobytes)
    run = Run(disk, "brief", CHILD)
    assert run.finish() == 2
    assert run.lines[-1].startswith("error: ")
    assert "what is stored is kept" in run.lines[-1] or "what was stored before is kept" in run.lines[-1]
    finished = [line for line in run.lines if line.startswith("finished")]
    assert all(line.endswith(" ok") for line in finished), "no cell is blamed for the disk"
    before = stored(disk) if (disk / "results.sqlite").exists() else []
    assert len(finished) == len(before)
    enlarge(disk, kilobytes=ROOM)
    assert Run(disk, "brief", CHILD).finish() == 0
    check_complete(disk, brief())
    assert stored(disk)[: len(before)] == before


def test_a_cell_that_fills_the_disk_by_its_cache_is_run_again_when_there_is_room(disk: Path) -> None:
    run = Run(disk, "hungry", CHILD)
    assert run.finish() == 2
    assert run.lines[-1].startswith("error: ")
    assert "no space is left on its disk" in run.lines[-1]
    with Store.open(disk / "results.sqlite") as store:
        assert {record.outcome for record in store.records()} == {Outcome.OK}
    enlarge(disk, kilobytes=ROOM)
    assert Run(disk, "hungry", CHILD).finish() == 0
    check_complete(disk, hungry())
    assert not (disk / ".claimbench" / "stores" / "results.sqlite" / "caches").exists()


@pytest.mark.train
def test_a_command_on_a_full_disk_says_so_and_completes_when_there_is_room(disk: Path, one_zygote: None) -> None:
    enlarge(disk, kilobytes=2 << 10)
    (disk / "matrix.yaml").write_text(SMALL_MATRIX.replace("data: synthetic", "data: stdlib"))
    fill(disk, leave_kilobytes=200)
    command = ("run", "--study", "optimizer", "--device", "cpu", "--no-report")
    said = claimbench(*command, cwd=disk)
    assert said.code == 2
    assert "Traceback" not in said.out + said.err
    assert "No space left on device; mend that and run again, what is stored is kept." in said.err
    assert stored(disk) == []
    enlarge(disk, kilobytes=ROOM)
    said = claimbench(*command, cwd=disk)
    assert said.code == 0, said.err
    assert len(stored(disk)) == 9


def test_a_report_that_does_not_fit_is_one_sentence(disk: Path) -> None:
    enlarge(disk, kilobytes=ROOM)
    assert Run(disk, "brief", CHILD).finish() == 0
    shutil.rmtree(disk / ".claimbench")
    fill(disk, leave_kilobytes=20)
    said = claimbench("report", cwd=disk)
    assert said.code == 2
    assert "Traceback" not in said.out + said.err
    assert "No space left on device" in said.err
    assert len(said.err.strip().splitlines()) == 1, said.err
