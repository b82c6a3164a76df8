"""Names that people use for a setting, for sentences that do not name one: `torch.compile`, `FlashAttention`, `DDP`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from harness.experiment.axes import Axis, AxisTable, show_setting

#: Everyday name → axis and setting, with a baseline where that is the default. A space stands for spaces, dashes or
#: nothing.
EVERYDAY = {
    "torch compile": "compile=default",
    "torch.compile": "compile=default",
    "cuda graphs": "compile=reduce-overhead",
    "flash attention 2": "attention=flash2",
    "flash attention": "attention=flash2",
    "flash attn": "attention=flash2",
    "flash": "attention=flash2",
    "scaled dot product attention": "attention=sdpa vs eager",
    "sdpa": "attention=sdpa vs eager",
    "mixed precision": "precision=amp-bf16",
    "autocast": "precision=amp-bf16",
    "amp": "precision=amp-bf16",
    "bfloat16": "precision=bf16",
    "float16": "precision=amp-fp16",
    "fp16": "precision=amp-fp16",
    "half precision": "precision=amp-fp16",
    "gradient checkpointing": "checkpointing=full",
    "activation checkpointing": "checkpointing=full",
    "data parallel": "parallel=ddp",
    "distributed data parallel": "parallel=ddp",
    "fully sharded data parallel": "parallel=fsdp",
    "pipeline parallelism": "parallel=pipeline",
    "zero offload": "zero=offload",
    "zero 1": "zero=1",
    "zero 2": "zero=2",
    "zero 3": "zero=3",
    "zero": "zero=2",
    "deepspeed": "zero=2",
    "qlora": "quantization=nf4 lora=8",
    "4 bit": "quantization=nf4",
    "peft": "lora=8",
    "lora": "lora=8",
    "fused adamw": "optimizer=fused",
    "fused adam": "optimizer=fused",
    "fused optimizer": "optimizer=fused",
    "data loader workers": "workers=4",
    "workers": "workers=4",
    "pinned memory": "pin_memory=true",
    "pin memory": "pin_memory=true",
    "gradient accumulation": "accumulation=4",
    "gradient clipping": "clip=1.0",
    "sequence packing": "batching=packed",
    "packing": "batching=packed",
}


def with_setting(text: str, axes: AxisTable) -> str | None:
    """The text with the first name in it replaced by the setting that it stands for; None where it names none.

    Everyday names come first, then the names of axes and of their settings; the longest of those that begin alike.
    """
    names = {**dict(_of_the_axes(axes.values())), **EVERYDAY}
    longest_first = sorted(names, key=len, reverse=True)
    pattern = "|".join(_pattern(name) for name in longest_first)
    found = re.search(rf"(?<![\w=.-])(?:{pattern}){_NO_FIGURE}", text, re.IGNORECASE)
    if found is None:
        return None
    name = next(each for each in longest_first if re.fullmatch(_pattern(each), found[0], re.IGNORECASE))
    return f"{names[name]} {text[: found.start()]} {text[found.end() :]}"


def _of_the_axes(axes: Iterable[Axis]) -> Iterable[tuple[str, str]]:
    """What the registry has: each axis by its own name, with its first setting that is not the default; then settings
    that are words of their own (`fsdp`, not `off` or `full`), which stand for nothing else."""
    for axis in axes:
        others = [show_setting(each) for each in axis.settings if each != axis.default]
        if others:
            yield axis.name.replace("_", " "), f"{axis.name}={others[0]}"
        yield from ((each, f"{axis.name}={each}") for each in others if each in _TELLING)


#: The name ends here, and its last digit is not the first of a figure: `FlashAttention 2-4x`, `ZeRO 2 to 4x`.
_NO_FIGURE = r"(?![\w=%]|[.-]\w|\s*(?:-|to\b|x\b))"
#: Settings by which their axis is known.
_TELLING = frozenset({
    "tf32", "bf16", "amp-bf16", "amp-fp16", "eager", "flash2", "sdpa-flash", "sdpa-cudnn", "ddp", "fsdp", "dp", "nf4",
    "fused", "reduce-overhead", "max-autotune", "packed", "token-budget", "mmap",
})  # fmt: skip


def _pattern(name: str) -> str:
    return r"[\s_-]*".join(map(re.escape, name.split(" ")))
