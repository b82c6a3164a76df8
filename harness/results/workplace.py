"""The folder `.claimbench` beside a store: prepared data, compilation caches and what trial processes leave.

.claimbench/data/                prepared data (`trial.corpus`), of all stores in the folder
.claimbench/stores/<store>/
    caches/<fingerprint>/<cell>/ compilation caches of one cell, kept until the plan is complete
    trials/<trial>/              spec, result and output of a trial; removed once an ok one is stored

Each store has its own: two runs at a time into two stores of one folder would write over each other's results, and
the first that is complete would take the other's caches away.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.environment import Device
from harness.errors import LaunchError
from harness.experiment.study import PlannedTrial
from harness.results.paths import behind_links
from harness.results.record import Record
from harness.trial.outcome import Outcome
from harness.trial.shapes import read_shape
from harness.trial.spec import TrialSpec


@dataclass(frozen=True, kw_only=True)
class Workplace:
    """Where trials of one store work. Everything in it can be deleted between two runs."""

    folder: Path
    data_folder: Path | None = None
    """Where prepared data lies, if not in `folder`: stores in one folder share it, and a job of a cluster its run's."""
    cache_folder: Path | None = None
    """Where compilation caches lie, if not in `folder`: those of a job are on its node's own disk."""

    @classmethod
    def beside(cls, store: Path) -> Workplace:
        """That of the store itself, where it is named through a link."""
        store = behind_links(store)
        shared = store.absolute().parent / ".claimbench"
        return cls(folder=shared / "stores" / store.name, data_folder=shared / "data")

    @property
    def data(self) -> Path:
        return self.data_folder or self.folder / "data"

    @property
    def caches(self) -> Path:
        return self.cache_folder or self.folder / "caches"

    def spec(
        self, trial: PlannedTrial, *, fingerprint: str, attempt: int, gpu: bool, gradient_check: bool = False
    ) -> TrialSpec:
        """What the processes of a trial are told."""
        block, cell = trial.block, trial.arm.cell
        folder = self._trial_folder(trial, attempt)
        cache = self.caches / fingerprint / f"{cell.key}{cell.workload.contents}"
        cache.mkdir(parents=True, exist_ok=True)
        return TrialSpec(
            trial_id=folder.name, kind=block.kind, model=cell.workload.model_source, data=cell.workload.data_source,
            settings=dict(cell.settings), baseline_settings=dict(block.baseline.cell.settings), seed=trial.seed,
            warmup_steps=block.warmup_steps, steps=block.steps, device="cuda" if gpu else "cpu",
            record_path=str(folder / "result.json"), cache_directory=str(cache),
            data_directory=str(self.data), options=dict(block.options),
            contents=cell.workload.contents, gradient_check=gradient_check and not block.options.get("pilot"),
        )  # fmt: skip

    def variables(self, spec: TrialSpec, devices: Sequence[Device]) -> dict[str, str]:
        """Environment of a trial's processes: its devices alone, and the caches of its cell alone.

        Devices by NVML's number, which is CUDA's in the order of the bus: DeepSpeed's stages 1 and 2 read numbers and
        end with a ValueError on a UUID.
        """
        cache = Path(spec.cache_directory)
        return {
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "CUDA_VISIBLE_DEVICES": ",".join(str(device.index) for device in devices),
            "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
            "TRITON_CACHE_DIR": str(cache / "triton"),
        }

    def prepare_data(self, trials: Iterable[PlannedTrial]) -> None:
        """Prepare the data of all trials that will run, so that none does it within its own time.

        Raises:
            WorkloadError: data that cannot be read, or is too short for every cell; of others a trial says it.
            LaunchError: the disk is full or read-only.
        """
        cells = [trial.arm.cell for trial in trials if trial.refusal is None]
        needs: dict[tuple[str, str], set[tuple[str, int]]] = {}
        for cell in cells:
            sources = (cell.workload.data_source, cell.workload.model_source)
            needs.setdefault(sources, set()).add((str(cell["batching"]), cell.number("sequence_length")))
        for (data, model), samples in sorted(needs.items()):
            vocabulary = _vocabulary(model)
            if vocabulary is not None:
                # numpy: not for a run that has nothing to do
                from harness.trial.corpus import prepare, read_about, require_length

                with self.writing():
                    about = read_about(prepare(data, vocabulary, self.data))
                batching, length = min(samples, key=lambda each: (each[0] == "fixed", each[1]))  # the least demanding
                require_length(about, batching=batching, sequence_length=length)

    def tidy(self, trial: PlannedTrial, record: Record) -> None:
        """Remove what a trial left, now that its record is stored; what a failed one wrote stays for a look."""
        if record.outcome is Outcome.OK:
            shutil.rmtree(self._trial_folder(trial, record.attempt), ignore_errors=True)

    def clear_caches(self) -> None:
        """Remove compilation caches; called when the plan is complete."""
        shutil.rmtree(self.caches, ignore_errors=True)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A disk that is full or read-only ends the run with a sentence (LaunchError)."""
        try:
            yield
        except OSError as error:
            where, why = error.filename or self.folder, error.strerror or error
            raise LaunchError(f"{where}: {why}; mend that and run again, what is stored is kept.") from error

    def _trial_folder(self, trial: PlannedTrial, attempt: int) -> Path:
        name = f"{trial.block.key}-{trial.arm.cell.key}-r{trial.round}-p{trial.position}-a{attempt}"
        return self.folder / "trials" / name


def _vocabulary(model: str) -> int | None:
    """Of a shape; None for a training step of the user's, whose trial brings its own data."""
    if ".py:" in model:
        return None
    size = read_shape(model).values.get("vocab_size")
    return int(size) if size is not None else None
