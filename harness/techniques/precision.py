"""Number formats: which one weights are kept in, and which one matrix products use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.environment import Environment
from harness.experiment.axes import Axis
from harness.experiment.cell import Cell
from harness.experiment.workloads import is_step
from harness.techniques.base import Evidence, Stage, Technique
from harness.techniques.layers import product_layer
from harness.techniques.zero import INSTALL

if TYPE_CHECKING:
    from harness.trial.training import TrainingRun

#: Relative error of a 1024-wide product against fp64: TF32 keeps 10 bits of mantissa (near 3e-4), fp32 24 (3e-7).
BETWEEN_FP32_AND_TF32 = 1e-5
#: What products put out, and what the model's own weights are kept in. Those that DeepSpeed's engine steps in fp32 are
#: copies beside the model; FSDP's are fp32 under autocast, and gathered in 16 bits.
_DTYPES = {
    "fp32": ("float32", "float32"),
    "tf32": ("float32", "float32"),
    "amp-bf16": ("bfloat16", "float32"),
    "amp-fp16": ("float16", "float32"),
    "bf16": ("bfloat16", "bfloat16"),
    "ds-bf16": ("bfloat16", "bfloat16"),
}


class Precision(Technique):
    """Mixed precision by autocast, pure bf16, or fp32 with and without TF32."""

    axes = (
        Axis(
            name="precision",
            default="fp32",
            settings={
                "fp32": "weights and products in fp32, TF32 off",
                "tf32": "weights in fp32, products on the tensor cores in TF32",
                "amp-bf16": "weights in fp32, products in bf16 under autocast",
                "amp-fp16": "weights in fp32, products in fp16 under autocast, loss scaled by a GradScaler",
                "bf16": "weights, gradients, optimizer state and products in bf16",
                "ds-bf16": "DeepSpeed's bf16 engine: bf16 model, fp32 master weights",
            },
            meaning="number format of weights and of matrix products",
            documents=("D1", "D2", "D3"),
        ),
    )
    stage = Stage.PROCESS
    packages = ("deepspeed",)
    requirement = "tf32: a GPU of compute capability 8.0 or later; amp-fp16: a GPU; ds-bf16: deepspeed"
    proof = "data type of an inner activation and of the weights; for fp32 and tf32 the rounding error of a product"
    revised = "the precision of a step of one's own was seen where it multiplies"

    def active(self, cell: Cell) -> bool:
        # a configuration that is run as it was printed sets its own precision, and has evidence of its own
        return cell.settings.get("deepspeed_config", "ours") == "ours"

    def uses(self, cell: Cell) -> tuple[str, ...]:
        return self.packages if cell["precision"] == "ds-bf16" else ()

    def revision(self, cell: Cell) -> int:
        return 2 if is_step(cell.workload.model) and cell["precision"] != "fp32" else 1

    def requires(self, environment: Environment, cell: Cell) -> str | None:
        setting = cell["precision"]
        if setting == "tf32":
            if not environment.has_gpu:
                return "precision=tf32 needs a GPU with tensor cores (compute capability 8.0 or later)"
            capability = environment.devices[0].compute_capability
            if capability is not None and capability < (8, 0):
                has = f"{capability[0]}.{capability[1]}"
                return f"precision=tf32 needs compute capability 8.0 or later; this GPU has {has}"
        if setting == "amp-fp16" and not environment.has_gpu:
            return (
                "precision=amp-fp16 needs a GPU: GradScaler and fp16 products are made for one; use amp-bf16 on a CPU"
            )
        if setting == "ds-bf16" and not environment.has("deepspeed"):
            return f"precision=ds-bf16 needs deepspeed; {INSTALL}"
        return None

    def apply(self, cell: Cell, run: TrainingRun) -> None:
        import torch

        setting = cell["precision"]
        torch.set_float32_matmul_precision("high" if setting == "tf32" else "highest")
        torch.backends.cudnn.allow_tf32 = setting == "tf32"
        if setting in ("bf16", "ds-bf16"):
            run.parameter_dtype = torch.bfloat16
        if setting in ("amp-bf16", "amp-fp16"):
            dtype = torch.bfloat16 if setting == "amp-bf16" else torch.float16
            run.forward_contexts.append(lambda: torch.autocast(run.device.type, dtype=dtype))
        if setting == "amp-fp16":
            run.scaler = torch.amp.GradScaler(run.device.type)

    def evidence(self, cell: Cell, run: TrainingRun) -> Evidence | None:
        import torch

        setting = str(cell["precision"])
        wanted_inside, wanted_weights = (getattr(torch, name) for name in _DTYPES[setting])
        inner, weights = inner_dtypes(run)
        facts: dict[str, Any] = {
            "inner_activation": str(inner), "weights": str(weights),
            "matmul_precision": torch.get_float32_matmul_precision(),
        }  # fmt: skip
        if run.scaler is not None:
            facts["loss_scale"] = run.scaler.get_scale()
        short = _short(inner)
        fault = None
        if inner is None:
            short, fault = "nothing", "no matrix product was seen"
        elif inner != wanted_inside:
            fault = f"an inner activation is {short}, not {_short(wanted_inside)}"
        elif weights != wanted_weights:
            fault = f"weights are {_short(weights)}, not {_short(wanted_weights)}"
        if fault is not None:
            reason = f"precision={setting} was set, but {fault}"
            return Evidence(holds=False, word=f"{short} inside", facts=facts, reason=reason)
        if setting in ("fp32", "tf32") and run.device.type == "cuda":
            return self._rounding(setting, run, facts)
        return Evidence(holds=True, word=f"{short} inside", facts=facts)

    @staticmethod
    def _rounding(setting: str, run: TrainingRun, facts: dict[str, Any]) -> Evidence:
        error = product_error(run.device)
        facts["product_error"] = error
        is_tf32 = error > BETWEEN_FP32_AND_TF32
        seen = "TF32" if is_tf32 else "fp32"
        reason = f"precision={setting} was set, but a product's relative error is {error:.1e}, that of {seen}"
        return Evidence(holds=is_tf32 == (setting == "tf32"), word=f"{seen} rounding", facts=facts, reason=reason)


def _short(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def inner_dtypes(run: TrainingRun) -> tuple[Any, Any]:
    """Data type that an inner matrix product puts out in a forward of the run, and that of its weights."""
    import torch

    from harness.trial.model import blocks_of, head_of

    if run.own is not None:
        return run.own.inner_dtypes(run)
    # where all products of the blocks are 4-bit, the head is left
    head = head_of(run.plain_model)
    layer = product_layer([blocks_of(run.plain_model)[0], *([head] if head is not None else [])])
    weights = layer.weight.dtype  # of the shard: a forward may leave its gathered copy in the place
    seen: list[Any] = []
    hook = layer.register_forward_hook(lambda _module, _inputs, output: seen.append(output.dtype))
    try:
        ids = torch.zeros((1, 8), dtype=torch.long, device=run.device)
        with torch.no_grad():
            run.forward_plain({"input_ids": ids, "labels": ids})
    finally:
        hook.remove()
    return (seen[0] if seen else None), weights


def product_error(device: Any) -> float:
    """Relative error of an fp32 product of random 1024 x 1024 matrices against fp64."""
    import torch

    generator = torch.Generator(device=device).manual_seed(1)
    a, b = (torch.randn(1024, 1024, device=device, generator=generator) for _ in range(2))
    exact = a.double() @ b.double()
    return float(((a @ b).double() - exact).norm() / exact.norm())
