"""What only a training step of the user's own can put into effect. No torch here: it is asked before a launch."""

from __future__ import annotations

from collections.abc import Mapping

#: How batches are drawn.
DATA_AXES = frozenset({
    "stream", "workers", "prefetch", "pin_memory", "persistent", "start", "cost_per_sample_ms", "batching", "copy",
})  # fmt: skip
_DATA = "the batches are the step's own"
_RANKS = "only build can share its data out between devices"
#: Axis → why only `build` can put it into effect.
OUT_OF_REACH: Mapping[str, str] = {
    **dict.fromkeys(DATA_AXES, _DATA),
    **dict.fromkeys(("parallel", "devices", "micro_batches", "zero", "overlap_comm", "deepspeed_config"), _RANKS),
    "autocast_outside": "it belongs to DeepSpeed's engine",
    "distillation": "a teacher must be built beside the model",
}
#: Axis → the one that it only says more about: who puts that into effect puts this into effect too.
PART_OF: Mapping[str, str] = {"input_gradients": "checkpointing", "lora_targets": "lora"}


def cannot_be_applied(axis: str, setting: object, source: str, reason: str) -> str:
    """The sentence that says so, and how the user can do it."""
    return (
        f"{axis}={setting} cannot be applied to {source} from outside: {reason}; read settings[{axis!r}] in build, add "
        f"{axis!r} to honours of the TrainingStep that it returns, and prove it in evidence()"
    )
