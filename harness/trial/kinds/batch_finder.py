"""D3's `find_optimal_batch_size` as printed, and what it should have found.

The printed search tries one batch size after another with a forward pass under `no_grad` over a text of a few tokens.
Then, each try in a process of its own: does the batch that it found train, and which is the largest that does, with and
without `empty_cache()` after each step? This process itself never touches the GPU.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from harness.environment import Environment
from harness.trial.kinds import apart
from harness.trial.outcome import Outcome
from harness.trial.ranks import Ranks
from harness.trial.spec import TrialResult, TrialSpec

MAX_BATCH_SIZE, CEILING, RESOLUTION = 32, 256, 0.1
#: The text that the search repeats, in tokens of its bytes.
TEXT = "测试文本"


def run(spec: TrialSpec, ranks: Ranks, environment: Environment) -> TrialResult:
    """Search as printed, check what it found, then bisect."""
    begun = time.monotonic()
    tries: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = int(apart.answer(search_as_printed, spec, folder)["found_batch"])

        def trains(size: int, **changes: Any) -> bool:
            outcome = apart.trial(spec, folder, batch_size=size, **changes).outcome
            tries.append(f"{size}{' emptying' if changes else ''}: {outcome}")
            return outcome in (Outcome.OK, Outcome.INERT, Outcome.INVALID)

        found_trains = found > 0 and trains(found)
        ceiling = int(spec.options.get("ceiling", CEILING))
        resolution = float(spec.options.get("resolution", RESOLUTION))
        largest = largest_that(trains, ceiling, resolution, known=found if found_trains else 0)
        figures: dict[str, Any] = {
            "found_batch": found, "found_trains": found_trains, "largest_batch": largest,
            "found_over_largest": found / largest if largest else None,
            "found_is_largest": found_trains and found >= largest * (1 - resolution),
        }  # fmt: skip
        missing = {} if spec.device == "cuda" else {"largest_batch_emptying": "a CPU has no allocator's cache to empty"}
        if not missing:
            figures["largest_batch_emptying"] = largest_that(
                lambda size: trains(size, empty_cache=1), ceiling, resolution, known=0
            )
    result = TrialResult(outcome=Outcome.OK, window=(begun, time.monotonic()), missing=missing)
    result.measured["figures"] = {**figures, "tries": len(tries), "log": tries}
    return result


def search_as_printed(spec: TrialSpec) -> dict[str, int]:
    """One batch size after another up to `max_batch_size`, until a forward pass is out of memory."""
    import torch

    from harness.techniques.attention import Attention
    from harness.techniques.precision import Precision
    from harness.techniques.registry import this_machine
    from harness.trial.training import TrainingRun, build

    trial = TrainingRun(spec, Ranks(), this_machine())
    limit = int(spec.options.get("max_batch_size", MAX_BATCH_SIZE))
    with trial.held:
        build(trial, (Precision(), Attention()))
        vocabulary = int(trial.config.vocab_size)
        tokens = [byte % vocabulary for byte in TEXT.encode()]
        for size in range(1, limit + 1):
            ids = torch.tensor([tokens] * size, device=trial.device)
            try:
                with torch.no_grad(), ExitStack() as stack:
                    for context in trial.forward_contexts:
                        stack.enter_context(context())
                    trial.model(input_ids=ids, attention_mask=torch.ones_like(ids))
            except RuntimeError as error:
                if "out of memory" in str(error):
                    return {"found_batch": size - 1}
                raise
    return {"found_batch": limit}


def largest_that(trains: Callable[[int], bool], ceiling: int, resolution: float, *, known: int) -> int:
    """The largest batch up to `ceiling` that trains, by bisection down to a relative `resolution`; 0 when none does.

    Args:
        known: a batch that is known to train, or 0.
    """
    if known >= ceiling or trains(ceiling):
        return max(known, ceiling)
    low, high = known, ceiling
    while high - low > max(1, resolution * low):
        middle = (low + high) // 2
        if trains(middle):
            low = middle
        else:
            high = middle
    return low
