"""A store whose writer dies, whose disk is full, or that two want to write: nothing lost, one sentence each.

Every fault is real: processes are killed, disks are full, folders are read-only.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.errors import StoreError, StoreLockedError
from harness.results.store import Store
from harness.results.workplace import Workplace
from tests.records import make_records

ROOT = Path(__file__).parents[2]
NOBODY = 65534

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.sqlite"


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts `tests.results.writer`; whatever still runs at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def run(path: Path, *options: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "tests.results.writer", str(path), *options]
        started.append(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 512 KiB. Only root may mount one; elsewhere the limit on a file's size stands in for it."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no file system may be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder that other users can reach, which pytest's own are not."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o755)


def line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("trials", [1, 7, 40])
def test_what_add_has_returned_for_survives_kill_9(start: Start, path: Path, trials: int) -> None:
    writer = start(path)
    assert line(writer) == "open"
    for number in range(1, trials + 1):
        assert line(writer) == str(number)
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    assert writer.stdout is not None
    promised = trials + len(writer.stdout.read().split())
    with Store.open(path) as store:
        assert store.problems() == []
        attempts = [record.attempt for record in store.records()]
    # one more may have reached the disk before it could be printed
    assert attempts in (list(range(1, promised + 1)), list(range(1, promised + 2)))
    with Store.open(path, writable=True) as store:  # the dead one's lock is gone
        assert store.count() == len(attempts)


def test_a_transaction_that_was_cut_off_is_rolled_back_by_the_next_reader(path: Path, tmp_path: Path) -> None:
    """What lies on the disk when a writer is killed in its commit: a changed file and its journal."""
    records = make_records(rounds=2)
    crashed = tmp_path / "crashed.sqlite"
    with Store.open(path, writable=True) as store:
        store.add_all(records[:5])
        database = store._database
        database.execute("PRAGMA cache_size = 1")  # spill changed pages into the file before the commit
        database.execute("BEGIN IMMEDIATE")
        database.execute("UPDATE trials SET record = record || ' '")
        crashed.write_bytes(path.read_bytes())
        Path(f"{crashed}-journal").write_bytes(Path(f"{path}-journal").read_bytes())
        database.execute("ROLLBACK")
    with Store.open(crashed) as store:
        assert store.problems() == []
        assert list(store.records()) == records[:5]


def test_a_second_writer_is_told_who_writes_and_what_to_do(start: Start, path: Path) -> None:
    writer = start(path, "--hold")
    assert line(writer) == "open"
    with pytest.raises(StoreLockedError, match=rf"process {writer.pid} since .*wait for it, stop it, or"):
        Store.open(path, writable=True)
    with Store.open(path) as reader:
        assert reader.count() == 0
    writer.kill()
    writer.wait()
    Store.open(path, writable=True).close()


def test_two_processes_contend_and_one_wins(start: Start, path: Path) -> None:
    both = [start(path, "--hold"), start(path, "--hold")]
    said = sorted(line(each).split(":")[0] for each in both)
    assert said == ["StoreLockedError", "open"]


def test_one_process_cannot_write_twice_either(path: Path) -> None:
    with Store.open(path, writable=True), pytest.raises(StoreLockedError, match=str(os.getpid())):
        Store.open(path, writable=True)
    Store.open(path, writable=True).close()


@pytest.mark.parametrize("there", [True, False], ids=["a store", "a store to be"])
def test_a_second_writer_through_a_link_is_told_the_same(start: Start, path: Path, there: bool) -> None:
    """By a link to the file, to a link, and to the folder: the lock is that of the store, and no other is made."""
    if there:
        Store.open(path, writable=True).close()
    links = [path.with_name("link.sqlite"), path.with_name("further.sqlite")]
    links[0].symlink_to(path.name)
    links[1].symlink_to(links[0])
    folder = path.parent / "folder"
    folder.symlink_to(path.parent)
    writer = start(links[0], "--hold")
    assert line(writer) == "open"
    for name in (path, *links, folder / path.name, folder / links[0].name):
        with pytest.raises(StoreLockedError, match=f"process {writer.pid} "):
            Store.open(name, writable=True)
    assert sorted(each.name for each in path.parent.glob("*.lock")) == [f"{path.name}.lock"]
    assert {Workplace.beside(name) for name in (*links, folder / path.name)} == {Workplace.beside(path)}


def test_links_in_a_circle_are_one_sentence(path: Path) -> None:
    path.symlink_to(path.name)
    for writable in (False, True):
        with pytest.raises(StoreError, match="change that or choose another store"):
            Store.open(path, writable=writable)


def test_a_store_of_two_names_is_not_written(path: Path) -> None:
    """Neither its lock nor SQLite's journal would be seen under the other; it can be read, and its copy written."""
    with Store.open(path, writable=True) as store:
        expected = store.add_all(make_records(rounds=1))
    other = path.with_name("other.sqlite")
    other.hardlink_to(path)
    for name in (path, other):
        with pytest.raises(StoreError, match=r"another name \(a hard link\).*copy it"):
            Store.open(name, writable=True)
        with Store.open(name) as reader:
            assert reader.count() == expected
    other.unlink()
    Store.open(path, writable=True).close()


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_no_file_is_no_store_and_gets_no_lock(path: Path, kind: str) -> None:
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/null")
    with pytest.raises(StoreError, match="it is a device or a pipe, no file; give the path of a file"):
        Store.open(path, writable=True)
    assert not Path("/dev/null.lock").exists()
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_forked_child_does_not_keep_the_lock_of_its_dead_parent(start: Start, path: Path) -> None:
    writer = start(path, "--fork", "--hold")
    child = int(line(writer).removeprefix("child "))
    try:
        assert line(writer) == "open"
        writer.kill()
        writer.wait()
        Store.open(path, writable=True).close()
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_failed_opening_leaves_no_lock(path: Path) -> None:
    path.write_bytes(b"no store" * 100)
    for _ in range(2):
        with pytest.raises(StoreError, match="not a claimbench store"):
            Store.open(path, writable=True)


