"""Where the time of a step went, from its profile: kernels by name on a GPU, operators by name on a CPU.

On a GPU each instant counts once: for the kernel that computes, else for communication, else for a copy; what is left
of the measured step is idle. Kernels take as long under the profiler as without it, so their sum is held against the
step as the window measured it. On a CPU an operator counts what it spent outside the operators that it called, and
since the profiler slows the host, the profiled step is scaled to the measured one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from harness.trial.profile import Profile, Span

MATRIX, ATTENTION, ELEMENTWISE = "matrix_products", "attention", "elementwise_and_norms"
OPTIMIZER, COPIES, COMMUNICATION, IDLE = "optimizer", "copies", "communication", "idle"
#: In the order in which they are shown.
CATEGORIES = (MATRIX, ATTENTION, ELEMENTWISE, OPTIMIZER, COPIES, COMMUNICATION, IDLE)

#: One kernel that copies many tensors, as FSDP does on the way into the buffers that it gathers in.
_MULTI_COPY = r"multi_tensor_apply.*\bCopy(Functor)?<"
#: The first pattern that a name contains decides. Eager attention's products are batched ones; others are not.
_NAMES = tuple(
    (category, re.compile(pattern, re.IGNORECASE))
    for category, pattern in (
        # a compiler's fused kernel bears the names of all operators around it: `triton_red_fused_..._flash_...`
        (ELEMENTWISE, r"^triton_(poi|red|per)_fused"),
        (COMMUNICATION, r"nccl|gloo|c10d::|all_?reduce|all_?gather|reduce_?scatter"),
        (COPIES, r"^memcpy|^memset|aten::copy_$|aten::to$|aten::_to_copy|aten::_pin_memory|aten::_foreach_copy_$|"
                 rf"{_MULTI_COPY}|chunk_cat|split_with_sizes_copy"),
        (OPTIMIZER, r"multi_tensor_apply|fused_?adam|_foreach_(?!copy_)|^optimizer\."),
        (ELEMENTWISE, r"log_?softmax|nll_loss|cross_entropy"),
        (ATTENTION, r"flash|fmha|efficient_attention|scaled_dot_product|cudnn_generated|sdpa|aten::bmm|aten::baddbmm|"
                    r"softmax"),
        (MATRIX, r"gemm|gemv|cublas|cutlass|nvjet|xmma|splitk|aten::(add)?mm$|aten::linear$|aten::matmul|convolution|"
                 r"mkldnn_linear|mkl_linear|triton_tem|_mm_"),
    )
)  # fmt: skip
_OPTIMIZER_NOTE = "Optimizer."
#: While two of them run at once, the first of these counts.
_RANK = {COPIES: 2, COMMUNICATION: 1}


def category_of(name: str, operator: str = "") -> str:
    """The category of a kernel or an operator by its name; of a kernel first by the operator that launched it."""
    for text in (operator, name):
        for category, pattern in _NAMES:
            # an operator that copies may launch what computes: there the kernel's own name is better
            if pattern.search(text) and not (text is operator and category is COPIES and operator):
                return category
    return ELEMENTWISE


def breakdown(profile: Profile, step_seconds: float) -> dict[str, Any]:
    """Seconds of a step by category, adding up to the step where all is well.

    Args:
        profile: of one step.
        step_seconds: mean of the window.

    Returns:
        `seconds` by category, `step_seconds` (measured), `profiled_seconds` (busy on a GPU, the whole step on a CPU),
        and `sum_over_step`: the categories' sum over the measured step. Far from 1 the profiled step was another one;
        `judgement.why` says more.
    """
    on_gpu = any(span.on_device and not span.note for span in profile.spans)
    seconds = _on_device(profile.spans) if on_gpu else _on_host(profile.spans)
    busy = sum(spent for name, spent in seconds.items() if name != IDLE)
    profiled = busy if on_gpu else max(profile.wall_seconds, busy)
    scale = 1.0 if on_gpu or not profiled else step_seconds / profiled
    table = {name: seconds.get(name, 0.0) * scale for name in CATEGORIES if name != IDLE}
    table[IDLE] = max(0.0, step_seconds - sum(table.values()))
    return {
        "seconds": table, "step_seconds": step_seconds, "profiled_seconds": profiled,
        "measured_on": "gpu" if on_gpu else "cpu",
        "sum_over_step": sum(table.values()) / step_seconds if step_seconds else None,
    }  # fmt: skip


def _on_device(spans: Iterable[Span]) -> dict[str, float]:
    """Exclusive seconds by category: every instant counts once, whatever runs on other streams."""
    device = [span for span in spans if span.on_device and "Synchroniz" not in span.name]
    optimizer = [span for span in device if span.note and span.name.startswith(_OPTIMIZER_NOTE)]
    edges: list[tuple[int, int, str]] = []
    for span in device:
        if not span.note:
            within = any(note.start <= span.start <= note.end for note in optimizer)
            category = category_of(span.name, span.operator)
            if within and (category not in (COPIES, COMMUNICATION) or re.search(_MULTI_COPY, span.name)):
                category = OPTIMIZER
            edges += [(span.start, 1, category), (span.end, -1, category)]
    return _swept(sorted(edges))


def _swept(edges: Sequence[tuple[int, int, str]]) -> dict[str, float]:
    """Seconds by category between the edges; while several are open, the one of the best rank counts."""
    totals = dict.fromkeys(CATEGORIES, 0.0)
    open_now: dict[str, int] = {}
    last = edges[0][0] if edges else 0
    for moment, change, category in edges:
        if moment > last and open_now:
            totals[min(open_now, key=lambda each: _RANK.get(each, 0))] += (moment - last) / 1e9
        last = moment
        open_now[category] = open_now.get(category, 0) + change
        if not open_now[category]:
            del open_now[category]
    return totals


def _on_host(spans: Iterable[Span]) -> dict[str, float]:
    """Seconds by category of the busiest thread: of each operator what it spent outside those that it called."""
    lanes: dict[int, dict[str, float]] = {}
    stacks: dict[int, list[tuple[int, str]]] = {}
    for span in spans:
        stack, totals = stacks.setdefault(span.lane, []), lanes.setdefault(span.lane, dict.fromkeys(CATEGORIES, 0.0))
        while stack and stack[-1][0] <= span.start:
            stack.pop()
        category = _inherited(span, stack[-1][1] if stack else "")
        length = (min(span.end, stack[-1][0]) if stack else span.end) - span.start
        if stack:
            totals[stack[-1][1]] -= length / 1e9
        totals[category] += length / 1e9
        stack.append((span.end, category))
    return max(lanes.values(), key=lambda totals: sum(totals.values()), default={})


def _inherited(span: Span, above: str) -> str:
    """What an optimizer or an attention operator calls belongs to it."""
    if above in (OPTIMIZER, ATTENTION, COMMUNICATION):
        return above
    if span.note and not span.name.startswith(_OPTIMIZER_NOTE):
        return IDLE
    return category_of(span.name)
