"""A process that writes to a store until it is killed or fails: `python -m tests.results.writer STORE [options]`.

It prints one line a trial once `add` has returned, which is the promise that is tested: what was printed is kept.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from dataclasses import replace
from pathlib import Path

from harness.errors import StoreError
from harness.results.store import Store
from tests.records import make_records


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("store", type=Path)
    parser.add_argument("--hold", action="store_true", help="open the store, write nothing, sleep")
    parser.add_argument("--fork", action="store_true", help="leave a forked child behind that sleeps")
    parser.add_argument("--file-size", type=int, help="bytes after which the system refuses to let a file grow")
    parser.add_argument("--user", type=int, help="become this user first")
    options = parser.parse_args()
    if options.user is not None:
        os.setuid(options.user)
    if options.file_size is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (options.file_size, options.file_size))
    try:
        write(options.store, hold=options.hold, fork=options.fork)
    except StoreError as error:
        print(f"{type(error).__name__}: {error}", flush=True)


def write(path: Path, *, hold: bool, fork: bool) -> None:
    with Store.open(path, writable=True) as store:
        if fork:
            print(f"child {fork_sleeper()}", flush=True)
        print("open", flush=True)
        while hold:
            time.sleep(1)
        records = make_records(rounds=1)
        for number in range(100_000):
            store.add(replace(records[number % len(records)], attempt=number + 1))
            print(number + 1, flush=True)


def fork_sleeper() -> int:
    """The id of a forked child that is past its first instant (what runs at every fork has run)."""
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(there, b"!")
        time.sleep(60)
        os._exit(0)
    os.read(here, 1)
    return child


if __name__ == "__main__":
    main()
