"""What the command line takes: its options with their types, help and parsers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import typer

MATRIX, CLAIMS, STORE = Path("matrix.yaml"), Path("claims.yaml"), Path("results.sqlite")
CHECK_STORE = Path("check.sqlite")
BUDGET_SECONDS = 600.0
_UNITS = {"s": 1, "m": 60, "h": 3600}


def seconds(text: str) -> float:
    """Seconds of `25m`, `90s` or `1.5h`. A number alone may be meant as minutes, so that it needs its unit."""
    number, unit = text[:-1], _UNITS.get(text[-1:])
    try:
        value = float(number) * (unit or math.nan)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise typer.BadParameter(f"{text!r} is no length of time; write 90s, 25m or 2h")
    return value


def share(text: str) -> float:
    """`5%`, or `0.05`. A 5 alone may be meant as either, so that from 1 on the sign is needed."""
    number, percent = text.removesuffix("%"), text.endswith("%")
    try:
        value = float(number) / (100 if percent else 1)
    except ValueError:
        value = math.nan
    if not 0 <= value < (10 if percent else 1):
        raise typer.BadParameter(f"{text!r} is no share; write 5% or 0.05")
    return value


def outcomes(text: str) -> str:
    """`crash,timeout`, or one of the two."""
    wrong = set(text.split(",")) - {"", "crash", "timeout"}
    if wrong:
        raise typer.BadParameter(f"{', '.join(sorted(wrong))} cannot be retried; only crash and timeout can")
    return text


def gpu_numbers(text: str) -> str:
    """`0,1,2,3`, or `all`."""
    words = text.split(",")
    if text != "all" and (not all(word.isdigit() for word in words) or len(set(words)) < len(words)):
        raise typer.BadParameter(f"{text!r} names no GPUs; write 0,1,2,3 or all")
    return text


def slurm_minutes(text: str) -> int:
    """Slurm's own ways to write a time (`02:00:00`, `1-12`, minutes), or `2h`, `90m`; whole minutes, rounded up."""
    days, dash, rest = text.rpartition("-")
    parts = rest.split(":")
    try:
        if not dash and len(parts) == 1 and text[-1:] in ("h", "m", "s"):
            return max(1, math.ceil(seconds(text) / 60))
        numbers = [int(each) for each in parts]
        units = (60, 1, 1 / 60) if dash or len(parts) == 3 else (1, 1 / 60)
        found = 1440 * int(days or 0) + sum(number * unit for number, unit in zip(numbers, units, strict=False))
    except ValueError:
        found, numbers = 0, []
    if found <= 0 or min(numbers) < 0 or len(parts) > 3 or (dash and not days):
        raise typer.BadParameter(f"{text!r} is no length of time; write 02:00:00, 2h, or minutes")
    return math.ceil(found)


def slurm_time(text: str) -> str:
    """What `slurm_minutes` can read."""
    slurm_minutes(text)
    return text


def pairs(words: Iterable[str]) -> dict[str, str]:
    """`qos=high` → {"qos": "high"}; a word alone is a bare flag."""
    found = dict(word.partition("=")[::2] for word in words)
    for wrong in (key for key, value in found.items() if not _is_option(key, value)):
        raise typer.BadParameter(f"{wrong!r} is no option of sbatch; write --slurm qos=high")
    return found


def _is_option(key: str, value: str) -> bool:
    return re.fullmatch(r"[a-z][a-z0-9-]*", key) is not None and value.isprintable()


Matrix = Annotated[Path, typer.Option(help="The experiment: a YAML file of studies.")]
MatrixOfClaims = Annotated[
    Path | None, typer.Option("--matrix", help="The matrix: that which the claims file names, or matrix.yaml.")
]
MatrixOfTrials = Annotated[
    Path | None, typer.Option("--matrix", help="The matrix of the trials: found out, where their store knows it.")
]
Claims = Annotated[Path | None, typer.Option(help="The claims to judge: claims.yaml, where there is one.")]
Store = Annotated[Path, typer.Option(help="The SQLite file that keeps the trials.")]
Paths = Annotated[list[Path] | None, typer.Argument(metavar="[PATH]...", help="Where trials are: results.sqlite.")]
Figures = Annotated[int | None, typer.Option(min=0, help="Draw at most so many; 0: none. Tables hold all numbers.")]
Json = Annotated[bool, typer.Option("--json", help="As a list of objects.")]

