"""On what machine, when and with which versions: read from the records' environments, never from this machine."""

from __future__ import annotations

import json
import marshal
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.report import formats
from harness.report.origin import Origin
from harness.report.reproduce import ANY, commands
from harness.report.tables import Table
from harness.results.record import Record
from harness.trial.outcome import Outcome

#: Packages named on the first screen; the rest stand in the section on the environment.
LEADING = ("torch", "transformers", "deepspeed", "flash-attn", "peft", "bitsandbytes", "triton")


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The first lines of a report."""

    title: str
    """`NVIDIA H100 80GB HBM3`, `2 × …`, `…: 1, 2 and 4 devices, 22 GPUs in all`, or the processor without a GPU."""
    facts: tuple[tuple[str, str], ...]
    when: str
    trials: str
    code: str
    """Of how many trials the measuring code was committed: what ran with changes on top stands in no repository."""
    warning: str
    """What limits everything below: smoke scale, no GPU, several machines. Empty when nothing does."""
    environment: Table
    commands: tuple[str, ...]


def describe(records: Sequence[Record], origin: Origin | None = ANY, *, excluded: Sequence[Record] = ()) -> Machine:
    """Sum up the environments of all records; `origin` tells the matrix of their studies (`reproduce.commands`).

    Args:
        excluded: trials that no figure stands on, with the outcome that judging gave them (`Judgement.excluded`).
    """
    environments = _environments(records)
    titles = _titles([environment for environment, _ in environments])
    return Machine(
        title="; ".join(titles) or "no machine: nothing was run",
        code=_code(records),
        facts=_facts(environments[0][0]) if environments else (),
        when=_when(records),
        trials=_trials(records, excluded),
        warning=_warning(records, titles, origin),
        environment=_table(environments),
        commands=commands(records, origin),
    )


def device_name(environment: Mapping[str, Any]) -> str:
    """The GPU's name, or `CPU`."""
    devices = environment.get("devices") or ()
    return str(devices[0]["name"]) if devices else "CPU"


def device_memory_bytes(environment: Mapping[str, Any]) -> int | None:
    """Memory of one GPU, where there is one."""
    devices = environment.get("devices") or ()
    return int(devices[0]["memory_bytes"]) if devices else None


def _environments(records: Sequence[Record]) -> list[tuple[dict[str, Any], int]]:
    """Distinct environments with the number of their trials, most used first."""
    kept: dict[bytes, dict[str, Any]] = {}
    counts: Counter[bytes] = Counter()
    for record in records:
        key = marshal.dumps(record.environment)  # of plain JSON values; ten times as fast as writing JSON
        kept.setdefault(key, record.environment)
        counts[key] += 1
    same: Counter[str] = Counter()
    found: dict[str, dict[str, Any]] = {}
    for key, count in counts.items():
        text = json.dumps(kept[key], sort_keys=True, default=str)
        same[text] += count
        found.setdefault(text, kept[key])
    return [(found[text], count) for text, count in sorted(same.items(), key=lambda item: (-item[1], item[0]))]


def _titles(environments: Sequence[Mapping[str, Any]]) -> list[str]:
    """One for each kind of machine: the same GPU, however many of them a trial had."""
    kinds: dict[frozenset[str], list[Mapping[str, Any]]] = {}
    for environment in environments:
        names = frozenset(str(device["name"]) for device in environment.get("devices") or ())
        kinds.setdefault(names or frozenset({_title(environment)}), []).append(environment)
    return [_kind(group) for group in kinds.values()]


def _kind(environments: Sequence[Mapping[str, Any]]) -> str:
    """`NVIDIA H200: 1, 2 and 4 devices, 22 GPUs in all`; a title as of one environment where nothing varies."""
    titles = list(dict.fromkeys(_title(environment) for environment in environments))
    devices = [device for environment in environments for device in environment.get("devices") or ()]
    counts = sorted({len(environment.get("devices") or ()) for environment in environments})
    gpus = len({device["uuid"] for device in devices if device.get("uuid")})
    several = f", {gpus} GPUs in all" if gpus > max(counts) else ""
    if len(titles) == 1 or len({device["name"] for device in devices}) > 1:
        return "; ".join(titles) + several
    numbers = ", ".join(map(str, counts[:-1]))
    return f"{devices[0]['name']}: {numbers} and {counts[-1]} devices{several}"


def _code(records: Sequence[Record]) -> str:
    """`code: committed in 893 trials, with uncommitted changes in 292`."""
    states = Counter(record.environment.get("git_dirty") for record in records)
    words = {False: "committed", True: "with uncommitted changes", None: "outside a git working tree"}
    parts = [f"{word} in {formats.plural(states[state], 'trial')}" for state, word in words.items() if states[state]]
    return f"code: {', '.join(parts)}" if parts else ""


