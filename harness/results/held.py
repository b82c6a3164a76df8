"""Records from wherever they came, answering what a store answers of a round: for `status`, which may get no store."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable

from harness.results.record import Record
from harness.results.store import largest_together
from harness.trial.outcome import SETTLED, TRANSIENT, Outcome


class Held:
    """Those of them that are not superseded, by block, round and fingerprint."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._found: dict[tuple[str, int, str], list[tuple[str, str, Outcome]]] = defaultdict(list)
        texts: dict[int, str] = {}  # records of one store share their environments
        kept = [record for record in records if not record.superseded]
        for record in kept:
            here = id(record.environment)
            if here not in texts:
                texts[here] = json.dumps(record.environment, sort_keys=True)
            where = (record.block, record.round, record.fingerprint)
            self._found[where].append((texts[here], record.arm, record.outcome))

    def settled_arms(
        self, block: str, round_number: int, fingerprint: str, *, retry: Iterable[Outcome] = ()
    ) -> frozenset[str]:
        """As `Store.settled_arms`."""
        counting = (SETTLED | TRANSIENT) - frozenset(retry)
        found = self._found.get((block, round_number, fingerprint), ())
        return largest_together((environment, arm) for environment, arm, outcome in found if outcome in counting)
