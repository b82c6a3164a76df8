"""Where a claim is judged: the one way in which its settings are looked up among the arms of a block.

Planned blocks and measured ones are searched by the same rule, so that a claim which passes the check against the
matrix finds its cell in the records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

from harness.judgement.claims import show_settings


class HasCell(Protocol):
    """An arm as far as it is looked up."""

    @property
    def name(self) -> str: ...

    @property
    def settings(self) -> Mapping[str, object]: ...


ArmT = TypeVar("ArmT", bound=HasCell)


def find_arm(arms: Sequence[ArmT], changes: Mapping[str, object]) -> ArmT | None:
    """The arm whose cell is the baseline's with `changes`; without changes the baseline itself.

    Where no cell fits, as in the smoke scale whose sizes are others, the arm of that name is taken.
    """
    baseline = next((arm for arm in arms if arm.name == "baseline"), None)
    if baseline is None:
        return None
    wanted = {**baseline.settings, **changes}
    if wanted == dict(baseline.settings):
        return baseline
    same = next((arm for arm in arms if dict(arm.settings) == wanted), None)
    name = show_settings(changes)
    return same or next((arm for arm in arms if arm.name == name), None)


def fits(point: Mapping[str, object], at: Mapping[str, object]) -> bool:
    """Whether a block's sweep point is the one that is asked for (or among them, where not every axis is named)."""
    return all(axis in point and point[axis] == value for axis, value in at.items())