def test_a_disk_that_fills_up_is_one_sentence_and_loses_nothing(start: Start, small_disk: Path) -> None:
    path = small_disk / "results.sqlite"
    writer = start(path)
    said, _ = writer.communicate(timeout=120)
    *lines, last = said.split("\n")[:-1]
    assert "no space is left" in last
    assert "what was stored before is kept" in last
    kept = len(lines) - 1  # the first says that it is open
    assert kept > 10
    with Store.open(path) as store:
        assert store.problems() == []
        assert store.count() == kept


def test_a_file_that_may_not_grow_is_one_sentence_and_loses_nothing(start: Start, path: Path) -> None:
    writer = start(path, "--file-size", "300000")
    said, _ = writer.communicate(timeout=120)
    *lines, last = said.split("\n")[:-1]
    assert last.startswith(f"StoreError: {path}: ")
    assert "what was stored before is kept" in last
    with Store.open(path) as store:
        assert store.problems() == []
        assert store.count() == len(lines) - 1 > 10


def test_a_read_only_folder_is_one_sentence_for_the_writer_and_no_matter_for_readers(
    start: Start, shared_folder: Path
) -> None:
    path = shared_folder / "results.sqlite"
    with Store.open(path, writable=True) as store:
        expected = store.add_all(make_records(rounds=1))
    Path(f"{path}.lock").unlink()
    path.chmod(0o444)
    shared_folder.chmod(0o555)
    options = ("--user", str(NOBODY)) if os.getuid() == 0 else ()
    said, _ = start(path, *options).communicate(timeout=60)
    assert said == f"StoreError: {path}: Permission denied; change that or choose another store\n"
    with Store.open(path) as store:
        assert store.count() == expected
