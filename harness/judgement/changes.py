"""What changed in the environment between two runs: the first thing to look at when a figure moved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ABSENT = "absent"
#: Of an environment, what says where and when, not how fast.
_NOT_COMPARED = frozenset({"devices", "packages", "tools", "uuid"})


@dataclass(frozen=True, kw_only=True)
class Change:
    """One fact of the machine, before and after."""

    name: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.name}: {self.before} → {self.after}"


def changes(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> list[Change]:
    """Every fact in which two sets of environments differ, devices first, then packages, then the rest by name.

    A side with several environments has several values of a fact: `2.12.0 or 2.13.0`.
    """
    first, second = _facts(before), _facts(after)
    names = sorted(first.keys() | second.keys(), key=lambda name: (_rank(name), name))
    found = (Change(name=name, before=_show(first.get(name)), after=_show(second.get(name))) for name in names)
    return [change for change in found if change.before != change.after]


def _facts(environments: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    facts: dict[str, list[str]] = {}
    for environment in environments:
        for name, value in _flat(environment):
            if value not in facts.setdefault(name, []):
                facts[name].append(value)
    return facts


def _flat(environment: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    devices = environment.get("devices") or ()
    if devices:
        yield "devices", " + ".join(str(device.get("name")) for device in devices)
        yield "power limit", " + ".join(f"{device.get('power_limit_watts')} W" for device in devices)
        yield "device UUID", " + ".join(str(device.get("uuid")) for device in devices)
    for package, version in (environment.get("packages") or {}).items():
        yield f"package {package}", str(version)
    for name, value in environment.items():
        if name not in _NOT_COMPARED and value not in (None, "", 0):
            yield name.replace("_", " "), str(value)


def _rank(name: str) -> int:
    if name in {"devices", "power limit"}:
        return 0
    return 1 if name.startswith("package ") else 2


def _show(values: Sequence[str] | None) -> str:
    return " or ".join(values) if values else ABSENT
