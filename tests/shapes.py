"""What synthetic records are made from: a machine, the axes, and the shapes of studies and cells with true ratios."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from harness.environment import Device, Environment
from harness.experiment.axes import Setting
from harness.trial.outcome import Outcome

#: Every axis with its default, as `docs/concepts.md` lists them.
DEFAULTS: dict[str, Setting] = {
    "precision": "fp32", "attention": "sdpa", "checkpointing": "off", "compile": "off", "optimizer": "foreach",
    "batch_size": 8, "accumulation": 1, "sequence_length": 1024, "stream": "cached", "workers": 0, "prefetch": 2,
    "pin_memory": False, "persistent": False, "start": "fork", "non_blocking": False, "copy": "plain",
    "cost_per_sample_ms": 0, "batching": "fixed", "lora": "off", "lora_targets": "default", "quantization": "none",
    "parallel": "none", "devices": 1, "zero": "off", "empty_cache": "off", "clip": "off", "schedule": "off",
    "monitor": "off", "pruning": "off", "distillation": "off",
}  # fmt: skip

H100 = Environment(
    devices=(
        Device(
            index=0, name="NVIDIA H100 80GB HBM3", uuid="GPU-00000000-0000-0000-0000-000000000001",
            memory_bytes=85_520_809_984, power_limit_watts=700.0, compute_capability=(9, 0),
        ),
    ),
    driver="580.95.05", cuda_driver="13.0", python="3.11.7", system="Linux-6.8-x86_64", processor="Synthetic CPU",
    cores=16, memory_bytes=137_438_953_472, host="0123456789ab", git_commit="0" * 40, git_dirty=False,
    packages={
        "torch": "2.13.0", "triton": "3.7.0", "transformers": "5.24.0", "peft": "0.21.0", "bitsandbytes": "0.50.0",
        "deepspeed": "0.19.8", "flash-attn": "2.8.3", "numpy": "2.4.6", "nvidia-cudnn-cu13": "9.15.0.55",
    },
    tools={"nvcc": "13.0", "nvidia-smi": "580.95.05", "c++": "13.2"},
)  # fmt: skip
A100 = replace(H100, devices=(replace(H100.devices[0], name="NVIDIA A100-SXM4-80GB"),))
CPU = replace(H100, devices=(), driver=None, cuda_driver=None, tools={"c++": "13.2"}, cores=2)

FINGERPRINT = "f0f1f2f3f4f5f6f7"
STARTED = datetime(2026, 3, 1, 9, 0, 0, tzinfo=UTC)
PARAMETERS = 124_439_808
MODEL_FLOPS_PER_TOKEN = 854_438_400.0
H100_BF16_FLOPS = 989.4e12
PHASE_SHARES = {"forward": 0.31, "backward": 0.6, "optimizer": 0.07, "data_wait": 0.01, "copy": 0.01}
#: Outcomes of trials that ran to the end of their window and have figures.
MEASURED = frozenset({Outcome.OK, Outcome.INERT, Outcome.INVALID})
REASONS = {
    Outcome.OOM: "CUDA out of memory: tried to allocate 12.00 GiB; a smaller batch_size or sequence_length may fit",
    Outcome.CRASH: "RuntimeError: synthetic failure in step 3",
    Outcome.TIMEOUT: "ran past its wall limit of 600 s; rank 0 was killed",
    Outcome.UNSUPPORTED: "flash-attn is not installed; pip install flash-attn",
    Outcome.INERT: "expected a flash kernel in the profile, saw fmha_cutlassF",
    Outcome.INVALID: "2 graphs were recompiled inside the window",
    Outcome.INTERRUPTED: "the run was interrupted",
}


@dataclass(frozen=True, kw_only=True)
class CellShape:
    """What one cell of a synthetic block is to look like."""

    settings: Mapping[str, Setting]
    """What differs from the baseline; its label becomes the arm's name."""
    ratio: float = 1.3
    """True speed, as a multiple of the baseline's."""
    memory: float = 1.0
    """True peak memory, as a multiple of the baseline's."""
    outcome: Outcome = Outcome.OK
    failed_rounds: tuple[int, ...] | None = None
    """Rounds that end with `outcome`; None: all of them."""
    loss_shift: float = 0.0
    """Added to every loss after the warm-up, nats: fast but different."""
    loss_noise: float = 0.0
    """Standard deviation of what rounding adds to each loss, nats."""
    trainable_share: float = 1.0


@dataclass(frozen=True, kw_only=True)
class StudyShape:
    """A synthetic study: a block at each sweep point (one block without a sweep)."""

    name: str
    cells: Sequence[CellShape]
    baseline: Mapping[str, Setting] = field(default_factory=dict)
    workload: str = "gpt2-small"
    model: str = "gpt2-124m"
    kind: str = "training"
    sweep: tuple[str, Sequence[Setting]] | None = None
    tokens_per_second: float = 100_000.0
    """True speed of the baseline."""
    peak_bytes: int = 20_000_000_000
    """True peak of allocated memory of the baseline."""


DEFAULT_STUDIES = (
    StudyShape(
        name="precision",
        cells=(
            CellShape(settings={"precision": "tf32"}, ratio=1.45, loss_noise=1e-4),
            CellShape(settings={"precision": "amp-bf16"}, ratio=1.75, memory=0.8, loss_noise=2e-3),
            CellShape(settings={"precision": "bf16"}, ratio=2.6, memory=0.5, loss_noise=5e-3),
        ),
    ),
    StudyShape(
        name="attention",
        baseline={"precision": "bf16", "attention": "eager"},
        cells=(
            CellShape(settings={"attention": "sdpa-flash"}, ratio=1.6, memory=0.7, loss_noise=2e-3),
            CellShape(settings={"attention": "flash2"}, outcome=Outcome.UNSUPPORTED),
        ),
        sweep=("sequence_length", (512, 1024, 2048)),
    ),
    StudyShape(
        name="checkpointing",
        cells=(CellShape(settings={"checkpointing": "full"}, ratio=0.77, memory=0.6),),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Noise:
    """How the synthetic machine behaves."""

    spread: float = 0.01
    """Standard deviation of ln(tokens/s) between trials."""
    step_spread: float = 0.03
    """The same between the steps of one trial."""
    drift: float = 0.0
    """Change of ln(speed) from the first trial of a block to the last: the card warms up."""
    seed_spread: float = 0.02
    """Standard deviation of a loss between rounds (another seed each), nats."""
