"""The folder of a report that got no name: never one that holds a report on other trials."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.report.folder import free_folder, note_sources


def test_a_folder_is_used_again_for_the_same_trials_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = free_folder("mine", ["a/mine.sqlite"])
    assert first == Path("reports/mine")
    first.mkdir(parents=True)
    note_sources(first, ["a/mine.sqlite"])
    assert free_folder("mine", [Path("a") / "mine.sqlite"]) == first
    assert free_folder("mine", ["b/mine.sqlite"]) == Path("reports/mine-2")


def test_a_link_to_a_store_is_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.sqlite").touch()
    (tmp_path / "link.sqlite").symlink_to("mine.sqlite")
    first = free_folder("mine", ["mine.sqlite"])
    first.mkdir(parents=True)
    note_sources(first, ["link.sqlite"])
    assert free_folder("mine", ["mine.sqlite"]) == first


def test_records_without_a_file_never_stand_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = free_folder("results", [])
    first.mkdir(parents=True)
    note_sources(first, [])
    assert free_folder("results", []) == Path("reports/results-2")