Study = Annotated[list[str] | None, typer.Option(help="Only this study; may be given several times.")]
Rounds = Annotated[
    int | None, typer.Option(min=1, help="Rounds of every study, in place of the matrix's; a verdict takes three.")
]
Scale = Annotated[Literal["auto", "full", "smoke"], typer.Option(help="auto: full on a GPU, smoke without one.")]
Device = Annotated[Literal["auto", "cuda", "cpu"], typer.Option(help="auto: the GPU, where there is one.")]

Isolation = Annotated[
    Literal["zygote", "spawn"], typer.Option(help="Fork trials from a process that has torch, or start each afresh.")
]
TimeBudget = Annotated[
    float | None, typer.Option(parser=seconds, metavar="TIME", help="25m, 2h: begin only rounds that fit in it.")
]
WallLimit = Annotated[
    float | None, typer.Option(parser=seconds, metavar="TIME", help="90s, 5m: kill a trial that takes longer.")
]
Retry = Annotated[
    str, typer.Option(parser=outcomes, metavar="OUTCOMES", help="Run stored trials of these again: crash,timeout.")
]
Retries = Annotated[
    int | None, typer.Option(min=0, help="Tries again, at once, after a crash or a timeout; in place of the matrix'.")
]

Sentence = Annotated[
    str, typer.Argument(help="The claim: 'attention=flash2 vs eager >= 2x'. docs/check.md has the grammar.")
]
Workload = Annotated[
    str, typer.Option(metavar="FILE.py:build", help="Your training step; or a built-in model, a config.json.")
]
Budget = Annotated[
    float | None, typer.Option(parser=seconds, metavar="TIME", help="For everything, as 10m, which is the default.")
]
Sweep = Annotated[
    str | None, typer.Option(metavar="AXIS=RANGE", help="Where it holds: sequence_length=512..8192, batch_size=8,32.")
]
CheckRounds = Annotated[int | None, typer.Option(min=3, help="Rounds; else as many as fit, three to seven.")]
AsObject = Annotated[bool, typer.Option("--json", help="As one object.")]

Gpus = Annotated[
    str | None, typer.Option(parser=gpu_numbers, metavar="LIST", help="Rounds side by side on GPUs 0,1,2,3, or all.")
]
Launcher = Annotated[Literal["local", "slurm"], typer.Option(help="Run trials here, or in jobs of a Slurm cluster.")]
Partition = Annotated[str, typer.Option(help="Slurm: the partition; none: its default one.")]
Account = Annotated[str, typer.Option(help="Slurm: the account to charge.")]
GpusPerNode = Annotated[
    int, typer.Option(min=0, help="Slurm: GPUs of a job's node; with --device cpu ranks of a trial.")
]
Nodes = Annotated[int, typer.Option(min=1, help="Slurm: nodes in use at a time.")]
Time = Annotated[str, typer.Option(parser=slurm_time, metavar="TIME", help="Slurm: limit of a job, 02:00:00.")]
Slurm = Annotated[
    list[str] | None, typer.Option(metavar="KEY=VALUE", help="Slurm: any option of sbatch, as qos=high. Repeatable.")
]
SharingControl = Annotated[bool, typer.Option(help="Measure what it costs that rounds share a host.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Slurm: print the jobs and the batch script, send nothing.")]

Side = Annotated[Path, typer.Argument(help="A store, JSON lines, a folder of them, or pytest-benchmark's JSON.")]
Threshold = Annotated[
    float | None, typer.Option(parser=share, metavar="SHARE", help="Slowdown of a step that is let pass: 5%.")
]
AcrossDevices = Annotated[bool, typer.Option("--across-devices", help="Compare although the devices differ.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="As Markdown, for a pull request.")]
Calibrate = Annotated[bool, typer.Option("--calibrate", help="Measure rates of matrix products and copies here.")]
