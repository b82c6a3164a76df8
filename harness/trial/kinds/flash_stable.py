"""The first gradient of attention by torch's flash kernel and by xformers, each against fp32.

The parent runs it only where xformers is installed and there is a GPU. "Stable" is read as a smaller error.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from harness.environment import Environment
from harness.trial.model import make_config
from harness.trial.outcome import Outcome
from harness.trial.ranks import Ranks
from harness.trial.spec import TrialResult, TrialSpec


def run(spec: TrialSpec, ranks: Ranks, environment: Environment) -> TrialResult:
    """Relative L2 error of both, over the gradients of queries, keys and values."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention
    from xformers.ops import LowerTriangularMask, memory_efficient_attention

    begun = time.monotonic()
    length, batch = (int(spec.settings[name]) for name in ("sequence_length", "batch_size"))
    config = make_config(spec.model, length)
    heads = int(config.num_attention_heads)
    shape = (batch, heads, length, int(config.hidden_size) // heads)
    device = torch.device(spec.device, ranks.local_rank)
    generator = torch.Generator(device=device).manual_seed(spec.seed)
    inputs = [torch.randn(shape, generator=generator, device=device).bfloat16() for _ in range(4)]

    def reference(q: Any, k: Any, v: Any) -> Any:
        with sdpa_kernel(SDPBackend.MATH):
            return scaled_dot_product_attention(q, k, v, is_causal=True)

    def flash(q: Any, k: Any, v: Any) -> Any:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return scaled_dot_product_attention(q, k, v, is_causal=True)

    def xformers(q: Any, k: Any, v: Any) -> Any:
        turned = (part.transpose(1, 2) for part in (q, k, v))
        return memory_efficient_attention(*turned, attn_bias=LowerTriangularMask()).transpose(1, 2)

    exact = gradients(reference, [part.float() for part in inputs])
    errors = {name: error(gradients(how, inputs), exact) for name, how in (("flash", flash), ("xformers", xformers))}
    result = TrialResult(outcome=Outcome.OK, window=(begun, time.monotonic()))
    result.measured["figures"] = {
        "flash_error": errors["flash"], "xformers_error": errors["xformers"],
        "flash_error_over_xformers": errors["flash"] / errors["xformers"],
    }  # fmt: skip
    return result


def gradients(attention: Callable[..., Any], inputs: list[Any]) -> list[Any]:
    """Gradients of queries, keys and values, in fp32, when the last of `inputs` is the gradient from above."""
    leaves = [part.clone().requires_grad_() for part in inputs[:3]]
    attention(*leaves).backward(inputs[3])
    return [leaf.grad.float() for leaf in leaves]


def error(mine: list[Any], exact: list[Any]) -> float:
    """Relative L2 over all of them together."""
    difference = sum(float((a - b).norm()) ** 2 for a, b in zip(mine, exact, strict=True))
    return float((difference / sum(float(b.norm()) ** 2 for b in exact)) ** 0.5)
