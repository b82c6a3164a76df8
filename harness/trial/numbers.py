"""Numbers that JSON has no word for. A loss that overflowed is a finding, so it must survive every file on its way.

One rule in all files of claimbench: NaN and the infinities are the strings "nan", "inf" and "-inf"; null means "could
not be had". Strict JSON throughout, so any reader (jq, pandas, a browser) can take it.
"""

from __future__ import annotations

import math
from typing import Any

WORDS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def encode(value: Any) -> Any:
    """`value` with every non-finite float replaced by its word; tuples become lists, as JSON makes them."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(float(value))
    if isinstance(value, dict):
        return {name: encode(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [encode(each) for each in value]
    return value


def decode(value: Any) -> Any:
    """The opposite of `encode`. For places that hold numbers: a text that happens to be `inf` would become one."""
    if isinstance(value, str):
        return WORDS.get(value, value)
    if isinstance(value, dict):
        return {name: decode(each) for name, each in value.items()}
    if isinstance(value, list):
        return [decode(each) for each in value]
    return value
