"""How a trial can end."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """The words of the store and of the report."""

    OK = "ok"
    OOM = "oom"
    """Out of memory, on the device or on the host."""
    TIMEOUT = "timeout"
    """Ran past its wall limit; every process of it was killed."""
    CRASH = "crash"
    """Raised, or died of a signal; `reason` holds the last lines of its standard error."""
    UNSUPPORTED = "unsupported"
    """Known before launch not to run here; `reason` says why and what would make it run."""
    INERT = "inert"
    """It ran, but the technique could not be shown to be in effect."""
    INVALID = "invalid"
    """It ran, but its numbers cannot be trusted; `reason` says what spoiled them."""
    INTERRUPTED = "interrupted"
    """The user or the machine stopped the run."""


#: Outcomes that are results: a rerun does not repeat them.
SETTLED = frozenset({Outcome.OK, Outcome.OOM, Outcome.UNSUPPORTED, Outcome.INERT, Outcome.INVALID})
#: Outcomes that `--retry` and `retries` may repeat.
TRANSIENT = frozenset({Outcome.CRASH, Outcome.TIMEOUT})
