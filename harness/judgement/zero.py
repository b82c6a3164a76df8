"""What many devices would give, from the few that were there: model state per parameter under ZeRO.

Rajbhandari et al. (arXiv 1910.02054) count 16 bytes a parameter for mixed-precision Adam (2 of weights, 2 of gradients,
12 of optimizer) and divide by N what a stage shards. Each form is a + b/N, so that a limit for many devices is a.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

#: Bytes per parameter without sharding.
WHOLE_BYTES = 16.0
#: Published form → (a, b) of a + b/N.
FORMS: Mapping[str, tuple[float, float]] = {
    "16": (16.0, 0.0),
    "4 + 12/N": (4.0, 12.0),
    "2 + 14/N": (2.0, 14.0),
    "16/N": (0.0, 16.0),
}
#: Device counts that a reader asks about.
PREDICTED = (8, 64, 1024)


@dataclass(frozen=True, kw_only=True)
class StatePoint:
    """Measured state at one number of devices."""

    devices: int
    bytes_per_parameter: float


@dataclass(frozen=True, kw_only=True)
class Fit:
    """The published forms and a free one against what was measured. Errors are relative, root mean square."""

    points: tuple[StatePoint, ...]
    form: str
    """The published form that fits best."""
    error: float
    errors: Mapping[str, float]
    """Of every published form."""
    free: tuple[float, float]
    """(a, b) of the least-squares a + b/N."""
    free_error: float | None
    """None with two device counts: two points leave nothing over."""
    whole_bytes: float
    """Measured state of the unsharded baseline, bytes per parameter: it is what the fitted form is a share of; the
    published ones are of 16."""
    predictions: Mapping[int, float]
    """Devices → bytes per parameter by the better published form."""

    @property
    def limit(self) -> float:
        """How many times smaller the state becomes for ever more devices, by the better published form."""
        return limit_of(self.form)

    @property
    def free_limit(self) -> float:
        return self.whole_bytes / self.free[0] if self.free[0] > 1e-6 else math.inf

    def ratio(self, devices: int) -> float:
        """Predicted saving at a number of devices."""
        return WHOLE_BYTES / self.predictions[devices]


def limit_of(form: str) -> float:
    """How many times smaller the state becomes for ever more devices, by a published form.

    >>> limit_of("4 + 12/N")
    4.0
    """
    constant = FORMS[form][0]
    return WHOLE_BYTES / constant if constant else math.inf


class OneDeviceCountError(ValueError):
    """A limit cannot be extrapolated from a single number of devices."""


def fit(points: Sequence[StatePoint], whole_bytes: float = WHOLE_BYTES) -> Fit:
    """Fit the forms to the measured points.

    Raises:
        OneDeviceCountError: fewer than two device counts are present.
    """
    counts = sorted({point.devices for point in points})
    if len(counts) < 2:
        raise OneDeviceCountError(f"state was measured at {counts[0] if counts else 'no'} device(s) only")
    errors = {name: _error(points, *form) for name, form in FORMS.items()}
    best = min(errors, key=errors.__getitem__)
    free = _least_squares(points)
    return Fit(
        points=tuple(sorted(points, key=lambda point: point.devices)), form=best, error=errors[best], errors=errors,
        free=free, free_error=_error(points, *free) if len(counts) > 2 else None, whole_bytes=whole_bytes,
        predictions={devices: _value(devices, *FORMS[best]) for devices in PREDICTED},
    )  # fmt: skip


def sentence(found: Fit, claimed_limit: float) -> str:
    """The fit, its error and its predictions, and what they say of the claimed limit."""
    measured = ", ".join(f"{point.bytes_per_parameter:.2f} at {point.devices}" for point in found.points)
    second = sorted(found.errors, key=found.errors.__getitem__)[1]
    predicted = ", ".join(f"{found.ratio(devices):.2f}x at {devices}" for devices in PREDICTED)
    limit = f"{found.limit:g}x" if math.isfinite(found.limit) else "no limit"
    agrees = math.isclose(found.limit, claimed_limit, rel_tol=0.01)
    verdict = f"the claimed {claimed_limit:g}x is its limit for many devices" if agrees else (
        f"its limit for many devices is {limit}, not the claimed {claimed_limit:g}x")  # fmt: skip
    return (
        f"bytes of model state per parameter and rank: {measured} device(s); {found.form} fits best "
        f"(error {found.error:.1%}; {second}: {found.errors[second]:.1%}) and gives {predicted} devices; {verdict}"
    )


def _value(devices: int, constant: float, shared: float) -> float:
    return constant + shared / devices


def _error(points: Sequence[StatePoint], constant: float, shared: float) -> float:
    off = [_value(point.devices, constant, shared) / point.bytes_per_parameter - 1 for point in points]
    return math.sqrt(fmean(each * each for each in off))


def _least_squares(points: Sequence[StatePoint]) -> tuple[float, float]:
    shares = [1 / point.devices for point in points]
    states = [point.bytes_per_parameter for point in points]
    centre, mean = fmean(shares), fmean(states)
    spread = math.fsum((share - centre) ** 2 for share in shares)
    slope = math.fsum((s - centre) * (y - mean) for s, y in zip(shares, states, strict=True)) / spread
    return mean - slope * centre, slope