def _title(environment: Mapping[str, Any]) -> str:
    devices = [str(device["name"]) for device in environment.get("devices") or ()]
    if not devices:
        cores = environment.get("cores") or 0
        return f"CPU only: {environment.get('processor') or 'unknown processor'}, {formats.plural(cores, 'core')}"
    names = Counter(devices)
    return " + ".join(formats.devices(count, name) for name, count in names.items())


def _facts(environment: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    packages = environment.get("packages") or {}
    devices = environment.get("devices") or ()
    limit = devices[0].get("power_limit_watts") if devices else None
    pairs = [
        ("driver", environment.get("driver")),
        ("CUDA", environment.get("cuda_driver")),
        ("power limit", f"{limit:g} W" if limit else None),
        *((name, packages.get(name)) for name in LEADING),
        ("Python", environment.get("python")),
    ]
    return tuple((name, str(value)) for name, value in pairs if value)


def _when(records: Sequence[Record]) -> str:
    if not records:
        return "never"
    first, last = min(record.started_at for record in records), max(record.started_at for record in records)
    return formats.moment(first) if first == last else f"{formats.moment(first)} to {formats.moment(last)}"


def _trials(records: Sequence[Record], excluded: Sequence[Record]) -> str:
    """`1,552 trials (1,467 ok, of which 6 judged invalid; 62 superseded; 23 unsupported)`."""
    counts = _outcomes(records)
    spoiled = max(0, _outcomes(excluded)[Outcome.INVALID.value] - counts[Outcome.INVALID.value])
    said = {Outcome.OK.value: f"ok, of which {spoiled:,} judged invalid"} if spoiled else {}
    most = sorted(counts.items(), key=lambda item: -item[1])
    parts = ("; " if spoiled else ", ").join(f"{number:,} {said.get(name, name)}" for name, number in most)
    return f"{formats.plural(len(records), 'trial')}{f' ({parts})' if parts else ''}"


def _outcomes(records: Sequence[Record]) -> Counter[str]:
    return Counter("superseded" if record.superseded else record.outcome.value for record in records)


def _warning(records: Sequence[Record], titles: Sequence[str], origin: Origin | None) -> str:
    checks = origin is None
    if not records and origin is None:
        return "Nothing is stored yet: no trial came to its end. Give the same command again."
    if not records and origin is not None:
        return origin.missing("Nothing is stored yet, so every claim is “not run”.", "Run:")
    smoke = any(record.scale == "smoke" for record in records)
    cpu = not any(record.environment.get("devices") for record in records)
    if checks and cpu and not smoke:
        return "Run on a CPU: the verdicts speak of this CPU, with noise labels only, and say nothing about a GPU."
    if smoke or cpu:
        what = " on a ".join([*(["Smoke scale"] if smoke else []), *(["CPU"] if cpu else [])])
        what = what if smoke else "Run on a CPU"
        return (
            f"{what}: this run shows that every part works. Noise labels only; nothing here says anything about a GPU, "
            "and claims about GPUs are “not comparable”."
        )
    if len(titles) > 1:
        return f"Trials of {len(titles)} different machines are shown; pairs never mix them."
    return ""


def _table(environments: Sequence[tuple[dict[str, Any], int]]) -> Table:
    flat = [_flat(environment) for environment, _ in environments]
    names = list(dict.fromkeys(name for each in flat for name in each))
    rows = [(name, *(each.get(name, formats.ABSENT) for each in flat)) for name in names]
    heads = [
        f"environment {index} ({formats.plural(count, 'trial')})" for index, (_, count) in enumerate(environments, 1)
    ]
    return Table(caption="What the records say of the machine", columns=("what", *heads), rows=tuple(rows))


def _flat(environment: Mapping[str, Any]) -> dict[str, str]:
    flat: dict[str, str] = {}
    for index, device in enumerate(environment.get("devices") or ()):
        memory = formats.size(device.get("memory_bytes"))
        flat[f"GPU {index}"] = f"{device['name']}, {memory}, {device.get('uuid', '')}"
    for name in ("driver", "cuda_driver", "python", "system", "processor", "cores", "host", "git_commit", "git_dirty"):
        if environment.get(name) is not None:
            flat[name.replace("_", " ")] = str(environment[name])
    flat.update({name: str(version) for name, version in sorted((environment.get("packages") or {}).items())})
    flat.update({f"tool {name}": str(what) for name, what in sorted((environment.get("tools") or {}).items())})
    return flat
