"""A cell: a workload plus one setting for every axis."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from harness.experiment.axes import Setting, show_settings
from harness.experiment.workloads import located


@dataclass(frozen=True, kw_only=True)
class Workload:
    """The work to be done, less what stands in axes (sequence length, batch size, devices are settings of the cell)."""

    name: str
    model: str
    """A built-in shape (`gpt2-124m`), a path to a `config.json`, a local model folder, or `file.py:build`."""
    data: str = "stdlib"
    """`stdlib`, `stdlib-bpe`, `synthetic`, or a path to text, JSONL or parquet."""
    folder: str = field(default="", repr=False, compare=False)
    """Where paths in `model` and `data` begin: the folder of the matrix. No part of the cell's key or of a record."""
    contents: str = ""
    """`workloads.contents_of` the files that `model` and `data` name: trials of a file that was edited stand in another
    block."""

    @property
    def model_source(self) -> str:
        """`model` as a trial opens it: a built-in word, or a path from the current folder."""
        return located(self.model, self.folder)

    @property
    def data_source(self) -> str:
        """`data` as a trial opens it: a built-in word, or a path from the current folder."""
        return located(self.data, self.folder)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What one trial runs. `settings` names every axis, defaults written out, so that a record explains itself."""

    workload: Workload
    settings: Mapping[str, Setting]
    defaults: Mapping[str, Setting] = field(default_factory=dict, repr=False, compare=False)
    """What counts as "not named" in `key`: a default leaves no trace there, so a new axis (a later version, an outside
    technique) renames no cell that is stored already."""
    shared: Mapping[str, Setting] = field(default_factory=dict, repr=False, compare=False)
    """What studies of all kinds share: defaults, the matrix' baseline, the workload. A kind that does not apply one of
    these leaves it alone; one that a study asks for itself it refuses."""

    def __getitem__(self, axis: str) -> Setting:
        return self.settings[axis]

    def number(self, axis: str) -> int:
        """A setting that is known to be a whole number (`batch_size`, `devices`).

        Raises:
            TypeError: the setting is a word.
        """
        value = self.settings[axis]
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{axis} is {value!r}, not a whole number")
        return value

    def but(self, **changes: Setting) -> Cell:
        """The same cell with some settings changed."""
        return replace(self, settings={**self.settings, **changes})

    @cached_property
    def key(self) -> str:
        """16 hexadecimal digits, the same on every machine. The workload counts by its model and data, not by its name.

        What their files hold is in the key of the block, so that a cell before an edit can be compared with it after.
        """
        named = {axis: value for axis, value in self.settings.items() if self.defaults.get(axis) != value}
        content = [self.workload.model, self.workload.data, sorted(named.items())]
        return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()[:16]

    def changes_from(self, baseline: Cell) -> dict[str, Setting]:
        """The settings in which this cell differs from `baseline`, in the order of the axes."""
        return {axis: value for axis, value in self.settings.items() if baseline.settings.get(axis) != value}

    def label(self, baseline: Cell) -> str:
        """`attention=flash2 precision=bf16`, or `baseline` when nothing differs."""
        return show_settings(self.changes_from(baseline)) or "baseline"
