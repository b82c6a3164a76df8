"""How a trial can end."""

from __future__ import annotations

import re
from enum import StrEnum

#: torch's words for memory of the host that is full.
_HOST_IS_FULL = "DefaultCPUAllocator: can't allocate memory"
#: And for memory that is full at all, with those of NVIDIA's libraries, which torch passes on as RuntimeErrors:
#: CUBLAS_STATUS_ALLOC_FAILED, CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED.
_FULL = re.compile(rf"out.of.memory|{_HOST_IS_FULL}|\bCU[A-Z]+_\w*ALLOC(ATION)?_FAILED", re.IGNORECASE)


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


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that there was no memory left, the device's or the host's."""
    by_class = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return by_class or _FULL.search(str(error)) is not None


def is_out_of_host_memory(error: BaseException) -> bool:
    """Whether it was the host's: Python's own error is never of a device."""
    return isinstance(error, MemoryError) or _HOST_IS_FULL in str(error)
